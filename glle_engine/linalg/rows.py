"""Products with a few long rows, for Lanczos and its projections.

The loops are compiled code of fixed order (`glle_engine.linalg.tall_kernels`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import tall_kernels as kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray


def overlaps(rows: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inner products (m,) of rows (m, n) with a vector (n,)."""
    products = np.empty(len(rows))
    kernels.overlaps(kernels.TAG, rows, vector, products)
    return products


def subtract(factors: NDArray[np.float64], rows: NDArray[np.float64], vector: NDArray[np.float64]) -> None:
    """Subtract the combination of rows (m, n) with factors (m,) from a vector (n,), in place."""
    kernels.subtract(kernels.TAG, factors, rows, vector)


def project_out(rows: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make a vector (n,) orthogonal to orthonormal rows (m, n), in place; return their inner products (m,)."""
    products = overlaps(rows, vector)
    subtract(products, rows, vector)
    return products


def combination(factors: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the combinations (q, n) of rows (m, n) with factors (q, m)."""
    products = np.zeros((len(factors), rows.shape[1]))
    for own, target in zip(np.ascontiguousarray(-factors), products, strict=True):
        kernels.subtract(kernels.TAG, own, rows, target)
    return products


def norm(vector: NDArray[np.float64]) -> float:
    """Return the Euclidean norm of a vector (n,)."""
    return float(np.sqrt(overlaps(vector[None], vector)[0]))
