r"""Incremental LLE: some points are embedded, and the others placed one by one.

An added point is placed by its weights on the initial points, :math:`y = \sum_j w_j y_j` (Saul and Roweis 2003). The
coordinates of the others do not change, and each addition has the same cost. With all points initial the result is LLE.
The placement that keeps the eigenvalues constant (Kouropteva, Okun and Pietikainen 2005) is not offered: on sheets with
and without noise and on digits its trustworthiness is the same to .003, in time that grows as n^2 d.
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
from glle_engine.methods.parameters import choice, integer, number
from glle_engine.methods.spectral.lle import LleSpec, lle_of
from glle_engine.posterior.placement.out_of_sample import attach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class IncrementalLleSpec(LleSpec):
    """Parameters of incremental LLE."""

    initial: float = number(0.5, "The share of the points that is embedded first.", above=0, most=1)
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
        return estimate(row, count, d, k=self.n_neighbors, p=self.n_components, m=n - count)


def initial_points(n: int, spec: IncrementalLleSpec) -> int:
    """Return the number of points that are embedded first."""
    return min(n, round(spec.initial * n))


@Method(
    spec=IncrementalLleSpec,
    title="Incremental LLE",
    about="LLE of some points; the others are added by their weights on these.",
    source="Saul and Roweis 2003; survey arXiv 2011.10925",
    growth="as LLE of the initial points, and n for the others; n^2 d for many features",
)
def incremental_lle(X: NDArray[np.float64], spec: IncrementalLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed the initial points, and add the others."""
    n, k = len(X), spec.n_neighbors
    count = initial_points(n, spec)
    arrival = np.random.default_rng(spec.seed).permutation(n) if spec.order == "random" else np.arange(n)
    first, rest = np.sort(arrival[:count]), arrival[count:]
    nearest, _ = connected_neighbors(X[first], k, on_progress)
    embedding = lle_of(X[first], nearest, spec, on_progress)
    Y = np.empty((n, spec.n_components))
    Y[first] = embedding.Y
    for rows in blocks(len(rest), _BLOCK, "additions", on_progress):
        Y[rest[rows]] = attach(X[first], X[rest[rows]], k, spec.reg).extension().embed(embedding.Y)
    return Embedding(Y, embedding.eigenvalues, {**embedding.figures, "n_initial": count})
