"""Arguments of the functions of `glle`: visible keywords, methods given by position, and distances given as data."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import require_known_names
from glle_engine.methods import method as method_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

P = ParamSpec("P")
R = TypeVar("R")

_TRIPLES = 4000  # triples of points for which the triangle inequality is checked
_MOSTLY = 0.95  # a matrix is one of distances if this share of the triples satisfies it


def with_keywords(*sources: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Show the keywords that a function takes by `**name` in its signature, for `help` and completion.

    The sources have the keywords: a specification by its fields, a TypedDict by its names, a function by its
    keyword-only parameters.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        shown = signature(function)
        explicit = [each for each in shown.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        keywords = {each.name: each for source in sources for each in _keywords_of(source)}
        added = [each for name, each in keywords.items() if name not in shown.parameters]
        is_open = any(source is Any for source in sources)  # the function also takes any parameter of a method
        rest = [each for each in shown.parameters.values() if each.kind is Parameter.VAR_KEYWORD and is_open]
        function.__signature__ = shown.replace(parameters=[*explicit, *added, *rest])  # type: ignore[attr-defined]
        return function

    return decorate


def _keywords_of(source: Any) -> Iterator[Parameter]:
    """Yield the keywords of a source of `with_keywords`."""
    if source is Any:
        return
    if is_dataclass(source):
        for each in fields(source):
            yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
    elif isinstance(source, type):
        for name, hint in source.__annotations__.items():
            text = getattr(hint, "__forward_arg__", str(hint)).removeprefix("NotRequired[").removesuffix("]")
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=text)
    else:
        yield from (each for each in signature(source).parameters.values() if each.kind is Parameter.KEYWORD_ONLY)


def method_parameters(name: str, options: Mapping[str, Any], others: Any) -> dict[str, Any]:
    """Return options as the parameters of a method by name; `others` are names that the caller takes beside these.

    Raises
    ------
    InvalidParameterError
        For an unknown name; the message has the most similar known one, or says that the method is not random.

    """
    chosen = method_of(name)
    parameters = chosen.named_parameters(options)
    require_known_names(parameters, [*chosen.spec.parameters(), *others])
    return parameters


def is_maker(value: Any) -> bool:
    """Return whether a value makes coordinates: a method's name, a function, or an estimator that is not fitted."""
    if isinstance(value, str):
        return True
    has_coordinates = any(hasattr(value, name) for name in ("embedding_", "posterior_", "embedding", "__array__"))
    return not has_coordinates and (callable(value) or hasattr(value, "fit_transform"))


def looks_like_distances(X: Any) -> bool:
    """Return whether an array is a matrix of the distances between points.

    Such a matrix is square and symmetric, is 0 on the diagonal and positive elsewhere, and nearly all triples of points
    satisfy the triangle inequality.
    """
    shape = np.shape(X) if isinstance(X, np.ndarray) else ()
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 4 or X.dtype.kind not in "fiu":
        return False
    if X.diagonal().any() or not np.isfinite(X).all() or (X < 0).any() or np.count_nonzero(X) < 0.5 * X.size:
        return False
    if not np.allclose(X, X.T, rtol=1e-6):
        return False
    i, j, k = np.random.default_rng(0).integers(0, len(X), (3, _TRIPLES))
    return bool(np.mean(X[i, j] <= 1.000001 * (X[i, k] + X[k, j])) >= _MOSTLY)


def require_features(X: Any, metric: Any, remedy: str, name: str = "metric") -> None:
    """Raise `InvalidParameterError` if X is a matrix of distances, unless a metric says what it is."""
    if metric is None and looks_like_distances(X):
        raise InvalidParameterError(
            f"X looks like the distances between {len(X)} points: it is square and symmetric, and 0 on the diagonal.",
            remedy=f"{remedy} If its columns are features, give {name}='euclidean'.",
        )
