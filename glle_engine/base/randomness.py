"""Random numbers that are a function of a seed and of what they are for."""

from __future__ import annotations

import numpy as np


def generator(seed: int, stream: int) -> np.random.Generator:
    """Return the counter-based generator (Philox) of a stream of a seed, which gives the same numbers everywhere."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], np.uint64)))
