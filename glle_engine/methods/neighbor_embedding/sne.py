r"""Stochastic neighbour embedding: each point's affinities by Gaussians in the data and in the embedding.

.. math::
    E(Y) = \frac{1}{n} \sum_i \sum_{j \ne i} p_{j|i} \log(p_{j|i} / q_{j|i}), \quad
    q_{j|i} = \exp(-|y_i - y_j|^2) / \sum_{l \ne i} \exp(-|y_i - y_l|^2)

with gradient :math:`\frac{2}{n} \sum_j (p_{j|i} - q_{j|i} + p_{i|j} - q_{i|j}) (y_i - y_j)` (Hinton and Roweis 2002,
Eq. 4 and 5; the mean over the points in place of their sum).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import xlogy

from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.neighbor_embedding import common
from glle_engine.methods.neighbor_embedding.affinities import conditional_affinities, joint_affinities, perplexity_notes
from glle_engine.methods.neighbor_embedding.common import DescentSpec
from glle_engine.methods.neighbor_embedding.descent import attraction_factor, descend
from glle_engine.methods.neighbor_embedding.pairs import attraction, row_blocks, squared_distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.neighbor_embedding.descent import Objective


@dataclass(frozen=True, kw_only=True)
class SneSpec(DescentSpec):
    """The parameters of SNE."""


def mean_divergence(entropy: float, joint: NDArray[np.float64]) -> Objective:
    """Return the mean Kullback-Leibler divergence, in nats, of the points' affinities, as an objective.

    Parameters
    ----------
    entropy : float
        The mean entropy of the conditional affinities of the data.
    joint : (n, n) float64
        Their joint affinities, of which alone the rest depends: the attraction is symmetric.

    """
    degrees = joint.sum(axis=1)

    def objective(Y: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        n = len(Y)
        pulled, gradient = attraction(joint, degrees, Y)
        squares = np.einsum("ij,ij->i", Y, Y)
        spread, log_total = np.zeros_like(Y), 0.0
        for rows in row_blocks(n):
            shares = squared_distances(Y, squares, rows, slice(0, n))
            least = shares.min(axis=1)
            np.subtract(least[:, None], shares, out=shares)
            np.exp(shares, out=shares)
            total = shares.sum(axis=1)
            shares /= total[:, None]
            log_total += float(np.log(total).sum() - least.sum())
            spread[rows] += Y[rows] - shares @ Y
            spread += shares.sum(axis=0)[:, None] * Y - shares.T @ Y[rows]
        return pulled - entropy + log_total / n, gradient - (2 / n) * spread

    return objective


def run(
    X: NDArray[np.float64], spec: SneSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by conditional affinities."""
    conditional, met = conditional_affinities(X, spec.perplexity, on_progress)
    entropy = -float(xlogy(conditional, conditional).sum()) / len(X)
    joint = joint_affinities(conditional)
    del conditional
    descent = descend(
        mean_divergence(entropy, joint),
        common.start(X, spec),
        attraction_factor(joint),
        max_iter=spec.max_iter,
        tol=spec.tol,
        on_progress=on_progress,
    )
    notes = perplexity_notes(met, spec.perplexity)
    return common.found(descent, {"mean_kl_divergence": descent.value}, notes, spec)


def cost(n: int, d: int, spec: SneSpec) -> Cost:
    """Return the cost of affinities and a descent."""
    return common.dense_cost(n, d, min(spec.max_iter, 120), 2e-8)


METHOD = Method(
    name="sne",
    title="Stochastic neighbor embedding",
    family="neighbor embedding",
    about="Minimises the divergence between the affinities that each point has to the others, Gaussian in the data "
    "and Gaussian in the embedding.",
    source="Hinton and Roweis 2002, Eq. 1-5; optimiser of Vladymyrov and Carreira-Perpinan 2012",
    spec=SneSpec,
    run=run,
    refuse=common.refuse,
    cost=cost,
    growth="n^2 an iteration, and n^3 once",
)
