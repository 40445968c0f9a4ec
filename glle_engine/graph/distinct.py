"""Points with exact duplicates put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Distinct:
    """Groups of equal points, in the order of their first point.

    `first` (m,) is the first point of each group and `group` (n,) the group of each point; group g is
    ordered[start[g] : start[g] + size[g]].
    """

    first: NDArray[np.intp]
    group: NDArray[np.intp]
    ordered: NDArray[np.intp]
    start: NDArray[np.intp]
    size: NDArray[np.intp]

    @classmethod
    def of(cls, X: NDArray[np.float64]) -> Self:
        """Group the rows of X (n, d)."""
        rows = np.ascontiguousarray(X + 0.0)  # -0 is 0
        keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        group = rank[inverse.ravel()]
        size = np.bincount(group)
        return cls(np.sort(first), group, np.argsort(group, kind="stable"), np.cumsum(size) - size, size)

    def __len__(self) -> int:
        return len(self.first)

    def members(self, group: int, at_most: int | None = None) -> NDArray[np.intp]:
        """Return the points of a group, ascending."""
        count = self.size[group] if at_most is None else min(self.size[group], at_most)
        return self.ordered[self.start[group] : self.start[group] + count]
