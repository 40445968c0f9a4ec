"""Innermost loops of factorization and triangular solves, as LLVM code that Python functions write.

A supernode (a range of columns with the same rows below them) has at most `MAX_SUPERNODE_COLUMNS` columns. There is
code for each number of columns, so that the columns stay in registers; `by_width` selects the code at run time.

A front is the dense matrix in which several supernodes are eliminated; its *panels* are its rows of L and of U^T. The
product of two panels is subtracted from a target, a block of the front, tile by tile: a tile is a rectangle that is
small enough to stay in registers. The rows of both panels that a tile needs are first packed: copied to a scratch
array, column by column, with the entries of a column next to each other. A register then holds several rows of the left
panel, and the loop over the columns reads memory in order. The size of a tile depends on the registers of the
processor. It does not change any bit, because each entry of the target is computed by subtracting the products of the
columns one by one, in the order of the columns.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target

from glle_engine.eigen.batched.elimination import MAX_SUPERNODE_COLUMNS, MAX_SUPERNODES_PER_FRONT
from glle_engine.linalg.compiled import compiled, instruction
from glle_engine.linalg.vectors import advance, constant, emit_fma, fill, load, read, store, vector_at, write

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.linalg.vectors import Address

PREFETCH_BYTES = 8192  # solves prefetch L and U this many bytes, two pages, ahead of their use
WIDTHS = range(1, MAX_SUPERNODE_COLUMNS + 1)
# Doubles per register, and registers per column of a tile: sums take 24 of AVX-512's 32 registers, 12 of AVX2's 16.
_DOUBLES, _REGISTERS = (8, 4) if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else (4, 2)
_TILE_COLUMNS = 6  # columns of the result that are computed at once; with `_REGISTERS` each, all fit in the registers
# The target is computed in strips of this many columns; the packed rows of the right panel that a strip needs are at
# most 144 KiB, and so stay in the L2 cache.
_STRIP_COLUMNS = 72
_PANEL_COLUMNS = MAX_SUPERNODES_PER_FRONT * MAX_SUPERNODE_COLUMNS  # most columns of L that one product can have
_MAX_ROWS = _DOUBLES * _REGISTERS
ROOM = (_MAX_ROWS + _STRIP_COLUMNS) * _PANEL_COLUMNS + _MAX_ROWS * _TILE_COLUMNS
"""Size of the scratch array `room` of `subtract`, in vectors that hold one number of each draw."""


class Code:
    """Emits LLVM instructions on vectors of `lanes` doubles, with an instruction builder of llvmlite.

    In the methods, `data` is the address of an array of doubles, and `index` counts vectors from there.
    """

    def __init__(self, builder: Any, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes

    def at(self, data: Any, index: Any, offset: int = 0) -> Any:
        """Emit the computation of the address of the vector at `index + offset` in `data`, and return the address."""
        if offset:
            index = self.builder.add(index, ir.Constant(index.type, offset))
        return vector_at(self.builder, data, index, self.lanes)

    def load(self, data: Any, index: Any, offset: int = 0) -> Any:
        """Emit the load of the vector at `index + offset` in `data`, and return its value."""
        return read(self.builder, self.at(data, index, offset))

    def store(self, value: Any, data: Any, index: Any, offset: int = 0) -> None:
        """Emit the store of `value` to the vector at `index + offset` in `data`."""
        write(self.builder, value, self.at(data, index, offset))

    def prefetch(self, data: Any, index: Any, offset: int) -> None:
        """Emit the prefetch into the cache of the vector at `index + offset` in `data`."""
        byte = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(ir.VoidType(), [byte, number, number, number]), "llvm.prefetch.p0"
        )
        place = self.builder.bitcast(self.at(data, index, offset), byte)
        self.builder.call(function, [place, number(0), number(3), number(1)])

    def variable(self, value: Any) -> Any:
        """Emit a variable on the stack with this initial value, and return its address.

        LLVM turns the variable into a register when it optimizes the code.
        """
        place = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, place)
        return place

    def less(self, place: Any, a: Any, minus_b: Any) -> None:
        """Emit the subtraction of the product a b from the variable at `place`, as a fused a * minus_b + variable."""
        self.builder.store(emit_fma(self.builder, a, minus_b, self.builder.load(place)), place)

    def row(self, rows: Any, index: Any) -> Any:
        """Emit the load of rows[index], a row number, and its conversion to the integer type of `index`; return it."""
        return self.builder.sext(self.builder.load(self.builder.gep(rows, [index])), index.type)

    def times(self, index: Any, factor: int) -> Any:
        """Emit the multiplication of an index by a number, and return the product."""
        return self.builder.mul(index, ir.Constant(index.type, factor))


def kernel(name: str, write_code: Callable[..., None], arguments: int) -> Any:
    """Return a numba intrinsic without a result, which compiled code calls with a tag and `arguments` more arguments.

    The tag is a tuple whose length is the number of doubles in a vector. `write_code` emits the intrinsic's LLVM code;
    it is called with a `Code` and the arguments after the tag. Memory addresses are passed on as they are, and numbers
    are converted to 64-bit integers.
    """

    def type_kernel(typing: Any, tag: Any, *rest: Any) -> Any:
        rest = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, types.BaseTuple)) else rest
        kinds = [numba_type if isinstance(numba_type, types.CPointer) else types.intp for numba_type in rest]

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            write_code(Code(builder, len(tag)), *args[1:])
            return context.get_dummy_value()

        return types.void(tag, *kinds), code

    names = ", ".join(f"a{i}" for i in range(arguments))
    scope: dict[str, Any] = {"type_kernel": type_kernel}
    exec(f"def {name}(typing, tag, {names}):\n    return type_kernel(typing, tag, {names})\n", scope)  # noqa: S102 -- numba counts arguments
    return instruction(scope[name])


def enter(width: int, *, lower: bool) -> Callable[..., None]:
    r"""Return the function that emits one supernode's part of the solution of :math:`L^T z = f`, or of U z = f.

    A supernode is a range of `width` columns c with the same rows r below them. Its part of the solution is
    :math:`z_c = T_c^{-T} (f_c - P^T z_r)` for L (`lower`), and :math:`z_c = T_c^{-1} (f_c - P^T z_r)` for U.
    :math:`T_c` is the triangle of L or U in the diagonal block, and P are the rows of L or of :math:`U^T` below it. The
    solution goes down the elimination tree, from parents to children.

    The arguments of the emitted code are the right-hand side f; the solution z, which is known in the rows r and is
    written in the rows c; a second array, to which :math:`z_c` is copied, for the solution that goes up the tree; the
    first column; the row numbers r and how many they are; P; and the triangle.
    """

    def write_code(
        code: Code, f: Any, z: Any, x: Any, begin: Any, rows: Any, below: Any, panel: Any, triangle: Any
    ) -> None:
        builder = code.builder
        values = [code.variable(code.load(f, begin, j)) for j in range(width)]
        zero = ir.Constant(begin.type, 0)
        # With few columns, each addition to a sum would wait for the one before, so rows are added to several sums in
        # turn.
        sets = 3 if width <= 2 else 2 if width <= 4 else 1
        further_sums = [[code.variable(constant(code.lanes, 0.0)) for _ in range(width)] for _ in range(sets - 1)]

        def rows_from(index: Any, sums: list[Any]) -> None:
            minus = builder.fneg(code.load(z, code.row(rows, index)))
            start = code.times(index, width)
            for j in range(0, width, max(1, 8 // code.lanes)):
                code.prefetch(panel, start, j + PREFETCH_BYTES // (8 * code.lanes))
            for j in range(width):
                code.less(sums[j], code.load(panel, start, j), minus)

        many = ir.Constant(below.type, sets)
        rounds = builder.udiv(below, many)
        with cgutils.for_range(builder, rounds) as loop:
            index = builder.mul(loop.index, many)
            for i, sums in enumerate([values, *further_sums]):
                rows_from(builder.add(index, ir.Constant(index.type, i)), sums)
        if sets > 1:
            done = builder.mul(rounds, many)
            with cgutils.for_range(builder, builder.sub(below, done)) as loop:
                rows_from(builder.add(loop.index, done), values)
            for sums in further_sums:
                for j in range(width):
                    builder.store(builder.fadd(builder.load(values[j]), builder.load(sums[j])), values[j])
        for t in reversed(range(width)):
            if lower:
                # Entry (u, t) of the triangle of L is at `column + u`; its columns are stored without the diagonal.
                column = t * (width - 1) - t * (t - 1) // 2 - t - 1
                for u in range(t + 1, width):
                    code.less(values[t], code.load(triangle, zero, column + u), builder.fneg(builder.load(values[u])))
            else:
                column = t * (t + 1) // 2
                pivoted = builder.fmul(builder.load(values[t]), code.load(triangle, zero, column + t))
                builder.store(pivoted, values[t])
                for u in range(t):
                    code.less(values[u], code.load(triangle, zero, column + u), builder.fneg(pivoted))
        for j in range(width):
            code.store(builder.load(values[j]), z, begin, j)
            code.store(builder.load(values[j]), x, begin, j)

    return write_code


def leave(width: int, *, lower: bool) -> Callable[..., None]:
    r"""Return the function that emits one supernode's step in the solution of L x = b (`lower`), or of U^T x = b.

    A supernode is a range of `width` columns c with the same rows r below them. Its step first solves for
    :math:`x_c` with the triangle in the diagonal block of L (or of :math:`U^T`). It then subtracts :math:`P x_c` from
    :math:`x_r`, where P are the rows of L (or of :math:`U^T`) below the diagonal block. The steps go up the elimination
    tree, from children to parents: a traversal of the tree makes the step of a supernode when it leaves it.

    The arguments of the emitted code are x, which holds b at first and is overwritten; the first column; the row
    numbers r and how many they are; P; and the triangle.
    """

    def write_code(code: Code, x: Any, begin: Any, rows: Any, below: Any, panel: Any, triangle: Any) -> None:
        builder = code.builder
        values = [code.variable(code.load(x, begin, j)) for j in range(width)]
        zero = ir.Constant(begin.type, 0)
        for t in range(width):
            if lower:
                column = t * (width - 1) - t * (t - 1) // 2 - t - 1
                for u in range(t + 1, width):
                    code.less(values[u], code.load(triangle, zero, column + u), builder.fneg(builder.load(values[t])))
            else:
                column = t * (t + 1) // 2
                for u in range(t):
                    code.less(values[t], code.load(triangle, zero, column + u), builder.fneg(builder.load(values[u])))
                pivoted = builder.fmul(builder.load(values[t]), code.load(triangle, zero, column + t))
                builder.store(pivoted, values[t])
        for j in range(width):
            code.store(builder.load(values[j]), x, begin, j)
        minus = [builder.fneg(builder.load(value)) for value in values]
        with cgutils.for_range(builder, below) as loop:
            row = code.row(rows, loop.index)
            start = code.times(loop.index, width)
            value = code.load(x, row)
            for j in range(width):
                value = emit_fma(builder, code.load(panel, start, j), minus[j], value)
            code.store(value, x, row)

    return write_code


def triangles(width: int) -> Callable[..., None]:
    """Return the function that emits the LU factorization :math:`D = L_D U_D` of a dense matrix of `width` columns.

    D is the diagonal block of a supernode. The arguments of the emitted code are D by rows, and the arrays to which the
    columns of L_D, without the diagonal, and of U_D are written. A column of U_D ends with the reciprocal of its pivot.
    """

    def write_code(code: Code, diagonal: Any, low: Any, up: Any) -> None:
        builder = code.builder
        zero = ir.Constant(ir.IntType(64), 0)
        entry = {(i, j): code.load(diagonal, zero, i * width + j) for i in range(width) for j in range(width)}
        for t in range(width):
            inverse = builder.fdiv(constant(code.lanes, 1.0), entry[t, t])
            code.store(inverse, up, zero, t * (t + 1) // 2 + t)
            for u in range(t):
                code.store(entry[u, t], up, zero, t * (t + 1) // 2 + u)
            column = t * (width - 1) - t * (t - 1) // 2 - t - 1
            for i in range(t + 1, width):
                factor = builder.fmul(entry[i, t], inverse)
                code.store(factor, low, zero, column + i)
                minus = builder.fneg(factor)
                for j in range(t + 1, width):
                    entry[i, j] = emit_fma(builder, entry[t, j], minus, entry[i, j])

    return write_code


def panels(width: int) -> Callable[..., None]:
    """Return the function that emits the computation of L and U^T below a diagonal block of `width` columns, in place.

    They are :math:`L = A_{21} U_D^{-1}` and :math:`U^T = (L_D^{-1} A_{12})^T`, where the triangles L_D and U_D are the
    factors of the diagonal block.

    The arguments of the emitted code are :math:`A_{21}` and :math:`A_{12}^T`, which are overwritten with L and U^T, the
    number of their rows, L_D and U_D.
    """

    def write_code(code: Code, low: Any, up: Any, below: Any, triangle_low: Any, triangle_up: Any) -> None:
        builder = code.builder
        zero = ir.Constant(below.type, 0)
        with cgutils.for_range(builder, below) as loop:
            start = code.times(loop.index, width)
            values: list[Any] = []
            for t in range(width):
                value = code.load(low, start, t)
                for u in range(t):
                    value = emit_fma(builder, code.load(triangle_up, zero, t * (t + 1) // 2 + u), values[u], value)
                value = builder.fmul(value, code.load(triangle_up, zero, t * (t + 1) // 2 + t))
                code.store(value, low, start, t)
                values.append(builder.fneg(value))
        if width == 1:
            return
        with cgutils.for_range(builder, below) as loop:
            start = code.times(loop.index, width)
            values = []
            for t in range(width):
                value = code.load(up, start, t)
                for u in range(t):
                    column = u * (width - 1) - u * (u - 1) // 2 - u - 1
                    value = emit_fma(builder, code.load(triangle_low, zero, column + t), values[u], value)
                code.store(value, up, start, t)
                values.append(builder.fneg(value))

    return write_code


def product(width: int, *, added: bool) -> Callable[..., None]:
    """Return the function that emits C = -L U, or C = C - L U if `added`, four rows at a time.

    C is square, and L and U^T have `width` columns. The arguments of the emitted code are C, the distance of its rows
    in memory, L, U^T, and the number of rows of L, U^T and C.
    """

    def write_code(code: Code, c: Any, stride: Any, low: Any, up: Any, below: Any) -> None:
        builder = code.builder
        four = ir.Constant(below.type, 4)

        def rows(first: Any, count: int) -> None:
            left = builder.mul(first, ir.Constant(first.type, width))
            targets = [builder.mul(builder.add(first, ir.Constant(first.type, i)), stride) for i in range(count)]
            with cgutils.for_range(builder, below) as loop:
                right = code.times(loop.index, width)
                sums: list[Any] = []
                if added:
                    sums = [code.load(c, builder.add(target, loop.index)) for target in targets]
                for t in range(width):
                    minus = builder.fneg(code.load(up, right, t))
                    for i in range(count):
                        value = code.load(low, left, i * width + t)
                        if t == 0 and not added:
                            sums.append(builder.fmul(value, minus))
                        else:
                            sums[i] = emit_fma(builder, value, minus, sums[i])
                for i in range(count):
                    code.store(sums[i], c, builder.add(targets[i], loop.index))

        rounds = builder.sdiv(below, four)
        with cgutils.for_range(builder, rounds) as loop:
            rows(builder.mul(loop.index, four), 4)
        first = builder.mul(rounds, four)
        rest = builder.sub(below, first)
        for count in (1, 2, 3):
            with builder.if_then(builder.icmp_signed("==", rest, ir.Constant(rest.type, count))):
                rows(first, count)

    return write_code


def by_width(name: str, write_width: Callable[[int], Callable[..., None]], arguments: int) -> Any:
    """Return one numba intrinsic that contains code for each number of columns (1 to 8), and selects it when called.

    Compiled code calls the intrinsic with a tag (a tuple, whose length is the number of draws), the number of columns,
    and `arguments` further arguments. ``write_width(columns)`` returns the function that emits the code for this number
    of columns.
    """

    def write_code(code: Code, width: Any, *args: Any) -> None:
        builder = code.builder
        done = builder.append_basic_block("done")
        switch = builder.switch(width, done)
        for number in WIDTHS:
            with builder.goto_block(builder.append_basic_block(f"width_{number}")):
                switch.add_case(ir.Constant(width.type, number), builder.block)
                write_width(number)(code, *args)
                builder.branch(done)
        builder.position_at_end(done)

    return kernel(name, write_code, arguments + 1)


enter_lower = by_width("enter_lower", partial(enter, lower=True), 8)
enter_upper = by_width("enter_upper", partial(enter, lower=False), 8)
leave_lower = by_width("leave_lower", partial(leave, lower=True), 6)
leave_upper = by_width("leave_upper", partial(leave, lower=False), 6)
factor_triangles = by_width("factor_triangles", triangles, 3)
solve_panels = by_width("solve_panels", panels, 5)
multiply = by_width("multiply", partial(product, added=False), 5)
multiply_add = by_width("multiply_add", partial(product, added=True), 5)


def _write_tile(code: Code, target: Any, stride: Any, known: Any, left: Any, right: Any, depth: Any) -> None:
    """Emit the code that subtracts left^T right from a tile: a rectangle of numbers that is small enough for registers.

    `left` and `right` have `depth` rows, which `_pack` has written one after another. The tile begins at the address
    `target`, and its rows are `stride` vectors apart. If `known` is 0, the tile's old content is ignored and counts as
    zeros.
    """
    builder, lanes, index = code.builder, code.lanes, depth.type
    rows = _REGISTERS * max(1, _DOUBLES // lanes)
    together = rows // _REGISTERS  # how many rows one register holds next to each other
    wide = Code(builder, together * lanes)
    zero = ir.Constant(index, 0)
    places = [code.times(stride, row) for row in range(rows)]
    sums = {(v, j): code.variable(constant(wide.lanes, 0.0)) for v in range(_REGISTERS) for j in range(_TILE_COLUMNS)}
    with builder.if_then(builder.icmp_signed("!=", known, zero)):
        for (v, j), place in sums.items():
            parts = [code.load(target, places[v * together + q], j) for q in range(together)]
            builder.store(_join(builder, parts), place)
        for row in range(rows):  # prefetch the target of the next tile
            for j in range(_TILE_COLUMNS, 2 * _TILE_COLUMNS, max(1, 8 // lanes)):
                code.prefetch(target, places[row], j)
    with cgutils.for_range(builder, depth) as loop:
        first = code.times(loop.index, rows)
        minus = [builder.fneg(wide.load(code.at(left, first, v * together), zero)) for v in range(_REGISTERS)]
        for j in range(_TILE_COLUMNS):
            one = code.load(right, code.times(loop.index, _TILE_COLUMNS), j)
            repeated = _select(builder, one, list(range(lanes)) * together)
            for v in range(_REGISTERS):
                builder.store(emit_fma(builder, minus[v], repeated, builder.load(sums[v, j])), sums[v, j])
    for (v, j), place in sums.items():
        value = builder.load(place)
        for q in range(together):
            vector = _select(builder, value, list(range(q * lanes, (q + 1) * lanes)))
            code.store(vector, target, places[v * together + q], j)


def _select(builder: Any, vector: Any, entries: list[int], other: Any = None) -> Any:
    """Emit a shuffle: return a new vector whose entry i is entry entries[i] of `vector`.

    With `other`, a vector of the same length, entries[i] is an index of `vector` followed by `other`.
    """
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(entries)), entries)
    return builder.shuffle_vector(vector, vector if other is None else other, mask)


def _join(builder: Any, parts: list[Any]) -> Any:
    """Emit shuffles that join vectors, whose number is a power of two, into one longer vector, and return it."""
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
    """Subtract the product of rows of L and rows of U^T from `target`, for the first `count` supernodes of a front.

    A front is the dense matrix in which a range of columns is eliminated, and its supernodes are narrower ranges. Rows
    `top` to `bottom` - 1 of the front in the factor `left` are multiplied with rows `first` to `last` - 1 in the factor
    `right`; one factor is L, and the other is U^T. `panels` is from `describe_front` in
    `glle_engine.eigen.batched.factorization`. Its row `left_at` has the index at which each supernode begins in `left`,
    and its row `right_at` the same for `right`. The rows of `target` are `stride` vectors apart. If `known` is 0, the
    old content of `target` is ignored and counts as zeros. `room` is scratch memory for `ROOM` vectors. The length of
    `tag` is the number of draws.
    """
    # `depth` is the number of columns that the product sums over, and `rows` the number of rows of a tile.
    depth, rows = panels[1, count - 1], _REGISTERS * max(1, _DOUBLES // len(tag))
    strips = advance(tag, room, rows * _PANEL_COLUMNS)
    edge = advance(tag, strips, _STRIP_COLUMNS * _PANEL_COLUMNS)
    for strip in range(first, last, _STRIP_COLUMNS):
        until = min(strip + _STRIP_COLUMNS, last)
        for j in range(strip, until, _TILE_COLUMNS):
            packed = advance(tag, strips, (j - strip) * depth)
            _pack(tag, panels, count, right, right_at, j, min(_TILE_COLUMNS, until - j), _TILE_COLUMNS, packed)
        for i in range(top, bottom, rows):
            height = min(rows, bottom - i)
            _pack(tag, panels, count, left, left_at, i, height, rows, room)
            for j in range(strip, until, _TILE_COLUMNS):
                width = min(_TILE_COLUMNS, until - j)
                packed = advance(tag, strips, (j - strip) * depth)
                corner = advance(tag, target, (i - top) * stride + j - first)
                if height == rows and width == _TILE_COLUMNS:
                    _tile(tag, corner, stride, known, room, packed, depth)
                else:
                    _copy(tag, corner, stride, edge, _TILE_COLUMNS, height, width)
                    _tile(tag, edge, _TILE_COLUMNS, known, room, packed, depth)
                    _copy(tag, edge, _TILE_COLUMNS, corner, stride, height, width)


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
    """Copy `height` rows of L or U^T to `packed`, column by column, and fill them up with zeros to `rows` rows.

    A front is the dense matrix in which a range of columns is eliminated, and its supernodes are narrower ranges. The
    rows to copy are `first` to `first + height - 1` of the front, in the columns of its first `count` supernodes.
    `source` has the factor L or U^T, one supernode after another. `panels` is a table from `describe_front` in
    `glle_engine.eigen.batched.factorization`. Its row number `source_at`, 2 for L or 3 for U^T, has the index in
    `source` at which the rows of each supernode begin. Each entry is a vector of one number for each draw; the length
    of `tag` is the number of draws.
    """
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
    """Copy a rectangle of `rows` times `columns` vectors from `source` to `target`, two arrays of vectors.

    A vector has one number for each draw; the length of `tag` is the number of draws. The rows of `source` are
    `source_stride` vectors apart, and the rows of `target` are `target_stride` vectors apart.
    """
    for i in range(rows):
        for j in range(columns):
            store(target, i * target_stride + j, load(tag, source, i * source_stride + j))
