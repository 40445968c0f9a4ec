r"""Audit of an embedding: whether a reader may believe the map, and which parts of it.

Three questions, in this order:

1. Do the data have structure, and does the map show it (`find_relations`)?
2. How much of the map would another sample of half as many points show (`remains`)?
3. Of what can be read from a map, what remains: islands, their arrangement, neighborhoods, shapes
   (`glle_engine.audit.answers`)? And where does the map tear or fold the data?

All but the first come from the maps of separate halves of the data. Halves :math:`A` and :math:`B` without common
points are two independent samples of the population. Each is embedded, and all points are placed in both embeddings.
The part of the map that both show is

.. math:: R^2 = 1 - \text{disparity}(Y_A, Y_B),

the Procrustes disparity. It speaks of samples of half the size, and so is on the careful side for the whole. `remains`
is the smaller one of its mean and of the mean :math:`R^2` of the map that is shown with the halves: halves can agree on
something that the shown map does not have. The spread of a point is that over halves, without a factor
(docs/explanation/believe.md).

More halves are made until `remains` and the share of islands are 2.5 standard errors away from the thresholds of the
statement. Above 5,000 points the audit makes maps of the halves of a random sample of 4,000 points, and places the
other points by their weights.

With one coordinate more, the squared canonical correlations of both embeddings say how many coordinates two samples
share: a 3-ball shows three, noise none. Coordinates of nearly equal strength mix, so that there may be more.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from glle_engine.audit.answers import (
    arrangement,
    disturbed_by_data,
    disturbed_by_samples,
    groups_apart,
    islands_of_picture,
    islands_of_samples,
    neighborhoods,
    shape,
    shared,
    standard_error,
)
from glle_engine.audit.chance import (
    NEIGHBORS,
    compare_with_chance,
    dominant_feature,
    find_copies,
    find_relations,
    kept_neighbors,
    neighbors_of_block,
    unknown_reason,
)
from glle_engine.audit.dependence import dependence_notes
from glle_engine.audit.result import Audit, Groups
from glle_engine.audit.sources import (
    checked_coordinates,
    dense_rows,
    points_in_space,
    source_of_coordinates,
    source_of_function,
    source_of_method,
    source_of_posterior,
)
from glle_engine.audit.statement import Facts, Statement, state
from glle_engine.base.errors import GlleError, InvalidParameterError, TooFewPointsError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import Note
from glle_engine.base.validation import require_neighbors
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import disparity, root_trace
from glle_engine.methods.parameters import DistanceSpec
from glle_engine.methods.registry import method as method_of
from glle_engine.posterior.posterior import Posterior
from glle_engine.posterior.selection import intrinsic_dimension
from glle_engine.reliability.alignment import Alignment, Regions, calibrated_regions, normalize, normalize_all
from glle_engine.reliability.resamples import SEPARATE, PartEmbedder, Resamples, draw_sample, resample
from glle_engine.reliability.thresholds import CLEARANCE, FOREIGN, FOREIGN_GAP, PARTLY, STAYS, TRUST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.chance import Chance
    from glle_engine.audit.sources import Function, Source, Transformer
    from glle_engine.base.spec import Metric, Standardize
    from glle_engine.reliability.resamples import Embedder

STAGES = (2, 4, 8, 12)  # pairs of separate halves: the first statement, and at most
MAX_PAIRS = STAGES[-1]
MIN_PAIRS = STAGES[0]
WIDER_PAIRS = 2  # pairs with one coordinate more
LEAST_KEPT = 0.01  # share of the neighbors that a map keeps beyond random places, if it shows anything
DIMENSION_NEIGHBORS = 10
LEAST = 6  # distinct points: a fifth of them are compared as neighbors, and t-SNE needs a perplexity above 1
FEW = 60  # points: audits of fewer were not measured
MANY, SAMPLED = 5000, 4000  # points of which halves are made of a sample, and points of the sample
LEAST_BLOCKS = 4
KEPT, KEPT_POWER = 0.9, 1.1  # of `_neighbor_probability`
SHARED = 0.5  # squared canonical correlation of a coordinate that two samples share


def audits(
    X: ArrayLike,
    Y: Any = None,
    *,
    method: str | Function | Transformer | None = None,
    parameters: dict[str, Any] | None = None,
    standardize: Standardize | None = None,
    metric: Metric | None = None,
    labels: ArrayLike | None = None,
    blocks: ArrayLike | None = None,
    n_neighbors: int = NEIGHBORS,
    names: Sequence[str] | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    threads: int | None = None,
    embed_halves: Callable[..., Resamples] = resample,
    on_progress: OnProgress = silent,
) -> Iterator[Audit]:
    """Yield an audit after each stage, the first one after two pairs of halves, until its statement is certain.

    All but the last are preliminary: they have no p-values and no dimension, and their level is "unknown" unless it is
    certain already. Parameters and errors are those of `audit`.
    """
    k, seed = check_integer("n_neighbors", n_neighbors, 2), check_integer("seed", seed, 0, counter=True)
    source, embedding = _source(X, Y, method, parameters or {}, standardize, metric)
    copies = find_copies(source.data, seed)
    _require_picture(embedding, k, distinct=int((~copies).sum()))
    n, points = len(embedding), source.place(source.data)
    classes = None if labels is None else _labels(labels, n)
    relations = find_relations(source.data[~copies], seed)
    kept, by_chance = kept_neighbors(source, embedding, k, seed)
    dominant = dominant_feature(points)
    islands = islands_of_picture(embedding, points)
    facts = Facts(
        name=source.name,
        n=int((~copies).sum()),
        has_structure=None if relations is None else relations > 0,
        kept=kept,
        by_chance=by_chance,
        least_kept=LEAST_KEPT,
        islands=islands,
        disturbed=disturbed_by_data(embedding, points, min(k, n // 5), islands.of_points),
        p=embedding.shape[1],
        dominant=None if dominant is None else (_name(names, dominant[0], points.shape[1]), dominant[1]),
    )
    reason = unknown_reason(points, embedding.shape[1])
    notes = [*source.notes, *_notes(embedding, k, relations, classes, reason, int(copies.sum()))]
    if blocks is None:
        notes += dependence_notes(points, seed)
    if source.embedder is None:
        yield _of_coordinates(embedding, facts, tuple(notes))
        return
    if n > MANY:
        notes.append(Note("audited-by-sample", f"The maps are of halves of {SAMPLED:,} random points of {n:,}."))
    embedder = _part_embedder(source.embedder, blocks, seed)
    found = _Found(embedding, embedder, seed, k, classes, facts, tuple(notes))
    is_threaded = executor is None and source.is_threaded and threads != 1
    with ThreadPoolExecutor(threads or os.cpu_count()) if is_threaded else nullcontext(executor) as pool:

        def add_halves(pairs: int, done: Resamples | None) -> Resamples:
            first = 0 if done is None else len(done.places)
            added = embed_halves(
                embedder, 2 * pairs - first, stream=SEPARATE, first=first, seed=seed, executor=pool,
                on_progress=on_progress,
            )  # fmt: skip
            return added if done is None else done + added

        halves = None
        for pairs in STAGES:
            halves = add_halves(pairs, halves)
            if pairs == STAGES[1]:
                if reason is None:
                    chance = compare_with_chance(
                        source, embedding, k, seed=seed, executor=pool, on_progress=on_progress
                    )
                    found = replace(
                        found, chance=chance, facts=replace(found.facts, has_gain=chance.has_gain),
                        notes=(*found.notes, *_on_points(facts, chance)),
                    )  # fmt: skip
                if source.wider is not None:
                    found.dimension, hidden = _dimension(source.wider, seed, pool, on_progress)
                    found = replace(found, facts=replace(found.facts, hidden=hidden))
            result = _of_halves(found, halves)
            is_last = pairs == MAX_PAIRS or (pairs > MIN_PAIRS and _is_certain(result))
            yield result if is_last else _preliminary(result)
            if is_last:
                return


def audit(X: ArrayLike, Y: Any = None, **options: Any) -> Audit:
    """Audit an embedding.

    Parameters
    ----------
    X : (n, d) array-like
        The data; sparse ones become dense.
    Y : (n, p) array-like, Posterior, fitted estimator or Embedding, optional
        Coordinates from anywhere, or a posterior of the data. Coordinates beside a method are compared with its maps.
    method : str, callable or estimator, optional
        How the coordinates are made: a method of the registry by name, a function of points (m, d) to coordinates
        (m, p), or an object with such a function `fit_transform`. Coordinates alone show fidelity, tears and islands.
    parameters : dict, optional
        Of the method.
    standardize, metric : str, optional
        Of the features, and of the distances of the data, as in `FitSpec`; for a method by name they are parameters.
        A function gets points in that space.
    labels : (n,) array-like, optional
        Groups of the points, for `Audit.groups`.
    blocks : (n,) array-like, optional
        Subject, series or replicate of each point. Halves are then halves of the blocks, because rows of one block are
        no independent samples.
    n_neighbors : int
        Neighbors that are compared; at most a fifth of the points, or of 1,000, for the kept ones and the p-values.
    names : list of str, optional
        Of the features, for the statement.
    seed : int
        Of permutations and halves.
    executor : concurrent.futures.Executor, optional
        Computes the resamples in parallel, with the same bits. By default threads do for methods of this library.
    threads : int, optional
        Number of these threads. Default: the number of processors.
    embed_halves : callable
        In place of `resample`, with its arguments, for halves that are stored.
    on_progress
        Called with (done, all, stage); its exceptions end the audit.

    Raises
    ------
    GlleError
        With the remedy: for data without columns, too few points, or coordinates of another number of points.

    """
    *_, result = audits(X, Y, **options)
    return result


def embedder_of_halves(
    X: ArrayLike,
    Y: Any = None,
    *,
    method: str | Function | Transformer | None = None,
    parameters: dict[str, Any] | None = None,
    standardize: Standardize | None = None,
    metric: Metric | None = None,
    blocks: ArrayLike | None = None,
    seed: int = 0,
) -> Embedder:
    """Return what embeds the halves of an audit, of which `resample` makes those of the stream `SEPARATE`.

    Parameters and errors are those of `audit`; coordinates alone have no halves.
    """
    source, _ = _source(X, Y, method, parameters or {}, standardize, metric)
    assert source.embedder is not None
    return _part_embedder(source.embedder, blocks, seed)


audit.__signature__ = signature(audits).replace(return_annotation="Audit")  # type: ignore[attr-defined] # for help()


@dataclass(eq=False)
class _Found:
    """Results of the stages of an audit so far."""

    embedding: NDArray[np.float64]
    embedder: Embedder
    seed: int
    k: int
    classes: tuple[NDArray[Any], NDArray[np.int64]] | None
    facts: Facts
    notes: tuple[Note, ...]
    chance: Chance | None = None
    dimension: int | None = None


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


def _on_points(facts: Facts, chance: Chance) -> Iterator[Note]:
    """Yield a note if the picture keeps more neighbors than chance, and no single point does."""
    if facts.has_structure and chance.has_gain and not chance.is_point_beyond.any():
        yield Note(
            "no-point-beyond",
            "All points together keep more neighbors than chance, but no single one at a false-discovery rate of 10 %.",
        )


def _name(names: Sequence[str] | None, column: int, columns: int) -> str:
    return f"column {names[column]!r}" if names is not None and len(names) == columns else f"column {column + 1}"


def _part_embedder(embedder: Embedder, blocks: ArrayLike | None, seed: int) -> Embedder:
    """Return an embedder of halves of blocks, and of a sample of many points."""
    n, of_blocks, some_rows = embedder.shape[0], None, None
    if blocks is not None:
        _, of_blocks = _labels(blocks, n, "blocks")
        if (count := len(np.unique(of_blocks[embedder.rows]))) < LEAST_BLOCKS:
            raise InvalidParameterError(
                f"The points are of {count} blocks, which have no halves to compare.",
                remedy=f"Give blocks of at least {LEAST_BLOCKS} kinds, such as the subject of each row, or none.",
            )
    if len(embedder.rows) > MANY:
        rng = np.random.Generator(np.random.Philox(key=np.array([seed, n], np.uint64)))
        some_rows = np.sort(embedder.rows[rng.permutation(len(embedder.rows))[:SAMPLED]])
    if of_blocks is None and some_rows is None:
        return embedder
    return PartEmbedder(embedder, some_rows, of_blocks)


def _source(
    X: ArrayLike,
    Y: Any,
    method: str | Function | Transformer | None,
    parameters: dict[str, Any],
    standardize: Standardize | None,
    metric: Metric | None,
) -> tuple[Source, NDArray[np.float64]]:
    Y = getattr(Y, "posterior_", Y)  # of an estimator
    if parameters and not isinstance(method, str):
        raise InvalidParameterError(
            "Only a method by name has parameters.", remedy="Give its name as the method, or leave parameters away."
        )
    given = {"standardize": standardize, "metric": metric}
    space = {name: value for name, value in given.items() if value is not None}
    if isinstance(Y, Posterior):
        if space:
            raise InvalidParameterError(
                f"A posterior has its own {' and '.join(space)}.", remedy="Fit it with them, and audit that posterior."
            )
        if method is not None:
            raise InvalidParameterError(
                "Both a posterior and a method are given.", remedy="Give the one whose map is to be audited."
            )
        return source_of_posterior(X, Y), Y.embedding
    X = dense_rows(X)
    if isinstance(method, str):
        if not space.keys() <= method_of(method).spec.parameters().keys():  # PCA has the space of its data
            X, space = points_in_space(X, DistanceSpec.from_dict(space)), {}
        source, found = source_of_method(X, method, parameters | space)
        return source, found if Y is None else checked_coordinates(Y, len(found))
    if method is not None:
        return source_of_function(X, method, Y, DistanceSpec.from_dict(space))
    if Y is None:
        raise InvalidParameterError(
            "There is no embedding to audit.", remedy='Give coordinates, a posterior, or a method such as "umap".'
        )
    found = checked_coordinates(Y, len(np.asarray(X)))
    return source_of_coordinates(X, DistanceSpec.from_dict(space)), found


def _labels(labels: ArrayLike, n: int, name: str = "labels") -> tuple[NDArray[Any], NDArray[np.int64]]:
    names, classes = np.unique(np.asarray(labels), return_inverse=True)
    if classes.shape != (n,):
        raise InvalidParameterError(
            f"The {name} have shape {classes.shape}.", remedy=f"Give {n} {name}, one for each point."
        )
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


def _of_coordinates(embedding: NDArray[np.float64], facts: Facts, notes: tuple[Note, ...]) -> Audit:
    """Return the audit of coordinates that no method makes again."""
    return Audit(
        **_said(state(facts)),
        beyond_chance=_is_beyond(facts),
        embedding=embedding,
        islands=facts.islands,
        disturbed=facts.disturbed,
        notes=notes,
    )


def _said(statement: Statement) -> dict[str, Any]:
    """Return the fields of an audit that a statement has."""
    return {"verdict": statement.text, "level": statement.level, "statement": statement}


def _is_beyond(facts: Facts) -> bool | None:
    has_structure = facts.has_structure
    return None if has_structure is None else has_structure and facts.kept - facts.by_chance >= facts.least_kept


def _of_halves(found: _Found, halves: Resamples) -> Audit:
    """Return the audit by the maps of separate halves."""
    places, problems, embedding = halves.places, halves.problems, found.embedding
    pictures = _complete_pairs(places)
    is_chosen = _chosen(found.embedder, found.seed, places)
    if len(pictures) < 2 * MIN_PAIRS:
        raise InvalidParameterError(
            f"{len(places) - len(pictures)} of {len(places)} halves of the data could not be embedded."
            + (f" The first problem: {problems[0]}" if problems else ""),
            remedy="Audit an embedding with other parameters, such as a larger n_neighbors.",
        )
    near = np.array([kneighbors(np.ascontiguousarray(Y), found.k)[0] for Y in pictures])
    own = kneighbors(np.ascontiguousarray(embedding), found.k)[0]
    foreign = _foreign(own, near)
    if foreign is not None:
        return _of_coordinates(embedding, replace(found.facts, foreign=foreign), found.notes)
    shares, (_, _, size) = common_share(pictures), normalize(embedding)
    with_shown = np.array([1 - disparity(embedding, Y) for Y in pictures])
    aligned = Alignment.of([normalize_all(pictures)], normalize(embedding)[0])
    around = calibrated_regions(aligned)
    regions = Regions(embedding, size * around.half_axes, around.levels, around.radii)
    graph = _neighbor_probability(near)
    rows = np.repeat(np.arange(len(own)), found.k)
    islands = islands_of_samples(found.facts.islands, pictures, is_chosen)
    of_neighbors, of_points = neighborhoods(near, islands.of_points)
    groups = None if found.classes is None else compare_groups(pictures, *found.classes, found.k)
    facts = replace(
        found.facts,
        islands=islands,
        remains=min(float(shares.mean()), float(with_shown.mean())),
        arrangement=arrangement(pictures, islands.of_points),
        neighborhoods=of_neighbors,
        shape=shape(pictures, islands.of_points),
        disturbed=disturbed_by_samples(embedding, graph, pictures, near, islands.of_points),
        groups="" if groups is None else groups.statement(),
    )
    return Audit(
        **_said(state(facts)),
        beyond_chance=_is_beyond(facts),
        embedding=embedding,
        remains=facts.remains,
        remains_error=standard_error(shares),
        islands=islands,
        arrangement=facts.arrangement,
        neighborhoods=of_neighbors,
        shape=facts.shape,
        disturbed=facts.disturbed,
        neighborhood=of_points,
        dimension=found.dimension,
        spread=size * root_trace(aligned.covariance),
        stability=np.asarray(graph[rows, own.ravel()]).reshape(own.shape).mean(axis=1),
        regions={"mean": regions, "new sample": regions.of_new_sample()},
        neighbors=graph,
        groups=groups,
        chance=found.chance,
        pairs=len(pictures) // 2,
        notes=found.notes,
    )


def _foreign(own: NDArray[Any], near: NDArray[Any]) -> tuple[float, float] | None:
    """Return which shares of neighbors coordinates share with maps of halves, and these with each other, if far apart.

    A map of all points shares more neighbors with maps of halves than these do, because it has points of both.
    """
    by_chance = own.shape[1] / (len(own) - 1)
    usual = float(np.mean([shared(a, b).mean() for a, b in zip(near[::2], near[1::2], strict=True)]))
    found = float(np.mean([shared(own, each).mean() for each in near]))
    is_foreign = found - by_chance < FOREIGN * (usual - by_chance) and usual - found >= FOREIGN_GAP
    return (found, usual) if is_foreign else None


def _is_certain(found: Audit) -> bool:
    """Return whether more halves would hardly change the statement."""
    if found.level == "no" or found.remains is None or found.remains_error is None:
        return True
    clearance = CLEARANCE * found.remains_error
    certain = all(abs(found.remains - threshold) > clearance for threshold in (PARTLY, TRUST))
    islands = found.islands
    if islands.count and islands.in_samples is not None:
        held = islands.in_samples[islands.in_data]
        return bool(((held == 1) | (held < STAYS - 0.2)).all()) and (certain or bool(islands.stays.any()))
    return certain


def _preliminary(found: Audit) -> Audit:
    """Return an audit as a preliminary one: its level is known only if `remains` is certain."""
    level = found.level if found.level == "no" and found.remains is None else "unknown"
    statement = Statement(level, f"Preliminary: {found.verdict}")
    return replace(found, **_said(statement), is_preliminary=True)


def _chosen(embedder: Embedder, seed: int, places: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which points (2 m, n) are those of each half, of the complete pairs."""
    rows = [draw_sample(embedder, SEPARATE, seed, number).chosen for number in range(len(places))]
    is_chosen = np.zeros(places.shape[:2])
    for each, chosen in zip(is_chosen, rows, strict=True):
        each[chosen] = 1
    is_chosen[~np.isfinite(places).all(axis=(1, 2))] = np.nan
    return _complete_pairs(is_chosen[:, :, None])[:, :, 0].astype(bool)


def _complete_pairs(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the pairs of embeddings (2 m, n, p) of which neither failed."""
    is_found = np.isfinite(places).all(axis=(1, 2)).reshape(-1, 2).all(axis=1)
    return np.asarray(places[np.repeat(is_found, 2)])


def _neighbor_probability(near: NDArray[Any]) -> csr_array:
    """Return the probability (n, n) that j is among the k nearest neighbors of i in the picture of another sample.

    A share f of the neighbors (m, n, k) in m pictures becomes .9 f^1.1, because the halves of one data set have points
    in common that other samples do not have: measured on 45 laws (docs/explanation/believe.md).
    """
    _, n, k = near.shape
    total = csr_array((n, n))
    for each in near:
        total = total + csr_array((np.ones(each.size), each.ravel(), np.arange(0, each.size + 1, k)), shape=(n, n))
    total.data = KEPT * (total.data / len(near)) ** KEPT_POWER
    return csr_array(total)


def compare_groups(pictures: NDArray[np.float64], names: NDArray[Any], classes: NDArray[np.int64], k: int) -> Groups:
    """Return how far labeled points are groups in pictures (m, n, p); `classes` (n,) are indices of the names."""
    apart = np.zeros((len(names), len(names)))
    member = np.zeros(len(classes))
    for Y in pictures:
        near = classes[kneighbors(np.ascontiguousarray(Y), k)[0]]
        member += (near == classes[:, None]).mean(axis=1) > 0.5
        apart += groups_apart(Y, classes)
    return Groups(names, apart / len(pictures), member / len(pictures), classes)


def common_share(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R^2 (m,) of each pair of consecutive embeddings (2 m, n, p), which are maps of two separate halves."""
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
