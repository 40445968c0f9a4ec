r"""Audit of an embedding: whether a reader may believe the picture, and which parts of it.

Three questions, in this order:

1. Are its neighborhoods more than chance (`glle_engine.audit.chance`)?
2. How much of the picture would another sample of the same size and kind show (`glle_engine.audit.agreement`)?
3. Where would each point be, which points stay neighbors, and which points are less certain (resamples of separate
   halves, `glle_engine.reliability`)?

The spread over halves stands for that over new samples without a factor. For LLE the ratio of both was .75 to 1.3 on
most laws; for smooth statistics of the sample, such as principal components, it is careful by up to the root of 2. The
spread ranks points as that over new samples does if halves and quarters of the data agree on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from glle_engine.audit.agreement import common_share, shared_coordinates
from glle_engine.audit.chance import NEIGHBORS, compare_with_chance, unknown_reason
from glle_engine.audit.result import Audit, Groups, Ranking
from glle_engine.audit.sources import (
    coordinates,
    source_of_coordinates,
    source_of_function,
    source_of_method,
    source_of_posterior,
)
from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import GlleError, InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import root_trace
from glle_engine.posterior.posterior import Posterior
from glle_engine.posterior.selection import intrinsic_dimension
from glle_engine.reliability.alignment import Alignment, spearman_brown, spread_correlation
from glle_engine.reliability.regions import Regions, calibrated_regions
from glle_engine.reliability.resamples import SEPARATE, Stream, resample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.chance import Chance
    from glle_engine.audit.sources import Source
    from glle_engine.reliability.resamples import Embedder, Resamples

FIRST_PAIRS, MAX_PAIRS = 4, 12  # pairs of separate halves: at first, and at most
WIDER_PAIRS = 3  # pairs with one coordinate more
CERTAIN = 0.03  # standard error of the share that remains, at which the audit ends
QUARTERS = Stream("separate quarters", 0.25, number=4, paired=True)
QUARTER_PAIRS = 8
HOLDS, PARTLY = 0.6, 0.3  # share that remains, of the words of the verdict
HIGH, MODERATE = 0.8, 0.65  # expected rank correlation, of the words on the ranking
DIMENSION_NEIGHBORS = 10
KEPT, KEPT_POWER = 0.89, 1.25  # of `_neighbor_probability`
NEW_SAMPLE = float(np.sqrt(2))  # a new place scatters around the mean place, which scatters around the embedding


def audit(
    X: ArrayLike,
    Y: ArrayLike | Posterior | None = None,
    *,
    method: str | Callable[[NDArray[np.float64]], ArrayLike] | None = None,
    parameters: dict[str, Any] | None = None,
    labels: ArrayLike | None = None,
    n_neighbors: int = NEIGHBORS,
    seed: int = 0,
    executor: Executor | None = None,
    on_progress: OnProgress = silent,
) -> Audit:
    """Audit an embedding.

    Parameters
    ----------
    X : (n, d) array-like
        The data.
    Y : (n, p) array-like or Posterior, optional
        Coordinates from anywhere, or a posterior of the data.
    method : str or callable, optional
        How the coordinates are made: a method of the registry by name, or a function of points (m, d) to coordinates
        (m, p). Without it coordinates alone get p-values only.
    parameters : dict, optional
        Of the method.
    labels : (n,) array-like, optional
        Groups of the points, for `Audit.groups`.
    n_neighbors : int
        Neighbors that are compared.
    seed : int
        Of permutations and halves.
    executor : concurrent.futures.Executor, optional
        Computes the halves in parallel, with the same bits.
    on_progress
        Called with (done, all, stage); its exceptions end the audit.

    Raises
    ------
    GlleError
        With the remedy: for data without columns, too few points, or coordinates of another number of points.

    """
    result: Audit | None = None
    for result in audits(  # noqa: B007 # the last one
        X, Y, method=method, parameters=parameters, labels=labels, n_neighbors=n_neighbors, seed=seed,
        executor=executor, on_progress=on_progress,
    ):  # fmt: skip
        pass
    assert result is not None
    return result


def audits(
    X: ArrayLike,
    Y: ArrayLike | Posterior | None = None,
    *,
    method: str | Callable[[NDArray[np.float64]], ArrayLike] | None = None,
    parameters: dict[str, Any] | None = None,
    labels: ArrayLike | None = None,
    n_neighbors: int = NEIGHBORS,
    seed: int = 0,
    executor: Executor | None = None,
    on_progress: OnProgress = silent,
) -> Iterator[Audit]:
    """Yield an audit after each stage, the first after four pairs of halves, until its statements are certain.

    Parameters and errors are those of `audit`.
    """
    k = check_integer("n_neighbors", n_neighbors, 2)
    source, embedding = _source(X, Y, method, parameters or {})
    classes = None if labels is None else _labels(labels, len(embedding))
    reason = unknown_reason(source.place(source.data), embedding.shape[1])
    chance = (
        None
        if reason is not None
        else compare_with_chance(source, embedding, n_neighbors=k, seed=seed, on_progress=on_progress)
    )
    notes = () if reason is None else (Note("chance-unknown", f"Chance and structure look alike: {reason}."),)
    if source.embedder is None:
        yield _of_coordinates(source, embedding, chance, notes)
        return
    dimension = _dimension(source.wider, seed, executor, on_progress)
    quarters = _quarters(source.embedder, embedding, seed, executor, on_progress)
    done = resample(source.embedder, 0, stream=SEPARATE, seed=seed)
    for pairs in (FIRST_PAIRS, *range(FIRST_PAIRS + 4, MAX_PAIRS + 1, 4)):
        first = len(done.places)
        done += resample(
            source.embedder, 2 * pairs - first, stream=SEPARATE, first=first, seed=seed,
            executor=executor, on_progress=on_progress,
        )  # fmt: skip
        found = _of_halves(source, embedding, done, quarters, chance, dimension, classes, k, notes)
        yield found
        assert found.remains_error is not None
        if found.remains_error <= CERTAIN:
            return


def _source(
    X: ArrayLike,
    Y: ArrayLike | Posterior | None,
    method: str | Callable[[NDArray[np.float64]], ArrayLike] | None,
    parameters: dict[str, Any],
) -> tuple[Source, NDArray[np.float64]]:
    if isinstance(Y, Posterior):
        return source_of_posterior(X, Y), Y.embedding
    if isinstance(method, str):
        source, found = source_of_method(X, method, parameters, None)
        return source, found if Y is None else coordinates(Y, len(found))
    if method is not None:
        return source_of_function(X, method, Y)
    if Y is None:
        raise InvalidParameterError(
            "There is no embedding to audit.", remedy='Give coordinates, a posterior, or a method such as "umap".'
        )
    found = coordinates(Y, len(np.asarray(X)))
    return source_of_coordinates(X, found.shape[1]), found


def _labels(labels: ArrayLike, n: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    names, classes = np.unique(np.asarray(labels), return_inverse=True)
    if classes.shape != (n,):
        raise InvalidParameterError(f"The labels have shape {classes.shape}.", remedy=f"Give {n} labels, one a point.")
    return names, classes.astype(np.int64)


def _dimension(
    wider: Embedder | None, seed: int, executor: Executor | None, on_progress: OnProgress
) -> tuple[int | None, float]:
    """Return the number of coordinates that two samples share with one more than the picture's, and the dimension.

    The dimension is that of the points in these coordinates: on a sheet, a further one is a function of the others.
    """
    if wider is None:
        return None, 0.0
    try:
        found = resample(wider, 2 * WIDER_PAIRS, stream=SEPARATE, seed=seed, executor=executor, on_progress=on_progress)
    except GlleError:  # the data have no further coordinate
        return None, 0.0
    places = _complete_pairs(found.places)
    if not len(places):
        return None, 0.0
    filled = intrinsic_dimension(kneighbors(np.ascontiguousarray(places[0]), DIMENSION_NEIGHBORS)[1])
    return shared_coordinates(places), filled


def _complete_pairs(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the pairs of embeddings (2 m, n, p) of which neither failed."""
    is_found = np.isfinite(places).all(axis=(1, 2)).reshape(-1, 2).all(axis=1)
    return np.asarray(places[np.repeat(is_found, 2)])


def _of_coordinates(
    source: Source, embedding: NDArray[np.float64], chance: Chance | None, notes: tuple[Note, ...]
) -> Audit:
    note = Note(
        "coordinates-alone",
        f"Coordinates alone show fidelity, compared with {source.name} of data without structure. Give the method, or "
        "a function from data to coordinates, to learn what another sample would show.",
    )
    verdict = _first_sentence(chance)
    return Audit(
        verdict=verdict,
        beyond_chance=None if chance is None else chance.is_beyond,
        embedding=embedding,
        chance=chance,
        notes=(*notes, note),
    )


def _quarters(
    embedder: Embedder, embedding: NDArray[np.float64], seed: int, executor: Executor | None, on_progress: OnProgress
) -> NDArray[np.float64] | None:
    """Return the covariance (n, p, p) of each point over quarters of the data, or None if they are too small."""
    try:
        found = resample(
            embedder, 2 * QUARTER_PAIRS, stream=QUARTERS, seed=seed, executor=executor, on_progress=on_progress
        )
        return _align(found.embeddings, embedding).covariance
    except GlleError:
        return None


def _align(pictures: NDArray[np.float64], embedding: NDArray[np.float64]) -> Alignment:
    """Align pictures of mean 0 and mean square radius 1; raises `InvalidParameterError` for fewer than four."""
    normed = np.array([(Y - Y.mean(axis=0)) / _radius(Y) for Y in pictures]).reshape(-1, *embedding.shape)
    return Alignment.of([normed], (embedding - embedding.mean(axis=0)) / _radius(embedding))


def _of_halves(
    source: Source,
    embedding: NDArray[np.float64],
    resamples: Resamples,
    quarters: NDArray[np.float64] | None,
    chance: Chance | None,
    dimension: tuple[int | None, float],
    classes: tuple[NDArray[Any], NDArray[np.int64]] | None,
    k: int,
    notes: tuple[Note, ...],
) -> Audit:
    """Return the audit by the pictures of separate halves."""
    pictures = _complete_pairs(resamples.places)
    if len(pictures) < 2 * FIRST_PAIRS - 2:
        raise InvalidParameterError(
            f"{len(resamples.places) - len(pictures)} of {len(resamples.places)} halves of the data could not be "
            "embedded." + (f" The first problem: {resamples.problems[0]}" if resamples.problems else ""),
            remedy="Audit an embedding with other parameters, such as a larger n_neighbors.",
        )
    shares = common_share(pictures)
    remains = float(shares.mean())
    aligned, size = _align(pictures, embedding), _radius(embedding)
    around = calibrated_regions(aligned)
    near = Regions(embedding, size * around.half_axes, around.levels, around.radii)
    new = Regions(embedding, near.half_axes, near.levels, tuple(NEW_SAMPLE * radius for radius in near.radii))
    graph = _neighbor_probability(pictures, k)
    own = kneighbors(np.ascontiguousarray(embedding), k)[0]
    rows = np.repeat(np.arange(len(own)), k)
    is_beyond = None if chance is None else chance.is_beyond
    return Audit(
        verdict=_verdict(chance, remains, dimension, embedding.shape[1], source.name),
        beyond_chance=is_beyond,
        embedding=embedding,
        remains=remains,
        remains_error=float(shares.std(ddof=1) / np.sqrt(len(shares))),
        dimension=dimension[0],
        spread=size * root_trace(aligned.covariance),
        stability=np.asarray(graph[rows, own.ravel()]).reshape(own.shape).mean(axis=1),
        regions={"mean": near, "new sample": new},
        neighbors=graph,
        groups=None if classes is None else _groups(pictures, *classes, k),
        ranking=None if is_beyond is False else _ranking(aligned, quarters),
        chance=chance,
        pairs=len(pictures) // 2,
        notes=notes,
    )


def _ranking(aligned: Alignment, quarters: NDArray[np.float64] | None) -> Ranking:
    expected = spearman_brown(aligned.split_half_correlations()[0], 2)
    if quarters is not None:
        expected = min(expected, max(spread_correlation(aligned.covariance, quarters), 0.0))
    return Ranking("high" if expected >= HIGH else "moderate" if expected >= MODERATE else "low", expected)


def _radius(Y: NDArray[np.float64]) -> float:
    """Return the root mean square distance of the points from their mean, 1 if they are equal."""
    return float(np.sqrt(((Y - Y.mean(axis=0)) ** 2).sum(axis=1).mean())) or 1.0


def _neighbor_probability(pictures: NDArray[np.float64], k: int) -> csr_array:
    """Return the probability (n, n) that j is among the k nearest neighbors of i in the picture of another sample.

    A share f of these pictures becomes .89 f^1.25, because the halves of one data set have points in common that other
    samples do not have; measured on 34 laws, and checked on 34 others (docs/explanation/believe.md).
    """
    n = pictures.shape[1]
    total = csr_array((n, n))
    for Y in pictures:
        near = kneighbors(np.ascontiguousarray(Y), k)[0]
        total = total + csr_array((np.ones(near.size), near.ravel(), np.arange(0, near.size + 1, k)), shape=(n, n))
    total.data = KEPT * (total.data / len(pictures)) ** KEPT_POWER
    return csr_array(total)


def _groups(pictures: NDArray[np.float64], names: NDArray[Any], classes: NDArray[np.int64], k: int) -> Groups:
    apart = np.zeros((len(names), len(names)))
    member = np.zeros(len(classes))
    for Y in pictures:
        near = classes[kneighbors(np.ascontiguousarray(Y), k)[0]]
        member += (near == classes[:, None]).mean(axis=1) > 0.5
        centers = np.stack([Y[classes == c].mean(axis=0) for c in range(len(names))])
        distance = np.linalg.norm(Y[:, None] - centers, axis=2)
        nearer = distance[np.arange(len(Y)), classes][:, None] < distance  # own center nearer than each other's
        share = np.stack([nearer[classes == c].mean(axis=0) for c in range(len(names))])
        apart += np.minimum(share, share.T) >= 0.9
    np.fill_diagonal(apart, 0)
    return Groups(names, apart / len(pictures), member / len(pictures))


def _first_sentence(chance: Chance | None) -> str:
    if chance is None:
        return "Whether the neighborhoods are more than chance cannot be decided by these data."
    if not chance.is_beyond:
        return (
            "Nothing here is more than chance: data without relations among their features give neighborhoods as good "
            f"({chance.preserved.mean():.0%} of the neighbors are kept; {chance.expected.mean():.0%} by chance)."
        )
    return (
        f"There is structure: {chance.preserved.mean():.0%} of the neighbors are kept, against "
        f"{chance.expected.mean():.0%} by chance."
    )


def _verdict(chance: Chance | None, remains: float, dimension: tuple[int | None, float], p: int, name: str) -> str:
    first, (shared, filled) = _first_sentence(chance), dimension
    hidden = ""
    if shared is not None and shared > p and filled >= p + 0.5:
        hidden = f" The data fill {shared} dimensions that two samples share; this picture has {p}."
    if chance is not None and not chance.is_beyond:
        return first + hidden
    share = f"another sample would show {remains:.0%} of it"
    if remains >= HOLDS:
        second = f"Believe the picture: {share}."
    elif remains >= PARTLY:
        second = f"Believe parts of the picture: {share}. Read the most stable points, not the shape."
    else:
        second = f"Do not believe the picture by {name}: {share}."
    return f"{first} {second}{hidden}"
