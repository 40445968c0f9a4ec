"""A distribution of data, from which the data of an audit are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Generator = np.random.Generator
    Sampler = Callable[[Generator, int], Array]


@dataclass(frozen=True)
class Distribution:
    """A distribution from which an audit's data are drawn.

    Attributes
    ----------
    n : int
        Number of points of a sample.
    sample : callable
        Takes (generator, n), and returns n points.
    is_noise : bool
        Whether the features are independent.
    label : callable or None
        Takes (generator, n), and returns the group of each point of `sample` for a generator with the same seed.
    together : int
        Number of consecutive rows that belong to one subject or series.

    """

    name: str
    n: int
    sample: Sampler
    is_noise: bool = False
    label: Callable[[np.random.Generator, int], NDArray[np.int64]] | None = None
    together: int = 1
