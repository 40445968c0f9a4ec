r"""Audit of an embedding: whether a reader may believe the map, and which parts of it.

Three questions, in this order:

1. Do the data have structure, and does the map show it (`find_relations`)?
2. How much of the map would another sample of half as many points show (`remains`)?
3. Of what can be read from a map, what remains: islands, their arrangement, neighborhoods, shapes
   (`glle_engine.audit.answers`)? And where does the map tear or fold the data?

All but the first come from the maps of separate halves of the data. Halves :math:`A` and :math:`B` without common
points are two independent samples of the population. Each is embedded, and all points are placed in both embeddings.
The share of the map that both show is

.. math:: R^2 = 1 - \text{disparity}(Y_A, Y_B)

with the Procrustes disparity. This :math:`R^2` describes samples of half the size, so for the whole data it errs on the
careful side. `remains` is the smaller of two means: the mean :math:`R^2` of the halves with each other, and the mean
:math:`R^2` of the audited map with the halves, because halves can agree on something that the audited map does not
have. The spread of a point is its spread over halves, without a factor (docs/explanation/believe.md).

More halves are made until `remains` is 2.5 standard errors away from the thresholds of the statement, at most 16, and
until each island of the data is isolated in nearly all or in few halves, at most 24. Above 5,000 points the audit makes
maps of the halves of a random sample of 4,000 points. All shares and all neighbors refer to this sample. The other
points are placed in the maps by weights on the sample, and get their scores from these positions.

If both halves are embedded with one more coordinate than the map has, the squared canonical correlations of the two
embeddings say how many coordinates two samples share: three for a 3-ball, none for noise. Coordinates of nearly equal
strength mix, so the true number may be larger.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from glle_engine.audit.agreement import far_neighbors, measure_agreement, nearest_among, shared, spaces_of
from glle_engine.audit.answers import (
    arrangement,
    disturbed_by_data,
    disturbed_by_samples,
    groups_apart,
    island_places,
    islands_of_picture,
    islands_of_samples,
    isolated_among,
    neighborhoods,
    shape,
    standard_error,
)
from glle_engine.audit.chance import (
    NEIGHBORS,
    compare_with_chance,
    dominant_feature,
    find_copies,
    find_relations,
    neighbors_of_block,
    unknown_reason,
)
from glle_engine.audit.columns import find_clustered_columns
from glle_engine.audit.dependence import MIN_BLOCKS, block_candidates, find_dependence
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
from glle_engine.base.arrays import array_of
from glle_engine.base.errors import GlleError, InvalidParameterError, TooFewPointsError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import Note
from glle_engine.base.validation import require_neighbors
from glle_engine.graph.neighbors import intrinsic_dimension, kneighbors
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import disparity, root_trace
from glle_engine.methods.parameters import DistanceSpec
from glle_engine.methods.registry import method as method_of
from glle_engine.posterior.posterior import Posterior
from glle_engine.reliability.alignment import Alignment, Regions, calibrated_regions, normalize, normalize_all
from glle_engine.reliability.refits import affine_map
from glle_engine.reliability.resamples import (
    SEPARATE,
    BlockEmbedder,
    Resamples,
    draw_sample,
    placing_weights,
    resample,
)
from glle_engine.reliability.thresholds import (
    CLEARANCE,
    FOREIGN,
    FOREIGN_GAP,
    MIN_KEPT,
    PARTLY,
    STRUCTURE_LEVEL,
    TRUST,
    UNCLEAR_ISLAND,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.chance import Chance
    from glle_engine.audit.sources import Function, Source, Transformer
    from glle_engine.base.spec import Metric, Standardize
    from glle_engine.reliability.resamples import Embedder

STAGES = (2, 4, 8, 12)  # pairs of separate halves after which the audit makes a statement
USUAL_PAIRS = 8  # more only if islands are unclear
MAX_PAIRS = STAGES[-1]
MIN_PAIRS = STAGES[0]
REGION_PAIRS = 4  # fewer pairs do not calibrate regions
WIDER_PAIRS = 2  # pairs of halves that are embedded with one more coordinate
WIDER_POINTS = 2000  # at most these points are halved for `WIDER_PAIRS`
DIMENSION_NEIGHBORS = 10
MIN_POINTS = 6  # distinct points: a fifth of them are compared as neighbors, and t-SNE needs a perplexity above 1
MEASURED_POINTS = 60  # audits of fewer points were not measured
MANY, SAMPLED = 5000, 4000  # above 5,000 points, halves are made of a sample of 4,000
KEPT, KEPT_POWER = 0.9, 1.1  # factor and exponent in `_neighbor_probability`
MAX_NUMBERS = 20  # labels with decimals are groups up to this number of different values
SHARED = 0.5  # two samples share a coordinate from this squared canonical correlation on


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
    ids: NDArray[Any] | None = None,
    id_names: Sequence[str] = (),
    is_own_map: bool = False,
    n_neighbors: int = NEIGHBORS,
    names: Sequence[str] | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    threads: int | None = None,
    embed_halves: Callable[..., Resamples] = resample,
    on_progress: OnProgress = silent,
) -> Iterator[Audit]:
    """Yield an audit after each stage, the first one after two pairs of halves, until its statement is certain.

    All audits but the last are preliminary: they have no p-values and no dimension, and their level is "unknown" unless
    it is certain already. Parameters and errors are the same as for `audit`.
    """
    k, seed = check_integer("n_neighbors", n_neighbors, 2), check_integer("seed", seed, 0, counter=True)
    source, embedding = _source(X, Y, method, parameters or {}, standardize, metric)
    copies = find_copies(source.data, seed)
    _require_picture(embedding, k, distinct=int((~copies).sum()))
    n, points = len(embedding), source.place(source.data)
    classes, no_groups = _groups(labels, n)
    of_blocks = None if blocks is None else _labels(blocks, n, "blocks")[1]
    relations = find_relations(source.data[~copies], seed, None if of_blocks is None else of_blocks[~copies])
    fidelity = measure_agreement(points, embedding, k, seed)
    is_given = method is not None and Y is not None and not is_own_map
    dominant = dominant_feature(points)
    is_without = relations is not None and relations > STRUCTURE_LEVEL
    clustered = find_clustered_columns(source.data[~copies], seed) if is_without else []
    facts = Facts(
        name=source.name,
        n=int((~copies).sum()),
        has_structure=None if relations is None else relations <= STRUCTURE_LEVEL,
        fidelity=fidelity,
        clustered=tuple(_name(names, column, source.data.shape[1]) for column in clustered),
        islands=islands_of_picture(embedding, points, is_linear=source.is_linear and not is_given),
        p=embedding.shape[1],
        is_placed_by_chance=source.is_placed_by_chance,
        dominant=None if dominant is None else (_name(names, dominant[0], points.shape[1]), dominant[1]),
    )
    reason = unknown_reason(points, embedding.shape[1])
    notes = [*source.notes, *no_groups, *_notes(embedding, k, relations, classes, reason, int(copies.sum()))]
    if of_blocks is None:
        found_notes, dependent = find_dependence(points, seed)
        notes += [*found_notes, *block_candidates(ids, id_names)]
        facts = replace(facts, dependent=dependent)
    if source.embedder is None:
        yield _of_coordinates(embedding, points, k, facts, tuple(notes))
        return
    rows = _rows_of_halves(source.embedder, seed)
    if len(rows) < n:
        notes.append(_sampled(len(rows), n))
        facts = replace(facts, half=len(rows) // 2)
    embedder = _part_embedder(source.embedder, rows, of_blocks)
    place = _placement(points, rows, is_linear=source.is_linear)
    found = _Found(
        points,
        embedding,
        embedder,
        seed,
        k,
        classes,
        facts,
        tuple(notes),
        rows,
        place,
        source.is_linear,
        is_given,
        source.is_placed_by_chance,
    )
    with nullcontext(executor) if executor or threads == 1 else ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        makers = pool if source.is_threaded else executor
        halves = None
        for pairs in STAGES:
            first = 0 if halves is None else len(halves.places)
            added = embed_halves(
                embedder, 2 * pairs - first, stream=SEPARATE, first=first, seed=seed, executor=makers,
                on_progress=on_progress,
            )  # fmt: skip
            halves = added if halves is None else halves + added
            found.read(halves.places, pool)
            if pairs == STAGES[1]:
                if reason is None:
                    chance = compare_with_chance(
                        source, embedding, k, of_blocks=of_blocks, seed=seed, executor=makers, on_progress=on_progress
                    )
                    found = replace(
                        found, chance=chance, facts=replace(found.facts, has_gain=chance.has_gain),
                        notes=(*found.notes, *_on_points(facts, chance)),
                    )  # fmt: skip
                if source.wider is not None:
                    some = np.random.Generator(np.random.Philox(key=np.array([seed, n], np.uint64))).permutation(rows)
                    wider = source.wider.of_rows(np.sort(some[:WIDER_POINTS])) if n > WIDER_POINTS else source.wider
                    dimension, hidden = _dimension(wider, seed, makers, on_progress)
                    found = replace(found, dimension=dimension, facts=replace(found.facts, hidden=hidden))
            result, said = _of_halves(found, halves)
            is_last = pairs == MAX_PAIRS or (pairs > MIN_PAIRS and _is_certain(result, pairs))
            yield result if is_last else _preliminary(result, said)
            if is_last:
                return


def audit(X: ArrayLike, Y: Any = None, **options: Any) -> Audit:
    """Audit an embedding.

    Parameters
    ----------
    X : (n, d) array-like
        The data; sparse ones become dense.
    Y : (n, p) array-like, Posterior, fitted estimator or Embedding, optional
        Coordinates from anywhere, or a posterior of the data. If a method is given as well, the coordinates are
        compared with the method's maps.
    method : str, callable or estimator, optional
        How the coordinates are made: a method of the registry by name, a function of points (m, d) to coordinates
        (m, p), or an object with such a function `fit_transform`. Without a method, the audit can judge only fidelity,
        tears and islands.
    parameters : dict, optional
        Parameters of the method.
    standardize, metric : str, optional
        How features are standardized, and the metric of the data, as in `FitSpec`. For a method by name they are
        parameters of the method; a function gets points that are transformed accordingly.
    labels : (n,) array-like, optional
        Groups of the points, for `Audit.groups`.
    blocks : (n,) array-like, optional
        Subject, series or replicate of each point. Halves are then halves of the blocks, because rows of one block are
        not independent samples.
    ids : (n,) or (n, columns) array, optional
        Columns that name the rows, with the names `id_names`. A note says which of them may be blocks.
    is_own_map : bool
        Whether the method itself made the coordinates. The audit then does not compare them with the method's maps.
    n_neighbors : int
        Number of neighbors to compare. For the share of kept neighbors and the p-values, it is limited to a fifth of
        the points, or of 1,000 points if there are more.
    names : list of str, optional
        Names of the features, for the statement.
    seed : int
        Seed of permutations and halves.
    executor : concurrent.futures.Executor, optional
        Computes the resamples in parallel, with the same bits. By default, threads do this for methods of this library.
    threads : int, optional
        Number of these threads. Default: the number of processors.
    embed_halves : callable
        Called with the arguments of `resample` in its place, for halves that are stored.
    on_progress
        Called with (done, all, stage); its exceptions end the audit.

    Raises
    ------
    GlleError
        For data without columns, too few points, or coordinates of another number of points. The message has a remedy.

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
    """Return the embedder of an audit's halves: `resample` makes the halves with it, from the stream `SEPARATE`.

    Parameters and errors are the same as for `audit`. Coordinates without a method have no halves.
    """
    source, _ = _source(X, Y, method, parameters or {}, standardize, metric)
    assert source.embedder is not None
    of_blocks = None if blocks is None else _labels(blocks, source.embedder.shape[0], "blocks")[1]
    return _part_embedder(source.embedder, _rows_of_halves(source.embedder, seed), of_blocks)


audit.__signature__ = signature(audits).replace(return_annotation="Audit")  # type: ignore[attr-defined] # for help()


class _Reading(NamedTuple):
    """What the map of a half shows: places (n, p), neighbors (n, k), and groups (g, g) that are apart.

    `isolated` (m,) says which islands are isolated among the points outside the half, and `own` (m,) among the half's
    own points.
    """

    places: NDArray[np.float64]
    near: NDArray[np.int32]
    isolated: NDArray[np.bool_]
    own: NDArray[np.bool_]
    apart: NDArray[np.bool_] | None


@dataclass(eq=False)
class _Found:
    """Results of the stages of an audit so far; the map of each half is read once."""

    points: NDArray[np.float64]
    embedding: NDArray[np.float64]
    embedder: Embedder
    seed: int
    k: int
    classes: tuple[NDArray[Any], NDArray[np.int64]] | None
    facts: Facts
    notes: tuple[Note, ...]
    rows: NDArray[np.intp]  # halves are made of these rows, and all neighbors are among them
    place: Callable[[NDArray[np.float64]], NDArray[np.float64]]  # positions of the rows to positions of all points
    is_linear: bool
    is_given: bool  # whether something other than the method may have made the coordinates
    is_placed_by_chance: bool  # whether the method places islands by chance
    chance: Chance | None = None
    dimension: int | None = None
    readings: list[_Reading] = field(default_factory=list)

    @property
    def answered(self) -> NDArray[np.intp]:
        """Points that the answers are about: the rows, or all points if an island has fewer than two of the rows."""
        islands = self.facts.islands.of_points
        of_rows = islands[self.rows]
        has_all = (np.bincount(of_rows[of_rows >= 0], minlength=int(islands.max()) + 1) > 1).all()
        return self.rows if has_all else np.arange(len(islands))

    def read(self, places: NDArray[np.float64], executor: Executor | None) -> None:
        """Read the maps (m, r, p) of the rows that are new and belong to complete pairs."""
        numbers = _complete_pairs(places)[len(self.readings) :]
        chosen = [self.rows[draw_sample(self.embedder, SEPARATE, self.seed, number).chosen] for number in numbers]
        classes = None if self.classes is None else self.classes[1]
        islands = self.facts.islands.of_points
        points = None if self.is_linear else self.points
        read = partial(_read, self.place, points, self.rows, self.answered, self.k, islands, classes)
        self.readings += (map if executor is None else executor.map)(read, places[numbers], chosen)


def _read(
    place: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    points: NDArray[np.float64] | None,
    rows: NDArray[np.intp],
    answered: NDArray[np.intp],
    k: int,
    islands: NDArray[np.int64],
    classes: NDArray[np.int64] | None,
    picture: NDArray[np.float64],
    chosen: NDArray[np.intp],
) -> _Reading:
    Y, is_other = place(picture), np.zeros(len(islands), bool)
    is_other[answered] = True
    is_other[chosen] = False
    near = nearest_among(Y, rows, k)[0]
    is_own = np.isin(np.arange(len(islands)), chosen)
    held = own = np.zeros(1, bool)
    others, has_several = Y, islands.max() > 0
    if points is not None and (has_several or classes is not None):
        others = island_places(points, is_other, chosen, Y)
    if has_several:
        own = isolated_among(Y, islands, is_own)
        held = isolated_among(others, islands, is_other)
    return _Reading(Y, near, held, own, None if classes is None else groups_apart(others, classes, is_other))


def _rows_of_halves(embedder: Embedder, seed: int) -> NDArray[np.intp]:
    """Return the rows that are halved, ascending: all rows, or a random sample if there are many."""
    n = embedder.shape[0]
    if n <= MANY:
        return np.arange(n)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, n], np.uint64)))
    return np.sort(rng.permutation(embedder.rows)[:SAMPLED])


def _sampled(rows: int, n: int) -> Note:
    return Note(
        "audited-by-sample",
        f"The audit is of {rows:,} random points of {n:,}: maps are of halves of these, and neighbors are among these. "
        "The scores of the other points are by their places in those maps.",
    )


def _placement(
    points: NDArray[np.float64], rows: NDArray[np.intp], *, is_linear: bool
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return a function that places all points (n, p), given the positions (r, p) of the rows."""
    if len(rows) == len(points):
        return lambda places: places
    known = np.ascontiguousarray(points[rows])
    if is_linear:
        return lambda places: affine_map(known, places).transform(points)
    others = np.setdiff1d(np.arange(len(points)), rows, assume_unique=True)
    weights = placing_weights(known, points[others])

    def place(places: NDArray[np.float64]) -> NDArray[np.float64]:
        placed = np.empty((len(points), places.shape[1]))
        placed[rows], placed[others] = places, weights.embed(places)
        return placed

    return place


def _require_picture(embedding: NDArray[np.float64], k: int, distinct: int) -> None:
    """Raise `TooFewPointsError` or `InvalidParameterError` for a map with nothing to compare."""
    if distinct < MIN_POINTS:
        raise TooFewPointsError(
            f"An audit needs at least {MIN_POINTS} distinct points, not {distinct}.", remedy="Give more points."
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
    if relations is not None and relations > STRUCTURE_LEVEL:
        few = f" More points than {n} may show a relation." if n < MEASURED_POINTS else ""
        yield Note(
            "unseen-structure",
            f"This test cannot see structure within a single column, such as two peaks.{few}",
        )
    names, classes = groups or ((), [])
    if single := int((np.bincount(classes) == 1).sum()):
        yield Note("groups-of-one-point", f"{single} of {len(names)} groups have one point, which is always apart.")


def _on_points(facts: Facts, chance: Chance) -> Iterator[Note]:
    """Yield a note if the map as a whole keeps more neighbors than chance, but no single point does."""
    if facts.has_structure and chance.has_gain and not chance.is_point_beyond.any():
        yield Note(
            "no-point-beyond",
            "All points together keep more neighbors than chance, but no single one at a false-discovery rate of 10 %.",
        )


def _name(names: Sequence[str] | None, column: int, columns: int) -> str:
    return f"column {names[column]!r}" if names is not None and len(names) == columns else f"column {column + 1}"


def _part_embedder(embedder: Embedder, rows: NDArray[np.intp], blocks: NDArray[np.int64] | None) -> Embedder:
    """Return an embedder of halves of some rows, or of halves of their blocks."""
    if len(rows) < embedder.shape[0]:
        embedder = embedder.of_rows(rows)
    if blocks is None:
        return embedder
    of_blocks = blocks[rows]
    if (count := len(np.unique(of_blocks[embedder.rows]))) < MIN_BLOCKS:
        raise InvalidParameterError(
            f"The points are of {count} blocks, which have no halves to compare.",
            remedy=f"Give blocks of at least {MIN_BLOCKS} kinds, such as the subject of each row, or none.",
        )
    return BlockEmbedder(embedder, of_blocks)


def _source(
    X: ArrayLike,
    Y: Any,
    method: str | Function | Transformer | None,
    parameters: dict[str, Any],
    standardize: Standardize | None,
    metric: Metric | None,
) -> tuple[Source, NDArray[np.float64]]:
    Y = getattr(Y, "posterior_", Y)  # the posterior of a fitted estimator
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
        return source_of_method(X, method, parameters | space, Y)
    if method is not None:
        return source_of_function(X, method, Y, DistanceSpec.from_dict(space))
    if Y is None:
        raise InvalidParameterError(
            "There is no embedding to audit.", remedy='Give coordinates, a posterior, or a method such as "umap".'
        )
    found = checked_coordinates(Y, len(np.asarray(X)))
    return source_of_coordinates(X, DistanceSpec.from_dict(space)), found


def _labels(labels: ArrayLike, n: int, name: str = "labels") -> tuple[NDArray[Any], NDArray[np.int64]]:
    names, classes = np.unique(array_of(labels, f"the {name}", are_labels=True), return_inverse=True)
    if classes.shape != (n,):
        raise InvalidParameterError(
            f"The {name} have shape {classes.shape}.", remedy=f"Give {n} {name}, one for each point."
        )
    return names, classes.astype(np.int64)


def _groups(labels: ArrayLike | None, n: int) -> tuple[tuple[NDArray[Any], NDArray[np.int64]] | None, tuple[Note, ...]]:
    """Return the groups of labels as `_labels`; None for none, and with a note if the labels name no groups."""
    if labels is None:
        return None, ()
    found = _labels(labels, n)
    try:
        require_groups(*found)
    except InvalidParameterError as error:
        return None, (Note("labels-are-no-groups", str(error)),)
    return found, ()


def require_groups(names: NDArray[Any], classes: NDArray[np.int64]) -> None:
    """Raise `InvalidParameterError` if labels are measured numbers, or most points have a label of their own."""
    sizes, n = np.bincount(classes), len(classes)
    is_measured = names.dtype.kind == "f" and len(names) > MAX_NUMBERS and bool((names != np.round(names)).any())
    if is_measured or 2 * int(sizes[sizes > 1].sum()) < n:
        raise InvalidParameterError(
            f"The labels have {len(names):,} different values for {n:,} points, so that they name no groups.",
            remedy="Give groups: of numbers, for example, labels=pandas.qcut(values, 4). Numbers color the picture of "
            "an audit without labels by glle.plot(audit, labels=values).",
        )


def _dimension(
    wider: Embedder, seed: int, executor: Executor | None, on_progress: OnProgress
) -> tuple[int | None, int | None]:
    """Return how many coordinates two samples share if one more is computed, and the hidden dimension or None.

    The number is returned again as the hidden dimension if the map has fewer coordinates and the points fill the
    further one. On a sheet they do not fill it: a further coordinate is a function of the others.
    """
    places = np.empty((0, *wider.shape))
    with suppress(GlleError):  # the data have no further coordinate
        found = resample(wider, 2 * WIDER_PAIRS, stream=SEPARATE, seed=seed, executor=executor, on_progress=on_progress)
        places = found.places[_complete_pairs(found.places)]
    if not len(places):
        return None, None
    filled = intrinsic_dimension(kneighbors(np.ascontiguousarray(places[0]), DIMENSION_NEIGHBORS)[1])
    shared, p = shared_coordinates(places), wider.shape[1] - 1
    return shared, shared if shared > p and filled >= p + 0.5 else None


def _of_coordinates(
    embedding: NDArray[np.float64], points: NDArray[np.float64], k: int, facts: Facts, notes: tuple[Note, ...]
) -> Audit:
    """Return the audit of coordinates without a method that could make them again."""
    disturbed = disturbed_by_data(embedding, points, min(k, len(points) // 5), facts.islands.of_points)
    facts = replace(facts, disturbed=disturbed)
    return Audit(
        **_said(state(facts)),
        beyond_chance=_is_beyond(facts),
        embedding=embedding,
        islands=facts.islands,
        disturbed=disturbed,
        notes=notes,
    )


def _said(statement: Statement) -> dict[str, Any]:
    """Return the fields of an audit that come from its statement."""
    return {"verdict": statement.text, "level": statement.level, "statement": statement}


def _is_beyond(facts: Facts) -> bool | None:
    has_structure = facts.has_structure
    return (
        None if has_structure is None else has_structure and facts.fidelity.kept - facts.fidelity.by_chance >= MIN_KEPT
    )


def _of_halves(found: _Found, halves: Resamples) -> tuple[Audit, Facts]:
    """Return the audit that compares the maps of separate halves, and what its statement is made of."""
    embedding, rows, readings = found.embedding, found.rows, found.readings
    if len(readings) < 2 * MIN_PAIRS:
        count, problems = len(halves.places), halves.problems
        raise InvalidParameterError(
            f"{count - len(readings)} of {count} halves of the data could not be embedded.",
            remedy=problems[0]  # it has its own remedy
            if problems
            else "Audit an embedding with other parameters, such as a larger n_neighbors.",
        )
    pictures, near = (np.array([reading[at] for reading in readings]) for at in (0, 1))
    own = nearest_among(embedding, rows, found.k)[0]
    foreign = _foreign(own[rows], near[:, rows]) if found.is_given else None
    if foreign is not None:
        facts = replace(found.facts, foreign=foreign)
        return _of_coordinates(embedding, found.points, found.k, facts, found.notes), facts
    answered, island = found.answered, found.facts.islands.of_points
    read = pictures[:, answered]
    shares, (_, _, size) = common_share(read), normalize(embedding)
    with_shown = np.array([1 - disparity(embedding[answered], Y) for Y in read])
    aligned = Alignment.from_maps(normalize_all(pictures), normalize(embedding)[0])
    regions = _regions(aligned, embedding, size)
    graph, at = _neighbor_probability(near), np.repeat(np.arange(len(own)), found.k)
    islands = islands_of_samples(
        found.facts.islands, *(np.array([reading[at] for reading in readings]) for at in (2, 3))
    )
    of_neighbors, of_points = neighborhoods(near, island, rows)
    is_far = far_neighbors(spaces_of(found.points), own, rows, min(found.k, len(rows) // 5))
    disturbed = disturbed_by_samples(embedding, own, graph, pictures, near, island, is_far)
    groups = None
    if found.classes is not None:
        groups = compare_groups(*found.classes, near, np.array([reading.apart for reading in readings]))
    facts = replace(
        found.facts,
        islands=islands,
        remains=min(float(shares.mean()), float(with_shown.mean())),
        arrangement=None if found.is_placed_by_chance else arrangement(read, island[answered]),
        neighborhoods=of_neighbors,
        shape=shape(read, island[answered]),
        disturbed=disturbed,
        groups="" if groups is None else groups.statement(),
    )
    result = Audit(
        **_said(state(facts)),
        beyond_chance=_is_beyond(facts),
        embedding=embedding,
        remains=facts.remains,
        remains_error=standard_error(shares),
        islands=islands,
        arrangement=facts.arrangement,
        neighborhoods=of_neighbors,
        shape=facts.shape,
        disturbed=disturbed,
        neighborhood=of_points,
        dimension=found.dimension,
        spread=size * root_trace(aligned.covariance),
        stability=np.asarray(graph[at, own.ravel()]).reshape(own.shape).mean(axis=1),
        regions=regions,
        neighbors=graph,
        groups=groups,
        chance=found.chance,
        pairs=len(pictures) // 2,
        rows=rows,
        notes=found.notes,
    )
    return result, facts


def _regions(aligned: Alignment, embedding: NDArray[np.float64], size: float) -> dict[str, Regions]:
    """Return the regions around the points of an embedding; none if too few pairs of halves were embedded."""
    pairs, p = len(aligned.embeddings) // 2, embedding.shape[1]
    if pairs < max(REGION_PAIRS, p + 1):  # without a fold of one pair, p pairs are left to span the region
        return {}
    around = calibrated_regions(aligned, together=2)
    regions = Regions(embedding, size * around.half_axes, around.levels, around.radii)
    return {"mean": regions, "new sample": regions.of_new_sample()}


def _foreign(own: NDArray[Any], near: NDArray[Any]) -> tuple[float, float] | None:
    """Return two shares of common neighbors if the coordinates do not look like a map of the method; else None.

    The first is the share that the coordinates and the maps of halves have in common, the second the share that the
    maps of two halves have in common. A true map of all points would have the larger first share, because it is made
    of the points of both halves.
    """
    by_chance = own.shape[1] / (len(own) - 1)
    usual = float(np.mean([shared(a, b).mean() for a, b in zip(near[::2], near[1::2], strict=True)]))
    found = float(np.mean([shared(own, each).mean() for each in near]))
    is_foreign = found - by_chance < FOREIGN * (usual - by_chance) and usual - found >= FOREIGN_GAP
    return (found, usual) if is_foreign else None


def _is_certain(found: Audit, pairs: int) -> bool:
    """Return whether further halves would hardly change the statement.

    Islands of the data that are isolated in some halves and not in others need the most halves.
    """
    if found.level == "no" or found.remains is None or found.remains_error is None:
        return True
    clearance = CLEARANCE * found.remains_error
    certain = all(abs(found.remains - threshold) > clearance for threshold in (PARTLY, TRUST))
    certain = certain or pairs >= USUAL_PAIRS
    islands = found.islands
    if islands.count and islands.in_samples is not None:
        held = islands.in_samples[islands.in_data]
        is_clear = ~((held >= UNCLEAR_ISLAND[0]) & (held <= UNCLEAR_ISLAND[1]))
        return bool(is_clear.all()) and (certain or bool(islands.stays.any()))
    return certain


def _preliminary(found: Audit, facts: Facts) -> Audit:
    """Return an audit marked as preliminary, whose statement has no numbers that may change.

    Its level is "unknown" unless it is "no" for a map without `remains`.
    """
    statement = state(replace(facts, is_preliminary=True))
    level = found.level if found.level == "no" and found.remains is None else "unknown"
    statement = Statement(level, f"Preliminary: {statement.text}")
    return replace(found, **_said(statement), is_preliminary=True)


def _complete_pairs(places: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the indices of the embeddings (2 m, n, p) that belong to pairs of which neither failed."""
    is_found = np.isfinite(places).all(axis=(1, 2)).reshape(-1, 2).all(axis=1)
    return np.flatnonzero(np.repeat(is_found, 2))


def _neighbor_probability(near: NDArray[Any]) -> csr_array:
    """Return the probability (n, n) that j is among the k nearest neighbors of i in the map of another sample.

    If j is among the neighbors (m, n, k) of i in a share f of the m maps, the probability is .9 f^1.1. It is below f
    because the halves of one data set have points in common that other samples do not have. Both constants were
    measured on 45 distributions (docs/explanation/believe.md).
    """
    _, n, k = near.shape
    total = csr_array((n, n))
    for each in near:
        total = total + csr_array((np.ones(each.size), each.ravel(), np.arange(0, each.size + 1, k)), shape=(n, n))
    total.data = KEPT * (total.data / len(near)) ** KEPT_POWER
    return csr_array(total)


def compare_groups(
    names: NDArray[Any], classes: NDArray[np.int64], near: NDArray[Any], apart: NDArray[np.bool_]
) -> Groups:
    """Return how well labeled points form groups in the maps of halves; `classes` (n,) are indices of the names.

    `near` (m, n, k) are neighbors in the maps, and `apart` (m, g, g) says which groups are apart there.
    """
    member = np.mean([(classes[each] == classes[:, None]).mean(axis=1) > 0.5 for each in near], axis=0)
    return Groups(names, apart.mean(axis=0), member, classes)


def common_share(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R^2 (m,) of each two consecutive embeddings (2 m, n, p), which are maps of two separate halves."""
    return np.array([1 - disparity(a, b) for a, b in zip(places[::2], places[1::2], strict=True)])


def shared_coordinates(places: NDArray[np.float64]) -> int:
    """Return how many coordinates the pairs of consecutive embeddings (2 m, n, p) share.

    Coordinate j is shared if the median of its squared canonical correlation over pairs is at least .5.
    """
    pairs = zip(places[::2], places[1::2], strict=True)
    return int((np.median([canonical_correlations(a, b) ** 2 for a, b in pairs], axis=0) >= SHARED).sum())


def canonical_correlations(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the canonical correlations (p,) of two embeddings (n, p), the largest first (Hotelling 1936)."""
    first, second = (dense.svd(Y - Y.mean(axis=0))[0] for Y in (A, B))
    return np.asarray(dense.svd(dense.cross(first, second))[1])
