"""When a call is made again: after how long, and when no more."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TYPE_CHECKING

from glle.transport.calls import Call, Failure, Pause, Reply, Steps
from glle.transport.errors import refused, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How patient a client is.

    Parameters
    ----------
    deadline
        Seconds for one call with all its attempts: a pause that would end later is not begun. 0: one attempt.
    connect
        The same while no connection is made: long enough for a service that starts, short for one that is not there.
    first, longest
        The pause after the first attempt, which doubles, and its limit. Of each, a random part is waited, a half at
        least, so that clients that were refused together do not come back together.

    """

    deadline: float = 120.0
    connect: float = 5.0
    first: float = 0.25
    longest: float = 20.0
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random

    def pause(self, attempt: int, elapsed: float, reply: Reply | Failure) -> float | None:
        """Return the seconds until the next attempt, or None when it would be too late.

        Parameters
        ----------
        attempt
            Attempts before this one.
        elapsed
            Seconds since the first began.
        reply
            What came: no pause is shorter than its Retry-After, in seconds or as an HTTP date.

        """
        own = min(self.longest, self.first * 2.0 ** min(attempt, 60)) * (0.5 + 0.5 * self.chance())
        if isinstance(reply, Reply):
            own = max(own, self._asked(reply.headers.get("retry-after")))
        reached = isinstance(reply, Reply) or reply.connected
        return own if elapsed + own <= (self.deadline if reached else min(self.connect, self.deadline)) else None

    def _asked(self, retry_after: str | None) -> float:
        if retry_after is None:
            return 0.0
        try:
            return max(0.0, float(retry_after))
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(retry_after).timestamp() - self.now())
        except ValueError:
            return 0.0  # no header of ours


def patient(call: Call, retries: Retries, url: str) -> Steps[Reply]:
    """Make a call until it is answered, or the time is over, or another attempt might do it twice.

    Raises
    ------
    GlleServiceError
        For an answer of 300 and above, and for none: the API redirects nobody.

    """
    started = retries.clock()
    for attempt in count():
        reply: Reply | Failure = yield call
        again = isinstance(reply, Failure) or reply.status in AGAIN
        if again and call.repeatable:
            pause = retries.pause(attempt, retries.clock() - started, reply)
            if pause is not None:
                yield Pause(pause)
                continue
        if isinstance(reply, Failure):
            raise unreachable(url, reply.reason)
        if call.method == "DELETE" and attempt and reply.status == 404:
            return reply  # an attempt before had deleted it, and its answer was lost
        if reply.status >= 300:
            raise refused(reply)
        return reply
    raise AssertionError("unreachable")
