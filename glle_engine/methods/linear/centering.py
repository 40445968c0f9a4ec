"""Matrices of inner products, centred in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def centre(matrix: NDArray[np.float64]) -> None:
    """Replace a symmetric K (n, n) by J K J, J = I - 1 1^T / n, in place."""
    means = matrix.mean(axis=0)
    matrix -= means
    matrix -= (means - means.mean())[:, None]
