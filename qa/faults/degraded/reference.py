"""Reference results, computed by the engine alone."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import glle_engine
from glle_engine import manifolds

N = 400

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Truth:
    """Reference results of the engine."""

    X: Array = field(default_factory=lambda: manifolds.make("s_curve", N, seed=3).X)
    known: dict[tuple[int, int], bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def posterior(self) -> glle_engine.Posterior:
        """Posterior of the data."""
        return glle_engine.fit(self.X)

    def draw(self, seed: int, index: int) -> bytes:
        """Return the bytes of a draw's embedding."""
        with self.lock:
            if (seed, index) not in self.known:
                self.known[seed, index] = self.posterior.draw(index, seed=seed).embedding.tobytes()
            return self.known[seed, index]
