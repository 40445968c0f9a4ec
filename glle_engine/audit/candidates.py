"""Candidates of a comparison: maps by a method with its parameters, by a function, or as coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glle_engine.base.errors import GlleError, InvalidParameterError
from glle_engine.base.results import brief
from glle_engine.methods.registry import METHODS, canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pca", {}),
    ("t-sne", {"perplexity": 30}),
    ("t-sne", {"perplexity": 10}),
    ("t-sne", {"perplexity": 60}),
    ("umap", {"n_neighbors": 15}),
    ("umap", {"n_neighbors": 5}),
    ("umap", {"n_neighbors": 50}),
    ("isomap", {}),
    ("glle", {}),
    ("pacmap", {}),
)
"""The methods whose maps are compared by default, as far as they are installed, with their parameters."""

TITLES = {"pca": "PCA", "t-sne": "t-SNE", "umap": "UMAP", "pacmap": "PaCMAP", "glle": "GLLE", "lle": "LLE"}
"""Names of methods in sentences, for methods whose title in the registry is longer."""

_IN_WORDS = {"perplexity": "with perplexity {}", "n_neighbors": "with {} neighbors"}
# A method is left out if the data have fewer points than this for each of its neighbors, or for each unit of its
# perplexity. A half of the data then has at least three.
_POINTS_PER_NEIGHBOR = 6


@dataclass(frozen=True, eq=False)
class Candidate:
    """One map of a comparison: how to make it, or its coordinates.

    Attributes
    ----------
    label : str
        Name of the map's row in the comparison.
    title : str
        Name of the map in sentences.
    method : str, callable, estimator or None
        Name of a method, a function, or an estimator with `fit_transform`; None for coordinates alone.
    parameters : dict
        Parameters of a method by name.
    Y : optional
        Coordinates (n, p), a posterior or an embedding.

    """

    label: str
    title: str
    method: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)
    Y: Any = None

    __repr__ = brief

    @property
    def name(self) -> str | None:
        """Name of the method in the registry; None for functions and coordinates."""
        return canonical(self.method) if isinstance(self.method, str) else None


def default_candidates(n: int, d: int) -> list[Candidate]:
    """Return the `DEFAULTS` whose method is installed and can embed n points of d features and halves of them."""
    methods = []
    for name, parameters in DEFAULTS:
        size = max([0, *parameters.values()])
        try:
            chosen = METHODS[name]
            chosen.require_available()
            chosen.require_possible(n, d, chosen.spec(**parameters))
        except GlleError:
            continue
        if _POINTS_PER_NEIGHBOR * size <= n:
            methods.append((name, parameters))
    return candidates_of(methods)


def candidates_of(methods: Any) -> list[Candidate]:
    """Convert one or several methods, as a caller may write them, to the candidates of a comparison.

    Each method is a name, a pair (name, parameters), a dictionary with `method`, `parameters` and `label`, a function,
    an estimator, or coordinates. Instead of a list, `methods` may be a dictionary from labels to methods.

    Raises
    ------
    InvalidParameterError
        For a value that is no method.
    ValueError
        If two candidates have the same label.

    """
    if isinstance(methods, Mapping) and not isinstance(methods.get("method"), str):
        named: Sequence[tuple[str | None, Any]] = [(str(label), item) for label, item in methods.items()]
    else:
        is_one = isinstance(methods, (str, Mapping)) or not isinstance(methods, Iterable)
        named = [(None, item) for item in ([methods] if is_one or _is_pair(methods) else methods)]
    candidates = [_candidate(label, item) for label, item in named]
    counts: Counter[str | None] = Counter(each.name for each in candidates)
    labels = [label or (item.get("label") if isinstance(item, Mapping) else None) for label, item in named]
    taken = {given_label for given_label in labels if given_label}
    if len(taken) < sum(bool(given_label) for given_label in labels):
        given_labels = [given_label for given_label in labels if given_label]
        repeated = sorted(given_label for given_label, count in Counter(given_labels).items() if count > 1)
        raise ValueError(f"Several methods have the label {repeated[0]!r:.60}. Give each method its own `label`.")
    result = []
    for given_label, each in zip(labels, candidates, strict=True):
        name, number = given_label or _label(each, is_several=counts[each.name] > 1), 1
        while not given_label and name in taken:
            number += 1
            name = f"{each.label}-{number}"
        taken.add(name)
        result.append(Candidate(name, given_label or each.title, each.method, each.parameters, each.Y))
    return result


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], Mapping)


def _candidate(label: str | None, item: Any) -> Candidate:
    """Return the candidate for one item of `candidates_of`, with the name of its method or function as label.

    Coordinates get `label` as label; without it, they raise `InvalidParameterError`.
    """
    if isinstance(item, str):
        return _of_method(item, {})
    if _is_pair(item):
        return _of_method(item[0], dict(item[1]))
    if isinstance(item, Mapping):
        name, parameters = item.get("method"), item.get("parameters", {})
        if not (isinstance(name, str) and isinstance(parameters, Mapping)):
            raise _no_method(item)
        return _of_method(name, dict(parameters))
    if callable(item) or hasattr(item, "fit_transform"):
        name = getattr(item, "__name__", type(item).__name__).strip("<>")
        return Candidate(name, name, item)
    if label is None:
        raise _no_method(item)
    return Candidate(label, label, Y=item)


def _of_method(name: str, parameters: dict[str, Any]) -> Candidate:
    known = canonical(name)
    title = TITLES.get(known) or (METHODS[known].title if known in METHODS else name)
    words = [_IN_WORDS[key].format(value) for key, value in parameters.items() if key in _IN_WORDS]
    others = [f"{key} {value}" for key, value in parameters.items() if key not in _IN_WORDS]
    with_ = [f"with {', '.join(others)}"] if others else []
    return Candidate(known, " ".join([title, *words, *with_]), name, parameters)


def _label(candidate: Candidate, *, is_several: bool) -> str:
    """Return a candidate's label, with its number of neighbors or perplexity if several candidates have its method."""
    size = next((value for key, value in candidate.parameters.items() if key in _IN_WORDS), None)
    return f"{candidate.label}-{size}" if is_several and size is not None else candidate.label


def _no_method(item: Any) -> InvalidParameterError:
    return InvalidParameterError(
        f"{item!r:.60} is not a method.",
        remedy='Give a name such as "umap", a pair such as ("umap", {"n_neighbors": 50}), or a function; give '
        "coordinates with a label, as in {label: coordinates}.",
    )
