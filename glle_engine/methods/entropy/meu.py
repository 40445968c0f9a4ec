r"""Maximum entropy unfolding: the density of greatest entropy with the observed squared distances of neighbors.

It is a Gaussian field over the points, :math:`P = K^{-1} = L + \gamma I`, L the Laplacian of the kNN graph with a
Lagrange multiplier for each edge, fitted by maximum likelihood: the expected squared distances of neighbors become the
observed ones (Lawrence 2012, sections 2 and 2.5.1). The embedding is the principal coordinates of K.

With multipliers of any sign, all pairs as neighbors and d >= n - 1, L is any matrix with :math:`L 1 = 0`, the centered
K becomes :math:`Y Y^T / d`, and the embedding is that of PCA, divided by :math:`\sqrt d`. With fewer features that
likelihood is unbounded; positive multipliers bound it, and the embedding differs from PCA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import InvalidParameterError
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.linalg.dense import log
from glle_engine.linalg.distances import power_of_two
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.entropy.gaussian_field import (
    log_likelihood,
    principal_coordinates,
    require_apart,
    second_moment,
    undirected_edges,
)
from glle_engine.methods.entropy.multipliers import Unfolding, unfold
from glle_engine.methods.parameters import NeighborSpec, choice, integer, number, require_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

MAX_POINTS = 2000


@dataclass(frozen=True, kw_only=True)
class MeuSpec(NeighborSpec):
    """Parameters of maximum entropy unfolding."""

    gamma: float = number(
        1e-5,
        "Precision that holds the points at their mean, times the mean variance of a feature; it moves the centred "
        "embedding little. The default is 1e-4 in the data's units on the paper's motion capture.",
        above=0,
    )
    multipliers: str = choice(
        "positive", "Whether neighbors may only attract (positive), or repel, too (any).", "positive", "any"
    )
    tolerance: float = number(
        1e-4, "Largest error of an expected squared distance, relative to the mean observed one.", above=0, below=1
    )
    max_iterations: int = integer(100, "Newton steps at most.", least=1)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few and too many points, and an unbounded likelihood."""
        super().require_possible(n, d)
        require_size(n, MAX_POINTS, "Maximum entropy unfolding", "alle")
        if self.multipliers == "any" and self.n_neighbors == n - 1 and d < n - 1:
            raise InvalidParameterError(
                f"With multipliers=any and all pairs as neighbors, {d} features bound no likelihood of {n} points.",
                remedy=f"Take multipliers=positive, fewer neighbors, or at least {n - 1} features; or pca, its limit.",
            )


@Method(
    spec=MeuSpec,
    title="Maximum entropy unfolding",
    about="The Gaussian field of greatest entropy over the points whose neighbors are as far apart, in expectation, "
    "as they are: precision L + gamma I, a multiplier an edge by maximum likelihood; principal coordinates of K.",
    source="Lawrence 2012, JMLR 13, sections 2 and 2.5.1 (arXiv 1010.4830)",
    growth="n^3",
)
def meu(X: NDArray[np.float64], spec: MeuSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the principal coordinates of the covariance of greatest likelihood."""
    n, d = X.shape
    nearest, _ = connected_neighbors(X, spec.n_neighbors, on_progress)
    i, j = undirected_edges(nearest)
    unit = power_of_two(float(np.ptp(X, axis=0).max()))  # makes the results below the same in every unit
    S = second_moment(X / unit)
    gamma = spec.gamma * n / float(S.trace())
    problem = Unfolding(S, i, j, gamma, positive=spec.multipliers == "positive")
    require_apart(i, j, problem.squared_distances(S))
    field = unfold(problem, spec.tolerance, spec.max_iterations, on_progress)
    on_progress(0, 1, "embedding")
    Y, values = principal_coordinates(field.K, spec.n_components)
    figures = {
        "log_likelihood": log_likelihood(field.log_det, field.trace, n, d) - n * d * log(unit),
        "iterations": field.iterations,
        "converged": field.converged,
        "violation": field.violation,
        "gamma": gamma / unit**2,
        "edges": len(i),
        "edges_without_multiplier": int((field.multipliers == 0).sum()),
    }
    return Embedding(
        unit * Y, unit**2 * values, figures, () if field.converged else (_not_converged(spec, field.violation),)
    )


def _not_converged(spec: MeuSpec, violation: float) -> Note:
    remedy = (
        "raise max_iterations"
        if spec.multipliers == "positive"
        else "take multipliers=positive: with any sign the likelihood may have no bound"
    )
    return Note(
        "not-converged",
        f"Expected squared distances still differ from the observed ones by {violation:.2g} of their mean after "
        f"{spec.max_iterations} Newton steps at most. Remedy: {remedy}.",
    )
