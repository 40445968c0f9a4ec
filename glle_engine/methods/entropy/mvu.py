r"""Maximum variance unfolding: neighbors keep their distances, and all other points move as far apart as possible.

Maximize tr(K) over positive semidefinite, centered K with :math:`k_{ii} - 2 k_{ij} + k_{jj} = |x_i - x_j|^2` on the
edges of the kNN graph (Weinberger, Sha and Saul 2004; Weinberger and Saul 2006): a semidefinite program, solved by the
barrier method on its dual (`semidefinite`). The embedding is the principal coordinates of K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import InvalidParameterError
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.entropy.gaussian_field import principal_coordinates, require_apart, undirected_edges
from glle_engine.methods.entropy.semidefinite import Program, unroll
from glle_engine.methods.parameters import NeighborSpec, integer, number, require_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

MAX_POINTS = 400
MAX_LINKS = 4000  # n k: some 2,500 constraints with a dense Hessian


@dataclass(frozen=True, kw_only=True)
class MvuSpec(NeighborSpec):
    """Parameters of maximum variance unfolding."""

    n_neighbors: int = integer(6, "k, the number of neighbors that keep their distances.", least=2)
    slack: float = number(1e-3, "Mean share by which squared distances may differ.", above=0, below=1)
    tolerance: float = number(1e-3, "Duality gap relative to the trace.", above=0, below=1)
    max_iterations: int = integer(1000, "Newton steps at most.", least=1)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points, and too many points or edges."""
        super().require_possible(n, d)
        require_size(n, MAX_POINTS, "Maximum variance unfolding", "meu, or isomap")
        if n * self.n_neighbors > MAX_LINKS:
            raise InvalidParameterError(
                f"{n} points of {self.n_neighbors} neighbors are more constraints than can be solved for.",
                remedy=f"Give n_neighbors of at most {MAX_LINKS // n}.",
                details={"n_points": n, "n_neighbors": self.n_neighbors},
            )


@Method(
    spec=MvuSpec,
    title="Maximum variance unfolding",
    about="The points move as far apart as the distances between neighbors allow: the centred Gram matrix of greatest "
    "trace that keeps them, a semidefinite program; its principal coordinates.",
    source="Weinberger, Sha and Saul 2004; Weinberger and Saul 2006; dual: Sun, Boyd, Xiao and Diaconis 2006",
    growth="n^3 k^3",
)
def mvu(X: NDArray[np.float64], spec: MvuSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the principal coordinates of the K of greatest trace."""
    nearest, _ = connected_neighbors(X, spec.n_neighbors, on_progress)
    i, j = undirected_edges(nearest)
    squared = np.asarray(((X[i] - X[j]) ** 2).sum(axis=1))
    require_apart(i, j, squared)
    unit = float(squared.mean())
    program = Program(len(X), i, j, squared / unit)
    on_progress(0, 1, "semidefinite program")
    unfolding = unroll(program, spec.slack, spec.tolerance, spec.max_iterations, on_progress)
    on_progress(0, 1, "embedding")
    Y, values = principal_coordinates(unfolding.K * unit, spec.n_components)
    errors = program.squared_distances(unfolding.K) / program.squared - 1
    figures = {
        "trace": float(unfolding.K.trace()) * unit,
        "kept": float(values.sum()) / (float(unfolding.K.trace()) * unit),
        "mean_squared_distance_error": float(np.abs(errors).mean()),
        "duality_gap": unfolding.gap,
        "iterations": unfolding.iterations,
        "converged": unfolding.converged,
        "edges": len(i),
    }
    note = Note(
        "not-converged",
        f"The semidefinite program is solved to a duality gap of {unfolding.gap:.2g} of the trace only, after "
        f"{unfolding.iterations} steps. Raise max_iterations or slack, or take fewer neighbors.",
    )
    return Embedding(Y, values, figures, () if unfolding.converged else (note,))
