"""Waiting for a job without holding a thread: a look, a sleep of the event loop, another look."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.jobs import Job

_FIRST_SLEEP = 0.01
_LONGEST_SLEEP = 0.2


async def settled(look: Callable[[], Awaitable[Job]], seconds: float) -> Job:
    """Look until the job has ended or the time is over; sleeps grow from 10 to 200 ms."""
    deadline = time.monotonic() + seconds
    sleep = _FIRST_SLEEP
    while (job := await look()).is_open and (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(sleep, left))
        sleep = min(1.5 * sleep, _LONGEST_SLEEP)
    return job
