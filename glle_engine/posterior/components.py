"""A posterior for each component of a graph that is not whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import TooFewPointsError
from glle_engine.base.spec import FitSpec
from glle_engine.base.validation import finite_matrix, in_unit
from glle_engine.graph.connectivity import components
from glle_engine.graph.search import neighbors_by
from glle_engine.posterior.fit import fit_spec

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Component:
    """One component of the kNN graph with a posterior of its own.

    Attributes
    ----------
    points : (m,) int
        Its points, as rows of the data; row i of the posterior's embedding is point points[i].
    posterior : Posterior

    """

    points: NDArray[np.intp]
    posterior: Posterior


def fit_components(X: ArrayLike, **spec: Any) -> list[Component]:
    """Fit a posterior to each component of the kNN graph of X, the largest first.

    Every point is in exactly one of them. Embeddings of different components share no coordinates.

    Parameters
    ----------
    X : (n, d)
    **spec
        As for `glle_engine.posterior.fit`.

    Raises
    ------
    TooFewPointsError
        When a component is too small for k neighbours and p dimensions.

    """
    chosen = FitSpec(**spec)
    given = finite_matrix(X)
    label = components(neighbors_by(chosen.search, in_unit(given, chosen), chosen.n_neighbors)[0])
    members = sorted((np.flatnonzero(label == c) for c in range(label.max() + 1)), key=len, reverse=True)
    smallest = len(members[-1])
    if smallest <= max(chosen.n_neighbors, chosen.n_components + 1):
        raise TooFewPointsError(
            f"The smallest of {len(members)} components has {smallest} points, too few to be fitted by itself.",
            remedy="Lower n_neighbors or n_components, or bridge the components with disconnected='bridge'.",
            details={"sizes": [len(points) for points in members]},
        )
    return [Component(points, fit_spec(given[points], chosen)) for points in members]
