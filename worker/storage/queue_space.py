"""Room on the queue server, in memory and on the disk of its log: without it new work is refused.

The server refuses all that needs memory when it is full, the signs of life of workers included. So new jobs end at
`GLLE_QUEUE_HIGH_WATER` of its memory; the rest is for workers, for jobs on their way to their ends, and for deletions.
Where its log is on the disk of the data folder, new jobs end there, too, before that disk is full (`worker.storage.disk_space`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redis

from worker.base.problems import refuse
from worker.storage.disk_space import no_room_for_work

if TYPE_CHECKING:
    from worker.base.problems import ProblemError
    from worker.base.settings import Settings

LOOK_SECONDS = 1.0  # between two looks of a process at the server's memory
RETRY_SECONDS = 30


class QueueSpace:
    """The room on a queue server for new work.

    Parameters
    ----------
    client
        The queue's Redis.
    settings
        `queue_high_water`: the share of the server's memory above which new work is refused. `disk_reserve`.

    """

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._look_again = 0.0  # on the monotonic clock
        self._share: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether more than the high-water mark is in use, as seen within the last second, or the disk is too full."""
        if no_room_for_work(self._settings) is not None:
            return True
        if (now := time.monotonic()) >= self._look_again:
            self._look_again = now + LOOK_SECONDS
            with suppress(redis.ResponseError):  # a managed server may not report its memory
                self._share = share(self._client.info("memory"))
        return self._share is not None and self._share > self._settings.queue_high_water

    def require(self) -> None:
        """Refuse new work where there is no room.

        Raises
        ------
        ProblemError
            ``redis-full``.

        """
        if self.is_full:
            raise self.refusal()

    def refusal(self) -> ProblemError:
        """Return the refusal of new work."""
        if (refusal := no_room_for_work(self._settings)) is not None:
            return refusal
        high_water = self._settings.queue_high_water
        return refuse(
            "redis-full",
            503,
            f"The queue server uses more than {high_water:.0%} of its memory: new work is refused.",
            "Try again later. Remove records of ended jobs (DELETE /v1/jobs/{id}?record=true), raise GLLE_QUEUE_BYTES, "
            "or lower GLLE_QUOTA_RECORDS or GLLE_JOB_TTL.",
            retry_after=RETRY_SECONDS,
            high_water=high_water,
        )


def share(memory: dict[str, Any]) -> float | None:
    """Return the share of a server's memory that is in use, of its INFO; None if it has no limit or reports none."""
    most, is_used = int(memory.get("maxmemory", 0)), memory.get("used_memory")
    if not most or is_used is None:
        return None
    return (int(is_used) - int(memory.get("mem_not_counted_for_evict", 0))) / most
