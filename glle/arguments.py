"""Checks of the arguments of `glle.fit`, `glle.embed` and `glle.audit`: methods, parameters, and distance matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import require_known_names
from glle_engine.methods import method as method_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_CHECKED_TRIPLES = 4000  # the triangle inequality is checked for at most this many random triples of points
# A matrix counts as distances if at least this share of the triples satisfies the triangle inequality. Measured
# distances may violate it in some triples.
_MIN_SHARE_OF_METRIC_TRIPLES = 0.95


def method_parameters(name: str, options: Mapping[str, Any], others: Any) -> dict[str, Any]:
    """Check the keyword arguments for the method `name`, and return them with `random_state` renamed to `seed`.

    `options` may also have the names in `others`, which are not parameters of the method.

    Raises
    ------
    InvalidParameterError
        For an unknown name, with the most similar known name in the message; or for a seed, if the method is not
        random.

    """
    chosen = method_of(name)
    parameters = chosen.named_parameters(options)
    require_known_names(parameters, [*chosen.spec.parameters(), *others])
    return parameters


def is_maker(value: Any) -> bool:
    """Return whether `value` can make coordinates: the name of a method, a function, or an estimator before its fit."""
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
    i, j, k = np.random.default_rng(0).integers(0, len(X), (3, _MAX_CHECKED_TRIPLES))
    return bool(np.mean(X[i, j] <= 1.000001 * (X[i, k] + X[k, j])) >= _MIN_SHARE_OF_METRIC_TRIPLES)


def require_features(X: Any, metric: Any, remedy: str, name: str = "metric") -> None:
    """Raise `InvalidParameterError` if X looks like a matrix of distances and the user has not said what it is.

    The user has said it by `metric`, unless this is None: "precomputed" means distances, any other metric features.
    `remedy` is the first sentence of the error's remedy, and `name` is the name of the parameter for the metric.
    """
    if metric is None and looks_like_distances(X):
        raise InvalidParameterError(
            f"X looks like the distances between {len(X)} points: it is square and symmetric, and 0 on the diagonal.",
            remedy=f"{remedy} If its columns are features, give {name}='euclidean'.",
        )
