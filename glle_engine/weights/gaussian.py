r"""Gaussian distribution of the reconstruction weights, fitted once and sampled by draws.

A draw has the weights :math:`w_i = m_i + \sqrt{a} F_i z_i`, with z_i standard normal. The random streams are
counter-based and have no state. Word q of the stream of (seed, index) is word q of Philox 4x64-10 (Salmon, Moraes,
Dror, Shaw 2011) with the key (seed, index), in numpy's numbering. The upper 53 bits of a word are a uniform
:math:`u_q \in [0, 1)`. Each pair of uniforms becomes two normals (Box and Muller 1958), with
:math:`r = \sqrt{-2 \log(1 - u_{2m})}`:

.. math:: z_{2m} = r \cos(2 \pi u_{2m+1}), \quad z_{2m+1} = r \sin(2 \pi u_{2m+1}).

Several draws are sampled together by SIMD vectors: each entry of the vectors, a *lane*, computes one draw. The stream
of a draw depends only on its key, and has the same bits on every processor and for any number of lanes. Compiled
functions take the number of lanes from the length of their argument `tag`, a tuple, because numba compiles them for
this length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba.core import types

from glle_engine.linalg import LANES, dense
from glle_engine.linalg.compiled import compiled, instruction
from glle_engine.linalg.vectors import (
    address,
    advance,
    constant,
    emit,
    emit_fma,
    fill,
    fma,
    load,
    offset,
    read,
    store,
    vector_at,
    write,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import Source
    from glle_engine.linalg.vectors import Address

# Constants of Philox (Salmon et al. 2011): two multipliers, two summands of the key, and the number of rounds.
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ROUNDS = 10
_MANTISSA_SHIFT = np.uint64(11)  # a word of 64 bits loses 11, because a double holds 53
_UNIT = 2.0**-53  # makes an integer of 53 bits a number in [0, 1)
LOG_2 = 0.6931471805599453  # a literal, because libraries may round the logarithm differently
# The weights of four points are sampled together, because each counter of Philox gives four random numbers: the 4 k
# normals of four points with k neighbors then use k whole counters.
POINTS_PER_GROUP = 4


@instruction
def _halves(typing: Any, a: Any, b: Any) -> Any:
    """Return the upper and the lower 64 bits of the product, of 128 bits, of two uint64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return context.make_tuple(builder, signature.return_type, [upper, builder.trunc(product, ir.IntType(64))])

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), code


@compiled
def uniforms(tag: tuple[int, ...], seeds: Address, indices: Address, first: int, count: int, target: Address) -> None:
    """Write 4 * `count` uniform random numbers for each of several draws to `target`, flat (4 * count, lanes).

    Each draw has a lane, and the number of lanes, the length of `tag`, must be even. The random numbers of a draw
    depend on its key, a seed and an index, from `seeds` and `indices` (lanes,). They come from `count` counters of the
    random generator Philox, beginning with the counter `first`; each counter gives four numbers.
    """
    lanes = len(tag)
    for block in range(count):
        counter = np.uint64(first + block + 1)  # numpy's counters begin at 1
        for lane in range(0, lanes, 2):  # two draws at once, because each round of one draw waits for the round before
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
            index = 4 * block * lanes + lane
            target[index], target[index + 1] = _unit(a0), _unit(b0)
            target[index + lanes], target[index + lanes + 1] = _unit(a1), _unit(b1)
            target[index + 2 * lanes], target[index + 2 * lanes + 1] = _unit(a2), _unit(b2)
            target[index + 3 * lanes], target[index + 3 * lanes + 1] = _unit(a3), _unit(b3)


@compiled
def _unit(word: np.uint64) -> float:
    """Return the upper 53 bits of a word of 64 bits as a float in [0, 1)."""
    return np.int64(word >> _MANTISSA_SHIFT) * _UNIT


def _integer(lanes: int, value: int) -> Any:
    """Return an LLVM constant: a vector of `lanes` integers, all equal to `value`."""
    return ir.Constant(ir.VectorType(ir.IntType(64), lanes), [value] * lanes)


def _polynomial(builder: Any, lanes: int, x: Any, coefficients: list[float]) -> Any:
    """Emit LLVM code for sum_j coefficients[j] x^j for each entry of a vector x, by Horner's rule; return the sums."""
    value = constant(lanes, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = emit_fma(builder, value, x, constant(lanes, coefficient))
    return value


def _logarithm(builder: Any, lanes: int, x: Any) -> Any:
    r"""Emit LLVM code for the natural logarithms of a vector x of positive normal doubles; return their vector.

    With x = m 2^e, the code adds e log 2 and the series of log m = 2 artanh((m - 1) / (m + 1)).
    """
    number = partial(_integer, lanes)
    bits = builder.bitcast(x, number(0).type)
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
    """Emit LLVM code for the cosine and the sine of 2 pi `turn`, where `turn` is a vector of numbers in [0, 1).

    Returns two vectors, the cosines and the sines. The angle is split into the nearest multiple of a right angle and a
    rest, for which Taylor's series is used.
    """
    vector = ir.VectorType(ir.DoubleType(), lanes)
    number = partial(_integer, lanes)
    quarter = builder.fptosi(emit_fma(builder, turn, constant(lanes, 4.0), constant(lanes, 0.5)), number(0).type)
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
    # The cosine changes its sign in quarters 1 and 2, the sine in quarters 2 and 3.
    turned = builder.icmp_signed("!=", builder.and_(builder.add(quarter, number(1)), number(2)), number(0))
    below = builder.icmp_signed("!=", builder.and_(quarter, number(2)), number(0))
    return (
        builder.select(turned, builder.fneg(first), first),
        builder.select(below, builder.fneg(second), second),
    )


@instruction
def _box_muller(typing: Any, tag: Any, data: Any, index: Any) -> Any:
    """Replace uniform by normal random numbers, in place, in the vectors number `index` and `index + 1` of `data`.

    `data` is the address of vectors of `len(tag)` doubles. A pair of uniform numbers becomes a pair of normal numbers
    (Box and Muller 1958).
    """
    lanes = len(tag)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = vector_at(builder, args[1], args[2], lanes)
        two = vector_at(builder, args[1], builder.add(args[2], ir.Constant(args[2].type, 1)), lanes)
        complement = builder.fsub(constant(lanes, 1.0), read(builder, one))
        radius = emit(builder, "sqrt", builder.fmul(constant(lanes, -2.0), _logarithm(builder, lanes, complement)))
        cosine, sine = _circle(builder, lanes, read(builder, two))
        write(builder, builder.fmul(radius, cosine), one)
        write(builder, builder.fmul(radius, sine), two)
        return context.get_dummy_value()

    return types.void(tag, data, types.intp), code


@compiled
def normals(tag: tuple[int, ...], seeds: Address, indices: Address, first: int, count: int, target: Address) -> None:
    """Write 4 * `count` standard normal numbers for each of several draws to `target`, flat (4 * count, lanes).

    Each draw has a lane, and the number of lanes, the length of `tag`, must be even. The random numbers of a draw
    depend on its key, a seed and an index, from `seeds` and `indices` (lanes,). They come from `count` counters of the
    draw's random stream, beginning with the counter `first`: the four uniform numbers of each counter (`uniforms`)
    become four normal ones.
    """
    uniforms(tag, seeds, indices, first, count, target)
    for pair in range(2 * count):
        _box_muller(tag, target, 2 * pair)


@compiled
def sample(
    tag: tuple[int, ...],
    rows: NDArray[np.int32],
    position: NDArray[np.int32],
    counter: int,
    mean: NDArray[np.float64],
    factor: NDArray[np.float64],
    seeds: NDArray[np.uint64],
    indices: NDArray[np.uint64],
    spread: NDArray[np.float64],
    scratch: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> None:
    r"""Sample the weights of n points for several draws, and write them to `weights`.

    The SIMD vectors have one entry, a lane, for each draw.

    Parameters
    ----------
    tag : tuple
        The length is the number of lanes, which is the number of draws.
    rows : (n,) int32
        The row of each point in `mean` and `factor`, which may have other rows, too.
    position : (n,) int32
        The row of `weights` to which the weights of each point are written, such as the point's position in the order
        of elimination.
    counter : int
        How much of each draw's random stream is skipped at its start, in blocks of four random numbers.
    mean : (m, k) float64
        The means m_i of the weights.
    factor : (m, k, k) float64
        The factors F_i of their covariances.
    seeds, indices : (lanes,) uint64
        The keys (seed, index) of the draws.
    spread : (lanes,) float64
        :math:`\sqrt{a}`, the root of the scale, of each draw.
    scratch : flat (4 k, lanes)
        Memory for the normal numbers of four points.
    weights : flat (n, k, lanes)
        The result, which is overwritten.

    """
    n, k = len(rows), mean.shape[1]
    z, target = address(scratch), address(weights)
    scale = load(tag, address(spread), 0)
    means, factors = address(mean), address(factor)
    keys, counters = address(seeds), address(indices)
    for first in range(0, n, POINTS_PER_GROUP):
        normals(tag, keys, counters, counter + first // POINTS_PER_GROUP * k, k, z)
        for i in range(POINTS_PER_GROUP * k):
            store(z, i, load(tag, z, i) * scale)
        for point in range(first, min(first + POINTS_PER_GROUP, n)):
            target_index, normals_of_point = position[point] * k, advance(tag, z, (point - first) * k)
            center, roots = offset(means, rows[point] * k), offset(factors, rows[point] * k * k)
            fours = k - k % 4
            for a in range(0, fours, 4):  # four sums at once, because each addition to a sum waits for the one before
                v0, v1 = fill(tag, center[a]), fill(tag, center[a + 1])
                v2, v3 = fill(tag, center[a + 2]), fill(tag, center[a + 3])
                for b in range(k):
                    normal = load(tag, normals_of_point, b)
                    v0 = fma(fill(tag, roots[a * k + b]), normal, v0)
                    v1 = fma(fill(tag, roots[(a + 1) * k + b]), normal, v1)
                    v2 = fma(fill(tag, roots[(a + 2) * k + b]), normal, v2)
                    v3 = fma(fill(tag, roots[(a + 3) * k + b]), normal, v3)
                store(target, target_index + a, v0)
                store(target, target_index + a + 1, v1)
                store(target, target_index + a + 2, v2)
                store(target, target_index + a + 3, v3)
            for a in range(fours, k):
                value = fill(tag, center[a])
                for b in range(k):
                    value = fma(fill(tag, roots[a * k + b]), load(tag, normals_of_point, b), value)
                store(target, target_index + a, value)


@compiled
def place(
    tag: tuple[int, ...],
    neighbors: NDArray[np.int32],
    weights: NDArray[np.float64],
    values: NDArray[np.float64],
    places: NDArray[np.float64],
) -> None:
    r"""Place b points at the weighted sums :math:`\sum_j w_{ij} y_j` of their neighbors, for several draws at once.

    The last axis of the arrays, lanes, numbers the draws; it is as long as `tag`. The positions of the points are
    written to `places`, flat (b, p, lanes). `values` are the positions y of m landmarks, flat (m, p, lanes),
    `neighbors` (b, k) are row numbers in `values`, and `weights` are w, flat (b, k, lanes).
    """
    n, k = neighbors.shape
    p = len(places) // (n * len(tag))
    w, known, target = address(weights), address(values), address(places)
    for point in range(n):
        for c in range(p):
            total = load(tag, w, point * k) * load(tag, known, neighbors[point, 0] * p + c)
            for a in range(1, k):
                total = total + load(tag, w, point * k + a) * load(tag, known, neighbors[point, a] * p + c)
            store(target, point * p + c, total)


@compiled
def unpack(position: NDArray[np.int32], vectors: NDArray[np.float64], result: NDArray[np.float64]) -> None:
    """Copy `vectors` (p, n * lanes), p vectors for each of several draws (lanes), to `result` (lanes, n, p).

    Entry position[i] * lanes + j of a vector belongs to point i of draw j, and goes to row i of result[j].
    """
    lanes, n, wanted = result.shape
    for point in range(n):
        start = position[point] * lanes
        for lane in range(lanes):
            for i in range(wanted):
                result[lane, point, i] = vectors[i, start + lane]


@dataclass(frozen=True)
class WeightDistribution:
    r"""Independent Gaussians over the weights of each point.

    Posterior: :math:`w_i \sim N(m_i, a F_i F_i^T)`; prior: :math:`w_i \sim N(m_0, a R_i R_i^T)`; a is the scale.

    Attributes
    ----------
    mean : (n, k) float64
        The means m_i.
    factor : (n, k, k) float64
        The factors F_i of the covariances F_i F_i^T. Unlike factors from eigenvectors, they depend continuously on the
        data, so that rounding errors cannot change a draw by much.
    prior_mean : float
        Every entry of m_0: 1/k (constrained) or 0 (published). If only k_i candidates are neighbors, the
        method `gaussian` uses 1/k_i instead.
    prior_factor : (n,) or (n, k, k) float64, or None
        R_i, as a standard deviation or as a matrix; None if the method has no prior.
    constrained : bool
        Whether 1^T w_i = 1 holds for every draw.
    sigma : (n,) float64 or None
        The prior variances sigma_i of GLLE Eq. 29, with their signs, after a fit with variant="published", method="em"
        and covariance="spherical"; otherwise None.
    kept : (n, k) bool or None
        Which candidates are neighbors; None if all are. The weights of candidates that are not neighbors are 0.
    scatter : (d, d) float64 or None
        S1 of GLLE Eq. 24, the scatter matrix of the residuals, at the last E-step. None unless the fit had
        variant="published", method="em", a full covariance (`covariance` other than "spherical") and d <= k.
    second_moment : (k, k) float64 or None
        S2 of GLLE Eq. 25, the second moment of the weights, at the last E-step; None if `scatter` is None.
    gradient : (n, k, k) float64 or None
        The gradient of GLLE Eq. 23, the objective of the M-step, by each point's prior covariance, at the covariances
        of the last M-step and without the factor n / 2. None if `scatter` is None, or if Eq. 23 has no value at some
        point.

    """

    mean: NDArray[np.float64]
    factor: NDArray[np.float64]
    prior_mean: float
    prior_factor: NDArray[np.float64] | None
    constrained: bool
    sigma: NDArray[np.float64] | None
    kept: NDArray[np.bool_] | None = None
    scatter: NDArray[np.float64] | None = None
    second_moment: NDArray[np.float64] | None = None
    gradient: NDArray[np.float64] | None = None

    def at(self, rows: NDArray[np.integer]) -> WeightDistribution:
        """Return the distribution of the weights of some points only, whose row numbers are `rows`, as copies."""
        of_points = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        for name in ("scatter", "second_moment"):  # they belong to all points together, not to single points
            of_points.pop(name, None)
        return replace(self, **{name: value[rows] for name, value in of_points.items()})

    def draw(self, key: tuple[int, int], scale: float, source: Source, counter: int = 0) -> NDArray[np.float64]:
        """Return the weights (n, k) of the draw with the key (seed, index), from the posterior or prior (`source`).

        The weights have the same bits as if several draws were sampled together. `counter` says how much of the draw's
        random stream is skipped at its start, in blocks of four random numbers.
        """
        streams = [(*key, math.sqrt(scale))] * LANES
        return sample_lanes(streams, *self.gaussian(source), counter)[:, :, 0].copy()

    def gaussian(self, source: Source) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean (n, k) and the covariance factor (n, k, k) of the posterior or of the prior (`source`).

        A draw has the weights mean + sqrt(scale) factor z, with z standard normal. Raises `ValueError` for the prior if
        there is none, as after a fit by the published direct method.
        """
        if source == "posterior":
            return self.mean, self.factor
        if self.prior_factor is None:
            raise ValueError("Weights of the published direct method have no prior. Draw from the posterior.")
        n, k = self.mean.shape
        mean = np.full((n, k), self.prior_mean)
        if self.prior_factor.ndim == 3:
            return mean, self.prior_factor
        if not self.constrained:
            return mean, self.prior_factor[:, None, None] * np.eye(k)
        is_neighbor = np.ones((n, k)) if self.kept is None else self.kept.astype(float)
        mean = is_neighbor / is_neighbor.sum(axis=1, keepdims=True)
        plane = is_neighbor[:, :, None] * (np.eye(k) - mean[:, None, :])
        return mean, self.prior_factor[:, None, None] * plane


def sample_lanes(
    streams: list[tuple[int, int, float]],
    mean: NDArray[np.float64],
    factor: NDArray[np.float64],
    counter: int,
    rows: NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Return the weights (n, k, draws) of several draws from Gaussians of mean (m, k) and covariance factor (m, k, k).

    There is one draw for each of the `LANES` `streams`, (seed, index, square root of the scale). `counter` says where
    to begin in the random stream of a draw: a counter gives four random numbers. `rows` (n,) are the rows of `mean` and
    `factor` that are sampled, by default all.
    """
    n, k = len(mean) if rows is None else len(rows), mean.shape[1]
    seeds, indices = (np.array([stream[i] for stream in streams], np.uint64) for i in (0, 1))
    spread = np.array([stream[2] for stream in streams])
    weights, scratch = np.empty(n * k * LANES), np.empty(POINTS_PER_GROUP * k * LANES)
    order, distribution = np.arange(n, dtype=np.int32), (dense.readable(mean), dense.readable(factor))
    chosen = order if rows is None else np.ascontiguousarray(rows, np.int32)
    sample((0,) * LANES, chosen, order, counter, *distribution, seeds, indices, spread, scratch, weights)
    return weights.reshape(n, k, LANES)
