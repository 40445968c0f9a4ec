"""The engine under the names of the client: fit, embed and compare in this process, without a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle.plotting import coordinates, plot
from glle.table import table_text
from glle_engine import GlleError
from glle_engine import manifolds as datasets
from glle_engine.audit import audit as engine_audit
from glle_engine.audit.result import Audit
from glle_engine.base.progress import silent
from glle_engine.methods import method as method_of
from glle_engine.metrics.registry import SCORES, score
from glle_engine.posterior import fit as engine_fit
from glle_engine.posterior import posterior as engine_posterior
from glle_engine.posterior.selection import advise
from glle_engine.reliability.calibration import Calibration, calibrate
from glle_engine.reliability.ensemble import Ensemble, ensemble

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Unpack

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.base.spec import FitParameters, FitSpec
    from glle_engine.graph.given import GivenNeighbors
    from glle_engine.methods import Embedding

__all__ = ["advise", "audit", "compare", "datasets", "embed", "fit", "load"]


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedPosterior(engine_posterior.Posterior):
    """Posterior of `glle.fit`, with the analyses that embed parts of its data again."""

    __repr__ = engine_posterior.Posterior.__repr__

    @classmethod
    def of(cls, posterior: engine_posterior.Posterior) -> Self:
        """Return a posterior of the engine with these analyses; arrays are shared."""
        return cls(**{each.name: getattr(posterior, each.name) for each in fields(posterior)})

    def calibrate(self, X: ArrayLike, **options: Any) -> Calibration:
        """Return the `scale` at which draws spread as half-samples of the data X (n, d) of the fit do.

        Options and errors as for `glle_engine.reliability.calibration.calibrate`.
        """
        return calibrate(self, X, **options)

    def ensemble(self, X: ArrayLike, **options: Any) -> Ensemble:
        """Return the spread of points over draws and resamples of the data X (n, d) of the fit, and its reliability.

        Options and errors as for `glle_engine.reliability.ensemble.ensemble`.
        """
        return ensemble(self, X, **options)


def fit(
    X: ArrayLike,
    spec: FitSpec | None = None,
    *,
    neighbors: GivenNeighbors | None = None,
    on_progress: OnProgress = silent,
    **parameters: Unpack[FitParameters],
) -> FittedPosterior:
    """Fit a posterior over LLE's reconstruction weights of data (n, d), in this process.

    Parameters and errors as for `glle_engine.fit`: `n_neighbors`, `n_components`, `method` and others.

    Examples
    --------
    >>> import glle
    >>> posterior = glle.fit(glle.datasets.make("swiss_roll", 1000).X)
    >>> posterior.draw(7).embedding.shape
    (1000, 2)

    """
    fitted = engine_fit.fit(X, spec, neighbors=neighbors, on_progress=on_progress, **parameters)
    return FittedPosterior.of(fitted)


def load(path: str | os.PathLike[str]) -> FittedPosterior:
    """Read a posterior that `Posterior.save` wrote, or that a service exported; errors as for `glle_engine.load`."""
    return FittedPosterior.of(engine_posterior.load(path))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MapAudit(Audit):
    """Audit of `glle.audit`, with its picture."""

    def plot(self, labels: ArrayLike | None = None, *, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the map with its verdict, and return the axes; parameters and errors as for `glle.plot`."""
        return plot(self, labels, ax=ax, **options)


@wraps(engine_audit.audit)
def audit(*args: Any, **options: Any) -> MapAudit:
    """Return the audit of the engine, with a picture."""
    found = engine_audit.audit(*args, **options)
    return MapAudit(**{each.name: getattr(found, each.name) for each in fields(found)})


def embed(
    X: ArrayLike,
    method: str,
    /,
    *,
    labels: ArrayLike | None = None,
    init: ArrayLike | str | None = None,
    on_progress: OnProgress | None = None,
    **parameters: Any,
) -> Embedding:
    """Return the embedding of data (n, d) by a method, in this process.

    Parameters
    ----------
    X
        Finite numbers (n, d).
    method
        Name of the method, such as "isomap" or "t-sne".
    labels
        Class of each point, integers or words, for a supervised method.
    init
        Name of a start, or initial coordinates (n, p), for the methods that have one.
    on_progress
        Called with (done, total, stage).
    parameters
        Parameters of the method, such as `n_neighbors`.

    Raises
    ------
    GlleError
        With the remedy: an unknown method or parameter, or data that the method refuses.

    """
    chosen = method_of(method)
    if isinstance(init, str):
        parameters["init"], init = init, None
    return chosen.embed(X, chosen.spec.from_dict(parameters), on_progress, labels=_classes(labels), init=init)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of several embeddings of the same data; its representation is a table.

    Attributes
    ----------
    embeddings : dict of str to (n, p) float64
        Coordinates by label.
    scores : dict of str to dict of str to float
        Scores by label and name.
    problems : dict of str to list of GlleError
        By label, why a method or one of its scores failed.

    """

    embeddings: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    problems: dict[str, list[GlleError]] = field(default_factory=dict)

    def __repr__(self) -> str:
        names = list(dict.fromkeys(name for row in self.scores.values() for name in row))
        rows = [
            [label, *(f"{row[name]:.4g}" if name in row else "" for name in names)]
            for label, row in self.scores.items()
        ]
        failures = [f"{label}: {error}" for label, errors in self.problems.items() for error in errors]
        return "\n".join([table_text([["", *names], *rows]), *failures])


def compare(
    X: ArrayLike,
    methods: Sequence[str | Mapping[str, Any]] | Mapping[str, Any],
    *,
    labels: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    scores: Sequence[str] | None = None,
    n_neighbors: int | None = None,
) -> Comparison:
    """Return the scores of several methods on the same data (n, d). A method that fails does not end the others.

    Parameters
    ----------
    X
        Finite numbers (n, d).
    methods
        Names, or dictionaries with `method`, `parameters` and `label`. Or a dictionary of these by label, in which
        coordinates (n, p), a posterior, a draw and an embedding are values, too.
    labels, truth
        Class (n,) and true coordinates (n, q) of the points, for the scores and methods that use them.
    scores
        Names of scores; None for the fast ones whose inputs are given.
    n_neighbors
        Of the scores; None for 10, or fewer for less than 21 points.

    Raises
    ------
    ValueError
        If two methods have one label.

    """
    points = np.shape(X)[0] if np.ndim(X) else 0
    given = {"nothing", *(name for name, value in (("labels", labels), ("truth", truth)) if value is not None)}
    if scores is None:
        scores = [name for name, item in SCORES.items() if item.needs in given and item.most_points is None]
    options: Any = {"n_neighbors": n_neighbors or max(1, min(10, (points - 1) // 2)), "labels": labels, "truth": truth}
    compared = Comparison()
    for label, item in _label_methods(methods).items():
        try:
            compared.embeddings[label] = Y = _coordinates(X, item, labels)
        except GlleError as error:
            compared.problems[label] = [error]
            continue
        compared.scores[label] = {}
        for name in scores:
            try:
                compared.scores[label] |= score(X, Y, [name], **options)
            except GlleError as error:
                compared.problems.setdefault(label, []).append(error)
    return compared


def _label_methods(methods: Sequence[str | Mapping[str, Any]] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the methods by label; raise ValueError if two have the same one."""
    if isinstance(methods, Mapping):
        return dict(methods)
    items = [{"method": item} if isinstance(item, str) else item for item in methods]
    by_label = {item.get("label", item["method"]): item for item in items}
    if len(by_label) < len(items):
        raise ValueError("Two of the methods have the same label: give each a `label`.")
    return by_label


def _coordinates(X: ArrayLike, item: Any, labels: ArrayLike | None) -> NDArray[np.float64]:
    """Return the coordinates (n, p) of a method's name, of its dictionary, or of an object that has some."""
    if not isinstance(item, (str, Mapping)):
        return coordinates(item)
    wanted: Any = {"method": item} if isinstance(item, str) else item
    classes = labels if method_of(wanted["method"]).labels else None
    return embed(X, wanted["method"], labels=classes, **wanted.get("parameters", {})).Y


def _classes(labels: ArrayLike | None) -> ArrayLike | None:
    """Return labels that are words as integers, in sorted order."""
    if labels is None or np.asarray(labels).dtype.kind in "iubf":
        return labels
    return np.unique(np.asarray(labels).astype(str), return_inverse=True)[1]
