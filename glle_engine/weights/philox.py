r"""Streams of standard normals for draws, counter-based and without state.

Word q of the stream of (seed, index) is word q of Philox 4x64-10 (Salmon, Moraes, Dror, Shaw 2011) with the key
(seed, index), in numpy's numbering. Its upper 53 bits are a uniform :math:`u_q \in [0, 1)`; each pair becomes two
normals (Box and Muller 1958), with :math:`r = \sqrt{-2 \log(1 - u_{2m})}`:

.. math:: z_{2m} = r \cos(2 \pi u_{2m+1}), \quad z_{2m+1} = r \sin(2 \pi u_{2m+1}).

Every lane has a stream, with the same bits on every processor and for any number of lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba.core import types

from glle_engine.linalg.compiled import compiled, instruction
from glle_engine.linalg.vectors import constant, emit_fma, read, square_root, vector_at, write

if TYPE_CHECKING:
    from glle_engine.linalg.vectors import Address

_MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
_WEYL = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B))
_M0, _M1 = _MULTIPLIERS
_W0, _W1 = _WEYL
_ROUNDS = 10
_SHIFT = np.uint64(11)
_UNIT = 2.0**-53
LOG_2 = 0.6931471805599453  # a literal, because libraries may round it otherwise


@instruction
def _halves(typing: Any, a: Any, b: Any) -> Any:
    """Return the upper and the lower half of the product of two uint64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return context.make_tuple(builder, signature.return_type, [upper, builder.trunc(product, ir.IntType(64))])

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), code


@compiled
def uniforms(tag: tuple[int, ...], seeds: Address, indices: Address, first: int, count: int, target: Address) -> None:
    """Write uniforms 4 first, ... of each of an even number of lanes, four a counter, as (4 count, lanes)."""
    lanes = len(tag)
    for block in range(count):
        counter = np.uint64(first + block + 1)  # numpy's begin at 1
        for lane in range(0, lanes, 2):  # two at once, since each round waits for the one before
            a0, a1, a2, a3 = counter, np.uint64(0), np.uint64(0), np.uint64(0)
            b0, b1, b2, b3 = counter, np.uint64(0), np.uint64(0), np.uint64(0)
            key_a, key_b = seeds[lane], seeds[lane + 1]
            index_a, index_b = indices[lane], indices[lane + 1]
            for _ in range(_ROUNDS):
                high, low = _halves(_M0, a0)
                upper, under = _halves(_M1, a2)
                a0, a1, a2, a3 = upper ^ a1 ^ key_a, under, high ^ a3 ^ index_a, low
                high, low = _halves(_M0, b0)
                upper, under = _halves(_M1, b2)
                b0, b1, b2, b3 = upper ^ b1 ^ key_b, under, high ^ b3 ^ index_b, low
                key_a, index_a = key_a + _W0, index_a + _W1
                key_b, index_b = key_b + _W0, index_b + _W1
            at = 4 * block * lanes + lane
            target[at], target[at + 1] = _unit(a0), _unit(b0)
            target[at + lanes], target[at + lanes + 1] = _unit(a1), _unit(b1)
            target[at + 2 * lanes], target[at + 2 * lanes + 1] = _unit(a2), _unit(b2)
            target[at + 3 * lanes], target[at + 3 * lanes + 1] = _unit(a3), _unit(b3)


@compiled
def _unit(word: np.uint64) -> float:
    """Return the upper 53 bits as a number in [0, 1)."""
    return np.int64(word >> _SHIFT) * _UNIT


def _polynomial(builder: Any, lanes: int, x: Any, coefficients: list[float]) -> Any:
    """Return sum_j c_j x^j by Horner's rule."""
    value = constant(lanes, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = emit_fma(builder, value, x, constant(lanes, coefficient))
    return value


def _logarithm(builder: Any, lanes: int, x: Any) -> Any:
    r"""Return log x of normal numbers: x = m 2^e, log m = 2 artanh s, s = (m - 1) / (m + 1), by its series."""
    integers = ir.VectorType(ir.IntType(64), lanes)
    bits = builder.bitcast(x, integers)

    def number(value: int) -> Any:
        return ir.Constant(integers, [value] * lanes)

    exponent = builder.sub(builder.lshr(bits, number(52)), number(1023))
    mantissa = builder.bitcast(
        builder.or_(builder.and_(bits, number((1 << 52) - 1)), number(1023 << 52)),
        ir.VectorType(ir.DoubleType(), lanes),
    )
    large = builder.fcmp_ordered(">", mantissa, constant(lanes, 2.0**0.5))
    mantissa = builder.select(large, builder.fmul(mantissa, constant(lanes, 0.5)), mantissa)
    exponent = builder.select(large, builder.add(exponent, number(1)), exponent)
    s = builder.fdiv(builder.fsub(mantissa, constant(lanes, 1.0)), builder.fadd(mantissa, constant(lanes, 1.0)))
    series = _polynomial(builder, lanes, builder.fmul(s, s), [2.0 / (2 * j + 1) for j in range(11)])
    power = builder.sitofp(exponent, ir.VectorType(ir.DoubleType(), lanes))
    return emit_fma(builder, power, constant(lanes, LOG_2), builder.fmul(s, series))


def _circle(builder: Any, lanes: int, turn: Any) -> tuple[Any, Any]:
    """Return cos and sin of 2 pi `turn`, turn in [0, 1): the nearest quarter turn, and Taylor's series for the rest."""
    vector = ir.VectorType(ir.DoubleType(), lanes)
    integers = ir.VectorType(ir.IntType(64), lanes)

    def number(value: int) -> Any:
        return ir.Constant(integers, [value] * lanes)

    quarter = builder.fptosi(emit_fma(builder, turn, constant(lanes, 4.0), constant(lanes, 0.5)), integers)
    rest = emit_fma(builder, builder.sitofp(quarter, vector), constant(lanes, -0.25), turn)
    angle = builder.fmul(rest, constant(lanes, 2.0 * np.pi))
    square = builder.fmul(angle, angle)
    factorials = np.cumprod(np.concatenate([[1.0], np.arange(1.0, 20.0)]))
    cosine = _polynomial(builder, lanes, square, [(-1) ** j / factorials[2 * j] for j in range(9)])
    sine = builder.fmul(
        angle, _polynomial(builder, lanes, square, [(-1) ** j / factorials[2 * j + 1] for j in range(9)])
    )
    odd = builder.icmp_signed("!=", builder.and_(quarter, number(1)), number(0))
    first, second = builder.select(odd, sine, cosine), builder.select(odd, cosine, sine)
    # Quarters 1 and 2 turn the cosine's sign, 2 and 3 the sine's.
    turned = builder.icmp_signed("!=", builder.and_(builder.add(quarter, number(1)), number(2)), number(0))
    below = builder.icmp_signed("!=", builder.and_(quarter, number(2)), number(0))
    return (
        builder.select(turned, builder.fneg(first), first),
        builder.select(below, builder.fneg(second), second),
    )


@instruction
def _box_muller(typing: Any, tag: Any, data: Any, index: Any) -> Any:
    """Turn the uniforms of vectors `index` and `index + 1` into normals."""
    lanes = len(tag)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = vector_at(builder, args[1], args[2], lanes)
        two = vector_at(builder, args[1], builder.add(args[2], ir.Constant(args[2].type, 1)), lanes)
        complement = builder.fsub(constant(lanes, 1.0), read(builder, one))
        radius = square_root(builder, builder.fmul(constant(lanes, -2.0), _logarithm(builder, lanes, complement)))
        cosine, sine = _circle(builder, lanes, read(builder, two))
        write(builder, builder.fmul(radius, cosine), one)
        write(builder, builder.fmul(radius, sine), two)
        return context.get_dummy_value()

    return types.void(tag, data, types.intp), code


@compiled
def normals(tag: tuple[int, ...], seeds: Address, indices: Address, first: int, count: int, target: Address) -> None:
    """Write normals 4 first, ... of every lane's stream, four for each of `count` counters, as (4 count, lanes)."""
    uniforms(tag, seeds, indices, first, count, target)
    for pair in range(2 * count):
        _box_muller(tag, target, 2 * pair)
