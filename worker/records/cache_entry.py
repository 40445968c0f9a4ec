"""Entry of the array cache: JSON metadata and named arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Entry:
    """Value of the array cache: JSON-able metadata and arrays by name."""

    meta: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def entry_bytes(*shapes: tuple[int, ...]) -> int:
    """Return an upper bound of the bytes of an entry with float64 arrays of these shapes."""
    return 2048 + 8 * sum(math.prod(shape) for shape in shapes)
