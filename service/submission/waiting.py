"""Wait for jobs without a thread: one watch for each job, however many requests wait for it.

A watch reads its job, then waits for a notification of the end, 1 to 2 s. It polls because a notification may be
lost, and because reading a job detects a dead worker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from worker.jobs.notifications import Notifications
    from worker.jobs.store import Job

    Look = Callable[[], Awaitable[Job]]
    Key = tuple[asyncio.AbstractEventLoop, Notifications, str]

MAX_WAIT_SECONDS = 60.0  # of a request for a job
MAX_WAITS = 200  # waiting requests of one tenant in a process; one more is answered at once
_FIRST_SLEEP = 1.0
_LONGEST_SLEEP = 2.0  # each read costs a round trip; a notification ends the sleep sooner


class Watch:
    """Poll of one job until it ends or the process stops.

    Attributes
    ----------
    latest : Job or None
        The job at the last read.
    waiters : int
        Number of waiting requests.

    """

    def __init__(self, notifications: Notifications, job: str, look: Look) -> None:
        self.latest: Job | None = None
        self.waiters = 0
        self.task = asyncio.create_task(self._run(notifications, job, look))

    async def _run(self, notifications: Notifications, job: str, look: Look) -> None:
        sleep = _FIRST_SLEEP
        with notifications.of(job) as ended:
            await notifications.subscribed()
            while True:
                ended.clear()
                self.latest = await look()
                if not self.latest.is_open or notifications.is_over:
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), sleep)
                sleep = min(1.5 * sleep, _LONGEST_SLEEP)


class Waits:
    """Registry of the waiting requests of a process, by job and by tenant."""

    def __init__(self) -> None:
        self._watches: dict[Key, Watch] = {}
        self._of_tenant: Counter[str] = Counter()

    def has_room(self, tenant: str) -> bool:
        """Return whether fewer than `MAX_WAITS` requests of a tenant wait."""
        return self._of_tenant[tenant] < MAX_WAITS

    @contextlib.contextmanager
    def counted(self, tenant: str) -> Iterator[None]:
        """Count a waiting request of a tenant."""
        self._of_tenant[tenant] += 1
        try:
            yield
        finally:
            self._of_tenant[tenant] -= 1
            if not self._of_tenant[tenant]:
                del self._of_tenant[tenant]

    async def outcome(self, notifications: Notifications, job: str, look: Look, seconds: float, *, tenant: str) -> Job:
        """Return a job once it has ended, or its current state after `seconds` or at shutdown.

        Beyond `MAX_WAITS` requests of the tenant it returns at once.

        Parameters
        ----------
        notifications
            Of ends of jobs.
        look
            Returns the current state of the job.

        """
        if not self.has_room(tenant):
            return await look()
        key = (asyncio.get_running_loop(), notifications, job)
        watch = self._watches.get(key)
        if watch is None or watch.task.done():  # a finished watch may be of an end before the job was reopened
            watch = self._watches[key] = Watch(notifications, job, look)
        watch.waiters += 1
        try:
            with self.counted(tenant):
                await asyncio.wait({watch.task}, timeout=seconds)
            if watch.task.done():
                watch.task.result()
        finally:
            watch.waiters -= 1
            if not watch.waiters:
                watch.task.cancel()
                if self._watches.get(key) is watch:
                    del self._watches[key]
        return watch.latest or await look()


WAITS = Waits()
