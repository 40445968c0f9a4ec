r"""Stochastic neighbor embedding, its symmetric variant, and elastic embedding: objectives over all pairs of points.

SNE compares the conditional affinities of each point,

.. math::
    E(Y) = \frac{1}{n} \sum_i \sum_{j \ne i} p_{j|i} \log(p_{j|i} / q_{j|i}), \quad
    q_{j|i} = \exp(-|y_i - y_j|^2) / \sum_{l \ne i} \exp(-|y_i - y_l|^2)

with gradient :math:`\frac{2}{n} \sum_j (p_{j|i} - q_{j|i} + p_{i|j} - q_{i|j}) (y_i - y_j)` (Hinton and Roweis 2002,
Eq. 4 and 5, with the mean over the points in place of the sum). Symmetric SNE compares the joint affinities,

.. math::
    E(Y) = \sum_{i \ne j} p_{ij} \log(p_{ij} / q_{ij}), \quad
    q_{ij} = \exp(-|y_i - y_j|^2) / \sum_{k \ne l} \exp(-|y_k - y_l|^2)

with gradient :math:`4 \sum_j (p_{ij} - q_{ij}) (y_i - y_j)` (Cook, Sutskever, Mnih and Hinton 2007; van der Maaten and
Hinton 2008, section 3.1).

Elastic embedding: springs between near points, and a repulsion between all points.

.. math:: E(Y; \lambda) = \sum_{i \ne j} w^+_{ij} |y_i - y_j|^2 + \lambda \sum_{i \ne j} w^-_{ij} \exp(-|y_i - y_j|^2)

with gradient :math:`4 \sum_j (w^+_{ij} - \lambda w^-_{ij} e^{-|y_i - y_j|^2}) (y_i - y_j)` (Carreira-Perpinan 2010,
Eq. 2 and 6). :math:`w^+` are the joint affinities for a perplexity, whose sum is one, and :math:`w^-` is divided by its
sum over all pairs. Therefore lambda depends neither on the unit of the data nor on the number of points. For small
lambda the embedding is Laplacian eigenmaps. The homotopy raises lambda from there, and starts each descent where the
last one ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.graph.relations import Distances
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.neighbor_embedding import affinities
from glle_engine.methods.neighbor_embedding.affinities import (
    DescentSpec,
    conditional_affinities,
    joint_affinities,
)
from glle_engine.methods.neighbor_embedding.descent import (
    attraction,
    attraction_factor,
    descend,
    gaussian_sums,
    row_blocks,
    squared_distances,
)
from glle_engine.methods.parameters import choice, integer, number, of_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data
    from glle_engine.methods.neighbor_embedding.affinities import Start
    from glle_engine.methods.neighbor_embedding.descent import Objective

# If the sum of exp(-|y_i - y_j|^2) over all pairs is below this, the smallest squared distance is subtracted from all
# squared distances. Otherwise terms of distant pairs would underflow: the smallest number is about 1e-308.
_MIN_TOTAL = 1e-200
# The homotopy is a series of descents in which the weight lambda of the repulsion grows; from the first descent to the
# last, it grows by this factor.
_HOMOTOPY_SPAN = 100.0


def mean_divergence(entropy: float, joint: NDArray[np.float64]) -> Objective:
    """Return the objective of SNE: a function from Y (n, p) to the mean divergence, in nats, and its gradient (n, p).

    Parameters
    ----------
    entropy : float
        Mean entropy of the conditional affinities of the data.
    joint : (n, n) float64
        Joint affinities of the data. The conditional affinities p_j|i are not needed: the divergence depends on them
        only through their `entropy`, and through the sum p_j|i + p_i|j of each pair, which `joint` has, divided by 2n.

    """
    degrees = joint.sum(axis=1)

    def objective(Y: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        n = len(Y)
        pulled, gradient = attraction(joint, degrees, Y)
        squares = np.einsum("ij,ij->i", Y, Y)
        spread, log_total = np.zeros_like(Y), 0.0
        for rows in row_blocks(n):
            shares = squared_distances(Y, squares, rows, slice(0, n))
            smallest_exponents = shares.min(axis=1)
            np.subtract(smallest_exponents[:, None], shares, out=shares)
            np.exp(shares, out=shares)
            total = shares.sum(axis=1)
            shares /= total[:, None]
            log_total += float(np.log(total).sum() - smallest_exponents.sum())
            spread[rows] += Y[rows] - shares @ Y
            spread += shares.sum(axis=0)[:, None] * Y - shares.T @ Y[rows]
        return pulled - entropy + log_total / n, gradient - (2 / n) * spread

    return objective


def joint_divergence(P: NDArray[np.float64]) -> Objective:
    """Return the objective of symmetric SNE for joint affinities P (n, n) of the data.

    The objective is a function from Y (n, p) to the divergence, in nats, and its gradient (n, p).
    """
    from scipy.special import xlogy  # noqa: PLC0415 -- slow to import; the API does not need it

    degrees = P.sum(axis=1)
    constant = float(xlogy(P, P).sum())

    def objective(Y: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        pulled, gradient = attraction(P, degrees, Y)
        shift = 0.0
        sums = gaussian_sums(Y)
        if sums.total < _MIN_TOTAL:  # shifted by the smallest squared distance, the largest term is 1
            shift = sums.least
            sums = gaussian_sums(Y, shift=shift)
        value = constant + pulled + math.log(sums.total) - shift
        return value, gradient - (4 / sums.total) * sums.spread(Y)

    return objective


def _run(X: Data, spec: DescentSpec, on_progress: OnProgress, start: Start, *, symmetric: bool) -> Embedding:
    from scipy.special import xlogy  # noqa: PLC0415 -- slow to import; the API does not need it

    P, is_met = conditional_affinities(X, spec.perplexity, on_progress)
    entropy = 0.0 if symmetric else -float(xlogy(P, P).sum()) / len(X)
    joint = joint_affinities(P)
    del P
    descent = descend(
        joint_divergence(joint) if symmetric else mean_divergence(entropy, joint),
        affinities.begin(X, spec, joint, start),
        attraction_factor(joint),
        max_iter=spec.max_iter,
        tol=spec.tol,
        on_progress=on_progress,
    )
    figure = "kl_divergence" if symmetric else "mean_kl_divergence"
    return affinities.embedding_of(descent, {figure: descent.value}, is_met, spec)


@Method(
    spec=DescentSpec,
    title="Stochastic neighbor embedding",
    about="Minimizes the divergence between the affinities that each point has to the others, Gaussian in the data "
    "and Gaussian in the embedding.",
    source="Hinton and Roweis 2002, Eq. 1-5; optimizer of Vladymyrov and Carreira-Perpinan 2012",
    by_distances=True,
    doubles=of_pairs(4),
    growth="n^2 an iteration, and n^3 once",
)
def sne(X: Data, spec: DescentSpec, on_progress: OnProgress, *, start: Start = None) -> Embedding:
    """Embed so that the conditional affinities in the data and in the embedding agree."""
    return _run(X, spec, on_progress, start, symmetric=False)


@Method(
    spec=DescentSpec,
    title="Symmetric stochastic neighbor embedding",
    about="Minimizes the divergence between joint affinities, Gaussian in the data and Gaussian in the embedding.",
    source="Cook, Sutskever, Mnih and Hinton 2007; van der Maaten and Hinton 2008, section 3.1",
    by_distances=True,
    doubles=of_pairs(4),
    growth="n^2 an iteration, and n^3 once",
)
def symmetric_sne(X: Data, spec: DescentSpec, on_progress: OnProgress, *, start: Start = None) -> Embedding:
    """Embed so that the joint affinities in the data and in the embedding agree."""
    return _run(X, spec, on_progress, start, symmetric=True)


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
    homotopy: int = integer(
        1,
        "Number of values of lambda for which the descent is run in turn; they grow from repulsion / 100 to repulsion. "
        "With 1, the only value is repulsion.",
        minimum=1,
        maximum=100,
    )


def repulsive_weights(X: Data, kind: str) -> NDArray[np.float64]:
    """Return the repulsive weights w- (n, n) of elastic embedding, symmetric and with sum one.

    The weights are squared distances in the data, or equal for all pairs if `kind` is "one".
    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 -- slow to import; the API does not need it

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
    """Return the objective E(Y; lambda) of elastic embedding: a function from Y (n, p) to value and gradient (n, p).

    `attractive` and `repulsive` are symmetric weights (n, n), and `strength` is lambda, the factor of the repulsion.
    """
    degrees = attractive.sum(axis=1)

    def objective(Y: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        pulled, gradient = attraction(attractive, degrees, Y)
        sums = gaussian_sums(Y, repulsive)
        return pulled + strength * sums.total, gradient - (4 * strength) * sums.spread(Y)

    return objective


def strengths(last: float, count: int) -> NDArray[np.float64]:
    """Return the values (count,) of lambda for the homotopy: they grow geometrically from `last` / 100 to `last`.

    With a `count` of 1, the only value is `last`.
    """
    values = np.geomspace(last / _HOMOTOPY_SPAN, last, count) if count > 1 else np.array([last])
    values[-1] = last
    return values


@Method(
    spec=ElasticSpec,
    title="Elastic embedding",
    about="Springs pull neighbors together, and a Gaussian repulsion, stronger for points far apart in the data, "
    "keeps all apart; lambda weighs the two.",
    source="Carreira-Perpinan 2010, Eq. 2 and 6; optimizer of Vladymyrov and Carreira-Perpinan 2012",
    by_distances=True,
    doubles=of_pairs(4),
    growth="n^2 an iteration, and n^3 once",
)
def elastic_embedding(X: Data, spec: ElasticSpec, on_progress: OnProgress, *, start: Start = None) -> Embedding:
    """Embed by attraction between neighbors and repulsion between all points, balanced by lambda."""
    P, is_met = conditional_affinities(X, spec.perplexity, on_progress)
    attractive = joint_affinities(P)
    del P
    repulsive = repulsive_weights(X, spec.repulsive_weights)
    factor = attraction_factor(attractive)
    Y = affinities.begin(X, spec, attractive, start)
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
    return affinities.embedding_of(total, {"energy": descent.value}, is_met, spec)
