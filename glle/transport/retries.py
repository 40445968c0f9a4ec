"""Retries: which calls are repeated, after which pauses, until when."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TYPE_CHECKING

from glle.transport.calls import Call, Failure, Pause, Reply, Steps
from glle.transport.errors import reply_error, unreachable_error

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, kw_only=True)
class Retries:
    """Retry policy of a client.

    Parameters
    ----------
    deadline
        Seconds for one call with all its attempts; no pause ends later. 0: one attempt.
    connect
        The same limit while no connection is made: a service may be starting, or absent.
    first, longest
        Seconds of the first pause, which doubles, and its limit. The client waits a random part, at least one half,
        so that clients refused together do not return together.

    """

    deadline: float = 120.0
    connect: float = 5.0
    first: float = 0.25
    longest: float = 20.0
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random

    def pause(self, attempt: int, elapsed: float, reply: Reply | Failure) -> float | None:
        """Return the seconds until the next attempt, or None if it would be after the deadline.

        `attempt` counts from 0; `elapsed` are the seconds since the first one began. No pause is shorter than the
        Retry-After of the reply, in seconds or as an HTTP date.
        """
        seconds = min(self.longest, self.first * 2.0 ** min(attempt, 60)) * (0.5 + 0.5 * self.chance())
        if isinstance(reply, Reply):
            seconds = max(seconds, self._retry_after(reply.headers.get("retry-after", "0")))
        is_connected = isinstance(reply, Reply) or reply.connected
        limit = self.deadline if is_connected else min(self.connect, self.deadline)
        return seconds if elapsed + seconds <= limit else None

    def _retry_after(self, header: str) -> float:
        try:
            return float(header)
        except ValueError:
            pass
        try:
            return parsedate_to_datetime(header).timestamp() - self.now()
        except ValueError:
            return 0.0  # the header of some proxy


def send_with_retries(call: Call, retries: Retries, url: str) -> Steps[Reply]:
    """Send a call until it succeeds, the deadline passes, or a repetition could have two effects.

    Raise GlleServiceError for a status of 300 and above (the API has no redirects), and for no response.
    """
    started = retries.clock()
    for attempt in count():
        reply: Reply | Failure = yield call
        if call.is_repeatable and (isinstance(reply, Failure) or reply.status in RETRY_STATUSES):
            pause = retries.pause(attempt, retries.clock() - started, reply)
            if pause is not None:
                yield Pause(pause)
                continue
        if isinstance(reply, Failure):
            raise unreachable_error(url, reply.reason)
        is_repeated_delete = call.method == "DELETE" and attempt > 0 and reply.status == 404  # its first reply was lost
        if reply.status >= 300 and not is_repeated_delete:
            raise reply_error(reply)
        return reply
    raise AssertionError("unreachable")
