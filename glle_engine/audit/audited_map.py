"""What an audit finds out about a map and its data before halves of the data are embedded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from glle_engine.audit.agreement import measure_agreement
from glle_engine.audit.chance import (
    compare_with_chance,
    dominant_feature,
    find_copies,
    find_relations,
    neighbors_of_block,
    unknown_reason,
)
from glle_engine.audit.columns import find_clustered_columns
from glle_engine.audit.dependence import block_candidates, find_dependence
from glle_engine.audit.dimension import find_dimension
from glle_engine.audit.groups import groups_of_labels, labels_and_classes
from glle_engine.audit.islands import islands_of_embedding
from glle_engine.audit.options import AUDIT_NEIGHBORS
from glle_engine.audit.statement import Facts
from glle_engine.base.errors import InvalidParameterError, TooFewPointsError
from glle_engine.base.randomness import generator
from glle_engine.base.texts import Note, Way
from glle_engine.base.validation import require_neighbors
from glle_engine.reliability.thresholds import STRUCTURE_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.chance import Chance
    from glle_engine.audit.options import AuditOptions
    from glle_engine.audit.sources import Source
    from glle_engine.reliability.resamples import Embedder

R = TypeVar("R")
# Smallest number of distinct points. At least 5 are needed, because the audit compares up to a fifth of the points as
# neighbors, and because the perplexity of t-SNE has to be above 1. The sixth point is a margin.
MIN_AUDIT_POINTS = 6
# With fewer points, a note says that more points may show a relation among the features: how often the test finds
# relations was measured only from this number of points on.
MIN_MEASURED_POINTS = 60
MANY, SAMPLED = 5000, 4000  # of more than 5,000 points, halves are drawn from a random sample of 4,000, to save time


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditedMap:
    """The map that is audited, with its data and all findings that need no maps of halves of the data.

    Attributes
    ----------
    source : Source
        How the map can be computed again for other data.
    embedding : (n, p) float64
        The map.
    points : (n, d) float64
        The data in a space whose Euclidean distances order pairs as the metric of the embedding does.
    options : AuditOptions
    is_given : bool
        Whether the caller gave coordinates and a method, which may not have made them.
    groups : pair of (g,) array and (n,) int64, or None
        Names of the labeled groups, and the group of each point.
    blocks : (n,) int64 or None
        Number of the block of each row; rows of one block are not independent.
    rows : (r,) int
        Rows from which halves of the data are drawn, and among which neighbors are counted: all, or a random sample.
    facts : Facts
        The findings from which the audit's statement is made.
    notes : tuple of Note
        Warnings and findings for the user.
    chance : Chance or None
        Comparison with maps of permuted data; None before `compared_with_chance`.
    dimension : int or None
        Number of coordinates that maps of two separate halves of the data share; None before `with_dimension`.

    """

    source: Source
    embedding: NDArray[np.float64]
    points: NDArray[np.float64]
    options: AuditOptions
    is_given: bool
    groups: tuple[NDArray[Any], NDArray[np.int64]] | None
    blocks: NDArray[np.int64] | None
    rows: NDArray[np.intp]
    facts: Facts
    notes: tuple[Note, ...]
    chance: Chance | None = None
    dimension: int | None = None

    @classmethod
    def from_source(
        cls,
        source: Source,
        embedding: NDArray[np.float64],
        options: AuditOptions,
        executor: Executor | None = None,
        *,
        is_given: bool,
    ) -> AuditedMap:
        """Examine an embedding (n, p) and its data, before halves of the data are embedded.

        The result says whether the features are related and whether the rows depend on each other, how well the
        embedding agrees with the data, and which islands (separate clumps of points) it has. If there is an executor,
        it finds the islands and tests the features, while this thread does the rest. `is_given` says that the
        caller gave both coordinates and a method, so that another method may have made the coordinates.

        Raises `TooFewPointsError` for fewer than 6 distinct points, and `InvalidParameterError` if all coordinates are
        equal.
        """
        n, seed = len(embedding), options.seed
        copies = find_copies(source.data, seed)
        distinct = source.data[~copies]
        _require_map(embedding, options.score_neighbors, len(distinct))
        points = source.to_points(source.data)
        find = partial(islands_of_embedding, embedding, points, is_linear=source.is_linear and not is_given)
        islands = _started(find, executor)
        groups, notes_on_labels = groups_of_labels(options.labels, n)
        blocks = blocks_of_rows(options.blocks, n)
        of_distinct = None if blocks is None else blocks[~copies]
        find_p_value = _started(partial(find_relations, distinct, seed, of_distinct), executor)
        dominant = dominant_feature(points)
        dependence, dependent = find_dependence(points, seed) if blocks is None else ([], "")
        rows = np.arange(n) if source.embedder is None else rows_of_halves(source.embedder, seed)
        fidelity = measure_agreement(points, embedding, options.score_neighbors, seed)
        relations = find_p_value()
        has_structure = None if relations is None else relations <= STRUCTURE_LEVEL
        clustered = find_clustered_columns(distinct, seed) if has_structure is False else []
        facts = Facts(
            name=source.name,
            n=len(distinct),
            has_structure=has_structure,
            fidelity=fidelity,
            clustered=tuple(_column_name(options.names, column, source.data.shape[1]) for column in clustered),
            islands=islands(),
            p=embedding.shape[1],
            is_placed_by_chance=source.is_placed_by_chance,
            dominant=dominant and (_column_name(options.names, dominant[0], points.shape[1]), dominant[1]),
            dependent=dependent,
            half=len(rows) // 2 if len(rows) < n else None,
        )
        notes = [
            *source.notes,
            *notes_on_labels,
            *_notes_on_limits(n, options.score_neighbors, int(copies.sum())),
            *_notes_on_tests(n, unknown_reason(points, embedding.shape[1]), has_structure=has_structure),
            *_notes_on_groups(groups),
            *dependence,
            *(block_candidates(options.ids, options.id_names) if blocks is None else ()),
            *_notes_on_sample(len(rows), n),
        ]
        return cls(
            source=source,
            embedding=embedding,
            points=points,
            options=options,
            is_given=is_given,
            groups=groups,
            blocks=blocks,
            rows=rows,
            facts=facts,
            notes=tuple(notes),
        )

    def compared_with_chance(self, executor: Executor | None, threads: Executor | None) -> AuditedMap:
        """Return a copy with `chance`, the comparison with maps of permuted data; its result is in `facts` and `notes`.

        If the comparison would say nothing about these data (`unknown_reason`), return the object unchanged.
        """
        if unknown_reason(self.points, self.embedding.shape[1]) is not None:
            return self
        options = self.options
        chance = compare_with_chance(
            self.source, self.embedding, options.score_neighbors, of_blocks=self.blocks, seed=options.seed,
            executor=executor, threads=threads, on_progress=options.on_progress,
        )  # fmt: skip
        notes = (*self.notes, *_notes_on_points(self.facts, chance))
        return replace(self, chance=chance, facts=replace(self.facts, has_gain=chance.has_gain), notes=notes)

    def with_dimension(self, executor: Executor | None) -> AuditedMap:
        """Return a copy with `dimension`, the number of coordinates that maps of separate halves of the data share.

        If the method cannot make maps with one more coordinate, return the object unchanged.
        """
        if self.source.wider is None:
            return self
        options = self.options
        dimension, hidden = find_dimension(self.source.wider, self.rows, options.seed, executor, options.on_progress)
        return replace(self, dimension=dimension, facts=replace(self.facts, hidden=hidden))


def _started(work: Callable[[], R], executor: Executor | None) -> Callable[[], R]:
    """Return a function that returns the result of `work`. With an executor, the work starts now; else when called."""
    return work if executor is None else executor.submit(work).result


def rows_of_halves(embedder: Embedder, seed: int) -> NDArray[np.intp]:
    """Return the rows (r,) of the data from which random halves are drawn, in ascending order.

    These are all rows if there are at most 5,000, and otherwise a random sample of 4,000 rows.
    """
    n = embedder.shape[0]
    if n <= MANY:
        return np.arange(n)
    rng = generator(seed, n)
    return np.sort(rng.permutation(embedder.rows)[:SAMPLED])


def blocks_of_rows(blocks: ArrayLike | None, n: int) -> NDArray[np.int64] | None:
    """Number the blocks from 0, and return the number (n,) of each row's block; None without blocks."""
    return None if blocks is None else labels_and_classes(blocks, n, "blocks")[1]


def _require_map(embedding: NDArray[np.float64], k: int, distinct: int) -> None:
    """Raise an error for too few distinct points, too few points for k neighbors, or a map of equal positions."""
    if distinct < MIN_AUDIT_POINTS:
        raise TooFewPointsError(
            f"An audit needs at least {MIN_AUDIT_POINTS} distinct points, not {distinct}.", remedy="Give more points."
        )
    require_neighbors(k, len(embedding))
    if not np.ptp(embedding, axis=0).any():
        raise InvalidParameterError(
            "All points have the same coordinates, so that there is no map to audit.",
            remedy="Give the coordinates of a map in which points differ.",
        )


def _notes_on_limits(n: int, k: int, copies: int) -> Iterator[Note]:
    """Yield a note if there are `copies`, rows that repeat others, and a note if fewer than k neighbors are compared.

    k is the number of neighbors in the options; there is no note if it is the default.
    """
    if copies:
        yield Note(
            "repeated-rows",
            f"{copies} of {n} rows repeat others. Halves of the data share such rows, so that what remains, the spread "
            "and the p-values are too optimistic. Audit the map of distinct rows.",
        )
    if (limit := neighbors_of_block(n, k)) < k != AUDIT_NEIGHBORS:
        yield Note(
            "fewer-neighbors",
            f"Kept neighbors and p-values use {limit} neighbors, a fifth of the points, in place of "
            f"{Way('score_neighbors', k)}.",
        )


def _notes_on_tests(n: int, reason: str | None, *, has_structure: bool | None) -> Iterator[Note]:
    """Yield a note if p-values of single points are unknown, and a note if the test found no structure in the data.

    `reason` says why the p-values are unknown; None if they are known. The second note says what the test cannot see:
    structure within a single column.
    """
    if reason is not None:
        yield Note("chance-unknown", f"P-values of single points are unknown: {reason}.")
    if has_structure is False:
        few = f" More points than {n} may show a relation." if n < MIN_MEASURED_POINTS else ""
        yield Note(
            "unseen-structure",
            f"This test cannot see structure within a single column, such as two peaks.{few}",
        )


def _notes_on_groups(groups: tuple[NDArray[Any], NDArray[np.int64]] | None) -> Iterator[Note]:
    names, classes = groups or ((), [])
    if single := int((np.bincount(classes) == 1).sum()):
        yield Note("groups-of-one-point", f"{single} of {len(names)} groups have one point, which is always apart.")


def _notes_on_sample(rows: int, n: int) -> Iterator[Note]:
    if rows < n:
        yield Note(
            "audited-by-sample",
            f"The audit uses {rows:,} random points of {n:,}: it makes maps of halves of this sample, and counts "
            "neighbors within it. The other points are scored by their positions in these maps.",
        )


def _notes_on_points(facts: Facts, chance: Chance) -> Iterator[Note]:
    """Yield a note if the map as a whole keeps more neighbors than chance, but no single point does."""
    if facts.has_structure and chance.has_gain and not chance.is_point_beyond.any():
        yield Note(
            "no-point-beyond",
            "All points together keep more neighbors than chance, but no single point does, at a false-discovery rate "
            "of 10 %.",
        )


def _column_name(names: Sequence[str] | None, column: int, columns: int) -> str:
    return f"column {names[column]!r}" if names is not None and len(names) == columns else f"column {column + 1}"
