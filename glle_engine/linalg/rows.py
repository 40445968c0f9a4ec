"""Products with a few long rows, for Lanczos and its projections.

With numba these are compiled code of fixed order; without it numpy's BLAS computes the same to rounding.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.linalg import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray


@cache
def _kernels() -> Any:
    from glle_engine.linalg import tall_kernels  # noqa: PLC0415 -- numba takes a while to load

    return tall_kernels


def overlaps(rows: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inner products (m,) of rows (m, n) with a vector (n,)."""
    if not dense.has_compiler():
        return np.asarray(rows @ vector)
    products = np.empty(len(rows))
    _kernels().overlaps(_kernels().TAG, rows, vector, products)
    return products


def subtract(factors: NDArray[np.float64], rows: NDArray[np.float64], vector: NDArray[np.float64]) -> None:
    """Subtract the combination of rows (m, n) with factors (m,) from a vector (n,), in place."""
    if not dense.has_compiler():
        vector -= factors @ rows
        return
    _kernels().subtract(_kernels().TAG, factors, rows, vector)


def project_out(rows: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make a vector (n,) orthogonal to orthonormal rows (m, n), in place; return their inner products (m,)."""
    products = overlaps(rows, vector)
    subtract(products, rows, vector)
    return products


def combination(factors: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the combinations (q, n) of rows (m, n) with factors (q, m)."""
    if not dense.has_compiler():
        return np.asarray(factors @ rows)
    products = np.zeros((len(factors), rows.shape[1]))
    for own, target in zip(np.ascontiguousarray(-factors), products, strict=True):
        _kernels().subtract(_kernels().TAG, own, rows, target)
    return products


def norm(vector: NDArray[np.float64]) -> float:
    """Return the Euclidean norm of a vector (n,)."""
    return float(np.sqrt(overlaps(vector[None], vector)[0]))
