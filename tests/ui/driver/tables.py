"""Small tables for uploads: a sheet in three dimensions, as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine import manifolds

if TYPE_CHECKING:
    from collections.abc import Sequence

# Columns of a CSV that an audit adds.
AUDITED = [
    "island", "is_trusted", "neighborhood", "stretch", "squeeze", "is_torn", "is_glued", "seam", "p_value", "stability",
]  # fmt: skip


def sheet(n: int, seed: int = 0) -> np.ndarray:
    """Return n points (n, 3) of the S-curve."""
    return np.asarray(manifolds.make("s_curve", n, seed=seed).X)


def two_sheets(n: int) -> np.ndarray:
    """Return two sheets of n points each, shape (2n, 3); their gap exceeds their width."""
    return np.concatenate([sheet(n), sheet(n, seed=1) + 100])


def csv(X: np.ndarray, **columns: Sequence[Any]) -> bytes:
    """Return points as CSV with columns x, y, z and further named columns."""
    names = ["x", "y", "z", *columns]
    rows = [[*map(repr, row), *map(str, rest)] for row, *rest in zip(X.tolist(), *columns.values(), strict=True)]
    return "\n".join(map(",".join, [names, *rows])).encode()
