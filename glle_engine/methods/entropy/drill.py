r"""DRILL: dimensionality reduction through regularisation of the inverse covariance in the log likelihood.

The Gaussian field over the points whose precision P maximizes

.. math:: \log|P| - tr(S P) - l_1 \sum_{ij} |p_{ij}|, \qquad S = Y Y^T / d,

with :math:`p_{ij} = 0` if neither point is a neighbor of the other; the graph is learned if all points are candidates
(Lawrence 2012, section 3). Unlike in maximum entropy unfolding, P is no Laplacian: its rows need not sum to
:math:`\gamma`, nor its entries have a sign. The embedding is the principal coordinates of :math:`K = P^{-1}`. Every
entry is penalized, including the diagonal, so that a maximum exists for any :math:`l_1 > 0`. As :math:`l_1` vanishes it
approaches the maximum of the plain likelihood, if that exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.entropy.gaussian_field import (
    log_likelihood,
    principal_coordinates,
    second_moment,
    undirected_edges,
)
from glle_engine.methods.entropy.graphical_lasso import regularize
from glle_engine.methods.parameters import MethodSpec, NeighborSpec, integer, number, require_points, require_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

MAX_POINTS = 1000
RELATIVE_L1 = 0.1  # the paper's best with 20 neighbors is 0.01 at a mean variance of 0.1
_USUAL_ROUNDS = {"neighbors": 200, "all": 20}


@dataclass(frozen=True, kw_only=True)
class DrillSpec(MethodSpec):
    """Parameters of DRILL."""

    n_neighbors: int | str = integer(
        20, "k, the number of neighbors that may be linked to a point; all, to choose among all points.",
        least=2, words=("all",),
    )  # fmt: skip
    l1: float | str = number(
        "auto",
        "L1 penalty of every entry of the precision, in squared units of the data; auto is a tenth of the mean "
        "variance of a feature.",
        above=0,
        words=("auto",),
    )
    tolerance: float = number(
        1e-4, "Largest duality gap, a point and a feature: half of it bounds the error of the log likelihood.", above=0
    )
    max_iterations: int = integer(300, "Rounds over the columns at most.", least=1)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points and too many."""
        if isinstance(self.n_neighbors, str):
            require_points(n, self.n_components + 2, f"n_components={self.n_components}")
        else:
            require_enough_points(n, NeighborSpec(n_components=self.n_components, n_neighbors=self.n_neighbors))
        require_size(n, MAX_POINTS, "DRILL", "meu, or alle")

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost."""
        if isinstance(self.n_neighbors, str):
            return estimate(row, n, d, k=n, steps=_USUAL_ROUNDS["all"])
        return estimate(row, n, d, k=1.5 * self.n_neighbors, steps=_USUAL_ROUNDS["neighbors"])


@Method(
    spec=DrillSpec,
    title="DRILL",
    about="The Gaussian field over the points whose precision, on the edges of the kNN graph or on all, has the "
    "greatest likelihood less an L1 penalty: the graphical lasso over points; principal coordinates of K.",
    source="Lawrence 2012, JMLR 13, section 3 (arXiv 1010.4830); Friedman, Hastie and Tibshirani 2008",
    growth="n for given neighbors, up to 1,000 points; n^3 for all",
)
def drill(X: NDArray[np.float64], spec: DrillSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the principal coordinates of the regularised covariance."""
    n, d = X.shape
    S = second_moment(X)
    unit = float(S.trace()) / n
    l1 = RELATIVE_L1 * unit if isinstance(spec.l1, str) else spec.l1
    if isinstance(spec.n_neighbors, str):
        index = np.arange(n)
        candidates = [index[index != i] for i in range(n)]
    else:
        candidates = _candidates(connected_neighbors(X, spec.n_neighbors, on_progress)[0])
    field = regularize(S / unit, candidates, l1 / unit, spec.tolerance, spec.max_iterations, on_progress)
    on_progress(0, 1, "embedding")
    Y, values = principal_coordinates(field.K * unit, spec.n_components)
    log_det = -field.log_det - n * float(np.log(unit))
    figures = {
        "log_likelihood": log_likelihood(log_det, float(np.vdot(S / unit, field.P)), n, d),
        "l1": l1,
        "iterations": field.iterations,
        "converged": field.converged,
        "duality_gap": field.gap if np.isfinite(field.gap) else None,
        "edges": int(np.count_nonzero(np.triu(field.P, 1))),
        "candidate_edges": sum(map(len, candidates)) // 2,
    }
    return Embedding(Y, values, figures, () if field.converged else (_not_converged(spec, field.iterations),))


def _candidates(nearest: NDArray[np.int32]) -> list[NDArray[np.intp]]:
    """Return the neighbors of each point in the undirected graph, ascending."""
    i, j = undirected_edges(nearest)
    rows, columns = np.concatenate([i, j]), np.concatenate([j, i])
    order = np.lexsort((columns, rows))
    return np.split(columns[order], np.cumsum(np.bincount(rows, minlength=len(nearest)))[:-1])


def _not_converged(spec: DrillSpec, iterations: int) -> Note:
    return Note(
        "not-converged",
        f"After {iterations} rounds the duality gap is still above {spec.tolerance:g} a point. Raise max_iterations, "
        "or l1: small penalties are the slow ones.",
    )
