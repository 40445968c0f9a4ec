"""Data of a few factors."""

import numpy as np


def correlated(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Return points of three factors and noise of several variances, far from 0."""
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.3, 1.0, d)
    spread = np.diag([3.0, 2.0, 1.2])
    return 5 + rng.standard_normal((n, 3)) @ spread @ rng.standard_normal((3, d)) + noise * rng.standard_normal((n, d))
