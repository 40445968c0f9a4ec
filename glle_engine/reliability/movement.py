r"""Summarize refits: how far each point moves, and which neighbors, clusters and distances between classes remain.

All embeddings are centered, scaled to the root mean square radius of the whole data's embedding and rotated to their
common mean (generalized Procrustes): position, size and orientation of a picture mean nothing. Movement is the root of
the trace of a point's covariance over half-samples. It answers "how far does this point move with other data of this
kind", and ranks points. It is no interval: the coverage of regions by it is not calibrated, and a bias that all
half-samples share does not show.

Samples of .632 of the points show less variance of linear methods than new data, and the part by sampling is then
multiplied by 1.72; for other methods no such factor holds (`glle_engine.reliability.resamples`). If the method has a
seed, the variance over half-samples contains the variance of the seeds, which refits of the whole data measure alone:

.. math:: \operatorname{tr} C_i = s_i^2 + t_i^2

with s_i the movement by seeds and t_i the movement by sampling, which is 0 if the seeds alone explain more than the
half-samples show.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from warnings import catch_warnings

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.spatial import cKDTree

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import Note, brief
from glle_engine.base.validation import require_neighbors
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import generalized_procrustes, moments
from glle_engine.posterior.summary import neighbor_stability
from glle_engine.reliability.alignment import MIN_EMBEDDINGS, Alignment, normalize, normalize_all, rank_correlation
from glle_engine.reliability.statements import MOSTLY, Reliability, movement_reliability

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from glle_engine.reliability.refits import MethodEmbedder
    from glle_engine.reliability.resamples import Resamples

MAX_CLUSTERS = 10
MAX_CLASSES = 100  # distinct labels
ROUNDS = 20  # iterations of k-means
ALIKE = 0.7  # rank correlation above which the baseline ranks points nearly as the movement does
_UNCERTAIN = {
    "isomap": "If the graph has edges between turns of a sheet (short circuits), half-samples of Isomap move about 3 "
    "times as far as embeddings of new data. Flat sheets with such edges have a residual_variance above .04. Check the "
    "movement with a smaller n_neighbors.",
    "ltsa": "The movement of LTSA over half-samples does not measure movement over new data: on sheets it was .4 to "
    "11 times as large. Compare points with each other, not with points of other methods.",
}
"""Notes on methods, by name, that are known to move otherwise over half-samples than over new data."""


class MovementFigures(TypedDict):
    """Figures of the movement of an embedding, JSON-able.

    Attributes
    ----------
    n_resamples : int
        Half-samples that were embedded.
    share : float
        Of the points in each sample.
    n_refits : int
        Refits with other seeds.
    failed : int
        Half-samples that could not be embedded, and are left out.
    n_neighbors : int
        Neighbors that may be kept.
    median_movement : float
        Median over points, in the unit of the embedding.
    relative_movement : float
        The median movement, divided by the root mean square radius of the embedding.
    seed_share : float
        Share of the variance that refits with other seeds explain.
    pairs_kept : float
        Share of neighbor pairs of the embedding that stay neighbors: the mean of `Movement.neighbor_stability`.
    pairs_by_chance : float
        What `pairs_kept` is for noise.
    cluster_stability : float
        Mean adjusted Rand index of the clusters; 0 is chance.
    classes : {"labels", "clusters"}
        What the classes are.
    n_classes : int
    separated : float or None
        Share of points whose disc of half the refits is smaller than the distance to the next class; None with one
        class.
    baseline_correlation : float
        Spearman's, of movement with the mean distance to the 10 nearest neighbors in the data; 0 if one is constant.

    """

    n_resamples: int
    share: float
    n_refits: int
    failed: int
    n_neighbors: int
    median_movement: float
    relative_movement: float
    seed_share: float
    pairs_kept: float
    pairs_by_chance: float
    cluster_stability: float
    classes: Literal["labels", "clusters"]
    n_classes: int
    separated: float | None
    baseline_correlation: float


@dataclass(frozen=True, eq=False)
class Movement:
    """Movement of an embedding over refits of its method.

    Attributes
    ----------
    consensus : (n, p) float64
        Mean position of each point over the half-samples, aligned to the embedding, in its unit.
    covariance : (n, p, p) float64
        Covariance of each point's position over the half-samples.
    movement : (n,) float64
        Root of the trace of that covariance; no interval.
    sampling_movement : (n,) float64
        Part due to the choice of points. The squares of this part and of the next one add up to the square of the
        movement, unless the next alone is larger.
    seed_movement : (n,) float64
        Part due to the seed; 0 for a method without a seed.
    radius : (n,) float64
        Of the disc about the consensus that holds half of the half-samples.
    margin : (n,) float64
        Distance in the consensus to the nearest point of another class; NaN with one class.
    neighbor_stability : (n,) float64 in [0, 1]
        Mean share of a point's neighbors in the embedding that are its neighbors in a half-sample, too.
    baseline : (n,) float64
        Mean distance to the 10 nearest neighbors in the data, which ranks points without any refit.
    classes : (n,) int64
        Of `margin` and of `cluster_stability`: the labels, or else the clusters of the embedding.
    figures : MovementFigures
    reliability : Reliability
        Whether half-samples rank points alike by their movement; read it before ranks and regions.
    notes : tuple of Note
        Doubts about the movement, with the remedy.

    """

    consensus: NDArray[np.float64]
    covariance: NDArray[np.float64]
    movement: NDArray[np.float64]
    sampling_movement: NDArray[np.float64]
    seed_movement: NDArray[np.float64]
    radius: NDArray[np.float64]
    margin: NDArray[np.float64]
    neighbor_stability: NDArray[np.float64]
    baseline: NDArray[np.float64]
    classes: NDArray[np.int64]
    figures: MovementFigures
    reliability: Reliability
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return figures, reliability and notes as a JSON-able dictionary."""
        notes = [asdict(note) for note in self.notes]
        return {"figures": dict(self.figures), "reliability": self.reliability.to_dict(), "notes": notes}


def movement(
    embed: MethodEmbedder[Any],
    reference: NDArray[np.float64],
    samples: Resamples,
    seeds: Resamples | None = None,
    *,
    labels: NDArray[np.int64] | None = None,
    n_neighbors: int = 10,
    on_progress: OnProgress = silent,
) -> Movement:
    """Summarize the refits of a method.

    Parameters
    ----------
    embed : MethodEmbedder
    reference : (n, p) float64
        The embedding of all points.
    samples : Resamples
        Of a `glle_engine.reliability.resamples.stream_of`, in any order; at least 4 without a problem. The part of the
        variance by sampling is multiplied by the factor of the stream; shares of kept neighbors have no factor.
    seeds : Resamples, optional
        Of the whole data with other seeds (`glle_engine.reliability.resamples.SEEDS`).
    labels : (n,) int64, optional
        The class of each point, at most 100 classes; default: clusters of the reference.
    n_neighbors : int
        Neighbors in the embedding that may be kept.
    on_progress
        Called with (done, total, stage), for the stages "consensus", "reliability" and "stability".

    Raises
    ------
    InvalidParameterError
        For too few half-samples, or too many neighbors or classes.

    """
    n, problems = len(reference), samples.problems
    k = check_integer("n_neighbors", n_neighbors, 1)
    require_neighbors(k, n)
    whole, center, size = normalize(reference)
    classes = _classes(whole, labels)
    refitted = normalize_all(samples.embeddings)
    if len(refitted) < MIN_EMBEDDINGS:
        raise InvalidParameterError(
            f"{len(refitted)} of {len(refitted) + len(problems)} half-samples were embedded; movement needs "
            f"{MIN_EMBEDDINGS}." + (f" The first problem: {problems[0]}" if problems else ""),
            remedy="Embed with other parameters, such as a larger n_neighbors, or take more half-samples.",
        )
    aligned = Alignment.from_maps((refitted,), whole, on_progress=on_progress)
    (consensus, covariance), (places,) = aligned.moments[0], aligned.kinds
    over_samples = np.trace(covariance, axis1=1, axis2=2)
    by_seed, again = _variance_by_seeds(seeds, whole)
    # The seeds of two samples differ, so that their part has no factor.
    factor = samples.stream.factor if embed.method.linear else 1.0
    total = over_samples + (factor - 1) * np.maximum(over_samples - by_seed, 0)
    times = np.divide(total, over_samples, out=np.ones(n), where=over_samples > 0)
    margin = _margin(consensus, classes)
    radius = np.sqrt(times) * np.median(np.sqrt(((places - consensus) ** 2).sum(axis=2)), axis=0)
    kept = neighbor_stability(places, whole, k, on_progress)
    clusters = _clusters(whole, _centroids(whole, classes))
    path, baseline = np.sqrt(total), _baseline(embed)
    seed_share = float(min(by_seed.sum() / total.sum(), 1.0)) if total.sum() > 0 else 0.0
    figures: MovementFigures = {
        "n_resamples": len(places),
        "share": samples.stream.share,
        "n_refits": again,
        "failed": len(problems),
        "n_neighbors": k,
        "median_movement": float(size * np.median(path)),
        "relative_movement": float(np.median(path)),
        "seed_share": seed_share,
        "pairs_kept": float(kept.mean()),
        "pairs_by_chance": k / (n - 1),
        "cluster_stability": float(
            np.mean([adjusted_rand(_clusters(Y, _centroids(Y, classes)), clusters) for Y in places])
        ),
        "classes": "clusters" if labels is None else "labels",
        "n_classes": int(classes.max()) + 1,
        "separated": None if np.isnan(margin).any() else float((radius < margin).mean()),
        "baseline_correlation": rank_correlation(path, baseline),
    }
    return Movement(
        consensus=center + size * consensus,
        covariance=size**2 * times[:, None, None] * covariance,
        movement=size * path,
        sampling_movement=size * np.sqrt(np.maximum(total - by_seed, 0)),
        seed_movement=size * np.sqrt(by_seed),
        radius=size * radius,
        margin=size * margin,
        neighbor_stability=kept,
        baseline=baseline,
        classes=classes,
        figures=figures,
        reliability=movement_reliability(aligned, seed_share),
        notes=tuple(_notes(figures, problems, _UNCERTAIN.get(embed.method.name))),
    )


def adjusted_rand(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Return the adjusted Rand index of two partitions (n,), numbered from 0: 1 if equal, 0 as by chance.

    Hubert and Arabie 1985, Eq. 5. Two partitions that both have one part, or only single points, are equal.
    """
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    together, by_a, by_b = (
        float((counts * (counts - 1) / 2).sum()) for counts in (table, table.sum(axis=1), table.sum(axis=0))
    )
    n = len(a)
    expected = by_a * by_b / (n * (n - 1) / 2)
    most = (by_a + by_b) / 2
    return 1.0 if most == expected else (together - expected) / (most - expected)


def _variance_by_seeds(seeds: Resamples | None, whole: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return the variance of each point (n,) over the embedding and its refits with other seeds, and their number."""
    others = np.empty((0, *whole.shape)) if seeds is None else normalize_all(seeds.embeddings)
    if not len(others):
        return np.zeros(len(whole)), 0
    aligned = generalized_procrustes(np.concatenate([whole[None], others]), whole)
    return np.trace(moments(aligned)[1], axis1=1, axis2=2), len(others)


def _classes(whole: NDArray[np.float64], labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return the labels numbered from 0, or the clusters of an embedding.

    The clusters are what a reader sees: k-means of the embedding, with the number of clusters (2 to 10) that has the
    greatest index of Calinski and Harabasz (1974). The index finds a number in embeddings without clusters, too.
    """
    if labels is not None:
        classes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        if classes.max() >= MAX_CLASSES:
            raise InvalidParameterError(
                f"The labels have {int(classes.max()) + 1} classes; at most {MAX_CLASSES} are compared.",
                remedy="Give labels of fewer classes, or none.",
            )
        return classes
    best, found = -np.inf, np.zeros(len(whole), np.int64)
    for count in range(2, min(MAX_CLUSTERS, len(whole) // 2) + 1):
        start, _ = kmeans2(whole, count, iter=ROUNDS, minit="++", rng=np.random.default_rng(count))
        clusters = np.unique(_clusters(whole, start), return_inverse=True)[1].astype(np.int64)
        within = float(((whole - _centroids(whole, clusters)[clusters]) ** 2).sum())
        among = max(float((whole**2).sum()) - within, 0.0)
        index = among / (count - 1) / (within / (len(whole) - count)) if within > 0 else np.inf
        if index > best:
            best, found = index, clusters
    return found


def _centroids(Y: NDArray[np.float64], classes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean (c, p) of each class, all of which occur."""
    counts = np.bincount(classes)
    return np.stack([np.bincount(classes, column) for column in Y.T], axis=1) / counts[:, None]


def _clusters(Y: NDArray[np.float64], centroids: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the clusters (n,) of k-means from given centroids; empty ones keep theirs."""
    with catch_warnings(action="ignore"):
        _, clusters = kmeans2(Y, centroids, iter=ROUNDS, minit="matrix", missing="warn")
    return np.asarray(clusters, np.int64)


def _margin(Y: NDArray[np.float64], classes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the distance (n,) of each point to the nearest one of another class, NaN with one class."""
    margin = np.full(len(Y), np.nan)
    if classes.max() > 0:
        for each in range(int(classes.max()) + 1):
            own = classes == each
            margin[own] = cKDTree(Y[~own]).query(Y[own])[0]
    return margin


def _baseline(embed: MethodEmbedder[Any]) -> NDArray[np.float64]:
    """Return the mean distance (n,) to the 10 nearest neighbors in the space of the method."""
    points, exponent = embed.located
    return np.asarray(np.ldexp(kneighbors(points, min(10, len(points) - 1))[1].mean(axis=1), exponent))


def _notes(figures: MovementFigures, problems: Sequence[str], uncertainty: str | None) -> Iterator[Note]:
    """Yield the notes of a summary."""
    if uncertainty is not None:
        yield Note("movement-unreliable", uncertainty)
    if figures["failed"]:
        yield Note(
            "half-samples-failed",
            f"{figures['failed']} half-samples could not be embedded and are left out: the movement describes the "
            f"others, and is too small.{f' The first problem: {problems[0]}' if problems else ''}",
        )
    correlation = figures["baseline_correlation"]
    if correlation >= ALIKE:
        yield Note(
            "movement-as-baseline",
            f"Movement ranks the points nearly as their mean distance to the 10 nearest neighbors in the data does "
            f"(rank correlation {correlation:.2f}): the points in sparse regions move.",
        )
    if figures["seed_share"] >= MOSTLY:
        yield Note(
            "movement-by-seed",
            f"{figures['seed_share']:.0%} of the variance comes from the seed, not from the data: the method does not "
            "settle. Give more iterations, or another init.",
        )
