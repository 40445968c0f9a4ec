"""Retries: after which pauses a call is repeated, and until when."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from glle.transport.calls import Failure, Reply

if TYPE_CHECKING:
    from collections.abc import Callable


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
