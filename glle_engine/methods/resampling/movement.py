r"""Summary of refits: how far each point moves, and which neighbors, clusters and distances between classes remain.

All embeddings are centered, scaled to the root mean square radius of the whole data's embedding and rotated to their
common mean (generalized Procrustes): position, size and orientation of a picture mean nothing. Movement is the root of
the trace of a point's covariance over half-samples. It answers "how far does this point move with other data of this
kind", and ranks points. It is no interval: the coverage of regions by it is not calibrated, and a bias that all
half-samples share does not show.

Samples of .632 of the points show less variance than new data; the part by sampling is multiplied by 1.72. With seeds,
the variance over half-samples contains that of the seeds, which refits of the whole data measure apart:

.. math:: \operatorname{tr} C_i = s_i^2 + t_i^2

with s_i the movement by seeds and t_i that by sampling, 0 if the seeds alone explain more than the half-samples show.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.spatial import cKDTree

from glle_engine.base.brief import brief
from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.validation import finite_matrix
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import procrustes_rotation
from glle_engine.methods.resampling import short_circuits
from glle_engine.methods.resampling.reliability import MovementReliability, reliability
from glle_engine.methods.resampling.samples import HALF, located, require_share
from glle_engine.posterior.spread.calibration import rank_correlation
from glle_engine.posterior.summary import aligned_to_consensus, moments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.methods.base import Method
    from glle_engine.methods.parameters import MethodSpec

LEAST = 4  # half-samples
MOST_CLUSTERS = 10
MOST_CLASSES = 100  # of labels
ROUNDS = 20  # of Lloyd's algorithm
ALIKE = 0.7  # rank correlation above which the baseline ranks points nearly as the movement does
_UNCERTAIN = {
    "ltsa": "The movement of LTSA over half-samples does not measure that over new data: on sheets it was .4 to "
    "11 times as large. Compare points with each other, not with those of other methods.",
}
"""Notes on the methods for which movement over half-samples is known to differ from that over new data, by name."""


class MovementFigures(TypedDict):
    """Figures of the movement of an embedding, JSON-able.

    Attributes
    ----------
    half_samples : int
        Half-samples that were embedded.
    share : float
        Of the points in each sample.
    refits : int
        Refits with other seeds.
    failed : int
        Half-samples that could not be embedded, and are left out.
    n_neighbors : int
        Neighbors that may be kept.
    median_movement : float
        In the unit of the embedding.
    relative_movement : float
        The same over the root mean square radius of the embedding.
    seed_share : float
        Share of the variance that refits with other seeds explain.
    pairs_kept : float
        Share of neighbor pairs of the embedding that stay neighbors: the mean of `Movement.neighbor_stability`.
    pairs_by_chance : float
        The same of noise.
    cluster_stability : float
        Mean adjusted Rand index of the clusters; 0 is chance.
    classes : {"labels", "clusters"}
        What the classes are.
    n_classes : int
    separated : float or None
        Share of points whose disc of half the refits is smaller than the distance to the next class; None with one
        class.
    baseline_correlation : float or None
        Spearman's, of movement with the mean distance to the 10 nearest neighbors in the data.

    """

    half_samples: int
    share: float
    refits: int
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
    baseline_correlation: float | None


@dataclass(frozen=True, eq=False)
class Movement:
    """Movement of an embedding over refits of its method.

    Attributes
    ----------
    consensus : (n, p) float64
        Mean place of each point over the half-samples, aligned to the embedding, in its unit.
    covariance : (n, p, p) float64
        Of each point's place over the half-samples.
    movement : (n,) float64
        Root of the trace of that covariance; no interval.
    sampling_movement : (n,) float64
        Its part by the choice of points. Its square and that of the next part add up to that of the movement, unless
        the next alone is larger.
    seed_movement : (n,) float64
        Its part by the seed; 0 for a method without one.
    radius : (n,) float64
        Of the disc about the consensus that holds half of the half-samples.
    margin : (n,) float64
        Distance in the consensus to the nearest point of another class; NaN with one class.
    neighbor_stability : (n,) float64 in [0, 1]
        Mean share of the neighbors in the embedding that are neighbors over a half-sample.
    baseline : (n,) float64
        Mean distance to the 10 nearest neighbors in the data: what ranks points without any refit.
    classes : (n,) int64
        Of `margin` and of `cluster_stability`: the labels, or else the clusters of the embedding.
    figures : MovementFigures
    reliability : MovementReliability
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
    reliability: MovementReliability
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return figures, reliability and notes as a JSON-able dictionary."""
        notes = [asdict(note) for note in self.notes]
        return {"figures": dict(self.figures), "reliability": self.reliability.to_dict(), "notes": notes}


def movement(
    X: ArrayLike,
    method: Method[Any],
    spec: MethodSpec,
    reference: NDArray[np.float64],
    samples: NDArray[np.float64],
    others: NDArray[np.float64] | None = None,
    *,
    problems: Sequence[str] = (),
    labels: NDArray[np.int64] | None = None,
    n_neighbors: int = 10,
    share: float = HALF,
    on_progress: OnProgress = silent,
) -> Movement:
    """Summarize the refits of a method.

    Parameters
    ----------
    X : (n, d)
        The data, or distances (n, n).
    method, spec
    reference : (n, p) float64
        The embedding of all points.
    samples : (m, n, p) float64
        Of half-samples (`half_samples`), in any order; those with NaN are left out, and at least 4 remain.
    others : (r, n, p) float64, optional
        Of the whole data with other seeds (`refits`).
    problems : sequence of str
        The messages of half-samples that failed and are not among `samples`.
    labels : (n,) int64, optional
        The class of each point, at most 100 classes; default: clusters of the reference.
    n_neighbors : int
        Neighbors in the embedding that may be kept.
    share : {0.5, 0.632}
        Of the points in `samples`. The part of the variance by sampling is multiplied by share / (1 - share); shares of
        kept neighbors are those over the samples.
    on_progress
        Called with (done, total, stage), for the stages "consensus" and "stability".

    Raises
    ------
    InvalidParameterError
        For too few half-samples, or too many neighbors or classes.

    """
    n = len(reference)
    require_share(share)
    k = check_integer("n_neighbors", n_neighbors, 1)
    if k > n - 2:
        raise InvalidParameterError(
            f"n_neighbors={k} is too many for {n} points.", remedy=f"Give n_neighbors of at most {n - 2}."
        )
    whole, center, size = _normed(reference)
    classes = _classes(whole, labels)
    aligned, failed = _aligned(samples, whole, on_progress)
    failed += len(problems)
    if len(aligned) < LEAST:
        raise InvalidParameterError(
            f"{len(aligned)} of {len(aligned) + failed} half-samples were embedded; movement needs {LEAST}."
            + (f" The first problem: {problems[0]}" if problems else ""),
            remedy="Embed with other parameters, such as a larger n_neighbors, or take more half-samples.",
        )
    consensus, covariance = moments(aligned)
    total = np.trace(covariance, axis1=1, axis2=2)
    by_seed, again = _of_seeds(others, whole, n)
    times = np.ones(n)
    if share != HALF:  # the seeds of two samples differ, so that their part has no factor
        of_seeds = np.minimum(by_seed, total)
        corrected = share / (1 - share) * (total - of_seeds) + of_seeds
        times = np.divide(corrected, total, out=times, where=total > 0)
        total, covariance = corrected, times[:, None, None] * covariance
    starts = _lloyd(whole, _centroids(whole, classes))
    margin = _margin(consensus, classes)
    radius = np.sqrt(times) * np.median(np.sqrt(((aligned - consensus) ** 2).sum(axis=2)), axis=0)
    kept, indices = _stability(aligned, whole, starts, classes, k, on_progress)
    baseline = _baseline(X, spec)
    path = np.sqrt(total)
    seed_share = float(min(by_seed.sum() / total.sum(), 1.0)) if total.sum() > 0 else 0.0
    figures: MovementFigures = {
        "half_samples": len(aligned),
        "share": share,
        "refits": again,
        "failed": failed,
        "n_neighbors": k,
        "median_movement": float(size * np.median(path)),
        "relative_movement": float(np.median(path)),
        "seed_share": seed_share,
        "pairs_kept": float(kept.mean()),
        "pairs_by_chance": k / (n - 1),
        "cluster_stability": float(indices.mean()),
        "classes": "clusters" if labels is None else "labels",
        "n_classes": int(classes.max()) + 1,
        "separated": None if np.isnan(margin).any() else float((radius < margin).mean()),
        "baseline_correlation": _finite(rank_correlation(path, baseline)),
    }
    return Movement(
        consensus=center + size * consensus,
        covariance=size**2 * covariance,
        movement=size * path,
        sampling_movement=size * np.sqrt(np.maximum(total - by_seed, 0)),
        seed_movement=size * np.sqrt(by_seed),
        radius=size * radius,
        margin=size * margin,
        neighbor_stability=kept,
        baseline=baseline,
        classes=classes,
        figures=figures,
        reliability=reliability(aligned, seed_share),
        notes=tuple(_notes(method, figures, problems, _uncertainty(X, method, spec, reference, samples))),
    )


def adjusted_rand(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Return the adjusted Rand index of two partitions (n,), numbered from 0: 1 if equal, 0 as by chance.

    Hubert and Arabie 1985, Eq. 5. Two partitions in one part, or all parts single, are equal.
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


def _normed(Y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return an embedding with mean 0 and mean square radius 1, its mean, and its root mean square radius."""
    center = Y.mean(axis=0)
    size = float(np.sqrt(((Y - center) ** 2).sum(axis=1).mean()))
    return (Y - center) / (size or 1.0), center, size or 1.0


def _aligned(
    places: NDArray[np.float64], whole: NDArray[np.float64], on_progress: OnProgress
) -> tuple[NDArray[np.float64], int]:
    """Return the embeddings without NaN, normed and aligned to their consensus, and how many others there are.

    Each is rotated to the reference first, so that the result does not depend on their order.
    """
    found = [_normed(Y)[0] for Y in places if np.isfinite(Y).all()]
    turned = [Y @ procrustes_rotation(Y, whole) for Y in found]
    if len(turned) < 2:
        return np.array(turned).reshape(len(turned), *whole.shape), len(places) - len(turned)
    return aligned_to_consensus(np.array(turned), whole, on_progress), len(places) - len(turned)


def _of_seeds(
    others: NDArray[np.float64] | None, whole: NDArray[np.float64], n: int
) -> tuple[NDArray[np.float64], int]:
    """Return the variance of each point (n,) over the embedding and its refits with other seeds, and their number."""
    if others is None or not len(others):
        return np.zeros(n), 0
    aligned, _ = _aligned(np.concatenate([whole[None], others]), whole, silent)
    if len(aligned) < 2:
        return np.zeros(n), 0
    return np.trace(moments(aligned)[1], axis1=1, axis2=2), len(aligned) - 1


def _classes(whole: NDArray[np.float64], labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return the labels numbered from 0, or the clusters of an embedding.

    The clusters are those that a reader sees: k-means of the picture for 2 to 10 clusters, of which the index of
    Calinski and Harabasz (1974) is greatest. It chooses from pictures without clusters, too.
    """
    if labels is not None:
        classes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        if classes.max() >= MOST_CLASSES:
            raise InvalidParameterError(
                f"The labels have {int(classes.max()) + 1} classes; at most {MOST_CLASSES} are compared.",
                remedy="Give labels of fewer classes, or none.",
            )
        return classes
    best, found = -np.inf, np.zeros(len(whole), np.int64)
    for count in range(2, min(MOST_CLUSTERS, len(whole) // 2) + 1):
        start, _ = kmeans2(whole, count, iter=ROUNDS, minit="++", missing="warn", rng=np.random.default_rng(count))
        clusters = _lloyd(whole, start)
        clusters = np.unique(clusters, return_inverse=True)[1].astype(np.int64)
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


def _lloyd(Y: NDArray[np.float64], centroids: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the clusters (n,) of k-means from given centroids; empty ones keep theirs."""
    clusters = np.full(len(Y), -1, np.int64)
    centroids = centroids.copy()
    for _ in range(ROUNDS):
        before, clusters = clusters, cKDTree(centroids).query(Y)[1].astype(np.int64)
        if np.array_equal(before, clusters):
            break
        counts = np.bincount(clusters, minlength=len(centroids))
        for j, column in enumerate(Y.T):
            sums = np.bincount(clusters, column, minlength=len(centroids))
            centroids[:, j] = np.where(counts > 0, sums / np.maximum(counts, 1), centroids[:, j])
    return clusters


def _margin(Y: NDArray[np.float64], classes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the distance (n,) of each point to the nearest one of another class, NaN with one class."""
    margin = np.full(len(Y), np.nan)
    if classes.max() > 0:
        for each in range(int(classes.max()) + 1):
            own = classes == each
            margin[own] = cKDTree(Y[~own]).query(Y[own])[0]
    return margin


def _stability(
    aligned: NDArray[np.float64],
    whole: NDArray[np.float64],
    clusters: NDArray[np.int64],
    classes: NDArray[np.int64],
    k: int,
    on_progress: OnProgress,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the share of kept neighbors (n,), and the adjusted Rand index of the clusters over each embedding (m,).

    The clusters of a picture are those of k-means from the centroids of the classes in it. The index corrects for
    chance, so that it compares numbers and sizes of clusters that differ.
    """
    expected = kneighbors(np.ascontiguousarray(whole), k)[0]
    kept, indices = np.zeros(len(whole)), np.empty(len(aligned))
    for j, Y in enumerate(aligned):
        near = kneighbors(np.ascontiguousarray(Y), k)[0]
        kept += (expected[:, :, None] == near[:, None, :]).any(axis=2).sum(axis=1)
        indices[j] = adjusted_rand(_lloyd(Y, _centroids(Y, classes)), clusters)
        on_progress(j + 1, len(aligned), "stability")
    return kept / (k * len(aligned)), indices


def _baseline(X: ArrayLike, spec: MethodSpec) -> NDArray[np.float64]:
    """Return the mean distance (n,) to the 10 nearest neighbors in the space of a specification."""
    points, exponent = located(finite_matrix(X), spec)
    return np.asarray(np.ldexp(kneighbors(points, min(10, len(points) - 1))[1].mean(axis=1), exponent))


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _uncertainty(
    X: ArrayLike, method: Method[Any], spec: MethodSpec, reference: NDArray[np.float64], samples: NDArray[np.float64]
) -> str | None:
    """Return the warning on a method whose movement differs from that over new data, or None."""
    if method.name != "isomap":
        return _UNCERTAIN.get(method.name)
    points, _ = located(finite_matrix(X), spec)
    if not isinstance(points, np.ndarray):
        return short_circuits.UNKNOWN
    found = samples[np.isfinite(samples).all(axis=(1, 2))]
    return short_circuits.warning(points, getattr(spec, "n_neighbors", 10), reference, found)


def _notes(
    method: Method[Any], figures: MovementFigures, problems: Sequence[str], uncertainty: str | None
) -> Iterator[Note]:
    """Yield the notes of a summary."""
    if uncertainty is not None:
        yield Note("movement-unreliable", uncertainty)
    if figures["failed"]:
        yield Note(
            "half-samples-failed",
            f"{figures['failed']} half-samples could not be embedded and are left out: the movement is that of the "
            f"others, and too small.{f' The first problem: {problems[0]}' if problems else ''}",
        )
    correlation = figures["baseline_correlation"]
    if correlation is not None and correlation >= ALIKE:
        yield Note(
            "movement-as-baseline",
            f"Movement ranks the points nearly as their mean distance to the 10 nearest neighbors in the data does "
            f"(rank correlation {correlation:.2f}): the points that move are those in sparse regions.",
        )
    if figures["seed_share"] >= 0.5:
        yield Note(
            "movement-by-seed",
            f"{figures['seed_share']:.0%} of the variance is that of the seed, not of the data: the method does not "
            "settle. Give more iterations, or another initialization.",
        )
