r"""Audit of an embedding: whether a reader may believe the picture, and which parts of it.

Three questions, in this order:

1. Do the data have structure, and does the picture show it (`find_relations`)? Which neighborhoods are
   more than chance (`glle_engine.audit.chance`)?
2. How much of the picture would another sample of half as many points show (`common_share`)?
3. Where would each point be, which points stay neighbors, and which points are less certain?

The third is an empirical calibration (docs/explanation/believe.md). The spread has the size of that over separate
halves, without a factor, and its order of points is the mean of three kinds of resamples: halves, quarters and eight
tenths of the data. They err on different points. It ranks points as the spread over new samples does if the kinds
agree, and if both halves of the data alone have the same order.

The second compares the pictures of two separate halves of the data. Halves :math:`A` and :math:`B` without common
points are two independent samples of the population. Each is embedded, and all points are placed in both embeddings.
The part of the picture that both show is

.. math:: R^2 = 1 - \text{disparity}(Y_A, Y_B),

the Procrustes disparity. It is that of samples of half the size, and so on the careful side for the whole. With
one coordinate more, the squared canonical correlations of both embeddings say how many coordinates two samples share: a
3-ball shows three, noise none. Coordinates of nearly equal strength mix, so that there may be more.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from glle_engine.audit.chance import (
    NEIGHBORS,
    compare_with_chance,
    find_copies,
    find_relations,
    kept_neighbors,
    neighbors_of_block,
    unknown_reason,
)
from glle_engine.audit.result import Audit, Groups, Ranking, verdict
from glle_engine.audit.sources import (
    checked_coordinates,
    source_of_coordinates,
    source_of_function,
    source_of_method,
    source_of_posterior,
)
from glle_engine.base.errors import GlleError, InvalidParameterError, TooFewPointsError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import Note
from glle_engine.base.validation import require_neighbors
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import disparity, root_trace
from glle_engine.posterior.posterior import Posterior
from glle_engine.posterior.selection import intrinsic_dimension
from glle_engine.reliability.alignment import (
    FEWEST,
    Alignment,
    Regions,
    calibrated_regions,
    normalize,
    normalize_all,
    spearman_brown,
    spread_correlation,
)
from glle_engine.reliability.resamples import EIGHT_TENTHS, QUARTERS, SEPARATE, Resamples, resample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.chance import Chance
    from glle_engine.audit.sources import Function, Source, Transformer
    from glle_engine.reliability.resamples import Embedder, Stream

FIRST_PAIRS, ENOUGH_PAIRS, MAX_PAIRS = 4, 8, 12  # pairs of separate halves: first statement, usual end, and at most
WIDER_PAIRS = 3  # pairs with one coordinate more
CERTAIN = 0.03  # standard error of the share that remains, at which the audit ends
MORE = ((QUARTERS, 16), (EIGHT_TENTHS, 8))  # further kinds of resamples, and their number
LEAST_KEPT = 0.01  # share of the neighbors that a map keeps beyond random places, if it shows anything
HIGH, MODERATE = 0.85, 0.6  # expected rank correlation, of the words on the ranking
UNSTABLE = 2.5  # spread of halves over that of eight tenths: 2 if the embedding is a smooth function of the sample
DIMENSION_NEIGHBORS = 10
LEAST = 6  # distinct points: a fifth of them are compared as neighbors, and t-SNE needs a perplexity above 1
FEW = 60  # points: audits of fewer were not measured
KEPT, KEPT_POWER = 0.9, 1.1  # of `_neighbor_probability`
SHARED = 0.5  # squared canonical correlation of a coordinate that two samples share


def audits(
    X: ArrayLike,
    Y: Any = None,
    *,
    method: str | Function | Transformer | None = None,
    parameters: dict[str, Any] | None = None,
    labels: ArrayLike | None = None,
    n_neighbors: int = NEIGHBORS,
    seed: int = 0,
    executor: Executor | None = None,
    threads: int | None = None,
    on_progress: OnProgress = silent,
) -> Iterator[Audit]:
    """Yield an audit after each stage, the first one after four pairs of halves, until its statements are certain.

    The first one has no p-values, no dimension and no ranking, and believes no picture. Parameters and errors
    are those of `audit`.
    """
    k, seed = check_integer("n_neighbors", n_neighbors, 2), check_integer("seed", seed, 0, counter=True)
    source, embedding = _source(X, Y, method, parameters or {})
    copies = find_copies(source.data, seed)
    _require_picture(embedding, k, distinct=int((~copies).sum()))
    classes = None if labels is None else _labels(labels, len(embedding))
    relations = find_relations(source.data[~copies], seed)
    kept, by_chance = kept_neighbors(source, embedding, k, seed)
    beyond = None if relations is None else relations > 0 and kept - by_chance >= LEAST_KEPT
    reason = unknown_reason(source.place(source.data), embedding.shape[1])
    notes = (*source.notes, *_notes(embedding, k, relations, classes, reason, int(copies.sum())))
    in_words = partial(verdict, beyond, relations, kept, source.name)
    found = _Found(embedding, k, classes, beyond, in_words, notes)

    def compare() -> Chance | None:
        if reason is not None:
            return None
        return compare_with_chance(source, embedding, k, seed=seed, executor=pool, on_progress=on_progress)

    def more(stream: Stream, count: int, done: Resamples | None = None) -> Resamples:
        assert source.embedder is not None
        first = 0 if done is None else len(done.places)
        added = resample(
            source.embedder, count - first, stream=stream, first=first, seed=seed, executor=pool,
            on_progress=on_progress,
        )  # fmt: skip
        return added if done is None else done + added

    is_threaded = executor is None and source.is_threaded and threads != 1
    with ThreadPoolExecutor(threads or os.cpu_count()) if is_threaded else nullcontext(executor) as pool:
        if source.embedder is None:
            found.chance = compare()
            yield _of_coordinates(found, source.name)
            return
        found.halves = more(SEPARATE, 2 * FIRST_PAIRS)
        yield _of_halves(found)
        found.chance, found.is_compared = compare(), True
        for stream, count in MORE:
            with suppress(GlleError):  # quarters of few points
                found.others.append(more(stream, count))
        if source.wider is not None:
            found.dimension, found.hidden = _dimension(source.wider, seed, pool, on_progress)
        for pairs in range(ENOUGH_PAIRS, MAX_PAIRS + 1, 4):
            found.halves = more(SEPARATE, 2 * pairs, found.halves)
            result = _of_halves(found)
            yield result
            assert result.remains_error is not None
            if result.remains_error <= CERTAIN:
                return


def audit(X: ArrayLike, Y: Any = None, **options: Any) -> Audit:
    """Audit an embedding.

    Parameters
    ----------
    X : (n, d) array-like
        The data.
    Y : (n, p) array-like, Posterior, fitted estimator or Embedding, optional
        Coordinates from anywhere, or a posterior of the data.
    method : str, callable or estimator, optional
        How the coordinates are made: a method of the registry by name, a function of points (m, d) to coordinates
        (m, p), or an object with such a function `fit_transform`. Without it coordinates alone get p-values only.
    parameters : dict, optional
        Of the method.
    labels : (n,) array-like, optional
        Groups of the points, for `Audit.groups`.
    n_neighbors : int
        Neighbors that are compared; at most a fifth of the points, or of 1,000, for the kept ones and the p-values.
    seed : int
        Of permutations and halves.
    executor : concurrent.futures.Executor, optional
        Computes the resamples in parallel, with the same bits. By default threads do for methods of this library.
    threads : int, optional
        Number of these threads. Default: the number of processors.
    on_progress
        Called with (done, all, stage); its exceptions end the audit.

    Raises
    ------
    GlleError
        With the remedy: for data without columns, too few points, or coordinates of another number of points.

    """
    *_, result = audits(X, Y, **options)
    return result


audit.__signature__ = signature(audits).replace(return_annotation="Audit")  # type: ignore[attr-defined] # for help()


@dataclass(eq=False)
class _Found:
    """Results of the stages of an audit so far: `others` are the further kinds of resamples."""

    embedding: NDArray[np.float64]
    k: int
    classes: tuple[NDArray[Any], NDArray[np.int64]] | None
    beyond: bool | None
    in_words: Callable[..., str]
    notes: tuple[Note, ...]
    chance: Chance | None = None
    is_compared: bool = False
    halves: Resamples | None = None
    others: list[Resamples] = field(default_factory=list)
    dimension: int | None = None
    hidden: int | None = None  # the same if the points fill it and the picture does not show it


def _require_picture(embedding: NDArray[np.float64], k: int, distinct: int) -> None:
    """Raise `TooFewPointsError` or `InvalidParameterError` for a picture with nothing to compare."""
    if distinct < LEAST:
        raise TooFewPointsError(
            f"An audit needs at least {LEAST} distinct points, not {distinct}.", remedy="Give more points."
        )
    require_neighbors(k, len(embedding))
    if not np.ptp(embedding, axis=0).any():
        raise InvalidParameterError(
            "All points have the same coordinates: there is no picture to audit.",
            remedy="Give the coordinates of a picture in which points differ.",
        )


def _notes(
    embedding: NDArray[np.float64],
    k: int,
    relations: float | None,
    groups: tuple[NDArray[Any], NDArray[np.int64]] | None,
    reason: str | None,
    copies: int,
) -> Iterator[Note]:
    """Yield notes on limits of the answers; `reason` is why p-values are unknown, `copies` counts repeated rows."""
    n = len(embedding)
    if copies:
        yield Note(
            "repeated-rows",
            f"{copies} of {n} rows repeat others. Halves of the data share them, so that `remains`, the spread and the "
            "p-values are on the hopeful side. Audit the map of distinct rows.",
        )
    if (most := neighbors_of_block(n, k)) < k != NEIGHBORS:
        yield Note("fewer-neighbors", f"Kept neighbors and p-values are of {most} neighbors, not of n_neighbors={k}.")
    if reason is not None:
        yield Note("chance-unknown", f"P-values of single points are unknown: {reason}.")
    if relations is not None and relations <= 0:
        few = f"more points than {n} may show a relation, and " if n < FEW else ""
        yield Note(
            "unseen-structure",
            f"Not all structure is seen: {few}two modes of one column remain in data whose columns are permuted.",
        )
    names, classes = groups or ((), [])
    if single := int((np.bincount(classes) == 1).sum()):
        yield Note("groups-of-one-point", f"{single} of {len(names)} groups have one point, which is always apart.")


def _on_points(found: _Found) -> Iterator[Note]:
    """Yield a note if the picture keeps more neighbors than chance, and no single point does."""
    chance = found.chance
    if found.beyond and chance is not None and chance.has_gain and not chance.is_point_beyond.any():
        yield Note(
            "no-point-beyond",
            "All points together keep more neighbors than chance, but no single one at a false-discovery rate of 10 %.",
        )


def _source(
    X: ArrayLike, Y: Any, method: str | Function | Transformer | None, parameters: dict[str, Any]
) -> tuple[Source, NDArray[np.float64]]:
    Y = getattr(Y, "posterior_", Y)  # of an estimator
    if parameters and not isinstance(method, str):
        raise InvalidParameterError(
            "Only a method by name has parameters.", remedy="Give its name as the method, or leave parameters away."
        )
    if isinstance(Y, Posterior):
        if method is not None:
            raise InvalidParameterError(
                "Both a posterior and a method are given.", remedy="Give the one whose map is to be audited."
            )
        return source_of_posterior(X, Y), Y.embedding
    if isinstance(method, str):
        source, found = source_of_method(X, method, parameters)
        return source, found if Y is None else checked_coordinates(Y, len(found))
    if method is not None:
        return source_of_function(X, method, Y)
    if Y is None:
        raise InvalidParameterError(
            "There is no embedding to audit.", remedy='Give coordinates, a posterior, or a method such as "umap".'
        )
    found = checked_coordinates(Y, len(np.asarray(X)))
    return source_of_coordinates(X, found.shape[1]), found


def _labels(labels: ArrayLike, n: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    names, classes = np.unique(np.asarray(labels), return_inverse=True)
    if classes.shape != (n,):
        raise InvalidParameterError(f"The labels have shape {classes.shape}.", remedy=f"Give {n} labels, one a point.")
    return names, classes.astype(np.int64)


def _dimension(
    wider: Embedder, seed: int, executor: Executor | None, on_progress: OnProgress
) -> tuple[int | None, int | None]:
    """Return the number of coordinates that two samples share with one more than the picture's, and again if hidden.

    It is hidden if it is more than the picture has, and the points fill it: on a sheet, a further coordinate is a
    function of the others.
    """
    places = np.empty((0, *wider.shape))
    with suppress(GlleError):  # the data have no further coordinate
        found = resample(wider, 2 * WIDER_PAIRS, stream=SEPARATE, seed=seed, executor=executor, on_progress=on_progress)
        places = _complete_pairs(found.places)
    if not len(places):
        return None, None
    filled = intrinsic_dimension(kneighbors(np.ascontiguousarray(places[0]), DIMENSION_NEIGHBORS)[1])
    shared, p = shared_coordinates(places), wider.shape[1] - 1
    return shared, shared if shared > p and filled >= p + 0.5 else None


def _complete_pairs(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the pairs of embeddings (2 m, n, p) of which neither failed."""
    is_found = np.isfinite(places).all(axis=(1, 2)).reshape(-1, 2).all(axis=1)
    return np.asarray(places[np.repeat(is_found, 2)])


def _of_coordinates(found: _Found, name: str) -> Audit:
    note = Note(
        "coordinates-alone",
        f"Coordinates alone show fidelity, compared with {name} of data without structure, which keeps more neighbors "
        "than most methods: fewer are no sign against a map. Give its method, such as method='isomap' or a function "
        "from data to coordinates, to compare like with like, and to learn what another sample would show.",
    )
    return Audit(
        verdict=found.in_words(found.chance),
        beyond_chance=found.beyond,
        embedding=found.embedding,
        chance=found.chance,
        notes=(*found.notes, *_on_points(found), note),
    )


def _of_halves(found: _Found) -> Audit:
    """Return the audit by the pictures of separate halves, and of further kinds of resamples if there are any."""
    assert found.halves is not None
    places, problems, embedding = found.halves.places, found.halves.problems, found.embedding
    pictures = _complete_pairs(places)
    if len(pictures) < 2 * FIRST_PAIRS - 2:
        raise InvalidParameterError(
            f"{len(places) - len(pictures)} of {len(places)} halves of the data could not be embedded."
            + (f" The first problem: {problems[0]}" if problems else ""),
            remedy="Audit an embedding with other parameters, such as a larger n_neighbors.",
        )
    shares, (_, _, size) = common_share(pictures), normalize(embedding)
    remains = float(shares.mean())
    aligned, ranking, notes = _combine(pictures, found)
    around = calibrated_regions(aligned)
    near = Regions(embedding, size * around.half_axes, around.levels, around.radii)
    graph = _neighbor_probability(pictures, found.k)
    own = kneighbors(np.ascontiguousarray(embedding), found.k)[0]
    rows = np.repeat(np.arange(len(own)), found.k)
    groups = None if found.classes is None else compare_groups(pictures, *found.classes, found.k)
    in_words = found.in_words(found.chance, remains, found.hidden, embedding.shape[1], found.is_compared)
    on_groups = groups.statement() if groups is not None and found.beyond and found.is_compared else ""
    return Audit(
        verdict=f"{in_words} {on_groups}".strip(),
        beyond_chance=found.beyond,
        embedding=embedding,
        remains=remains,
        remains_error=float(shares.std(ddof=1) / np.sqrt(len(shares))),
        dimension=found.dimension,
        spread=size * root_trace(aligned.covariance),
        stability=np.asarray(graph[rows, own.ravel()]).reshape(own.shape).mean(axis=1),
        regions={"mean": near, "new sample": near.of_new_sample()},
        neighbors=graph,
        groups=groups,
        ranking=None if found.beyond is False else ranking,
        chance=found.chance,
        pairs=len(pictures) // 2,
        notes=(*found.notes, *_on_points(found), *notes),
    )


def _combine(halves: NDArray[np.float64], found: _Found) -> tuple[Alignment, Ranking | None, tuple[Note, ...]]:
    """Return all kinds of pictures with the size of the halves' spread, how they rank the points, and notes."""
    kinds = {SEPARATE.name: _align([halves], found.embedding)}
    for others in found.others:
        if len(others.embeddings) >= 2 * FEWEST:
            kinds[others.stream.name] = _align([others.embeddings], found.embedding)
    medians = {name: float(np.median(kind.spread)) for name, kind in kinds.items()}
    factors = [(medians[SEPARATE.name] / median) ** 2 if median else 1.0 for median in medians.values()]
    together = _align([kind.kinds[0] for kind in kinds.values()], found.embedding, factors)
    if len(kinds) == 1:
        return together, None, ()
    first, *rest = kinds.values()
    expected = min(spread_correlation(first.covariance, other.covariance) for other in rest)
    for others in found.others:
        if others.stream.nested:
            expected = min(expected, _reproducibility(others.places, found.embedding))
    expected = max(expected, 0.0)
    ranking = Ranking("high" if expected >= HIGH else "moderate" if expected >= MODERATE else "low", expected)
    return together, ranking, (*_unstable(medians[SEPARATE.name], medians.get(EIGHT_TENTHS.name, 0.0)),)


def _reproducibility(places: NDArray[np.float64], embedding: NDArray[np.float64]) -> float:
    """Return the reliability of the order of points by two halves of the data, each by quarters of it."""
    sides = [part[np.isfinite(part).all(axis=(1, 2))] for part in (places[::2], places[1::2])]
    if min(map(len, sides)) < FEWEST:
        return 0.0
    first, second = (_align([side], embedding).covariance for side in sides)
    return spearman_brown(spread_correlation(first, second), 2)


def _unstable(halves: float, most: float) -> Iterator[Note]:
    """Yield a note if half of the points have another picture, by the spread of halves and of most points."""
    if most and halves / most > UNSTABLE:
        yield Note(
            "halves-unstable",
            f"Halves of the data spread {halves / most:.2g} times as much as eight tenths of them; 2 times is the most "
            "of a smooth map. Half of the points are too few for this picture, so that the spread, the regions and "
            "`remains` are on the careful side. Give more points, or other parameters of the method.",
        )


def _align(
    kinds: list[NDArray[np.float64]], embedding: NDArray[np.float64], factors: list[float] | None = None
) -> Alignment:
    """Align kinds of pictures of mean 0 and mean square radius 1; raises `InvalidShapeError` for fewer than four."""
    return Alignment.of([normalize_all(kind) for kind in kinds], normalize(embedding)[0], factors or (1.0,))


def _neighbor_probability(pictures: NDArray[np.float64], k: int) -> csr_array:
    """Return the probability (n, n) that j is among the k nearest neighbors of i in the picture of another sample.

    A share f of these pictures becomes .9 f^1.1, because the halves of one data set have points in common that other
    samples do not have: measured on 45 laws (docs/explanation/believe.md).
    """
    n = pictures.shape[1]
    total = csr_array((n, n))
    for Y in pictures:
        near = kneighbors(np.ascontiguousarray(Y), k)[0]
        total = total + csr_array((np.ones(near.size), near.ravel(), np.arange(0, near.size + 1, k)), shape=(n, n))
    total.data = KEPT * (total.data / len(pictures)) ** KEPT_POWER
    return csr_array(total)


def compare_groups(pictures: NDArray[np.float64], names: NDArray[Any], classes: NDArray[np.int64], k: int) -> Groups:
    """Return how far labeled points are groups in pictures (m, n, p); `classes` (n,) are indices of the names."""
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
    return Groups(names, apart / len(pictures), member / len(pictures), classes)


def common_share(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R^2 (m,) of each pair of consecutive embeddings (2 m, n, p), those of two separate halves."""
    return np.array([1 - disparity(a, b) for a, b in zip(places[::2], places[1::2], strict=True)])


def shared_coordinates(places: NDArray[np.float64]) -> int:
    """Return the number of coordinates that the pairs of consecutive embeddings (2 m, n, p) share.

    Coordinate j is shared if the median of its squared canonical correlation over pairs is at least .5.
    """
    pairs = zip(places[::2], places[1::2], strict=True)
    return int((np.median([canonical_correlations(a, b) ** 2 for a, b in pairs], axis=0) >= SHARED).sum())


def canonical_correlations(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the canonical correlations (p,) of two embeddings (n, p), the largest first (Hotelling 1936)."""
    first, second = (dense.svd(Y - Y.mean(axis=0))[0] for Y in (A, B))
    return np.asarray(dense.svd(dense.cross(first, second))[1])
