"""Factorisation of the mean weights without pivoting, by the kernels of the draws with a single lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from glle_engine.eigen.batched.numeric.factorization import SCRATCH, factorise
from glle_engine.eigen.batched.numeric.solves import (
    solve_lower,
    solve_lower_transposed,
    solve_upper,
    solve_upper_transposed,
)
from glle_engine.eigen.batched.symbolic.addresses import addresses
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.symbolic.structure import Structure

_TAG = (0,)


@dataclass(frozen=True, eq=False)
class SingleLU:
    """Factors B' = L U of one set of weights, in the order of elimination.

    Solves are those of B'^T, as in `glle_engine.eigen.lu`.

    Attributes
    ----------
    structure : Structure
    lower, upper : flat float64
        From `glle_engine.eigen.batched.numeric.factorization.factorise`.

    """

    structure: Structure
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @classmethod
    def factor(cls, structure: Structure, weights: NDArray[np.float64], pins: NDArray[np.int32]) -> Self:
        """Factor I - W, plus 1 at the pin.

        Parameters
        ----------
        structure : Structure
        weights : (n, k) float64
            In the order of the points.
        pins : (c,) int32
            At most one point.

        """
        lower, upper = np.empty(structure.lower_size), np.empty(structure.upper_size)
        pin = structure.position[pins] if len(pins) else np.full(1, -1, np.int32)
        factorise(
            _TAG,
            structure,
            weights[structure.order].ravel(),
            pin,
            lower,
            upper,
            np.empty(structure.block_size),
            np.empty(SCRATCH),
        )
        return cls(structure, lower, upper)

    def solve(self, b: NDArray[np.float64], trans: str = "N") -> NDArray[np.float64]:
        """Solve B'^T x = b, or B' x = b for trans="T", for b of shape (n,) or (n, 1)."""
        x = b.ravel().copy()
        (_forward if trans == "T" else _solve_transposed)(_TAG, self.structure, self.lower, self.upper, x)
        return x.reshape(b.shape)


@compiled
def _forward(
    tag: tuple[int, ...],
    structure: Structure,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    x: NDArray[np.float64],
) -> None:
    """Solve x = U^-1 L^-1 x."""
    tree = addresses(structure)
    solve_lower(tag, tree, address(lower), address(x))
    solve_upper(tag, tree, address(upper), address(x))


@compiled
def _solve_transposed(
    tag: tuple[int, ...],
    structure: Structure,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    x: NDArray[np.float64],
) -> None:
    """Solve x = L^-T U^-T x."""
    tree = addresses(structure)
    solve_upper_transposed(tag, tree, address(upper), address(x))
    solve_lower_transposed(tag, tree, address(lower), address(x))
