"""The compiled loops behind `glle_engine.linalg.dense`: batches of small matrices, in a fixed order of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, divide, fill, fma, fnma, load, root, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.linalg.vectors import Address

TAG = (0, 0, 0, 0)  # its length, 4, is the number of doubles in a SIMD vector, the same on every processor
_CACHED_ROWS = 256  # products are added up in blocks of this many rows of both factors, which stay in the L1 cache
_MAX_JACOBI_SWEEPS = 60  # the iteration ends after at most this many sweeps over all pairs of columns
_EPSILON = float(np.finfo(np.float64).eps)
_NEGLIGIBLE_SQUARE = 1e-280  # smaller squares, near the underflow at 1e-308, lose digits; matrices have entries up to 1
_QL_SWEEPS = 50  # if an eigenvalue needs more QL sweeps, the matrix counts as not converging


@compiled
def _accumulate(
    tag: tuple[int, ...], left: Address, step: int, a: int, right: Address, b: int, length: int, out: Address
) -> None:
    """Add the product left^T right to `out`, by SIMD vectors of `len(tag)` doubles.

    `left` has `length` rows of a doubles, and its rows begin `step` doubles apart. `right` has `length` rows of b
    vectors, and `out` has a rows of b vectors.
    """
    for start in range(0, length, _CACHED_ROWS):
        stop = min(start + _CACHED_ROWS, length)
        fours = a - a % 4
        for j in range(b):
            for i in range(0, fours, 4):
                c0, c1 = load(tag, out, i * b + j), load(tag, out, (i + 1) * b + j)
                c2, c3 = load(tag, out, (i + 2) * b + j), load(tag, out, (i + 3) * b + j)
                for f in range(start, stop):
                    v = load(tag, right, f * b + j)
                    index = f * step + i
                    c0 = fma(fill(tag, left[index]), v, c0)
                    c1 = fma(fill(tag, left[index + 1]), v, c1)
                    c2 = fma(fill(tag, left[index + 2]), v, c2)
                    c3 = fma(fill(tag, left[index + 3]), v, c3)
                store(out, i * b + j, c0)
                store(out, (i + 1) * b + j, c1)
                store(out, (i + 2) * b + j, c2)
                store(out, (i + 3) * b + j, c3)
            for i in range(fours, a):
                c0 = load(tag, out, i * b + j)
                for f in range(start, stop):
                    c0 = fma(fill(tag, left[f * step + i]), load(tag, right, f * b + j), c0)
                store(out, i * b + j, c0)


@compiled
def products(
    tag: tuple[int, ...], left: NDArray[np.float64], right: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Write the products left_i^T right_i to out (m, a, b), for batches left (m, l, a) and right (m, l, b).

    Each entry is summed over l in order, by fused multiply-add. The length of `tag` is the width of the SIMD vectors.
    """
    lanes = len(tag)
    m, length, a = left.shape
    b = right.shape[2]
    vectors = (b + lanes - 1) // lanes
    padded = np.zeros(length * vectors * lanes)
    result = np.empty(a * vectors * lanes)
    packed = np.empty(length * a)
    for item in range(m):
        for f in range(length):
            for j in range(b):
                padded[f * vectors * lanes + j] = right[item, f, j]
            for i in range(a):
                packed[f * a + i] = left[item, f, i]
        result[:] = 0.0
        _accumulate(tag, address(packed), a, a, address(padded), vectors, length, address(result))
        for i in range(a):
            for j in range(b):
                out[item, i, j] = result[i * vectors * lanes + j]


@compiled
def grams(tag: tuple[int, ...], rows: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the Gram matrix A A^T of each matrix A in `rows` (m, k, d) to `out` (m, k, k).

    The result has the same bits as from `products`, but takes less time. The length of `tag` is the width of the SIMD
    vectors.
    """
    lanes = len(tag)
    m, k, d = rows.shape
    vectors = (k + lanes - 1) // lanes
    step = vectors * lanes
    padded, result = np.zeros(d * step), np.empty(k * step)
    for item in range(m):
        for i in range(k):
            for f in range(d):
                padded[f * step + i] = rows[item, i, f]
        result[:] = 0.0
        _accumulate(tag, address(padded), step, k, address(padded), vectors, d, address(result))
        for i in range(k):
            for j in range(k):
                out[item, i, j] = result[i * step + j]


@compiled
def grams_about(
    tag: tuple[int, ...],
    data: NDArray[np.float64],
    points: NDArray[np.float64],
    neighbors: NDArray[np.int32],
    out: NDArray[np.float64],
) -> None:
    """Write the Gram matrix (k, k) of the differences between each point and its k neighbors to `out` (m, k, k).

    The `neighbors` (m, k) of the `points` (m, d) are row numbers of `data`. The result has the same bits as `grams` of
    the differences. The length of `tag` is the width of the SIMD vectors.
    """
    lanes = len(tag)
    m, k = neighbors.shape
    d = data.shape[1]
    vectors = (k + lanes - 1) // lanes
    step = vectors * lanes
    padded, result = np.zeros(d * step), np.empty(k * step)
    for item in range(m):
        for i in range(k):
            row = neighbors[item, i]
            for f in range(d):
                padded[f * step + i] = data[row, f] - points[item, f]
        result[:] = 0.0
        _accumulate(tag, address(padded), step, k, address(padded), vectors, d, address(result))
        for i in range(k):
            for j in range(k):
                out[item, i, j] = result[i * step + j]


@compiled
def inverse_factors(tag: tuple[int, ...], precision: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write L^-T of each positive definite matrix P = L L^T in `precision` (m, k, k) to `out` (m, k, k).

    `len(tag)` matrices are computed at once, each in one lane of the SIMD vectors.
    """
    lanes = len(tag)
    m, k, _ = precision.shape
    lower, inverse = np.empty(k * k * lanes), np.empty(k * k * lanes)
    low, inv = address(lower), address(inverse)
    one = fill(tag, 1.0)
    for first in range(0, m, lanes):
        for lane in range(lanes):
            item = min(first + lane, m - 1)
            for i in range(k):
                for j in range(i + 1):
                    lower[(i * k + j) * lanes + lane] = precision[item, i, j]
        for j in range(k):
            pivot = load(tag, low, j * k + j)
            for q in range(j):
                entry = load(tag, low, j * k + q)
                pivot = fnma(entry, entry, pivot)
            reciprocal = divide(one, root(pivot))
            store(inv, j * k + j, reciprocal)
            for i in range(j + 1, k):
                value = load(tag, low, i * k + j)
                for q in range(j):
                    value = fnma(load(tag, low, i * k + q), load(tag, low, j * k + q), value)
                store(low, i * k + j, value * reciprocal)
        for i in range(k):
            for j in range(i):
                value = fill(tag, 0.0)
                for q in range(j, i):
                    value = fnma(load(tag, low, i * k + q), load(tag, inv, q * k + j), value)
                store(inv, i * k + j, value * load(tag, inv, i * k + i))
        for lane in range(min(lanes, m - first)):
            for i in range(k):
                for j in range(k):
                    out[first + lane, j, i] = inverse[(i * k + j) * lanes + lane] if j <= i else 0.0


@compiled
def affine_solutions(
    factor: NDArray[np.float64], kept: NDArray[np.float64], out: NDArray[np.float64], minimum: NDArray[np.float64]
) -> None:
    """Write P^-1 e / (e^T P^-1 e) to `out` (m, k), and 1 / (e^T P^-1 e) to `minimum` (m,), for a batch of matrices P.

    P = L L^T, `factor` (m, k, k) is L^-T, and `kept` (m, k) is e, a vector of 0 and 1.
    """
    m, k, _ = factor.shape
    column = np.empty(k)
    for item in range(m):
        column[:] = 0.0
        for i in range(k):
            if kept[item, i] != 0.0:
                for j in range(i, k):
                    column[j] += factor[item, i, j]
        total = 0.0
        for i in range(k):
            value = 0.0
            if kept[item, i] != 0.0:
                for j in range(i, k):
                    value += factor[item, i, j] * column[j]
            out[item, i] = value
            total += value
        for i in range(k):
            out[item, i] /= total
        minimum[item] = 1.0 / total


@compiled
def eigensystems(matrices: NDArray[np.float64], values: NDArray[np.float64], vectors: NDArray[np.float64]) -> int:
    """Compute the eigensystems of symmetric matrices (m, k, k); return the index of the first that failed, or -1.

    The eigenvalues, ascending, are written to `values` (m, k), and the eigenvectors, in columns, to `vectors`
    (m, k, k). If `vectors` is (m, 0, 0), only eigenvalues are computed. A matrix fails if it is not finite, or if its
    eigenvalues do not converge.
    """
    m, k, _ = matrices.shape
    work, basis = np.empty((k, k)), np.empty((vectors.shape[1], k))
    diagonal, off, mirror, product = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    order = np.empty(k, np.int64)
    for item in range(m):
        largest, finite = 0.0, True
        for i in range(k):
            for j in range(i + 1):
                largest = max(largest, abs(matrices[item, i, j]))
                finite = finite and np.isfinite(matrices[item, i, j])
        if not finite:
            return item
        unit = 1.0 if largest == 0.0 else largest
        for i in range(k):
            for j in range(i + 1):
                work[i, j] = work[j, i] = matrices[item, i, j] / unit
        _tridiagonalize(work, basis, diagonal, off, mirror, product)
        if not diagonalize(diagonal, off, basis):
            return item
        _order_ascending(diagonal, order)
        for i in range(k):
            values[item, i] = diagonal[order[i]] * unit
            for row in range(len(basis)):
                vectors[item, row, i] = basis[row, order[i]]
    return -1


@compiled
def _order_ascending(values: NDArray[np.float64], order: NDArray[np.int64]) -> None:
    """Write the indices that sort `values` ascending, as by a stable argsort, to `order`; by insertion sort.

    numpy's sort would take seconds to compile, and there are only a few values.
    """
    for i in range(len(values)):
        position = i
        while position > 0 and values[order[position - 1]] > values[i]:
            order[position] = order[position - 1]
            position -= 1
        order[position] = i


@compiled
def _tridiagonalize(
    work: NDArray[np.float64],
    basis: NDArray[np.float64],
    diagonal: NDArray[np.float64],
    off: NDArray[np.float64],
    mirror: NDArray[np.float64],
    product: NDArray[np.float64],
) -> None:
    """Reduce the symmetric matrix A in `work` to tridiagonal form, A = Q T Q^T, by Householder reflections.

    The entries of T are written to `diagonal` and `off`, and Q to `basis` unless `basis` has no rows. `work` is
    overwritten, and `mirror` and `product` are scratch memory.
    """
    k = len(work)
    for j in range(k - 2):
        square = 0.0
        for i in range(j + 2, k):
            square += work[i, j] * work[i, j]
        off[j] = work[j + 1, j]
        if square <= _NEGLIGIBLE_SQUARE:
            for i in range(j + 1, k):
                work[i, j] = 0.0
            continue
        norm = np.sqrt(square + work[j + 1, j] * work[j + 1, j])
        off[j] = -np.copysign(norm, work[j + 1, j])
        mirror[j + 1] = work[j + 1, j] - off[j]
        for i in range(j + 2, k):
            mirror[i] = work[i, j]
        length = np.sqrt(mirror[j + 1] * mirror[j + 1] + square)
        for i in range(j + 1, k):
            mirror[i] /= length  # v of the reflection I - 2 v v^T
            work[i, j] = mirror[i]
        for i in range(j + 1, k):
            product[i] = 0.0
        for q in range(j + 1, k):
            scale = mirror[q]
            for i in range(j + 1, k):
                product[i] += scale * work[q, i]
        overlap = 0.0
        for i in range(j + 1, k):
            overlap += mirror[i] * product[i]
        for i in range(j + 1, k):
            product[i] = 2.0 * (product[i] - overlap * mirror[i])
        for i in range(j + 1, k):
            u, v = mirror[i], product[i]
            for q in range(j + 1, k):
                work[i, q] -= u * product[q] + v * mirror[q]
    for i in range(k):
        diagonal[i] = work[i, i]
    if k > 1:
        off[k - 2] = work[k - 1, k - 2]
    off[k - 1] = 0.0
    for i in range(k - 1):
        if off[i] * off[i] <= _NEGLIGIBLE_SQUARE:
            off[i] = 0.0
    for i in range(len(basis)):
        for j in range(k):
            basis[i, j] = 1.0 if i == j else 0.0
    if len(basis) == 0:
        return
    for j in range(k - 3, -1, -1):
        for q in range(j + 1, k):
            product[q] = 0.0
        for i in range(j + 1, k):
            scale = work[i, j]
            for q in range(j + 1, k):
                product[q] += scale * basis[i, q]
        for i in range(j + 1, k):
            scale = 2.0 * work[i, j]
            for q in range(j + 1, k):
                basis[i, q] -= scale * product[q]


@compiled
def singular_systems(
    tall: NDArray[np.float64], left: NDArray[np.float64], values: NDArray[np.float64], right: NDArray[np.float64]
) -> int:
    """Decompose matrices `tall` (m, a, b), a >= b, as U diag(s) V^T; return the index of the first that failed, or -1.

    U is written to `left` (m, a, b), s (descending) to `values` (m, b), and V to `right` (m, b, b). The method is
    one-sided Jacobi rotations (Hestenes 1958). For a singular value that is only a rounding error, any unit vector
    orthogonal to the other columns becomes the column of U. A matrix fails if it is not finite, or if the rotations do
    not converge.
    """
    m, a, b = tall.shape
    column, basis = np.empty((b, a)), np.empty((b, b))
    norm, minus, order = np.empty(b), np.empty(b), np.empty(b, np.int64)
    for item in range(m):
        largest, finite = 0.0, True
        for i in range(a):
            for j in range(b):
                largest = max(largest, abs(tall[item, i, j]))
                finite = finite and np.isfinite(tall[item, i, j])
        if not finite:
            return item
        unit = 1.0 if largest == 0.0 else largest
        for j in range(b):
            for i in range(a):
                column[j, i] = tall[item, i, j] / unit
            for i in range(b):
                basis[j, i] = 1.0 if i == j else 0.0
        if not _orthogonalize(column, basis):
            return item
        for j in range(b):
            square = 0.0
            for i in range(a):
                square += column[j, i] * column[j, i]
            norm[j] = np.sqrt(square)
            minus[j] = -norm[j]
        _order_ascending(minus, order)
        floor = 4.0 * _EPSILON * norm[order[0]]
        for j in range(b):
            column_index = order[j]
            values[item, j] = norm[column_index] * unit
            for i in range(b):
                right[item, i, j] = basis[column_index, i]
            for i in range(a):
                left[item, i, j] = column[column_index, i] / norm[column_index] if norm[column_index] > floor else 0.0
            if not norm[column_index] > floor:
                _complete(left[item], j)
    return -1


@compiled
def _orthogonalize(column: NDArray[np.float64], basis: NDArray[np.float64]) -> bool:
    """Rotate pairs of columns of a matrix (a, b) in place until all columns are orthogonal; return whether this worked.

    The same rotations are applied to the columns of a matrix V (b, b). Both matrices are stored transposed: the rows of
    `column` (b, a) are the columns of the first, and the rows of `basis` (b, b) are the columns of V.
    """
    b, a = column.shape
    largest = 0.0
    for j in range(b):
        square = 0.0
        for i in range(a):
            square += column[j, i] * column[j, i]
        largest = max(largest, square)
    negligible = largest * _EPSILON * _EPSILON  # columns of a smaller squared length are rounding errors
    tolerance = _EPSILON * max(a, 4)  # a bound on the rounding error of the inner products
    for _ in range(_MAX_JACOBI_SWEEPS):
        rotated = False
        for p in range(b - 1):
            for q in range(p + 1, b):
                alpha, beta, gamma = 0.0, 0.0, 0.0
                for i in range(a):
                    alpha += column[p, i] * column[p, i]
                    beta += column[q, i] * column[q, i]
                    gamma += column[p, i] * column[q, i]
                if min(alpha, beta) <= negligible or abs(gamma) <= tolerance * np.sqrt(alpha * beta):
                    continue
                rotated = True
                zeta = (beta - alpha) / (2.0 * gamma)
                t = np.copysign(1.0, zeta) / (abs(zeta) + np.sqrt(1.0 + zeta * zeta))
                c = 1.0 / np.sqrt(1.0 + t * t)
                s = c * t
                for i in range(a):
                    x, y = column[p, i], column[q, i]
                    column[p, i] = c * x - s * y
                    column[q, i] = s * x + c * y
                for i in range(b):
                    x, y = basis[p, i], basis[q, i]
                    basis[p, i] = c * x - s * y
                    basis[q, i] = s * x + c * y
        if not rotated:
            return True
    return False


@compiled
def _complete(left: NDArray[np.float64], j: int) -> None:
    """Write to column j of `left` (a, b), j < a, a unit vector that is orthogonal to columns 0 to j - 1.

    The vector is a coordinate axis, made orthogonal to these columns and scaled to length 1.
    """
    a = len(left)
    for axis in range(a):
        for i in range(a):
            left[i, j] = 1.0 if i == axis else 0.0
        for _ in range(2):
            for q in range(j):
                overlap = 0.0
                for i in range(a):
                    overlap += left[i, q] * left[i, j]
                for i in range(a):
                    left[i, j] -= overlap * left[i, q]
        square = 0.0
        for i in range(a):
            square += left[i, j] * left[i, j]
        # Projecting j orthonormal columns out of each of the a axes leaves squared lengths that sum to a - j, which is
        # at least 1. So one of them is at least 1 / a, and 1 / (a + 1) leaves room for rounding errors.
        if square * (a + 1) > 1.0:
            norm = np.sqrt(square)
            for i in range(a):
                left[i, j] /= norm
            return


@compiled
def logarithms(x: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the natural logarithms of an array x (n,) of positive normal numbers to `out` (n,).

    With x = m 2^e, log x = e log 2 + log m, and log m = 2 artanh((m - 1) / (m + 1)) is computed by its series.
    """
    bits = x.view(np.int64)
    mantissa = np.empty(1)
    words = mantissa.view(np.int64)
    for i in range(len(x)):
        exponent = (bits[i] >> 52) - 1023
        words[0] = (bits[i] & ((1 << 52) - 1)) | (1023 << 52)
        m = mantissa[0]
        if m > 1.4142135623730951:
            m *= 0.5
            exponent += 1
        s = (m - 1.0) / (m + 1.0)
        square = s * s
        series = 0.0
        for j in range(10, -1, -1):
            series = series * square + 2.0 / (2 * j + 1)
        out[i] = exponent * 0.6931471805599453 + s * series


@compiled
def hypotenuse(a: float, b: float) -> float:
    """Return the root of a^2 + b^2 without overflow; libm's hypot differs between platforms."""
    large, small = max(abs(a), abs(b)), min(abs(a), abs(b))
    if large == 0.0:
        return 0.0
    ratio = small / large
    return float(large * np.sqrt(1.0 + ratio * ratio))


@compiled
def diagonalize(diagonal: NDArray[np.float64], off: NDArray[np.float64], rows: NDArray[np.float64]) -> bool:
    """Compute the eigenvalues of a symmetric tridiagonal matrix, and some entries of all its eigenvectors, in place.

    The method is implicit QL (Bowdler, Martin, Reinsch, Wilkinson 1968).

    Parameters
    ----------
    diagonal : (m,) float64
        The diagonal of the matrix; overwritten with the eigenvalues, unordered.
    off : (m,) float64
        off[i] is the entry (i, i + 1) of the matrix; the last entry is scratch. The array is overwritten.
    rows : (r, m) float64
        r rows of the identity matrix; overwritten with these rows of the matrix whose columns are the eigenvectors.

    Returns
    -------
    bool
        False if the iteration did not converge, or if values are not finite.

    """
    m = len(diagonal)
    off[m - 1] = 0.0
    norm = 0.0
    for i in range(m):
        norm = max(norm, abs(diagonal[i]) + abs(off[i]))
    for first in range(m):
        for sweep in range(_QL_SWEEPS + 1):
            # A block of rounding errors, as in a matrix of low rank, may never become small beside its own diagonal.
            # Late sweeps therefore also accept entries that are small beside the norm of the whole matrix.
            floor = _EPSILON * norm if sweep > _QL_SWEEPS // 2 else 0.0
            last = first
            while last < m - 1:
                if not abs(off[last]) > max(floor, _EPSILON * (abs(diagonal[last]) + abs(diagonal[last + 1]))):
                    break
                last += 1
            if last == first:
                break
            if sweep == _QL_SWEEPS:
                return False
            g = (diagonal[first + 1] - diagonal[first]) / (2.0 * off[first])
            g = diagonal[last] - diagonal[first] + off[first] / (g + np.copysign(hypotenuse(g, 1.0), g))
            s, c, shift = 1.0, 1.0, 0.0
            deflated = False
            for i in range(last - 1, first - 1, -1):
                f, b = s * off[i], c * off[i]
                r = hypotenuse(f, g)
                off[i + 1] = r
                if r == 0.0:
                    diagonal[i + 1] -= shift
                    off[last] = 0.0
                    deflated = True
                    break
                s, c = f / r, g / r
                g = diagonal[i + 1] - shift
                r = (diagonal[i] - g) * s + 2.0 * c * b
                shift = s * r
                diagonal[i + 1] = g + shift
                g = c * r - b
                for row in range(len(rows)):
                    upper = rows[row, i + 1]
                    rows[row, i + 1] = s * rows[row, i] + c * upper
                    rows[row, i] = c * rows[row, i] - s * upper
            if deflated:
                continue
            diagonal[first] -= shift
            off[first] = g
            off[last] = 0.0
    finite = True
    for i in range(m):
        finite = finite and np.isfinite(diagonal[i])
    return finite
