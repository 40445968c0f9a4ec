r"""Symmetric stochastic neighbour embedding: joint affinities by Gaussians in the data and in the embedding.

.. math::
    E(Y) = \sum_{i \ne j} p_{ij} \log(p_{ij} / q_{ij}), \quad
    q_{ij} = \exp(-|y_i - y_j|^2) / \sum_{k \ne l} \exp(-|y_k - y_l|^2)

with gradient :math:`4 \sum_j (p_{ij} - q_{ij}) (y_i - y_j)` (Cook, Sutskever, Mnih and Hinton 2007; van der Maaten and
Hinton 2008, section 3.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.special import xlogy

from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.neighbor_embedding import common
from glle_engine.methods.neighbor_embedding.affinities import conditional_affinities, joint_affinities, perplexity_notes
from glle_engine.methods.neighbor_embedding.common import DescentSpec
from glle_engine.methods.neighbor_embedding.descent import attraction_factor, descend
from glle_engine.methods.neighbor_embedding.pairs import attraction, gaussian_sums

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.neighbor_embedding.descent import Objective

_LEAST_TOTAL = 1e-200


@dataclass(frozen=True, kw_only=True)
class SymmetricSneSpec(DescentSpec):
    """The parameters of symmetric SNE."""


def joint_divergence(P: NDArray[np.float64]) -> Objective:
    """Return the Kullback-Leibler divergence, in nats, from joint affinities P (n, n), as an objective."""
    degrees = P.sum(axis=1)
    constant = float(xlogy(P, P).sum())

    def objective(Y: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        pulled, gradient = attraction(P, degrees, Y)
        shift = 0.0
        sums = gaussian_sums(Y)
        if sums.total < _LEAST_TOTAL:  # all are far apart: measured from the nearest pair, nothing underflows
            shift = sums.least
            sums = gaussian_sums(Y, shift=shift)
        value = constant + pulled + math.log(sums.total) - shift
        return value, gradient - (4 / sums.total) * sums.spread(Y)

    return objective


def run(
    X: NDArray[np.float64], spec: SymmetricSneSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by joint affinities."""
    conditional, met = conditional_affinities(X, spec.perplexity, on_progress)
    P = joint_affinities(conditional)
    del conditional
    descent = descend(
        joint_divergence(P),
        common.start(X, spec),
        attraction_factor(P),
        max_iter=spec.max_iter,
        tol=spec.tol,
        on_progress=on_progress,
    )
    notes = perplexity_notes(met, spec.perplexity)
    return common.found(descent, {"kl_divergence": descent.value}, notes, spec)


def cost(n: int, d: int, spec: SymmetricSneSpec) -> Cost:
    """Return the cost of affinities and a descent."""
    return common.dense_cost(n, d, min(spec.max_iter, 120), 1.5e-8)


METHOD = Method(
    name="symmetric-sne",
    title="Symmetric stochastic neighbor embedding",
    family="neighbor embedding",
    about="Minimises the divergence between joint affinities, Gaussian in the data and Gaussian in the embedding.",
    source="Cook, Sutskever, Mnih and Hinton 2007; van der Maaten and Hinton 2008, section 3.1",
    spec=SymmetricSneSpec,
    run=run,
    refuse=common.refuse,
    cost=cost,
    growth="n^2 an iteration, and n^3 once",
)
