"""A circuit breaker: a server that does not answer is waited for by one who asks, not by everyone who comes after.

A request holds a thread while it waits, and there are few: were each to wait for a server that is silent, requests that
need nothing of it would wait, too. So a call that met no answer is the last one for a moment; who asks meanwhile is
told at once, and after the moment one of them tries again.
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

AWAY_SECONDS = 0.5  # for which a server that did not answer is not asked again


class CircuitOpenError(redis.ConnectionError):
    """The server did not answer a moment ago, and was not asked again."""


class CircuitBreaker(Retry):
    """Tries a broken connection again at once, a silent server not before a moment has passed.

    One for all connections of a client: redis-py copies what it is given, and gets this very one.

    Parameters
    ----------
    seconds
        The client's socket timeout: how long one who tries again may take before another may.

    """

    def __init__(self, seconds: float) -> None:
        super().__init__(ExponentialBackoff(cap=0.5, base=0.05), 2, (redis.ConnectionError, redis.ReadOnlyError))
        self._seconds = seconds
        self._lock = threading.Lock()
        self._away_until = 0.0
        self._here = threading.local()  # whether this thread is within a call already: a call connects by another

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def call_with_retry(self, do: Callable[[], Any], *arguments: Any, **options: Any) -> Any:
        """Call `do` as redis-py has it called.

        Raises
        ------
        AwayError
            At once, where the server did not answer somebody else just now.

        """
        if getattr(self._here, "within", False):
            return super().call_with_retry(do, *arguments, **options)
        self._require_near()
        self._here.within = True
        try:
            found = super().call_with_retry(do, *arguments, **options)
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise
        except BaseException:
            self._away_until = 0.0  # it answered: with an error
            raise
        finally:
            self._here.within = False
        self._away_until = 0.0
        return found

    def _require_near(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._away_until:
                raise CircuitOpenError("It did not answer a moment ago.")
            if self._away_until:  # this one tries; another, should nothing be heard of it
                self._away_until = now + 2 * self._seconds
