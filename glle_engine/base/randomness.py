"""Random generators that depend only on a seed and on a number for their purpose."""

from __future__ import annotations

import numpy as np


def generator(seed: int, stream: int) -> np.random.Generator:
    """Return numpy's Philox generator for a seed, which gives the same numbers on every machine.

    Generators of one seed with different `stream` numbers are independent.
    """
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], np.uint64)))
