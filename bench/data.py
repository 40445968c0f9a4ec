"""Data sets of the benchmarks and their posteriors, each fitted once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from glle_engine import fit, manifolds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


def data_of(name: str, n: int, seed: int = 0) -> NDArray[np.float64]:
    """Return n points of a sheet, or the digits (1797, 64)."""
    if name == "digits":
        from sklearn.datasets import load_digits

        return np.asarray(load_digits().data, np.float64)
    return manifolds.make(name, n, seed=seed).X


@cache
def posterior_of(name: str, n: int) -> Posterior:
    """Fit with k = 10, p = 2, the default method."""
    return fit(data_of(name, n))
