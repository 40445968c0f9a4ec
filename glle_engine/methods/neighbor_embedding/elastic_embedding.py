r"""Elastic embedding: springs between near points, and a repulsion between all.

.. math:: E(Y; \lambda) = \sum_{i \ne j} w^+_{ij} |y_i - y_j|^2 + \lambda \sum_{i \ne j} w^-_{ij} \exp(-|y_i - y_j|^2)

with gradient :math:`4 \sum_j (w^+_{ij} - \lambda w^-_{ij} e^{-|y_i - y_j|^2}) (y_i - y_j)` (Carreira-Perpinan 2010,
Eq. 2 and 6). :math:`w^+` are the joint affinities of a perplexity, of sum one, and :math:`w^-` is divided by its sum
over all pairs. So lambda depends neither on the unit of the data nor on the number of points. Small lambda is Laplacian
eigenmaps. The homotopy raises lambda from there, and starts each descent at the end of the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist

from glle_engine.graph.relations import Distances
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.neighbor_embedding import common
from glle_engine.methods.neighbor_embedding.affinities import conditional_affinities, joint_affinities, perplexity_notes
from glle_engine.methods.neighbor_embedding.common import DescentSpec
from glle_engine.methods.neighbor_embedding.descent import attraction_factor, descend
from glle_engine.methods.neighbor_embedding.pairs import attraction, gaussian_sums
from glle_engine.methods.parameters import choice, integer, number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data
    from glle_engine.methods.neighbor_embedding.descent import Objective

_HOMOTOPY_SPAN = 100.0  # from the first lambda to the last
_USUAL_ITERATIONS = 90  # of each descent


@dataclass(frozen=True, kw_only=True)
class ElasticSpec(DescentSpec):
    """Parameters of elastic embedding."""

    repulsion: float = number(
        100.0, "lambda, the strength of the repulsion; both kinds of weights have sum one.", above=0
    )
    repulsive_weights: str = choice(
        "distances",
        "w-, the repulsive weights: squared distances in the data, or one for all pairs.",
        "distances",
        "one",
    )
    homotopy: int = integer(1, "How many values of lambda to go through, growing to the one wanted.", least=1, most=100)

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost of all descents of the homotopy."""
        return estimate(row, n, d, steps=min(self.max_iter, _USUAL_ITERATIONS) * self.homotopy)


def repulsive_weights(X: Data, kind: str) -> NDArray[np.float64]:
    """Return w- (n, n), symmetric, zero on the diagonal, of sum one."""
    n = len(X)
    if kind == "one":
        weights = np.full((n, n), 1.0 / (n * (n - 1)))
        np.fill_diagonal(weights, 0.0)
        return weights
    weights = X.known**2 if isinstance(X, Distances) else cdist(X, X, "sqeuclidean")
    weights /= weights.max()  # keeps the sum finite in any unit
    weights /= weights.sum()
    return np.asarray(weights)


def elastic_energy(attractive: NDArray[np.float64], repulsive: NDArray[np.float64], strength: float) -> Objective:
    """Return E(Y; lambda) as an objective; weights (n, n), symmetric."""
    degrees = attractive.sum(axis=1)

    def objective(Y: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        pulled, gradient = attraction(attractive, degrees, Y)
        sums = gaussian_sums(Y, repulsive)
        return pulled + strength * sums.total, gradient - (4 * strength) * sums.spread(Y)

    return objective


def strengths(last: float, count: int) -> NDArray[np.float64]:
    """Return the values of lambda of a homotopy (count,), growing geometrically to the last."""
    values = np.geomspace(last / _HOMOTOPY_SPAN, last, count) if count > 1 else np.array([last])
    values[-1] = last
    return values


@Method(
    spec=ElasticSpec,
    title="Elastic embedding",
    about="Springs pull neighbors together, and a Gaussian repulsion, stronger for points far apart in the data, "
    "keeps all apart; lambda weighs the two.",
    source="Carreira-Perpinan 2010, Eq. 2 and 6; optimiser of Vladymyrov and Carreira-Perpinan 2012",
    by_distances=True,
    growth="n^2 an iteration, and n^3 once",
)
def elastic_embedding(
    X: Data, spec: ElasticSpec, on_progress: OnProgress, *, start: NDArray[np.float64] | None = None
) -> Embedding:
    """Embed by springs and repulsion."""
    P, is_met = conditional_affinities(X, spec.perplexity, on_progress)
    attractive = joint_affinities(P)
    del P
    repulsive = repulsive_weights(X, spec.repulsive_weights)
    factor = attraction_factor(attractive)
    Y = common.begin(X, spec, attractive, start)
    iterations = evaluations = 0
    for strength in strengths(spec.repulsion, spec.homotopy):
        descent = descend(
            elastic_energy(attractive, repulsive, strength),
            Y,
            factor,
            max_iter=spec.max_iter,
            tol=spec.tol,
            on_progress=on_progress,
        )
        Y = descent.Y
        iterations, evaluations = iterations + descent.iterations, evaluations + descent.evaluations
    total = replace(descent, iterations=iterations, evaluations=evaluations)
    return common.embedding_of(total, {"energy": descent.value}, perplexity_notes(is_met, spec.perplexity), spec)
