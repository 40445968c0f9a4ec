"""Posteriors in the memory of a sampler, which later draws use without a read from the cache."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glle_engine import Posterior

SOLVER_FACTOR = 4  # a posterior with its solver takes some times the bytes of its arrays


class ResidentPosteriors:
    """The posteriors that were used last.

    Parameters
    ----------
    max_bytes
        Of all posteriors; the last one stays in any case. 0: none is kept.

    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # for the thread that writes draws
        self._posteriors: OrderedDict[str, tuple[Posterior, int]] = OrderedDict()
        self._bytes = 0

    def get(self, arrays_id: str) -> Posterior | None:
        """Return the posterior with these arrays (`PosteriorRecord.arrays_id`), or None."""
        with self._lock:
            if arrays_id not in self._posteriors:
                return None
            self._posteriors.move_to_end(arrays_id)
            return self._posteriors[arrays_id][0]

    def keep(self, arrays_id: str, posterior: Posterior, nbytes: int) -> None:
        """Keep a posterior whose arrays have `nbytes`; drop those that were not used for longest."""
        if not self._max_bytes:
            return
        with self._lock:
            self._drop(arrays_id)
            self._posteriors[arrays_id] = posterior, SOLVER_FACTOR * nbytes
            self._bytes += SOLVER_FACTOR * nbytes
            while self._bytes > self._max_bytes and len(self._posteriors) > 1:
                self._drop(next(iter(self._posteriors)))

    def drop(self, arrays_id: str) -> None:
        """Drop a posterior, if it is kept."""
        with self._lock:
            self._drop(arrays_id)

    def _drop(self, arrays_id: str) -> None:
        if (dropped := self._posteriors.pop(arrays_id, None)) is not None:
            self._bytes -= dropped[1]
