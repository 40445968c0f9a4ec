r"""LLE with an automatic number of neighbors: the best embedding of a range of k.

The best is the highest (trustworthiness + continuity) / 2 - instability / 10 (`glle_engine.posterior.selection`). Only
graphs of one component with one closed class are candidates. The smallest k that connects is a separate figure.

The residual variance of Euclidean distances (Kouropteva, Okun and Pietikainen 2002), which prefers embeddings that do
not unroll a sheet, and the Procrustes disparity of neighborhoods (Goldberg and Ritov 2009) chose worse: trust .80 and
.83 on digits, and .77 on a roll, for .91 and .98.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.connectivity import closed_classes, connected_neighbors, first_connecting
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.parameters import DistanceSpec, integer, number
from glle_engine.methods.spectral.lle import LleSpec, lle_of
from glle_engine.posterior.selection import advise, goodness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_TRIED = 10


@dataclass(frozen=True, kw_only=True)
class AutoKLleSpec(DistanceSpec):
    """Parameters of LLE with automatic k."""

    k_least: int = integer(5, "The smallest number of neighbors that is tried.", least=2)
    k_most: int = integer(30, "The largest number of neighbors that is tried.", least=2)
    reg: float = number(1e-3, "Ridge of the weights, relative to the trace of the local Gram matrix.", above=0)

    def check_together(self) -> None:
        """Refuse an empty range."""
        if self.k_least > self.k_most:
            raise InvalidParameterError(
                f"k_least={self.k_least} is above k_most={self.k_most}.", remedy="Give k_least of at most k_most."
            )

    def candidates(self) -> list[int]:
        """Return the k to try, all of a short range and ten of a long one."""
        count = self.k_most - self.k_least + 1
        ks = np.geomspace(self.k_least, self.k_most, min(_TRIED, count)) if count > _TRIED else None
        return sorted({int(k) for k in np.round(ks)}) if ks is not None else list(range(self.k_least, self.k_most + 1))

    def at(self, k: int) -> LleSpec:
        """Return the specification of LLE with k neighbors."""
        return LleSpec(n_components=self.n_components, n_neighbors=k, reg=self.reg)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points for the largest k."""
        if self.k_most >= n and self.n_components <= n - 2:
            raise InvalidParameterError(
                f"k_most={self.k_most} needs more than {n} points.", remedy=f"Give k_most of at most {n - 1}."
            )
        require_enough_points(n, self.at(max(2, min(self.k_most, n - 1))))

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost."""
        each = [estimate(row, n, d, k=k, p=self.n_components) for k in self.candidates()]
        return Cost(sum(cost.seconds for cost in each), max(cost.bytes for cost in each))


@Method(
    spec=AutoKLleSpec,
    title="LLE with automatic k",
    about="LLE with the k whose embedding is judged best of a range, by ranks and stability.",
    source="survey arXiv 2011.10925, on the number of neighbors",
    growth="as LLE, for each of at most ten k",
    reproducible=True,
)
def auto_k_lle(X: NDArray[np.float64], spec: AutoKLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the k of least cost."""
    nearest, _ = connected_neighbors(X, spec.k_most, on_progress)
    connecting = first_connecting(nearest, 1)
    ks = [k for k in spec.candidates() if k >= connecting and len(closed_classes(nearest[:, :k])) == 1]
    if not ks:
        raise DisconnectedGraphError(
            f"No graph of {spec.k_least} to {spec.k_most} neighbors is one component with one closed class.",
            remedy="Raise k_most.",
            details={"smallest_connecting_k": connecting},
        )
    advice = advise(X, n_neighbors=ks, n_components=spec.n_components, reg=spec.reg, on_progress=on_progress)
    curve = [{"n_neighbors": row.n_neighbors, "cost": 1 - goodness(row)} for row in advice.neighbors_curve]
    best = int(min(curve, key=lambda row: row["cost"])["n_neighbors"])
    embedding = lle_of(X, nearest[:, :best], spec.at(best), on_progress)
    figures = {
        **embedding.figures,
        "n_neighbors": best,
        "smallest_connecting_k": connecting,
        "curve": curve,
        "left_out": [k for k in spec.candidates() if k not in ks],
    }
    return Embedding(embedding.Y, embedding.eigenvalues, figures)
