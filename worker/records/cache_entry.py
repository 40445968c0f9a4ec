"""Entry of the array cache: JSON metadata and named arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Entry:
    """A value of the cache: the writer's JSON-able `meta` and its `arrays`."""

    meta: dict[str, Any]
    arrays: dict[str, Array]


def entry_bytes(*shapes: tuple[int, ...]) -> int:
    """Return the bytes of an entry of float64 arrays of these shapes, its head generously included."""
    return 2048 + 8 * sum(math.prod(shape) for shape in shapes)
