"""Circuit breaker for an unresponsive Redis server.

Requests hold one of few threads while they wait. If each waited for a silent server, requests without need of it would
wait too. So after a call without an answer further calls fail at once, until one of them may try again.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY_SECONDS = 0.5  # pause after a call without an answer


class CircuitOpenError(redis.ConnectionError):
    """Call refused because the server did not answer a moment ago."""


class CircuitBreaker(Retry):
    """Circuit breaker for all connections of one client; broken connections are retried at once.

    Parameters
    ----------
    seconds
        The client's socket timeout, an upper bound of a trial's duration.

    """

    def __init__(self, seconds: float) -> None:
        super().__init__(ExponentialBackoff(cap=0.5, base=0.05), 2, (redis.ConnectionError, redis.ReadOnlyError))
        self._seconds = seconds
        self._lock = threading.Lock()
        self._away_until = 0.0
        self._thread = threading.local()  # `is_calling`: a call connects by a nested call

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this object: redis-py copies its policy, and all connections share one state."""
        return self

    def call_with_retry(self, do: Callable[[], Any], *arguments: Any, **options: Any) -> Any:
        """Call `do` with redis-py's retries.

        Raises
        ------
        CircuitOpenError
            At once, if the server did not answer a moment ago.

        """
        if getattr(self._thread, "is_calling", False):
            return super().call_with_retry(do, *arguments, **options)
        self._require_closed()
        self._thread.is_calling = True
        try:
            answer = super().call_with_retry(do, *arguments, **options)
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise
        except BaseException:
            self._away_until = 0.0  # the server answered with an error
            raise
        finally:
            self._thread.is_calling = False
        self._away_until = 0.0
        return answer

    def _require_closed(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._away_until:
                raise CircuitOpenError("The Redis server did not answer a moment ago.")
            if self._away_until:  # this call tries; if it hangs, another one tries later
                self._away_until = now + 2 * self._seconds
