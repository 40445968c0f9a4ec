"""Waiting for jobs without holding a thread: one watch a job, however many requests wait for it.

A watch looks at its job, then waits for news of the end, or sleeps. News may get lost, and a job whose worker was lost
ends by being looked at: so it sleeps 50 ms to 2 s. A request costs a connection and a timer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.jobs.notifications import Notifications
    from worker.jobs.store import Job

    Look = Callable[[], Awaitable[Job]]
    Key = tuple[asyncio.AbstractEventLoop, Notifications, str]

_FIRST_SLEEP = 0.05
_LONGEST_SLEEP = 2.0  # of a wait of minutes: each look costs a round trip, and news wakes it sooner


class Watch:
    """A look at one job again and again, until it ends or the process is about to stop.

    Attributes
    ----------
    latest : Job or None
        The job as it was last seen.
    waiters : int
        The requests that wait for it.

    """

    def __init__(self, news: Notifications, job: str, look: Look) -> None:
        self.latest: Job | None = None
        self.waiters = 0
        self.task = asyncio.create_task(self._run(news, job, look))

    async def _run(self, news: Notifications, job: str, look: Look) -> None:
        sleep = _FIRST_SLEEP
        with news.of(job) as ended:
            while True:
                ended.clear()
                self.latest = await look()
                if not self.latest.is_open or news.is_over:
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), sleep)
                sleep = min(1.5 * sleep, _LONGEST_SLEEP)


class Waits:
    """The requests of a process that wait for jobs, by job and by tenant."""

    def __init__(self) -> None:
        self._watches: dict[Key, Watch] = {}
        self._of_tenant: Counter[str] = Counter()

    async def settled(
        self, news: Notifications, job: str, look: Look, seconds: float, *, tenant: str, most: int
    ) -> Job:
        """Return a job once it has ended, or as it is when the time or all waiting is over.

        Parameters
        ----------
        news
            Of ends of jobs.
        look
            Returns the job as it is.
        most
            How many requests of a tenant may wait at once; one more gets the job as it is.

        """
        if self._of_tenant[tenant] >= most:
            return await look()
        key = (asyncio.get_running_loop(), news, job)
        watch = self._watches.get(key)
        if watch is None or watch.task.done():  # one that is done may be of an end before the job was opened again
            watch = self._watches[key] = Watch(news, job, look)
        watch.waiters += 1
        self._of_tenant[tenant] += 1
        try:
            await asyncio.wait({watch.task}, timeout=seconds)
            if watch.task.done():
                watch.task.result()
        finally:
            self._of_tenant[tenant] -= 1
            if not self._of_tenant[tenant]:
                del self._of_tenant[tenant]
            watch.waiters -= 1
            if not watch.waiters:
                watch.task.cancel()
                if self._watches.get(key) is watch:
                    del self._watches[key]
        return watch.latest or await look()


WAITS = Waits()
