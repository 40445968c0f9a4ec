"""Wait for jobs and draws without a thread: subscribe, read the state, wait for a notification, read again.

A waiting request also reads the state every `PAUSE_SECONDS`, because a notification may be lost, a worker may have
died, or a request for a draw may have been lost.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from worker.base.problems import ProblemError
from worker.jobs.draw_stream import DrawAnswer, SentDraw, waited_name
from worker.observability.request_context import task_metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.jobs.notifications import Notifications
    from worker.records.cache_entry import Entry
    from worker.records.draws import DrawAddress
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

T = TypeVar("T")

MAX_WAIT_SECONDS = 60.0  # a request waits at most this long
PAUSE_SECONDS = 2.0  # pause between two readings of the state, which cost a round trip; notifications end it early


# If Redis loses the request for a draw, it is sent again, up to this many times in all. Then a job makes the draw.
MAX_DRAW_REQUESTS = 3


async def wait_for_outcome(
    notifications: Notifications, name: str, read_state: Callable[[Any], Awaitable[tuple[T, bool]]], seconds: float
) -> T:
    """Call `read_state` after each notification about a job or draw; return its state once it is final.

    A state that is not final is returned after `seconds`, and when the process shuts down.

    Parameters
    ----------
    name
        Name of the job or draw in notifications: the job's id, or the name of the draw that `waited_name` returns.
    read_state
        Called with the outcome in the last notification, or None; returns the state, and whether it is final.

    """
    until = time.monotonic() + min(seconds, MAX_WAIT_SECONDS)
    with notifications.listen(name) as notification:
        await notifications.wait_until_subscribed()
        while True:
            notification.clear()
            state, is_final = await read_state(notification.outcome)
            left = until - time.monotonic()
            if is_final or notifications.is_over or left <= 0:
                return state
            with suppress(TimeoutError):
                async with asyncio.timeout(min(PAUSE_SECONDS, left)):
                    await notification.wait()


async def requested_draw(stores: Stores, record: PosteriorRecord, key: DrawAddress, wait: float) -> Entry | None:
    """Return a draw that a sampler makes within `wait` seconds, or None if a job must make it.

    A sampler is a worker process that makes single draws. Identical requests in one process share one request to the
    samplers. If a draw takes a sampler longer than expected, a job makes the draw.

    Raises
    ------
    ProblemError
        If the draw failed, such as ``no-convergence``; or if too many requests of the tenant wait already
        (``quota-exceeded``).

    """
    if not wait:
        return None
    name = waited_name(record.id, key)
    sent = stores.requests.sent.setdefault(name, SentDraw())

    async def read_state(answer: DrawAnswer | None) -> tuple[Entry | None, bool]:
        """Return (draw, True) if the draw exists, (None, True) if a job must make it, (None, False) to wait on.

        Sends the request for the draw to the samplers, unless an earlier one is still unanswered. `answer` is what a
        sampler has published about the draw, or None. Raises `ProblemError` if the draw failed.
        """
        if answer is not None and answer.problem is not None:
            raise ProblemError(answer.problem)
        if answer is not None and (answer.entry is not None or answer.outcome == "job"):
            return answer.entry, True
        if sent:
            if not sent[-1] or await stores.requests.is_pending(sent[-1]):
                return None, False
            if (entry := await stores.cache.read_draw(record.id, key)) is not None:
                return entry, True
        if len(sent) == MAX_DRAW_REQUESTS:
            return None, True
        sent.append("")
        try:
            sent[-1] = await stores.requests.send(name, task_metadata())
        except BaseException:
            sent.pop()
            raise
        return None, False

    return await wait_for_outcome(stores.drawn, name, read_state, wait)
