"""Signs that the rows of the data are not independent samples: near-copies, and rows near the row before them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.audit.chance import find_copies
from glle_engine.base.randomness import generator
from glle_engine.base.texts import Note, Way
from glle_engine.graph.neighbors import kneighbors
from glle_engine.reliability.thresholds import (
    MAX_NEAR_COPY_RATIO,
    MAX_STEP_RATIO,
    MIN_DEPENDENT_COPY_SHARE,
    MIN_NOTED_COPY_SHARE,
    SET_DROP,
    SET_OVERLAP,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

MAX_EXAMINED_ROWS = 2000  # only the first rows, at most this many, are examined
COMPARED_NEIGHBOR = 5  # a row has a near-copy if its nearest neighbor is much nearer than its neighbor of this rank
# Distances of rows that are this many rows apart are compared with distances of consecutive rows. They are larger in a
# series, but not in rows that are only sorted by group.
SERIES_LAGS = (2, 3, 5, 8)
MAX_SET_ROWS = 9  # larger sets of near-copies are not recognized
MIN_ROWS_FOR_SETS = 50  # in fewer rows, no sets of near-copies are searched

# A block is a group of rows that belong together, such as the rows of one subject. An audit puts each block into one of
# two halves of the data, and each half needs at least two blocks.
MIN_BLOCKS = 4
# An id that ends with a number or letter, as S07_2, mouse-3/a and 12b do. Rows whose ids have the same stem, the part
# before this end, may belong together.
_NUMBERED = re.compile(r"(.*\w)[ _.:/-]+\w{1,4}|(.*\d)[A-Za-z]")


def block_candidates(ids: NDArray[Any] | None, names: Sequence[str] = ()) -> Iterator[Note]:
    """Yield a note for each column of ids (n,) or (n, columns) that may say which rows belong to one block.

    Such a column has values that repeat, or that begin with stems that repeat, such as S07 in S07_1 and S07_2. There
    are at least four different values or stems, and at least twice as many rows.
    """
    columns = [] if ids is None else [ids] if ids.ndim == 1 else list(ids.T)
    for name, values in zip(names or ["id"] * len(columns), columns, strict=False):
        texts = [str(value) for value in values.tolist()]
        matches = [_NUMBERED.fullmatch(text) for text in texts]
        stems = [match and (match[1] or match[2]) for match in matches]
        if MIN_BLOCKS <= (count := len(set(texts))) <= len(texts) // 2:
            how = f"has {count} values in {len(texts)} rows. If these group the rows, give {Way('blocks', name)}."
        elif None not in stems and MIN_BLOCKS <= (count := len(set(stems))) <= len(texts) // 2:
            how = (
                f"has {count} stems before a number or a letter, such as {stems[0]} in {texts[0]}. If rows with "
                f"the same stem belong together, give the stem of each row as {Way('blocks')}."
            )
        else:
            continue
        yield Note("blocks-candidate", f"Column {name!r} {how}")


def find_dependence(points: NDArray[np.float64], seed: int = 0) -> tuple[list[Note], str]:
    """Look for near-copies among points (n, d), and for points near the row before them; return notes and a reason.

    The reason says why halves of the points are not independent samples; it is an empty text if they may be. Rows that
    are sorted by group are about as near to the eighth row before them as to the row before them, and can still be
    independent. Rows of a series and replicates are nearest to the row before them. Medians are compared, because the
    few steps from one group to the next say nothing.
    """
    n, notes, reason = len(points), list[Note](), ""
    if n < 4 * COMPARED_NEIGHBOR:
        return notes, reason
    rng = generator(seed, n)
    points = np.ascontiguousarray(points[:MAX_EXAMINED_ROWS])
    distinct = np.unique(points, axis=0)
    is_by_chance = len(distinct) < len(points) and not find_copies(points, seed).any()
    examined = distinct if is_by_chance and len(distinct) > COMPARED_NEIGHBOR + 1 else points
    distance = kneighbors(np.ascontiguousarray(examined), COMPARED_NEIGHBOR)[1]
    if (copies := float((distance[:, 0] < MAX_NEAR_COPY_RATIO * distance[:, -1]).mean())) >= MIN_NOTED_COPY_SHARE:
        text = (
            f"{copies:.0%} of the rows have a near-copy. If they are replicates, give {Way('blocks')}, with the same "
            "value for the replicates of one sample, because halves of the data otherwise share them and the map looks "
            "more certain than it is."
        )
        notes.append(Note("near-copies", text))
        reason = "most rows have a near-copy" if copies >= MIN_DEPENDENT_COPY_SHARE else ""
    elif size := _size_of_sets(distinct):
        text = (
            f"The rows form sets of about {size} rows that are each other's nearest rows. If they are replicates, give "
            f"{Way('blocks')}, with the same value for the replicates of one sample."
        )
        notes.append(Note("near-copies", text))
        reason = f"the rows form sets of about {size} near-copies"
    step, *others = (
        float(np.median(np.linalg.norm(points[lag:] - points[:-lag], axis=1))) for lag in (1, *SERIES_LAGS)
    )
    order = rng.permutation(len(points))
    usual = float(np.median(np.linalg.norm(points[order[1:]] - points[order[:-1]], axis=1)))
    if step < MAX_STEP_RATIO * usual:
        text = (
            "Rows are nearer to the row before them than to random rows. If they are series or are sorted by subject, "
            f"give {Way('blocks')}, the series or subject of each row."
        )
        notes.append(Note("order-of-rows", text))
        if step < MAX_STEP_RATIO * max(others):
            reason = "each row is near the row before it, as in a series or among replicates"
    return notes, reason


def _size_of_sets(points: NDArray[np.float64]) -> int:
    """Return how many rows are in a set of near-copies, if most rows belong to such a set; otherwise 0.

    For each k, the set of a row and its k nearest rows is compared with the corresponding sets of these k rows. For
    points of a smooth density, the share of rows that two sets have in common falls slowly with k. For sets of m
    near-copies, this share is nearly 1 for k = m - 1, and much less for k = m.
    """
    n = len(points)
    if n < MIN_ROWS_FOR_SETS:
        return 0
    near = kneighbors(np.ascontiguousarray(points), MAX_SET_ROWS)[0]
    closed = np.column_stack([np.arange(n), near])
    overlaps = np.empty(MAX_SET_ROWS)
    for k in range(1, MAX_SET_ROWS + 1):
        sets = closed[:, : k + 1]
        shares = [(sets[:, :, None] == sets[near[:, column], None, :]).any(axis=2).mean() for column in range(k)]
        overlaps[k - 1] = np.mean(shares)
    falls = overlaps[:-1] - overlaps[1:]
    falls[0] = 0  # a fall from k = 1 to 2 does not show sets of two rows: mutual neighbors are frequent in any data
    is_set = (overlaps[:-1] >= SET_OVERLAP) | (falls >= SET_DROP)
    return int(np.flatnonzero(is_set)[overlaps[:-1][is_set].argmax()]) + 2 if is_set.any() else 0
