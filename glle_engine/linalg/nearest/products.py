"""Tiles of inner products in float32, for bounds of distances.

Instructions for `glle_engine.linalg.nearest.tile_kernels`. Sums may be fused and reordered, so that their bits depend
on the processor. Bounds allow for every order.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from glle_engine.linalg.compiled import instruction
from glle_engine.linalg.vectors import DOUBLE

FLOAT = ir.FloatType()
INTEGER = ir.IntType(64)
VECTORS = 2  # of points, beside each other in a tile
TAG = (0,) * (16 if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else 8)
"""As long as a vector of floats: two of them by six rows of sums fit into the registers."""
PANEL = VECTORS * len(TAG)
ROWS = (0,) * 6


def _spread(builder: Any, value: Any, lanes: int) -> Any:
    """Return a vector with the same number in every lane."""
    vector = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def _read(builder: Any, data: Any, index: Any, lanes: int) -> Any:
    """Load `lanes` numbers from number `index` of an address on, which is aligned to one number only."""
    vector = ir.VectorType(data.type.pointee, lanes)
    value = builder.load(builder.bitcast(builder.gep(data, [index]), vector.as_pointer()))
    value.align = 4
    return value


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, fused if the processor can."""
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(a.type, [a.type] * 3), f"llvm.fmuladd.v{a.type.count}f32"
    )
    return builder.call(function, [a, b, c])


@instruction
def center_row(typing: Any, tag: Any, row: Any, centre: Any, scale: Any, out: Any, count: Any) -> Any:
    """Put (centre - row) scale into `out` as floats, and return the sum of their squares.

    `count` numbers, a multiple of the lanes.
    """
    lanes = len(tag)
    narrow = ir.VectorType(FLOAT, lanes)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, row, centre, scale, out, count = args
        total = cgutils.alloca_once_value(builder, ir.Constant(narrow, [0.0] * lanes))
        factor = _spread(builder, scale, lanes)
        step = ir.Constant(INTEGER, lanes)
        with cgutils.for_range_slice(builder, ir.Constant(INTEGER, 0), count, step, INTEGER) as (at, _):
            apart = builder.fsub(_read(builder, centre, at, lanes), _read(builder, row, at, lanes))
            value = builder.fptrunc(builder.fmul(apart, factor), narrow)
            builder.store(value, builder.bitcast(builder.gep(out, [at]), narrow.as_pointer())).align = 4
            builder.store(_multiply_add(builder, value, value, builder.load(total)), total)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOAT, [FLOAT, narrow]), f"llvm.vector.reduce.fadd.v{lanes}f32"
        )
        square = builder.call(function, [ir.Constant(FLOAT, 0.0), builder.load(total)], fastmath=("reassoc",))
        return builder.fpext(square, DOUBLE)

    return types.float64(tag, row, centre, types.float64, out, types.intp), code


@instruction
def not_above(
    typing: Any, tag: Any, rows: Any, left: Any, stride: Any, panel: Any, count: Any, start: Any, limits: Any, out: Any
) -> Any:
    """Put a mask of the points of a panel into `out` for each row, and return the union of the masks.

    Bit j of the mask of row i is set if start_j + sum_f left_if panel_fj is at most limit_i. `left` has `stride`
    numbers a row.
    """
    lanes, height = len(tag), len(rows)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, _, left, stride, panel, count, start, limits, out = args
        number = [ir.Constant(INTEGER, i) for i in range(max(height, VECTORS * lanes + 1))]
        begin = [_read(builder, start, number[v * lanes], lanes) for v in range(VECTORS)]
        sums = [[cgutils.alloca_once_value(builder, begin[v]) for v in range(VECTORS)] for _ in range(height)]
        row = [builder.gep(left, [builder.mul(stride, number[i])]) for i in range(height)]
        with cgutils.for_range(builder, count) as loop:
            first = builder.mul(loop.index, number[VECTORS * lanes])
            right = [_read(builder, panel, builder.add(first, number[v * lanes]), lanes) for v in range(VECTORS)]
            for i in range(height):
                factor = _spread(builder, builder.load(builder.gep(row[i], [loop.index])), lanes)
                for v in range(VECTORS):
                    value = _multiply_add(builder, factor, right[v], builder.load(sums[i][v]))
                    builder.store(value, sums[i][v])
        union = number[0]
        for i in range(height):
            limit = _spread(builder, builder.load(builder.gep(limits, [number[i]])), lanes)
            mask = number[0]
            for v in range(VECTORS):
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
    """Return the position of the lowest bit of a mask other than 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), code
