"""SIMD vectors of doubles as a type for numba, whose entries are called lanes.

In compiled code, a plain ``for lane in range(4)`` would become scalar code. A vector is therefore a type of its own,
with loads, stores and arithmetic that are single instructions. The width of a vector is the length of a *tag*, a tuple
of integers that numba knows at compile time, so that one source serves every width: ``load(tag, array, i)`` reads the
i-th group of ``len(tag)`` doubles of a flat array.

Only `fma` and `fnma` fuse multiplications and additions. Lanes never interact: the bits in a lane depend on the values
in that lane alone.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import models, register_model

from glle_engine.linalg.compiled import instruction, operation

DOUBLE = ir.DoubleType()
Address = Any
"""Type hint of memory addresses in compiled code; numba infers the actual types."""
Lanes = Any
"""Type hint of vectors in compiled code; numba infers the actual types."""


class Vector(types.Type):  # type: ignore[misc]
    """numba type of a SIMD vector of `lanes` doubles; each of its entries is a lane."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(name=f"Vector({lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, ir.VectorType(DOUBLE, fe_type.lanes))


def vector_at(builder: Any, data: Any, index: Any, lanes: int) -> Any:
    """Emit the computation of the address of vector number `index` after `data`, and return this address.

    `data` is the address of a sequence of vectors of `lanes` doubles, and `builder` an instruction builder of llvmlite.
    """
    return builder.gep(builder.bitcast(data, ir.VectorType(DOUBLE, lanes).as_pointer()), [index])


def read(builder: Any, address: Any) -> Any:
    """Emit the load of a vector from an address, which only has to be a multiple of 8 bytes, and return the vector."""
    value = builder.load(address)
    value.align = 8
    return value


def write(builder: Any, value: Any, address: Any) -> None:
    """Emit the store of the vector `value` to an address, which only has to be a multiple of 8 bytes."""
    builder.store(value, address).align = 8


def emit(builder: Any, name: str, *vectors: Any) -> Any:
    """Emit the call of an LLVM operation, such as "sqrt", on vectors of float64 or float32, and return the result."""
    vector_type = vectors[0].type
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector_type, [vector_type] * len(vectors)),
        f"llvm.{name}.v{vector_type.count}{vector_type.element.intrinsic_name}",
    )
    return builder.call(function, vectors)


def spread(builder: Any, value: Any, lanes: int) -> Any:
    """Emit the instructions that make a vector of `lanes` entries, all equal to `value`, and return this vector."""
    vector = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def emit_fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Emit the fused multiply-add a b + c of three vectors, which rounds once, and return the resulting vector."""
    return emit(builder, "fma", a, b, c)


def constant(lanes: int, value: float) -> Any:
    """Return an LLVM constant: a vector of `lanes` doubles, all equal to `value`."""
    return ir.Constant(ir.VectorType(DOUBLE, lanes), [value] * lanes)


@instruction
def address(typing: Any, array: Any) -> Any:
    """Return the memory address of the first number of a contiguous array, for access without index checks."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), code


@instruction
def offset(typing: Any, data: Any, index: Any) -> Any:
    """Return the address that lies `index` numbers after the address `data`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return data(data, types.intp), code


@instruction
def advance(typing: Any, tag: Any, data: Any, index: Any) -> Any:
    """Return the address that lies `index` vectors of `len(tag)` numbers after the address `data`."""
    lanes = len(tag)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[1], [builder.mul(args[2], ir.Constant(args[2].type, lanes))])

    return data(tag, data, types.intp), code


@instruction
def load(typing: Any, tag: Any, array: Any, index: Any) -> Any:
    """Return vector number `index` of `array`, which is the address of a sequence of vectors of `len(tag)` doubles."""
    lanes = len(tag)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return read(builder, vector_at(builder, args[1], args[2], lanes))

    return Vector(lanes)(tag, array, types.intp), code


@instruction
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write the vector `value` to vector number `index` of `array`, the address of a sequence of such vectors."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write(builder, args[2], vector_at(builder, args[0], args[1], value.lanes))
        return context.get_dummy_value()

    return types.void(array, types.intp, value), code


@instruction
def fill(typing: Any, tag: Any, value: Any) -> Any:
    """Return a SIMD vector (intrinsic of numba) of `len(tag)` doubles, all equal to `value`."""
    lanes = len(tag)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return spread(builder, args[1], lanes)

    return Vector(lanes)(tag, types.float64), code


@instruction
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the vector a b + c, computed entry by entry as a fused multiply-add, which rounds once."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit_fma(builder, *args)

    return a(a, b, c), code


@instruction
def fnma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the vector c - a b, computed entry by entry as a fused multiply-add, which rounds once."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit_fma(builder, builder.fneg(args[0]), args[1], args[2])

    return a(a, b, c), code


@instruction
def root(typing: Any, a: Any) -> Any:
    """Return the square root of each entry of a vector."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit(builder, "sqrt", args[0])

    return a(a), code


def _binary(name: str) -> Any:
    def type_vectors(typing: Any, a: Any, b: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(*args)

        return a(a, b), code

    type_vectors.__name__ = type_vectors.__qualname__ = name
    return instruction(type_vectors)


add, subtract, multiply, divide = (_binary(name) for name in ("fadd", "fsub", "fmul", "fdiv"))


def _overload(symbol: Any, instruction_of_vectors: Any) -> None:
    """Define the operator `symbol`, such as `operator.add`, for two vectors in compiled code.

    `instruction_of_vectors` computes the result.
    """

    @operation(symbol)
    def operate(a: Any, b: Any) -> Any:
        if isinstance(a, Vector) and isinstance(b, Vector):
            return lambda a, b: instruction_of_vectors(a, b)
        return None


for _symbol, _instruction in ((operator.add, add), (operator.sub, subtract), (operator.mul, multiply)):
    _overload(_symbol, _instruction)
