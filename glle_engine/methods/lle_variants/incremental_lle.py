r"""Incremental LLE: some points are embedded, and the others added one by one.

*weights*: an added point is placed by its weights on the initial points, :math:`y = \sum_j w_j y_j` (Saul and Roweis
2003). The coordinates of the others do not change, and each addition has the same cost.

*eigenvalues*: points arrive in their order. A new one becomes a neighbor of the points to which it is nearer than their
k-th, and their weights are updated. Its coordinates keep the eigenvalues constant,

.. math:: \min_y \left\| Y^T M Y - \mathrm{diag}(\lambda_1, \dots, \lambda_p)\, n \right\|_F

over its p coordinates, with M of all points so far (Kouropteva, Okun and Pietikainen 2005, *Incremental locally linear
embedding*; survey arXiv 2011.10925, "incremental LLE"). Newton's method starts at the coordinates of *weights*. In
:math:`Y^T M Y`, a sum over points of :math:`(y_i - Y_i w_i)(y_i - Y_i w_i)^T`, only the terms of the new point and of
its new neighbors change.

With all points initial the result is LLE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import TooFewPointsError
from glle_engine.base.progress import blocks
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.lle_variants.arrivals import Arrivals
from glle_engine.methods.parameters import choice, integer, number
from glle_engine.methods.spectral.lle import LleSpec, lle_of
from glle_engine.posterior.placement.out_of_sample import hang

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class IncrementalLleSpec(LleSpec):
    """Parameters of incremental LLE."""

    initial: float = number(0.5, "The share of the points that is embedded first.", above=0, most=1)
    placement: str = choice(
        "weights",
        "How a point is added: by its weights on the initial points, or so that the eigenvalues stay, by the points "
        "so far.",
        "weights",
        "eigenvalues",
    )
    order: str = choice("random", "In which order points arrive: random, by the seed, or as given.", "random", "given")
    seed: int = integer(0, "The seed of a random order.", least=0)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few initial points."""
        super().require_possible(n, d)
        least = max(self.n_neighbors + 1, self.n_components + 2)
        if initial_points(n, self) < least:
            raise TooFewPointsError(
                f"initial={self.initial:g} of {n} points are {initial_points(n, self)}; LLE of these needs {least}.",
                remedy=f"Give initial of at least {least / n:.3g}, or more points.",
                details={"n_points": n, "least": least},
            )

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost."""
        count = max(initial_points(n, self), 1)
        row = row if self.placement == "weights" else f"{row}, eigenvalues"
        return estimate(row, count, d, k=self.n_neighbors, p=self.n_components, m=n - count)


def initial_points(n: int, spec: IncrementalLleSpec) -> int:
    """Return the number of points that are embedded first."""
    return min(n, round(spec.initial * n))


@Method(
    spec=IncrementalLleSpec,
    title="Incremental LLE",
    about="LLE of some points; the others are added by their weights, or so that the eigenvalues stay the same.",
    source="Saul and Roweis 2003; Kouropteva, Okun and Pietikainen 2005; survey arXiv 2011.10925",
    growth="as LLE of the initial points; the additions n with weights and few features, otherwise n^2 d",
)
def incremental_lle(X: NDArray[np.float64], spec: IncrementalLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed the initial points, and add the others."""
    n, k = len(X), spec.n_neighbors
    count = initial_points(n, spec)
    arrival = np.random.default_rng(spec.seed).permutation(n) if spec.order == "random" else np.arange(n)
    first, rest = np.sort(arrival[:count]), arrival[count:]
    nearest, distances = connected_neighbors(X[first], k, on_progress)
    embedding = lle_of(X[first], nearest, spec, on_progress)
    Y = np.empty((n, spec.n_components))
    Y[first] = embedding.Y
    figures = {**embedding.figures, "n_initial": count}
    if spec.placement == "weights":
        for rows in blocks(len(rest), _BLOCK, "additions", on_progress):
            Y[rest[rows]] = hang(X[first], X[rest[rows]], k, spec.reg).embed(embedding.Y)
    elif len(rest):
        assert embedding.eigenvalues is not None  # of LLE
        arrivals = Arrivals.after(X[first], embedding.Y, nearest, distances, embedding.eigenvalues, spec.reg, len(rest))
        for rows in blocks(len(rest), 32, "additions", on_progress):
            for i in rest[rows]:
                Y[i] = arrivals.add(X[i])
        figures.update(rewired=arrivals.rewired, unsettled=arrivals.unsettled)
    return Embedding(Y, embedding.eigenvalues, figures, arrivals.notes() if "rewired" in figures else ())
