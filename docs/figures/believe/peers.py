"""Scores that say which points of a map are uncertain, by an audit and by other tools, and how well each one does.

A good score is high for points that move in maps of further samples, and for points that were put into a wrong place.
The other tools are dynamicviz (Sun, Ma and Zou 2023), local scores of zadu (Jeon et al. 2023), a p-value as in EMBEDR
(Johnson, Kath and Mani 2022), and distances to the 10th neighbor.
"""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics import roc_auc_score

from glle_engine.audit.chance import compare_with_chance
from glle_engine.audit.sources import source_of_method
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import moments, root_trace
from glle_engine.linalg.rank_correlation import rank_correlation

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.audit.result import Audit

    Array = NDArray[np.float64]
    Score = Callable[[Array], Array]  # coordinates (n, 2) to scores (n,)

PEERS = ("dynamicviz", "zadu")
INSTALL = "pip install --no-deps -r requirements/peers.txt"
FIGURES = ("rank correlation", "- of distances", "worst tenth", "planted", "seconds")
K = 15
MAPS = 40  # bootstrap maps of dynamicviz: as many as the usual audit has
DISTANCES = 100  # of each point, by which dynamicviz approximates those to all points
NULLS = 3
PLANTED = 0.05  # share of the points that is moved
WORST = 0.1


def is_installed(peer: str) -> bool:
    """Return whether the package `peer` is installed."""
    return find_spec(peer) is not None


def embed(X: Array, method: str) -> Array:
    """Return the coordinates (n, 2) of X by a method with its default parameters, as an audit computes them."""
    return source_of_method(X, method, {})[1]


def plant(Y: Array, seed: int = 0) -> tuple[Array, NDArray[np.bool_]]:
    """Exchange the positions of 5 % of the points of a map; return the new map (n, 2), and which points were moved."""
    chosen = np.random.default_rng(seed).choice(len(Y), max(2, round(PLANTED * len(Y))), replace=False)
    planted, is_moved = Y.copy(), np.zeros(len(Y), bool)
    planted[chosen], is_moved[chosen] = Y[np.roll(chosen, 1)], True
    return planted, is_moved


def compare(X: Array, method: str, audit: Audit, places: Array, seconds: float) -> dict[str, list[float | None]]:
    """Return how well each score does, as the numbers `FIGURES`, by the name of the score.

    Rank correlation with the spread of `places` (m, probes, 2), the positions in maps of m further samples; rank
    correlation with the variance of distances there; area under the ROC curve for the tenth of the points with most
    spread, and for exchanged points (None for a score that does not depend on the coordinates); and processor time. All
    scores of the audit have the time `seconds`, because they come from one audit.
    """
    probes = places.shape[1]
    spread, variance = root_trace(moments(places)[1]), distance_variance(places)
    is_worst = spread >= np.quantile(spread, 1 - WORST)
    planted, is_moved = plant(audit.embedding)
    rows: dict[str, list[float | None]] = {}
    for name, (prepare, depends) in scores(X, method, audit).items():
        started = time.process_time()
        score = prepare()
        values = score(audit.embedding)
        spent = time.process_time() - started
        rows[name] = [
            rank_correlation(values[:probes], spread),
            rank_correlation(values[:probes], variance),
            float(roc_auc_score(is_worst, values[:probes])),
            float(roc_auc_score(is_moved, score(planted))) if depends else None,
            seconds if name.startswith("audit") else spent,
        ]
    return rows


def distance_variance(places: Array) -> Array:
    """Return the variance of a point's distance to another point over maps (m, n, 2), as a mean (n,) over the others.

    The score of dynamicviz estimates this number.
    """
    distances = np.stack([cdist(Y, Y) for Y in places])
    return np.asarray((distances / distances.mean()).var(axis=0).mean(axis=1))


def scores(X: Array, method: str, audit: Audit) -> dict[str, tuple[Callable[[], Score], bool]]:
    """Return, by the name of each score, a function that prepares it, and whether it depends on the coordinates.

    The prepared score maps coordinates (n, 2) to numbers (n,), which are higher for less certain points.
    """
    of: dict[str, tuple[Callable[[], Score], bool]] = {
        "audit, spread": (lambda: _constant(audit.spread), False),
        "audit, 1 - stability": (lambda: _instability(audit), True),
        "audit, p-value": (lambda: _chance(X, method), True),
    }
    if is_installed("dynamicviz"):
        of["dynamicviz, variance"] = (lambda: _constant(_bootstrap_variance(X, method)), False)
        of["dynamicviz, 1 - Jaccard"] = (lambda: _jaccard(X), True)
    of["p-value as EMBEDR"] = (lambda: _embedr(X, method), True)
    if is_installed("zadu"):
        of["zadu, 1 - trustworthiness"] = (lambda: _local(X, "trustworthiness_continuity", "trustworthiness"), True)
        of["zadu, 1 - continuity"] = (lambda: _local(X, "trustworthiness_continuity", "continuity"), True)
        of["zadu, 1 - MRRE"] = (lambda: _local(X, "mean_relative_rank_error", "mrre_false"), True)
    of["10th neighbor, data"] = (lambda: _constant(kneighbors(X, 10)[1][:, -1]), False)
    of["10th neighbor, map"] = (lambda: lambda Y: kneighbors(np.ascontiguousarray(Y), 10)[1][:, -1], True)
    return of


def _constant(values: Array | None) -> Score:
    assert values is not None
    return lambda _: values


def _instability(audit: Audit) -> Score:
    graph = audit.neighbors
    assert graph is not None

    def score(Y: Array) -> Array:
        near = kneighbors(np.ascontiguousarray(Y), K)[0]
        return np.asarray(1 - graph[np.repeat(np.arange(len(Y)), K), near.ravel()].reshape(near.shape).mean(axis=1))

    return score


def _chance(X: Array, method: str) -> Score:
    source = source_of_method(X, method, {})[0]
    return lambda Y: compare_with_chance(source, Y, n_neighbors=K).p_value


def _embedr(X: Array, method: str) -> Score:
    """Return EMBEDR's score: the p-value of a point's `_divergence` among those in maps of permuted columns."""
    rng = np.random.default_rng(0)
    permuted = [np.stack([rng.permutation(column) for column in X.T], axis=1) for _ in range(NULLS)]
    nulls = np.sort(np.concatenate([_divergence(Z, embed(Z, method)) for Z in permuted]))
    return lambda Y: (1 + np.searchsorted(nulls, _divergence(X, Y), "right")) / (1 + len(nulls))


def _divergence(X: Array, Y: Array) -> Array:
    """Return the Kullback-Leibler divergence of each point's affinities in a map from those in the data.

    The affinities are as in t-SNE, with the distance to the K-th neighbor as the width of the Gaussian.
    """
    far, close = cdist(X, X, "sqeuclidean"), cdist(Y, Y, "sqeuclidean")
    width = np.sort(far, axis=1)[:, K]
    P, Q = np.exp(-far / np.where(width > 0, width, 1)[:, None]), 1 / (1 + close / np.median(np.sort(close)[:, K]))
    for affinities in (P, Q):
        np.fill_diagonal(affinities, 0)
    P, Q = (affinities / affinities.sum(axis=1, keepdims=True) + 1e-12 for affinities in (P, Q))
    return np.asarray((P * np.log(P / Q)).sum(axis=1))


class _Method:
    """A method of the engine as the object with `fit_transform` that dynamicviz takes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fit_transform(self, X: Array) -> Array:
        return embed(np.ascontiguousarray(X), self.name)


def _bootstrap_variance(X: Array, method: str) -> Array:
    from dynamicviz import boot, score  # noqa: PLC0415 # an optional package

    np.random.seed(0)  # noqa: NPY002 # of the pairs that `variance` chooses
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        frames = boot.generate(X, _Method(method), B=MAPS, random_seed=0)
        return np.asarray(score.variance(frames, method="random", k=DISTANCES))


def _jaccard(X: Array) -> Score:
    from dynamicviz import score  # noqa: PLC0415 # an optional package

    return lambda Y: 1 - np.asarray(score.get_jaccard(X, Y, K + 1))  # counts the point itself


def _local(X: Array, measure: str, name: str) -> Score:
    of = import_module(f"zadu.measures.{measure}")
    return lambda Y: 1 - np.asarray(of.measure(X, Y, k=K, return_local=True)[1][f"local_{name}"])
