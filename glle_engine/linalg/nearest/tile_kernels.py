r"""The compiled search for nearest rows among the leaves of a k-d tree, which bounds distances by products in float32.

A leaf is skipped if its bounding box is farther from the point than the k-th distance so far. The rows of other leaves
are compared with the point by :math:`|a|^2/2 + |b|^2/2 - a^T b`, where a and b are the point and the row relative to
the leaf's center, so that little cancels. Unless this bound proves that the distance is greater than the k-th one, the
distance is computed in the engine's order of operations. The sums of products may be fused and reordered, so that their
bits depend on the processor. The bound therefore allows for every order.

Bound of the rounding error, for d < 2^21 features. Let u = 2^-24 be the rounding unit of float32, a and b exact, a' and
b' rounded to float32, A = |a'|^2 and B = |b'|^2. There are three errors:

- a' and b' are off by u |a| and u |b|. Therefore |a' - b'|^2 / 2 exceeds |a - b|^2 / 2 by at most 2.1 u (A + B).
- B/2 - a'^T b' is a sum of d products and B/2, in any order, fused or not. It is off by at most
  1.1 (d + 1) u (B/2 + |a'| |b'|), which is at most 1.1 (d + 1) u (A/2 + B).
- A is a sum in float32 of at most d + 16 squares, since zeros fill a' up to whole SIMD vectors of up to 16 numbers. It
  is off by at most 1.1 (d + 16) u A. B/2 is rounded to float32 only once, and is off by at most u B/2.

Together, these errors are at most (1.25 d + 16) u (A + B), which is `error_of` times A + B. `nearest_in_leaves` and
`panels_of` subtract it from A/2 and B/2. Numbers below the normal range of float32 add at most d 2^-122, if the unit is
such that the data have extent 1 at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from glle_engine.linalg.compiled import compiled, instruction
from glle_engine.linalg.nearest.distance_kernels import TIE_TOLERANCE, ascending, distance, rank_of, sink
from glle_engine.linalg.vectors import DOUBLE, address, emit, offset, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT = ir.FloatType()
INTEGER = ir.IntType(64)
VECTORS_PER_TILE = 2  # products are computed for this many SIMD vectors of rows of the tree at once
TAG = (0,) * (16 if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else 8)
"""The length of this tuple is the number of float32 in a SIMD vector of this processor."""
PANEL = VECTORS_PER_TILE * len(TAG)  # number of rows of the tree for which products are computed at once
ROWS = (0,) * 6
"""Its length is the number of query points for which products are computed at once.

Each query point has `VECTORS_PER_TILE` vectors of sums: 6 x 2 vectors fit into the registers.
"""
_EPSILON = float(np.finfo(np.float64).eps)
_HEIGHT = len(ROWS)
_MAX_FLOAT32_SQUARE = 2.0**60  # larger squared norms, of points far outside the data, may overflow in float32
# More than the error that each feature may add because numbers below 2^-126, the least normal float32, may become 0.
_FLOAT32_UNDERFLOW = 2.0**-120
_NO_ROW = 2**63 - 1  # stands for "no row", and sorts after all indices
# The search visits leaves in the order of their keys. The key of a leaf is its squared distance or, if this is 0, a
# number below `_NEAR_ZERO`. All other squared distances are above `_NEAR_ZERO`.
_NEAR_ZERO = 2.0**-1020
# More than the error of a squared distance that arises because squares below 2^-1022, the least normal float64, may be
# rounded to 0.
_FLOAT64_UNDERFLOW = 2.0**-1000


def _read(builder: Any, data: Any, index: Any, lanes: int) -> Any:
    """Emit the load of a vector of `lanes` numbers, the first of which is number `index` after the address `data`."""
    vector = ir.VectorType(data.type.pointee, lanes)
    value = builder.load(builder.bitcast(builder.gep(data, [index]), vector.as_pointer()))
    value.align = 4
    return value


@instruction
def center_row(typing: Any, tag: Any, row: Any, center: Any, scale: Any, out: Any, count: Any) -> Any:
    """Write (center - row) * scale to `out` in float32, and return the sum of the squares.

    `count` is the number of entries of `center`, `row` and `out`, a multiple of the width `len(tag)` of SIMD vectors.
    """
    lanes = len(tag)
    narrow = ir.VectorType(FLOAT, lanes)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, row, center, scale, out, count = args
        total = cgutils.alloca_once_value(builder, ir.Constant(narrow, [0.0] * lanes))
        factor = spread(builder, scale, lanes)
        step = ir.Constant(INTEGER, lanes)
        with cgutils.for_range_slice(builder, ir.Constant(INTEGER, 0), count, step, INTEGER) as (index, _):
            apart = builder.fsub(_read(builder, center, index, lanes), _read(builder, row, index, lanes))
            value = builder.fptrunc(builder.fmul(apart, factor), narrow)
            builder.store(value, builder.bitcast(builder.gep(out, [index]), narrow.as_pointer())).align = 4
            builder.store(emit(builder, "fmuladd", value, value, builder.load(total)), total)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOAT, [FLOAT, narrow]), f"llvm.vector.reduce.fadd.v{lanes}f32"
        )
        square = builder.call(function, [ir.Constant(FLOAT, 0.0), builder.load(total)], fastmath=("reassoc",))
        return builder.fpext(square, DOUBLE)

    return types.float64(tag, row, center, types.float64, out, types.intp), code


@instruction
def not_above(
    typing: Any, tag: Any, rows: Any, left: Any, stride: Any, panel: Any, count: Any, start: Any, limits: Any, out: Any
) -> Any:
    """Find, for each row of `left`, the columns j of `panel` for which start[j] + row * column is at most a limit.

    Writes a bit mask for each row: bit j of out[i] is set if start[j] + sum_f left[i, f] panel[f, j], over `count`
    features f, is at most limits[i]. Returns the union of the masks, which is 0 if no pair was found. The rows of
    `left` begin `stride` numbers apart. `panel` has two SIMD vectors of columns. `rows` and `tag` are tuples of which
    only the lengths count: the number of rows, and the number of columns in a SIMD vector.
    """
    lanes, height = len(tag), len(rows)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, _, left, stride, panel, count, start, limits, out = args
        number = [ir.Constant(INTEGER, i) for i in range(max(height, VECTORS_PER_TILE * lanes + 1))]
        begin = [_read(builder, start, number[v * lanes], lanes) for v in range(VECTORS_PER_TILE)]
        sums = [[cgutils.alloca_once_value(builder, begin[v]) for v in range(VECTORS_PER_TILE)] for _ in range(height)]
        row = [builder.gep(left, [builder.mul(stride, number[i])]) for i in range(height)]
        with cgutils.for_range(builder, count) as loop:
            first = builder.mul(loop.index, number[VECTORS_PER_TILE * lanes])
            right = [
                _read(builder, panel, builder.add(first, number[v * lanes]), lanes) for v in range(VECTORS_PER_TILE)
            ]
            for i in range(height):
                factor = spread(builder, builder.load(builder.gep(row[i], [loop.index])), lanes)
                for v in range(VECTORS_PER_TILE):
                    value = emit(builder, "fmuladd", factor, right[v], builder.load(sums[i][v]))
                    builder.store(value, sums[i][v])
        union = number[0]
        for i in range(height):
            limit = spread(builder, builder.load(builder.gep(limits, [number[i]])), lanes)
            mask = number[0]
            for v in range(VECTORS_PER_TILE):
                below = builder.fcmp_ordered("<=", builder.load(sums[i][v]), limit)
                bits = builder.zext(builder.bitcast(below, ir.IntType(lanes)), INTEGER)
                mask = builder.or_(mask, builder.shl(bits, number[v * lanes]))
            builder.store(mask, builder.gep(out, [number[i]]))
            union = builder.or_(union, mask)
        return union

    pointers = (left, types.intp, panel, types.intp, start, limits, out)
    return types.int64(tag, rows, *pointers), code


@instruction
def lowest_bit(typing: Any, mask: Any) -> Any:
    """Return the position of the lowest bit that is set in a mask, which must not be 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), code


class Tree(NamedTuple):
    """A k-d tree of n rows of data, sorted by leaf: leaf b has the rows b * size to (b + 1) * size - 1.

    Node i has the children 2 i + 1, with the first half of the node's leaves, rounded down, and 2 i + 2.
    """

    size: int  # number of rows of a leaf; the last leaf may have fewer
    data: NDArray[np.float64]  # (n, d): the rows, sorted by leaf
    numbers: NDArray[np.int64]  # (n,): the row number that each row had before the rows were sorted
    groups: NDArray[np.int64]  # (n,): the group of each row; a search can leave out one group
    nodes: NDArray[np.float64]  # (nodes, 2, axes): smallest and largest coordinates of each node's rows on the axes
    boxes: NDArray[np.float64]  # (leaves, 2, axes): smallest and largest coordinates of each leaf's rows
    lowest: NDArray[np.int64]  # (leaves,): the smallest row number, as in `numbers`, of the rows of each leaf
    centers: NDArray[np.float64]  # (leaves, d and some zeros): the mean of each leaf's rows
    panels: NDArray[np.float32]  # (panels, d, PANEL): rows minus the center of their leaf, times `scale`, transposed
    # (panels * PANEL,): half the squared length of each row in `panels`, less an error bound. The last leaf may have
    # fewer rows than it has places in `panels`; the entries of the places that are left are infinity.
    halves: NDArray[np.float32]
    scale: float  # the power of 2 by which the largest range of a feature becomes a number between 1/2 and 1


class Queries(NamedTuple):
    """The m points whose nearest rows are searched; batch g has the points starts[g] to starts[g + 1] - 1."""

    starts: NDArray[np.int64]
    points: NDArray[np.float64]  # (m, d)
    excluded: NDArray[np.int64]  # (m,): the group of rows of the tree to leave out for each point; -1 for none
    places: NDArray[np.float64]  # (m, axes): coordinates of the points on the principal axes of the tree
    tolerance: NDArray[np.float64]  # (batches,): a bound on the rounding errors of the coordinates in each batch


@compiled
def error_of(features: int) -> float:
    """Return a bound on the error of |a|^2/2 + |b|^2/2 - a^T b in float32, relative to |a|^2 + |b|^2.

    a and b have `features` entries. The docstring of this file derives the bound.
    """
    return (1.25 * features + 16.0) * 2.0**-24


@compiled
def panels_of(
    data: NDArray[np.float64],
    centers: NDArray[np.float64],
    scale: float,
    panels: NDArray[np.float32],
    halves: NDArray[np.float32],
) -> None:
    """Write the rows of each leaf, minus the leaf's center and times `scale`, to `panels` in float32, transposed.

    Half the squared length of each of these rows, less a bound on rounding errors (`error_of`), is written to `halves`.
    `data` (n, d) is sorted by leaf, and `centers` has a row for each leaf.
    """
    n, d = data.shape
    size = len(halves) // len(centers)
    for i in range(n):
        leaf, panel, column = i // size, i // PANEL, i % PANEL
        square = 0.0
        for f in range(d):
            value = np.float32((data[i, f] - centers[leaf, f]) * scale)
            panels[panel, f, column] = value
            square += float(value) * float(value)
        halves[i] = np.float32(square * (0.5 - error_of(d)))


@compiled
def _threshold(kth: float, half: float, scale: float, relative: float) -> np.float32:
    """Return the number t such that a row b is surely farther from a point a than `kth` if |b|^2/2 - a^T b > t.

    `kth` is the distance from a to its k-th nearest row so far. `half` is |a|^2/2, less a bound on rounding errors; a
    and b are relative to the center of a leaf of the tree, and multiplied by `scale`. `relative` is a factor above 1
    that allows for rounding errors of `kth`.
    """
    scaled = kth * scale
    value = 0.5 * scaled * scaled * relative - half
    return np.float32(value + abs(value) * 2.0**-22)


@compiled
def _gap(low: NDArray[np.float64], high: NDArray[np.float64], box: NDArray[np.float64]) -> float:
    """Return the squared distance between two boxes, 0 if they overlap; one extends from `low` to `high` (axes,).

    The other, `box` (2, axes), has the smallest coordinates in its first row, and the largest in its second.
    """
    total = 0.0
    for f in range(len(low)):
        gap = max(box[0, f] - high[f], low[f] - box[1, f])
        if gap > 0:
            total += gap * gap
    return total


@compiled
def _nearest_leaf(low: NDArray[np.float64], high: NDArray[np.float64], tree: Tree) -> int:
    """Return the number of a leaf of the tree near the box from `low` to `high` (axes,), though not always the nearest.

    From the root, the search always goes to the nearer child.
    """
    node, first, last = 0, 0, len(tree.boxes)
    while last - first > 1:
        middle = (first + last) // 2
        if _gap(low, high, tree.nodes[2 * node + 1]) <= _gap(low, high, tree.nodes[2 * node + 2]):
            node, last = 2 * node + 1, middle
        else:
            node, first = 2 * node + 2, middle
    return first


@compiled
def _list_leaves(
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    tree: Tree,
    first: int,
    last: int,
    limit: float,
    leaves: NDArray[np.int64],
    keys: NDArray[np.float64],
) -> int:
    """Write the leaves within the squared distance `limit` of the box from `low` to `high` (axes,) to `leaves`.

    Returns how many leaves these are. Leaves `first` to `last` - 1 are left out. The squared distances of the leaves
    are written to `keys`, by which the search orders the leaves. Leaves at distance 0 get keys that are almost 0 and
    that ascend with the smallest row number in the leaf. If a point has many copies, the copies with the smallest row
    numbers are then found first.
    """
    stack = np.empty((128, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, len(tree.boxes)
    size, count = 1, 0
    while size:
        size -= 1
        node, start, stop = stack[size, 0], stack[size, 1], stack[size, 2]
        if start >= first and stop <= last:
            continue
        square = _gap(low, high, tree.nodes[node])
        if square > limit:
            continue
        if stop - start == 1:
            leaves[count] = start
            keys[count] = square if square > 0 else tree.lowest[start] / len(tree.data) * _NEAR_ZERO
            count += 1
        else:
            middle = (start + stop) // 2
            stack[size, 0], stack[size, 1], stack[size, 2] = 2 * node + 1, start, middle
            stack[size + 1, 0], stack[size + 1, 1], stack[size + 1, 2] = 2 * node + 2, middle, stop
            size += 2
    return count


@compiled
def _bounds(places: NDArray[np.float64], box: NDArray[np.float64], tolerance: float, out: NDArray[np.float64]) -> None:
    """Write lower bounds of the squared distances between m points and a box to `out` (m,).

    The columns of `places` (axes, m) are the points, whose coordinates have errors of at most `tolerance`. `box`
    (2, axes) has the smallest coordinates in its first row, and the largest in its second.
    """
    for r in range(len(out)):
        out[r] = 0.0
    for f in range(len(places)):
        low, high = box[0, f] - tolerance, box[1, f] + tolerance
        for r in range(len(out)):
            gap = max(low - places[f, r], places[f, r] - high, 0.0)
            out[r] += gap * gap


@compiled
def nearest_in_leaves(
    tree: Tree,
    queries: Queries,
    first: int,
    last: int,
    out_index: NDArray[np.int32],
    out_distance: NDArray[np.float64],
    work: NDArray[np.int64],
) -> None:
    """Find the k rows of the tree that are nearest to each query point in the batches `first` to `last` - 1.

    The query points are processed in batches of points that are near each other. Writes the numbers of the rows to
    `out_index` and their distances to `out_distance`, both (m, k), nearest first; of rows whose distances agree to 34
    bits, the smaller number comes first. The rows of one group are left out for each query point, the group whose
    number is in `queries.excluded`. Adds two counts to `work` (2,): the pairs of a point and a row that were
    screened by a bound from a matrix product, and the pairs whose exact distance was computed.
    """
    data, numbers, lowest, size, scale = tree.data, tree.numbers, tree.lowest, tree.size, tree.scale
    boxes, groups, points, excluded = tree.boxes, tree.groups, queries.points, queries.excluded
    n, d = data.shape
    axes, k = queries.places.shape[1], out_index.shape[1]
    leaves, wide = tree.centers.shape
    largest, origin = 0, queries.starts[first]
    for g in range(first, last):
        largest = max(largest, queries.starts[g + 1] - queries.starts[g])
    rows, places = np.zeros((largest, wide)), np.empty((axes, largest))
    left, halves = np.zeros((largest + _HEIGHT, wide), np.float32), np.empty(largest)
    thresholds, masks = np.empty(largest + _HEIGHT, np.float32), np.empty(_HEIGHT, np.int64)
    bounds, limits, active = np.empty(largest), np.empty(largest), np.empty(largest, np.int64)
    distances, indices = np.empty((largest, k)), np.empty((largest, k), np.int64)
    low, high = np.empty(axes), np.empty(axes)
    listed, keys = np.empty(leaves, np.int64), np.empty(leaves)
    # Squares of distances are multiplied by this before rows are skipped, so that neither rounding errors nor distances
    # that count as equal (`TIE_TOLERANCE`) lose a neighbor.
    relative = 1.0 + 8.0 * (d + 16) * _EPSILON + 8.0 * TIE_TOLERANCE
    error = error_of(d)
    row_at, left_at, center_at, panel_at = address(rows), address(left), address(tree.centers), address(tree.panels)
    half_at, threshold_at, mask_at = address(tree.halves), address(thresholds), address(masks)
    for g in range(first, last):
        begin, m, tolerance = queries.starts[g], queries.starts[g + 1] - queries.starts[g], queries.tolerance[g]
        for f in range(axes):
            low[f], high[f] = np.inf, -np.inf
        for r in range(m):
            for f in range(d):
                rows[r, f] = points[begin + r, f]
            for f in range(axes):
                place = queries.places[begin + r, f]
                places[f, r], low[f], high[f] = place, min(low[f], place), max(high[f], place)
            for a in range(k):
                distances[r, a], indices[r, a] = np.inf, _NO_ROW
            limits[r] = np.inf
        for f in range(axes):
            low[f], high[f] = low[f] - tolerance, high[f] + tolerance
        limit = np.inf
        start = _nearest_leaf(low, high, tree)
        stop = start + 1
        while min(stop * size, n) - start * size <= k and stop - start < leaves:
            start, stop = max(start - 1, 0), min(stop + 1, leaves)
        count = stop - start
        for step in range(count):
            listed[step], keys[step] = start + step, 0.0
        for stage in range(2):
            if stage == 1:
                count = _list_leaves(low, high, tree, start, stop, limit, listed, keys)
            for step in range(count // 2 - 1, -1, -1):
                sink(listed, keys, count, step)
            ascending(listed[:count], keys[:count])
            for step in range(count):
                leaf = listed[step]
                if keys[step] > limit:
                    break
                _bounds(places[:, :m], boxes[leaf], tolerance, bounds[:m])
                used = 0
                for r in range(m):
                    # distances[r, 0] is the largest of the k distances so far, and indices[r, 0] the row number of its
                    # row. If this distance is 0, only another row at distance 0 can take its place, and only one with a
                    # smaller row number, because the smaller number decides a tie.
                    if bounds[r] > limits[r] or (distances[r, 0] == 0 and lowest[leaf] > indices[r, 0]):
                        continue
                    row, target = offset(row_at, r * wide), offset(left_at, used * wide)
                    square = center_row(TAG, row, offset(center_at, leaf * wide), scale, target, wide)
                    if square < _MAX_FLOAT32_SQUARE:
                        halves[used] = square * (0.5 - error) - d * _FLOAT32_UNDERFLOW
                    else:
                        for f in range(wide):
                            left[used, f] = 0.0
                        halves[used] = -np.inf
                    thresholds[used] = _threshold(distances[r, 0], halves[used], scale, relative)
                    active[used] = r
                    used += 1
                if used == 0:
                    continue
                for i in range(used, used + _HEIGHT):
                    thresholds[i] = -np.inf
                end = min((leaf + 1) * size, n)
                work[0] += used * (end - leaf * size)
                for column in range(leaf * size, end, PANEL):
                    panel, half = offset(panel_at, column * d), offset(half_at, column)
                    for first_row in range(0, used, _HEIGHT):
                        target, limits_at = offset(left_at, first_row * wide), offset(threshold_at, first_row)
                        if not_above(TAG, ROWS, target, wide, panel, d, half, limits_at, mask_at) == 0:
                            continue
                        for i in range(first_row, min(first_row + _HEIGHT, used)):
                            mask, r = masks[i - first_row], active[i]
                            while mask:
                                j = column + lowest_bit(mask)
                                mask &= mask - 1
                                if j >= end or groups[j] == excluded[begin + r]:
                                    continue
                                work[1] += 1
                                apart = distance(points, begin + r, data, j)
                                rank, last_rank = rank_of(apart), rank_of(distances[r, 0])
                                if rank > last_rank or (rank == last_rank and numbers[j] > indices[r, 0]):
                                    continue
                                distances[r, 0], indices[r, 0] = apart, numbers[j]
                                sink(indices[r], distances[r], k, 0)
                                kth = distances[r, 0]
                                limits[r] = kth * kth * relative + _FLOAT64_UNDERFLOW
                                thresholds[i] = _threshold(kth, halves[i], scale, relative)
                limit = 0.0
                for r in range(m):
                    limit = max(limit, limits[r])
        for r in range(m):
            ascending(indices[r], distances[r])
            for a in range(k):
                out_index[begin - origin + r, a], out_distance[begin - origin + r, a] = indices[r, a], distances[r, a]
