r"""LLE with an automatic number of neighbors: the best embedding of a range of k.

Criteria (survey arXiv 2011.10925, "parameter selection of the number of neighbors"):

*advice*: the highest (trustworthiness + continuity) / 2 - instability / 10 (`glle_engine.posterior.selection`).

*residual-variance*: the least :math:`1 - \rho^2(D_X, D_Y)`, :math:`\rho` the correlation of the distances in the data
and in the embedding (Kouropteva, Okun and Pietikainen 2002). Distances in the data are Euclidean, not geodesic: of a
rolled sheet it prefers embeddings that do not unroll it.

*procrustes*: the least mean over points of :math:`1 - (\sum \sigma)^2`, the Procrustes disparity of a
neighborhood in the data and in the embedding, of the same points for every k (Goldberg and Ritov 2009, with scaling).

Only graphs of one component with one closed class are candidates. The smallest k that connects is a separate figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.connectivity import closed_classes, connected_neighbors
from glle_engine.linalg import dense
from glle_engine.linalg.distances import distances, unit_of
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.lle_variants.rewired import first_connecting
from glle_engine.methods.parameters import DistanceSpec, choice, integer, number
from glle_engine.methods.spectral.lle import LleSpec, lle_of
from glle_engine.metrics.residual_variance import unexplained_variance
from glle_engine.posterior.selection import advise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_TRIED = 10
_PROBES = 1000  # points whose distances or neighborhoods are compared


@dataclass(frozen=True, kw_only=True)
class AutoKLleSpec(DistanceSpec):
    """Parameters of LLE with automatic k."""

    k_least: int = integer(5, "The smallest number of neighbours that is tried.", least=2)
    k_most: int = integer(30, "The largest number of neighbours that is tried.", least=2)
    criterion: str = choice("advice", "By what they are judged.", "advice", "residual-variance", "procrustes")
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
    about="LLE with the k whose embedding is judged best of a range: by ranks, residual variance or Procrustes.",
    source="Kouropteva, Okun and Pietikainen 2002; Goldberg and Ritov 2009; survey arXiv 2011.10925",
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
            f"No graph of {spec.k_least} to {spec.k_most} neighbours is one component with one closed class.",
            remedy="Raise k_most.",
            details={"smallest_connecting_k": connecting},
        )
    curve = _curve(X, nearest, ks, spec, on_progress)
    best = min(curve, key=lambda row: row["cost"])["n_neighbors"]
    embedding = lle_of(X, nearest[:, :best], spec.at(best), on_progress)
    figures = {
        **embedding.figures,
        "n_neighbors": best,
        "smallest_connecting_k": connecting,
        "criterion": spec.criterion,
        "curve": curve,
        "left_out": [k for k in spec.candidates() if k not in ks],
    }
    return Embedding(embedding.Y, embedding.eigenvalues, figures)


def _curve(
    X: NDArray[np.float64], nearest: NDArray[np.int32], ks: list[int], spec: AutoKLleSpec, on_progress: OnProgress
) -> list[dict[str, Any]]:
    """Return the n_neighbors and the cost of each k."""
    if spec.criterion == "advice":
        advice = advise(X, n_neighbors=ks, n_components=spec.n_components, reg=spec.reg, on_progress=on_progress)
        rows = []
        for row in advice.neighbors_curve:
            assert row.trustworthiness is not None  # every graph is one component
            assert row.continuity is not None
            goodness = (row.trustworthiness + row.continuity) / 2 - (row.instability or 0.0) / 10
            rows.append({"n_neighbors": row.n_neighbors, "cost": 1 - goodness})
        return rows
    judge = residual_variance if spec.criterion == "residual-variance" else local_disparity
    probes = np.random.default_rng(0).permutation(len(X))[:_PROBES]
    rows = []
    for k in ks:
        Y = lle_of(X, nearest[:, :k], spec.at(k), on_progress).Y
        rows.append({"n_neighbors": k, "cost": judge(X, Y, probes, nearest[:, : spec.k_least])})
    return rows


def residual_variance(
    X: NDArray[np.float64], Y: NDArray[np.float64], probes: NDArray[np.intp], nearest: NDArray[np.int32]
) -> float:
    """Return 1 - rho^2 of the distances between the probes in data (n, d) and embedding (n, p)."""
    data, index = X[probes] / unit_of(X), np.arange(len(probes))

    def data_distances(part: slice) -> NDArray[np.float64]:
        rows = data[part]
        return distances(rows, data, np.broadcast_to(index, (len(rows), len(data))))

    return unexplained_variance(data_distances, index, Y[probes])


def local_disparity(
    X: NDArray[np.float64], Y: NDArray[np.float64], probes: NDArray[np.intp], nearest: NDArray[np.int32]
) -> float:
    """Return the mean Procrustes disparity of the probes' neighborhoods in data (n, d) and embedding (n, p)."""
    members = np.concatenate([probes[:, None], nearest[probes]], axis=1)
    shapes = []
    for points in (X[members], Y[members]):
        offset = points - points.mean(axis=1, keepdims=True)
        norm = np.linalg.norm(offset, axis=(1, 2), keepdims=True)
        shapes.append(offset / np.where(norm > 0, norm, 1.0))
    overlap = dense.svd(dense.matmul(shapes[0].transpose(0, 2, 1), shapes[1]))[1].sum(axis=1)
    return float(np.mean(np.maximum(0.0, 1 - overlap**2)))
