"""Posteriors that a worker process keeps at hand, so that the cache is read once and not for every task.

A task runs in a process of its own, forked off the worker: what is at hand at the fork, the task has for nothing. So it
is the worker that reads, just before it forks.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

import redis

from worker.problems import ProblemError

if TYPE_CHECKING:
    from glle_engine import Posterior
    from worker.posteriors import PosteriorStore

log = logging.getLogger(__name__)


class WarmPosteriors:
    """The posteriors used last, up to a number of bytes.

    Parameters
    ----------
    budget
        Bytes of arrays; one that is larger by itself is kept alone, as long as no other is asked for. 0: none.

    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._bytes = 0
        self._kept: OrderedDict[str, Posterior] = OrderedDict()

    def get(self, id_: str) -> Posterior | None:
        """Return a posterior that is at hand, or None."""
        if id_ in self._kept:
            self._kept.move_to_end(id_)
        return self._kept.get(id_)

    def keep(self, id_: str, posterior: Posterior) -> None:
        """Keep a posterior, and forget those used longest ago where there is no room."""
        size = _bytes(posterior)
        if id_ in self._kept or not self._budget:
            return
        self._kept[id_] = posterior
        self._bytes += size
        while self._bytes > self._budget and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= _bytes(oldest)

    def fetch(self, id_: str, posteriors: PosteriorStore) -> None:
        """Read a posterior and what its draws share, unless it is resident; the task reports what fails.

        It is kept under the name of its arrays (`PosteriorRecord.drawn_from`), because an id that is deleted and fitted
        again may name other arrays.
        """
        try:
            record = posteriors.get(id_)
            name, sha256 = (id_, None) if record is None else (record.drawn_from, record.arrays_sha256)
            if self.get(name) is not None:
                return
            if self._bytes > self._budget:  # of one: the next need not stand beside it
                self._kept.clear()
                self._bytes = 0
            if (posterior := posteriors.load(id_, sha256)) is not None:
                _ = posterior.lane_solver  # analysed once, not once a task
                self.keep(name, posterior)
        except (redis.RedisError, ProblemError):
            log.warning("Posterior %s could not be read beforehand", id_, exc_info=True)


def _bytes(posterior: Posterior) -> int:
    return sum(array.nbytes for array in posterior.arrays().values())
