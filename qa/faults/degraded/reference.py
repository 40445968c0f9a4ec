"""Reference results, computed by the engine alone."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import glle_engine
from glle_engine import manifolds

if TYPE_CHECKING:
    from tests.system.arrays import Array

N = 400


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
