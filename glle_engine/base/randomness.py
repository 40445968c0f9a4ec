"""Random generators that depend only on a seed and on a stream number, one for each purpose of random numbers."""

from __future__ import annotations

import numpy as np


def generator(seed: int, stream: int) -> np.random.Generator:
    """Return numpy's Philox generator for a seed, which gives the same numbers on every machine.

    `stream` is a number for the purpose of the random numbers: generators with the same seed and different streams are
    independent.
    """
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], np.uint64)))
