"""Small tables to choose: a sheet in three dimensions, as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine import manifolds

if TYPE_CHECKING:
    from collections.abc import Sequence


def sheet(n: int, seed: int = 0) -> np.ndarray:
    """Return n points (n, 3) of the S-curve."""
    return np.asarray(manifolds.make("s_curve", n, seed=seed).X)


def apart(n: int) -> np.ndarray:
    """Return two sheets of n points each (2n, 3), further apart than either is wide."""
    return np.concatenate([sheet(n), sheet(n, seed=1) + 100])


def csv(X: np.ndarray, **more: Sequence[Any]) -> bytes:
    """Return points as a table with columns x, y, z, and more by their names."""
    names = ["x", "y", "z", *more]
    rows = [[*map(repr, row), *map(str, rest)] for row, *rest in zip(X.tolist(), *more.values(), strict=True)]
    return "\n".join(map(",".join, [names, *rows])).encode()
