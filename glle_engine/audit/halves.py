"""Maps of separate halves of the data, and what each map shows: positions, neighbors, isolated islands and groups.

If there are more than 5,000 points, only a random sample of 4,000 of them is halved, and neighbors are searched only
among this sample. The other points are placed in each map by their LLE weights on points of the sample, or by an affine
map if the method is linear. The audit scores each of these points by the positions where it was placed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.audit.agreement import far_neighbors, nearest_among, spaces_of
from glle_engine.audit.answers import shape_shares, squeeze_of
from glle_engine.audit.audited_map import blocks_of_rows, rows_of_halves
from glle_engine.audit.dependence import MIN_BLOCKS
from glle_engine.audit.groups import groups_apart
from glle_engine.audit.islands import isolated_among
from glle_engine.audit.options import AuditOptions
from glle_engine.audit.sources import source_of
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.texts import Way
from glle_engine.linalg.distances import nearest_in_sample, nearest_rows
from glle_engine.reliability.refits import affine_map
from glle_engine.reliability.resamples import SEPARATE, draw_sample, placing_weights, resample
from glle_engine.reliability.thresholds import MAX_GLUED_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.audited_map import AuditedMap
    from glle_engine.reliability.resamples import Embedder, Resamples

    Placement = Callable[[NDArray[np.float64]], NDArray[np.float64]]

# To compare islands and groups, a point outside a half is placed by this many neighbors in the half (`island_places`).
PLACING_NEIGHBORS = 5
# One search serves all halves. It finds this multiple of `PLACING_NEIGHBORS` for each point, of which about half are in
# a random half, so that they are usually enough.
_SEARCH_FACTOR = 4
_PLACED_POINTS = 1 << 16  # one thread finds the weights of this many points at a time
MIN_PAIRS = 2  # pairs of halves that an audit needs


@dataclass(frozen=True, eq=False, kw_only=True)
class HalfMap:
    """What the map of one half of the data shows; `HalfMap.stacked` adds a first axis for the halves to each array.

    Attributes
    ----------
    places : (n, p) float64
        Positions of all points in the map.
    near : (n, k) int
        The nearest neighbors of each point in the map, among the rows from which halves of the data are drawn.
    isolated, isolated_inside : (g,) bool
        Whether each island is isolated among the points outside the half, and among the half's own points.
    apart : (c, c) bool or None
        Which pairs of labeled groups are apart among the points outside the half; None without labels.
    squeeze : (n,) float64
        Mean distance in this map from a point to its neighbors in the audited map, divided by the usual distance of
        neighbors in this map.

    """

    places: NDArray[np.float64]
    near: NDArray[np.int32]
    isolated: NDArray[np.bool_]
    isolated_inside: NDArray[np.bool_]
    apart: NDArray[np.bool_] | None
    squeeze: NDArray[np.float64]

    @classmethod
    def stacked(cls, half_maps: list[Self]) -> Self:
        """Stack the arrays of several maps, each of one half of the data, along a new first axis."""
        values = {name: [getattr(half_map, name) for half_map in half_maps] for name in vars(half_maps[0])}
        arrays: dict[str, Any] = {name: None if each[0] is None else np.array(each) for name, each in values.items()}
        return cls(**arrays)


class Halves:
    """The maps of random halves of the data; `extend` embeds more halves and evaluates each map once.

    Attributes
    ----------
    maps : Resamples or None
        Positions of the rows from which halves are drawn, in all maps so far; NaN in maps that failed.
    half_maps : list of HalfMap
        What each map shows, for the pairs of halves of which neither failed.
    threads : Executor or None
        Threads that share the work on many points; None to use one thread.
    shapes : list of (m,) float64
        For each pair, the share of each island's shape that both maps have in common.

    """

    def __init__(self, audited: AuditedMap, threads: Executor | None) -> None:
        """Raise `InvalidParameterError` if the caller gave blocks, and the rows are in fewer than four of them.

        A block is a group of rows that belong together, such as the rows of one subject; halves are halves of the
        blocks.
        """
        assert audited.source.embedder is not None
        self.audited = audited
        self.threads = threads
        self.embedder = _embedder_of_rows(audited.source.embedder, audited.rows, audited.blocks)
        self.maps: Resamples | None = None
        self.half_maps: list[HalfMap] = []
        self.shapes: list[NDArray[np.float64]] = []
        self._place = _placement(audited.points, audited.rows, threads, is_linear=audited.source.is_linear)

    def extend(self, pairs: int, embed_executor: Executor | None) -> None:
        """Embed more halves of the data, until there are `pairs` pairs, and evaluate the new maps.

        The executor, if any, embeds in parallel, and the `threads` evaluate in parallel.
        """
        options, first = self.audited.options, 0 if self.maps is None else len(self.maps.places)
        _ = self.neighbors, self.answered  # computed once, before several threads need them
        started = []
        if self.threads is not None:  # these are computed while halves are embedded
            names = ("is_far", "_candidates") if self._places_islands else ("is_far",)
            started = [self.threads.submit(getattr, self, name) for name in names]
        new_maps = (options.embed_halves or resample)(
            self.embedder, 2 * pairs - first, stream=SEPARATE, first=first, seed=options.seed, executor=embed_executor,
            on_progress=options.on_progress,
        )  # fmt: skip
        # Wait for these cached properties before several threads read them: since Python 3.12 such properties have no
        # lock, so that each thread would compute them anew.
        for future in started:
            future.result()
        self.maps = new_maps if self.maps is None else self.maps + new_maps
        numbers = self.maps.complete_pairs[len(self.half_maps) :]
        samples = (draw_sample(self.embedder, SEPARATE, options.seed, number) for number in numbers)
        halves = [self.audited.rows[sample.chosen] for sample in samples]
        evaluate_all = map if self.threads is None else self.threads.map
        half_maps = list(evaluate_all(self._evaluate, self.maps.places[numbers], halves))
        places, islands = [half_map.places[self.answered] for half_map in half_maps], self._answered_islands
        self.shapes += evaluate_all(shape_shares, places[::2], places[1::2], [islands] * (len(places) // 2))
        self.half_maps += half_maps

    def stacked(self) -> HalfMap:
        """Return the positions, neighbors and islands of all maps of halves of the data, stacked in one `HalfMap`.

        The first axis of each array is the map; maps 2 j and 2 j + 1 are of two halves without a common point.

        Raises `InvalidParameterError` if fewer than two pairs of halves could be embedded.
        """
        assert self.maps is not None
        if len(self.half_maps) < 2 * MIN_PAIRS:
            count, problems = len(self.maps.places), self.maps.problems
            raise InvalidParameterError(
                f"{count - len(self.half_maps)} of {count} halves of the data could not be embedded.",
                remedy=problems[0]  # the message of a failed embedding, which includes a remedy
                if problems
                else f"Audit an embedding with other parameters, such as a larger {Way('n_neighbors')}.",
            )
        return HalfMap.stacked(self.half_maps)

    @cached_property
    def neighbors(self) -> NDArray[np.int32]:
        """Each point's k nearest neighbors (n, k) in the audited map, among the rows from which halves are drawn."""
        return nearest_among(self.audited.embedding, self.audited.rows, self.audited.options.score_neighbors)[0]

    @cached_property
    def is_far(self) -> NDArray[np.bool_]:
        """Whether each of a point's `neighbors` (n, k) in the audited map is far from it in the data (`far_neighbors`).

        All are False for a point that has too few far neighbors to be marked as glued.
        """
        rows, k = self.audited.rows, self.audited.options.score_neighbors
        spaces = spaces_of(self.audited.points)
        return far_neighbors(spaces, self.neighbors, rows, min(k, len(rows) // 5), least=MAX_GLUED_SHARE)

    @cached_property
    def answered(self) -> NDArray[np.intp]:
        """Row numbers of the points from which the audit's answers about the map are computed.

        They are the rows from which halves of the data are drawn; or all rows, if an island (a clump of points in the
        map) has fewer than two of these.
        """
        islands, rows = self.audited.facts.islands.of_points, self.audited.rows
        of_rows = islands[rows]
        has_all = (np.bincount(of_rows[of_rows >= 0], minlength=int(islands.max()) + 1) > 1).all()
        return rows if has_all else np.arange(len(islands))

    @property
    def _answered_islands(self) -> NDArray[np.int64]:
        """Number of the island of each of the points `answered`, which decide the audit's answers; -1 for no island."""
        return self.audited.facts.islands.of_points[self.answered]

    @property
    def _places_islands(self) -> bool:
        """Whether points outside a half are placed a second time, by 5 instead of 10 neighbors in the half.

        These positions are for the comparison of islands and groups (`island_places`). They are not needed for a linear
        method, or if there is nothing to compare: one island and no labels.
        """
        has_several = self.audited.facts.islands.of_points.max() > 0
        return bool(not self.audited.source.is_linear and (has_several or self.audited.groups is not None))

    @cached_property
    def _candidates(self) -> NDArray[np.int32]:
        """For each of the m points in `answered`, the w nearest rows (m, w) among those from which halves are drawn.

        `answered` are the points from which the audit's answers are computed. One search serves all halves: a point's 5
        neighbors in a half are taken from these rows. w is 20, so that 5 of them are usually in a random half; if not,
        the half is searched again.
        """
        points, rows = np.ascontiguousarray(self.audited.points), self.audited.rows
        own_row = np.full(len(points), -1)
        own_row[rows] = np.arange(len(rows))
        width = min(_SEARCH_FACTOR * PLACING_NEIGHBORS, len(rows) - 1)
        near = nearest_rows(points[rows], points[self.answered], own_row[self.answered], width)[0]
        return rows.astype(np.int32)[near]

    def _evaluate(self, positions: NDArray[np.float64], half: NDArray[np.intp]) -> HalfMap:
        """Return what the map of one half of the data shows.

        `half` has the row numbers of the half. `positions` (r, p) are positions in its map: of the points in the half,
        and of all other rows from which halves are drawn. Any further points of the data are placed here.
        """
        audited = self.audited
        islands, classes = audited.facts.islands.of_points, None if audited.groups is None else audited.groups[1]
        places = placed_outside = self._place(positions)
        is_outside, is_inside = np.zeros(len(islands), bool), np.zeros(len(islands), bool)
        is_outside[self.answered] = True
        is_outside[half], is_inside[half] = False, True
        has_several = islands.max() > 0
        if self._places_islands:
            among = is_outside[self.answered]
            outside, near = self.answered[among], self._candidates[among]
            near = nearest_in_sample(audited.points, outside, near, half, min(PLACING_NEIGHBORS, len(half) - 1))
            placed_outside = island_places(audited.points, outside, half, places, near)
        nothing = np.zeros(1, bool)
        near = nearest_among(places, audited.rows, audited.options.score_neighbors)[0]
        return HalfMap(
            places=places,
            near=near,
            squeeze=squeeze_of(places, near, self.neighbors),
            isolated=isolated_among(placed_outside, islands, is_outside) if has_several else nothing,
            isolated_inside=isolated_among(places, islands, is_inside) if has_several else nothing,
            apart=None if classes is None else groups_apart(placed_outside, classes, is_outside),
        )


def embedder_of_halves(X: ArrayLike, Y: Any = None, **options: Any) -> Embedder:
    """Return the embedder with which another process can compute an audit's maps of halves, before the audit runs.

    Call `resample` with this embedder, the random stream `SEPARATE` and the audit's seed. Parameters and errors are the
    same as for `glle_engine.audit.audit.audit`; there must be a method or a posterior, because coordinates alone have
    no embedder.
    """
    chosen = AuditOptions(**options)
    source, _ = source_of(X, Y, chosen)
    assert source.embedder is not None
    blocks = blocks_of_rows(chosen.blocks, source.embedder.shape[0])
    return _embedder_of_rows(source.embedder, rows_of_halves(source.embedder, chosen.seed), blocks)


def _embedder_of_rows(embedder: Embedder, rows: NDArray[np.intp], blocks: NDArray[np.int64] | None) -> Embedder:
    """Return an embedder of random halves of some `rows`; with `blocks`, the halves are halves of the blocks.

    `blocks` (n,) has the block of each row of the data, a group of rows that belong together. Raises
    `InvalidParameterError` if the rows are in fewer than 4 blocks.
    """
    if len(rows) < embedder.shape[0]:
        embedder = embedder.of_rows(rows)
    if blocks is None:
        return embedder
    of_blocks = blocks[rows]
    if (count := len(np.unique(of_blocks[embedder.rows]))) < MIN_BLOCKS:
        raise InvalidParameterError(
            f"`blocks` has {count} different values, but an audit compares halves of the blocks and needs at least "
            f"{MIN_BLOCKS} blocks.",
            remedy=f"Give at least {MIN_BLOCKS} different blocks, such as the subject of each row, or leave `blocks` "
            "out if the rows are independent.",
        )
    return replace(embedder, blocks=of_blocks)


def island_places(
    points: NDArray[np.float64],
    rows: NDArray[np.bool_] | NDArray[np.intp],
    chosen: NDArray[np.intp],
    Y: NDArray[np.float64],
    nearest: NDArray[np.int32] | None = None,
) -> NDArray[np.float64]:
    """Return a copy of the map Y (n, p) of a half of the data, in which the `rows` outside the half have new positions.

    `chosen` are the points of the half. The usual ten neighbors in the half would put a point of a small group between
    groups, because some of these neighbors belong to other groups. The new positions therefore depend on only five
    neighbors: `nearest` (m, 5), if the caller knows them already.
    """
    placed = Y.copy()
    placed[rows] = placing_weights(points[chosen], points[rows], PLACING_NEIGHBORS, nearest).embed(Y[chosen])
    return placed


def _placement(
    points: NDArray[np.float64], rows: NDArray[np.intp], threads: Executor | None, *, is_linear: bool
) -> Placement:
    """Return a function that takes the positions (r, p) of the `rows` in a map, and returns all n positions (n, p).

    An affine map, fitted to the `rows`, places the other points if the method is linear; otherwise their LLE weights on
    their nearest `rows` do.
    """
    if len(rows) == len(points):
        return lambda places: places
    known = np.ascontiguousarray(points[rows])
    if is_linear:
        return lambda places: affine_map(known, places).transform(points)
    others = np.setdiff1d(np.arange(len(points)), rows, assume_unique=True)
    parts = np.array_split(others, -(-len(others) // _PLACED_POINTS))
    weights = list((map if threads is None else threads.map)(lambda part: placing_weights(known, points[part]), parts))

    def place(places: NDArray[np.float64]) -> NDArray[np.float64]:
        placed = np.empty((len(points), places.shape[1]))
        placed[rows] = places
        for part, extension in zip(parts, weights, strict=True):
            placed[part] = extension.embed(places)
        return placed

    return place
