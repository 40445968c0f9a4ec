"""Waiting for a job without holding a thread: a look, news of its end or a sleep, another look."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.jobs import Job

_FIRST_SLEEP = 0.05
_LONGEST_SLEEP = 2.0  # of a wait of minutes: each look costs a round trip, and news wakes it sooner


async def settled(
    look: Callable[[], Awaitable[Job]], seconds: float, ended: asyncio.Event, is_over: Callable[[], bool]
) -> Job:
    """Look until the job has ended or the time is over: whenever `ended` is set, and in between by itself.

    Or until waiting is over for everyone, because the process is about to stop.

    News may get lost, and a job whose worker was lost ends by being looked at: so the sleeps are 50 ms to 2 s.
    """
    deadline = time.monotonic() + seconds
    sleep = _FIRST_SLEEP
    while (job := await look()).is_open and (left := deadline - time.monotonic()) > 0 and not is_over():
        ended.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), min(sleep, left))
        sleep = min(1.5 * sleep, _LONGEST_SLEEP)
    return job
