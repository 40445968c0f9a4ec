r"""Weighted LLE: neighbours by distances that are relative to the density about both ends.

.. math:: \delta_{ij} = \frac{|x_i - x_j|}{\left(M(i)\, M(j)\right)^{s / 2}}

with M(i) the mean distance of :math:`x_i` to its k nearest. At s = 1 it is the length of an edge of conformal Isomap
(de Silva and Tenenbaum 2003). This distance chooses the neighbours; the weights are LLE's. At s = 0 the result is
LLE's.

It is not the weighted LLE of Pan, Ge and Al Mamun 2009 (survey arXiv 2011.10925, "weighted LLE for deformed distributed
data"), which has the same purpose but chooses neighbours by the cam weighted distance of Zhou and Chen 2006. That
distance depends on the direction of :math:`x_j - x_i`, too, and is not symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist

from glle_engine.base.progress import blocks
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.lle_variants.rewired import require_whole, smallest_of_rows
from glle_engine.methods.parameters import number
from glle_engine.methods.spectral import lle
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_BLOCK_ENTRIES = 1 << 21


@dataclass(frozen=True, kw_only=True)
class WeightedLleSpec(LleSpec):
    """The parameters of weighted LLE."""

    strength: float = number(
        1.0,
        "s, how far the density is evened out: 0 leaves distances as they are, 1 makes them relative.",
        least=0,
        most=1,
    )


def relative_neighbors(
    X: NDArray[np.float64], k: int, strength: float, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest by relative distance (n, k), nearest first, and the scale M(i) (n,) of each point."""
    n = len(X)
    scale = kneighbors(X, k, on_progress)[1].mean(axis=1)
    positive = scale[scale > 0]
    # A point among k copies of itself has the least scale of the others: its distance to them stays finite.
    factor = np.maximum(scale, positive.min() if len(positive) else 1.0) ** (-strength / 2)
    nearest = np.empty((n, k), np.int32)
    for rows in blocks(n, max(1, _BLOCK_ENTRIES // n), "weighted neighbors", on_progress):
        distances = cdist(X[rows], X)
        distances *= factor  # the factor of the row's own point changes no order
        distances[np.arange(len(distances)), np.arange(n)[rows]] = np.inf
        nearest[rows] = smallest_of_rows(distances, k)
    return nearest, scale


def run(
    X: NDArray[np.float64], spec: WeightedLleSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the neighbours of least relative distance."""
    nearest, scale = relative_neighbors(X, spec.n_neighbors, spec.strength, on_progress)
    require_whole(
        nearest, f"With n_neighbors={spec.n_neighbors}", "Raise n_neighbors, or lower strength; 0 is plain LLE."
    )
    found = lle_of(X, nearest, spec, on_progress)
    low, high = np.quantile(scale, [0.05, 0.95])
    figures = {**found.figures, "scale_05": float(low), "scale_95": float(high)}
    return Embedding(found.Y, found.eigenvalues, figures)


def cost(n: int, d: int, spec: WeightedLleSpec) -> Cost:
    """Return the cost of LLE and of all distances."""
    whole = lle.cost(n, d, spec)
    return Cost(
        seconds=whole.seconds + (1.2e-8 + 8e-10 * d) * n * n, bytes=whole.bytes + 3 * 8.0 * max(_BLOCK_ENTRIES, n)
    )


METHOD = Method(
    name="weighted-lle",
    title="Weighted LLE",
    family="extension of LLE",
    about="LLE whose neighbours are nearest by |x_i - x_j| / sqrt(M(i) M(j)), M the mean distance to the k nearest.",
    source="edge lengths of conformal Isomap: de Silva and Tenenbaum 2003, NIPS 15",
    spec=WeightedLleSpec,
    run=run,
    refuse=lle.refuse,
    cost=cost,
    growth="n^2 d",
)
