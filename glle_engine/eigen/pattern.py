"""Sparsity pattern of B = I - W and its elimination order, shared by all weights on one neighbor graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.eigen.batched.symbolic.structure import Structure, analyse
from glle_engine.eigen.ordering.choice import cheapest_order

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Pattern:
    """Neighbor graph and elimination order.

    Attributes
    ----------
    neighbors : (n, k) int32
    order : (n,) int32
        Position j of the factored matrix is point order[j].

    """

    neighbors: NDArray[np.int32]
    order: NDArray[np.int32]

    @classmethod
    def of(cls, neighbors: NDArray[np.int32]) -> Self:
        """Return the pattern in the order of the points."""
        return cls(neighbors, np.arange(len(neighbors), dtype=np.int32))

    def order_for(self, factorizations: int) -> tuple[Self, dict[str, Any]]:
        """Return the pattern in the cheapest known order, for factorizations without pivoting, and the predicted cost.

        `factorizations` is their expected number. The cost is that of `glle_engine.eigen.ordering.choice.Prediction`,
        as a dictionary.
        """
        order, prediction = cheapest_order(self.neighbors, factorizations)
        return type(self)(self.neighbors, order), prediction._asdict()

    @cached_property
    def structure(self) -> Structure:
        """Symbolic factorisation that the mean and all draws share."""
        return analyse(self.neighbors, self.order)

    @cached_property
    def transposed(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Row indices of B^T by columns, in the order; the source of each value; the inverse order."""
        n, k = self.neighbors.shape
        inverse = np.empty(n, np.int32)
        inverse[self.order] = np.arange(n, dtype=np.int32)
        points = np.arange(n, dtype=np.int32)[:, None]
        row = inverse[np.concatenate([points, self.neighbors], axis=1)[self.order]]
        sort = np.argsort(row, axis=1, kind="stable")
        source = (self.order[:, None].astype(np.intp) * (k + 1) + sort).astype(np.int32).ravel()
        return np.take_along_axis(row, sort, axis=1).ravel(), source, inverse

    def apply(self, weights: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (I - W) V for V (n, m)."""
        image = np.array(vectors)
        for j, column in enumerate(vectors.T.copy()):  # a gather of contiguous numbers is twice as fast
            image[:, j] -= (weights * column[self.neighbors]).sum(axis=1)
        return image

    def apply_transposed(self, weights: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (I - W)^T v for v (n,)."""
        spread = np.bincount(self.neighbors.ravel(), (weights * vector[:, None]).ravel(), len(vector))
        return np.asarray(vector - spread)
