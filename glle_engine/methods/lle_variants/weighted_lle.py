r"""Weighted LLE: neighbors by distances relative to the density about both ends.

.. math:: \delta_{ij} = \frac{|x_i - x_j|}{\left(M(i)\, M(j)\right)^{s / 2}}

with M(i) the mean distance of :math:`x_i` to its k nearest. At s = 1 it is the length of an edge of conformal Isomap
(de Silva and Tenenbaum 2003). This distance chooses the neighbors; the weights are LLE's. At s = 0 the result is LLE.

The weighted LLE of Pan, Ge and Al Mamun 2009 (survey arXiv 2011.10925, "weighted LLE for deformed distributed data")
has the same purpose but chooses neighbors by the cam weighted distance of Zhou and Chen 2006. That distance also
depends on the direction of :math:`x_j - x_i`, and is not symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.lle_variants.rewired import nearest_by, require_whole
from glle_engine.methods.parameters import number
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class WeightedLleSpec(LleSpec):
    """Parameters of weighted LLE."""

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
    scale = kneighbors(X, k, on_progress)[1].mean(axis=1)
    positive = scale[scale > 0]
    # A point among k copies of itself takes the least scale of the others, so that its distances stay finite.
    factor = np.maximum(scale, positive.min() if len(positive) else 1.0) ** (-strength / 2)

    def adjust(_: slice, distances: NDArray[np.float64]) -> None:
        distances *= factor  # the factor of the row's own point changes no order

    return nearest_by(X, k, adjust, "weighted neighbors", on_progress), scale


@Method(
    spec=WeightedLleSpec,
    title="Weighted LLE",
    about="LLE whose neighbors are nearest by |x_i - x_j| / sqrt(M(i) M(j)), M the mean distance to the k nearest.",
    source="edge lengths of conformal Isomap: de Silva and Tenenbaum 2003, NIPS 15",
    growth="n^2 d",
)
def weighted_lle(X: NDArray[np.float64], spec: WeightedLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the neighbors of least relative distance."""
    nearest, scale = relative_neighbors(X, spec.n_neighbors, spec.strength, on_progress)
    require_whole(
        nearest, f"With n_neighbors={spec.n_neighbors}", "Raise n_neighbors, or lower strength; 0 is plain LLE."
    )
    embedding = lle_of(X, nearest, spec, on_progress)
    low, high = np.quantile(scale, [0.05, 0.95])
    figures = {**embedding.figures, "scale_05": float(low), "scale_95": float(high)}
    return Embedding(embedding.Y, embedding.eigenvalues, figures)
