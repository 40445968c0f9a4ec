"""Free space on the data folder's disk and in the queue server's memory; without enough of both, new jobs are refused.

The disk has a reserve that nothing written below the data folder may use (`worker.base.disk`). If the embedded queue
server's log is on this disk, new jobs are refused while less than half of the reserve is free, because the server ends
when it cannot write.

A full queue server refuses all commands that need memory, even heartbeats of workers. New jobs are therefore refused
once the server uses more than `HIGH_WATER` of its memory; the rest is for workers, jobs in progress and deletions.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from glle_engine.base.texts import Way
from worker.base.disk import DISK_REMEDY, disk_reserve, free_bytes
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from worker.base.problems import Problem
    from worker.base.settings import Settings

ADDRESSES = "servers.json"  # file that the data folder has while the embedded servers of `glle up` run
PROBE_BYTES = 4096  # bytes of a test write
CAPACITY_CHECK_SECONDS = 1.0  # pause between two checks of the free disk space and of the server's memory
HIGH_WATER = 0.8  # used share of the queue server's memory above which new jobs are refused
RETRY_SECONDS = 30  # Retry-After of a job that is refused because the server is full


def probe(folder: Path) -> None:
    """Write and sync a block in a folder; raises OSError if the disk is full or read-only."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0" * PROBE_BYTES)
        file.flush()
        os.fsync(file.fileno())


def disk_refusal(settings: Settings) -> ProblemError | None:
    """Return the error for a new job if the embedded queue server's log is on a disk that is nearly full, else None."""
    folder = Path(settings.data_dir)
    if not (folder / ADDRESSES).exists() or (free := free_bytes(folder)) >= (needed := disk_reserve(folder) // 2):
        return None
    detail = f"{free:,} bytes are free on the disk of the queue's log; new jobs need {needed:,}. Reads still work."
    return refuse("redis-full", 503, detail, DISK_REMEDY, free=free, least=needed)


def _files_refusal(settings: Settings) -> ProblemError | None:
    """Return the error for a new job if results are stored on a disk with too little free space for them.

    Return None if more than the reserve (`worker.base.disk`) is free, or if an object store has the results.
    """
    folder = Path(settings.data_dir)
    if settings.store_url or (free := free_bytes(folder)) >= (reserve := disk_reserve(folder)):
        return None
    detail = f"{free:,} bytes are free on the disk of the data folder; results of new jobs must leave {reserve:,} free."
    return refuse("storage-full", 507, detail, DISK_REMEDY, free=free, reserve=reserve)


def memory_share(info: dict[str, Any]) -> float | None:
    """Return which share of its memory limit a Redis server uses; `info` is the server's reply to INFO.

    Return None if the server has no limit, or does not report how much memory it uses.
    """
    limit, used = int(info.get("maxmemory", 0)), info.get("used_memory")
    if not limit or used is None:
        return None
    return (int(used) - int(info.get("mem_not_counted_for_evict", 0))) / limit


class QueueCapacity:
    """Says whether new jobs are accepted: whether the queue server's memory and the disk have space for them.

    Parameters
    ----------
    client
        The queue's Redis.
    settings
        Settings, of which `data_dir` and `store_url` are used.

    """

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._look_again = 0.0  # monotonic time of the next check of disk and server
        self._disk: Problem | None = None
        self._share: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether new jobs are refused because the disk or the queue's Redis has too little space.

        Both are checked at most once a second.
        """
        if (now := time.monotonic()) >= self._look_again:
            self._look_again = now + CAPACITY_CHECK_SECONDS
            refusal = disk_refusal(self._settings) or _files_refusal(self._settings)
            self._disk = None if refusal is None else refusal.problem
            with suppress(redis.ResponseError):  # a managed server may not report its memory
                self._share = memory_share(self._client.info("memory"))
        return self._disk is not None or (self._share or 0.0) > HIGH_WATER

    def require(self) -> None:
        """Raise `ProblemError` (``redis-full`` or ``storage-full``) if new jobs are refused."""
        if self.is_full:
            raise self.refusal()

    def refusal(self) -> ProblemError:
        """Return the error for a new job, which says what is full; call this only if `is_full` is True."""
        if self._disk is not None:
            return ProblemError(self._disk)
        return refuse(
            "redis-full",
            503,
            f"The queue server uses more than {HIGH_WATER:.0%} of its memory: new jobs are refused.",
            f"Try again later. Remove records of ended jobs ({Way('delete-results')}), raise "
            "GLLE_QUEUE_BYTES, or lower GLLE_JOB_TTL or `records` in GLLE_QUOTAS.",
            retry_after=RETRY_SECONDS,
            high_water=HIGH_WATER,
        )
