"""Data for tests of methods that are fitted to halves of the data."""

import numpy as np
import pytest

from glle_engine import manifolds


@pytest.fixture(scope="session")
def curve() -> np.ndarray:
    """Return 120 points of an S-curve with noise."""
    X = manifolds.make("s_curve", 120, seed=3).X
    return X + 0.02 * np.random.default_rng(0).standard_normal(X.shape)
