"""Wait for jobs and draws without a thread: subscribe, look, wait for a notification, look again.

A request also looks every 1 to 2 s: a notification may be lost, and a look detects a dead worker or a lost request.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.jobs.notifications import Notifications

T = TypeVar("T")

MAX_WAIT_SECONDS = 60.0  # of a request
MAX_WAITS = 200  # waiting requests of one tenant in a process; one more is answered at once
FIRST_SLEEP = 1.0
LONGEST_SLEEP = 2.0  # each look costs a round trip; a notification ends the sleep sooner


OF_TENANT: Counter[str] = Counter()  # waiting requests of this process


def has_room(tenant: str) -> bool:
    """Return whether fewer than `MAX_WAITS` requests of a tenant wait."""
    return OF_TENANT[tenant] < MAX_WAITS


async def wait_for_outcome(
    notifications: Notifications,
    name: str,
    look: Callable[[Any], Awaitable[tuple[T, bool]]],
    seconds: float,
    *,
    tenant: str,
) -> T:
    """Return what `look` finds once that is final, or after some seconds or at shutdown.

    Beyond `MAX_WAITS` requests of the tenant it looks once.

    Parameters
    ----------
    name
        Of the job or draw.
    look
        Returns the state and whether it is final, given the outcome in the last notification, or None.

    """
    if OF_TENANT[tenant] >= MAX_WAITS:
        return (await look(None))[0]
    until, sleep = time.monotonic() + min(seconds, MAX_WAIT_SECONDS), FIRST_SLEEP
    OF_TENANT[tenant] += 1
    try:
        with notifications.of(name) as notification:
            await notifications.wait_until_subscribed()
            while True:
                notification.clear()
                state, is_final = await look(notification.outcome)
                left = until - time.monotonic()
                if is_final or notifications.is_over or left <= 0:
                    return state
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(sleep, left)):
                        await notification.wait()
                sleep = min(1.5 * sleep, LONGEST_SLEEP)
    finally:
        OF_TENANT[tenant] -= 1
        if not OF_TENANT[tenant]:
            del OF_TENANT[tenant]
