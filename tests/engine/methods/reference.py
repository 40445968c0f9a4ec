"""What the tests of the methods compare with, and how."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine.methods import METHODS, Embedding


def embed(name: str, X: NDArray[np.float64], **options: Any) -> Embedding:
    """Embed with some options."""
    return METHODS[name].embed(X, METHODS[name].spec(**options))


def with_slow_ones(names: Iterable[str]) -> list[Any]:
    """Return methods as parameters of a test, slow where the library compiles itself for seconds in each process."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (METHODS[name].first_seconds > 1)) for name in names]


def same_columns(expected: NDArray[np.float64], found: NDArray[np.float64], tolerance: float) -> None:
    """Assert that columns agree but for their signs, relative to the largest entry."""
    signs = np.sign(np.einsum("ij,ij->j", expected, found))
    np.testing.assert_allclose(found * signs, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def patches_of(X: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Return each point and its k nearest, by sorted distances."""
    return np.argsort(np.linalg.norm(X[:, None] - X[None], axis=2), axis=1, kind="stable")[:, : k + 1]
