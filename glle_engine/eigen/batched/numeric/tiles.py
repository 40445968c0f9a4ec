"""Products of a wide front's panels, by tiles of the target in registers.

The rows of both panels that a tile needs are packed first: column by column, the rows of a tile next to each other. A
register then holds several rows of the left panel, and the loop over the columns reads two streams. The size of a tile
depends on the processor's registers. Each entry subtracts its products in the order of the columns, so that the size
does not change a bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from glle_engine.eigen.batched.numeric.kernels import Code, kernel
from glle_engine.eigen.batched.symbolic.elimination import MOST, WIDEST
from glle_engine.linalg.compiled import compiled, instruction
from glle_engine.linalg.vectors import advance, constant, emit_fma, fill, load, store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.linalg.vectors import Address

# Doubles of a register, and registers in a column of a tile: 24 of AVX-512's 32 registers hold sums, 12 of AVX2's 16.
_DOUBLES, _REGISTERS = (8, 4) if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else (4, 2)
_COLUMNS = 6  # of a tile
_STRIP = 72  # columns of the target whose packed rows stay in the second cache
_DEPTH = MOST * WIDEST  # columns of the panels
_MAX_ROWS = _DOUBLES * _REGISTERS
ROOM = (_MAX_ROWS + _STRIP) * _DEPTH + _MAX_ROWS * _COLUMNS
"""Scratch of `subtract`, in vectors."""


def _rows(lanes: int) -> int:
    """Return the number of rows of a tile."""
    return _REGISTERS * max(1, _DOUBLES // lanes)


@instruction
def _tile_rows(typing: Any, tag: Any) -> Any:
    """Return the number of rows of a tile, a constant of the compiled code."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(64), _rows(len(tag)))

    return types.intp(tag), code


def _write_tile(code: Code, target: Any, stride: Any, known: Any, left: Any, right: Any, depth: Any) -> None:
    """Write the code of a tile: subtract the products of two packed panels with `depth` columns."""
    builder, lanes, index = code.builder, code.lanes, depth.type
    rows = _rows(lanes)
    together = rows // _REGISTERS  # rows in a register
    wide = Code(builder, together * lanes)
    zero = ir.Constant(index, 0)
    places = [code.times(stride, row) for row in range(rows)]
    sums = {(v, j): code.variable(constant(wide.lanes, 0.0)) for v in range(_REGISTERS) for j in range(_COLUMNS)}
    with builder.if_then(builder.icmp_signed("!=", known, zero)):
        for (v, j), place in sums.items():
            parts = [code.load(target, places[v * together + q], j) for q in range(together)]
            builder.store(_join(builder, parts), place)
        for row in range(rows):  # the next tile's
            for j in range(_COLUMNS, 2 * _COLUMNS, max(1, 8 // lanes)):
                code.prefetch(target, places[row], j)
    with cgutils.for_range(builder, depth) as loop:
        first = code.times(loop.index, rows)
        minus = [builder.fneg(wide.load(code.at(left, first, v * together), zero)) for v in range(_REGISTERS)]
        for j in range(_COLUMNS):
            one = code.load(right, code.times(loop.index, _COLUMNS), j)
            repeated = _select(builder, one, list(range(lanes)) * together)
            for v in range(_REGISTERS):
                builder.store(emit_fma(builder, minus[v], repeated, builder.load(sums[v, j])), sums[v, j])
    for (v, j), place in sums.items():
        value = builder.load(place)
        for q in range(together):
            part = _select(builder, value, list(range(q * lanes, (q + 1) * lanes)))
            code.store(part, target, places[v * together + q], j)


def _select(builder: Any, vector: Any, entries: list[int], other: Any = None) -> Any:
    """Return a vector of these entries of one vector, or of two behind each other."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(entries)), entries)
    return builder.shuffle_vector(vector, vector if other is None else other, mask)


def _join(builder: Any, parts: list[Any]) -> Any:
    """Return vectors behind each other; their number is a power of two."""
    while len(parts) > 1:
        both = list(range(2 * parts[0].type.count))
        parts = [_select(builder, parts[i], both, parts[i + 1]) for i in range(0, len(parts), 2)]
    return parts[0]


_tile = kernel("tile", _write_tile, 6)


@compiled
def subtract(
    tag: tuple[int, ...],
    target: Address,
    stride: int,
    known: int,
    panels: NDArray[np.int64],
    count: int,
    left: Address,
    left_at: int,
    top: int,
    bottom: int,
    right: Address,
    right_at: int,
    first: int,
    last: int,
    room: Address,
) -> None:
    """Subtract the products of rows `top` to `bottom` of one factor with rows `first` to `last` of the other.

    The factors are the panels of the first `count` supernodes, at the places in row `left_at` and `right_at` of
    `panels`. `known` is 0 for a target of zeros, whatever is there. `room` has place for `ROOM` vectors.
    """
    depth, rows = panels[1, count - 1], _tile_rows(tag)
    strips = advance(tag, room, rows * _DEPTH)
    edge = advance(tag, strips, _STRIP * _DEPTH)
    for strip in range(first, last, _STRIP):
        until = min(strip + _STRIP, last)
        for j in range(strip, until, _COLUMNS):
            packed = advance(tag, strips, (j - strip) * depth)
            _pack(tag, panels, count, right, right_at, j, min(_COLUMNS, until - j), _COLUMNS, packed)
        for i in range(top, bottom, rows):
            height = min(rows, bottom - i)
            _pack(tag, panels, count, left, left_at, i, height, rows, room)
            for j in range(strip, until, _COLUMNS):
                width = min(_COLUMNS, until - j)
                packed = advance(tag, strips, (j - strip) * depth)
                corner = advance(tag, target, (i - top) * stride + j - first)
                if height == rows and width == _COLUMNS:
                    _tile(tag, corner, stride, known, room, packed, depth)
                else:
                    _copy(tag, corner, stride, edge, _COLUMNS, height, width)
                    _tile(tag, edge, _COLUMNS, known, room, packed, depth)
                    _copy(tag, edge, _COLUMNS, corner, stride, height, width)


@compiled
def _pack(
    tag: tuple[int, ...],
    panels: NDArray[np.int64],
    count: int,
    source: Address,
    source_at: int,
    first: int,
    height: int,
    rows: int,
    packed: Address,
) -> None:
    """Pack `height` rows from front index `first` on, with zeros up to the `rows` of a tile."""
    zero = fill(tag, 0.0)
    for s in range(count):
        begin, end = panels[0, s], panels[1, s]
        for i in range(height):
            row = panels[source_at, s] + (first + i - end) * (end - begin)
            for t in range(end - begin):
                store(packed, (begin + t) * rows + i, load(tag, source, row + t))
    for i in range(height, rows):
        for t in range(panels[1, count - 1]):
            store(packed, t * rows + i, zero)


@compiled
def _copy(
    tag: tuple[int, ...],
    source: Address,
    source_stride: int,
    target: Address,
    target_stride: int,
    rows: int,
    columns: int,
) -> None:
    """Copy a part of a tile."""
    for i in range(rows):
        for j in range(columns):
            store(target, i * target_stride + j, load(tag, source, i * source_stride + j))
