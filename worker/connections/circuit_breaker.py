"""Circuit breaker for an unresponsive Redis server.

After a call without an answer further calls fail at once, until one of them may try again. Clients get their 503 in
milliseconds, where each would otherwise wait for the socket's timeout with a connection, and in some requests with a
thread.
"""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from worker.connections.event_loop import pause

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY_SECONDS = 0.5  # pause after a call without an answer
_RETRIES = 2  # of a broken connection
_IS_CALLING = ContextVar("is_calling", default=False)  # a thread's call connects by a nested call


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
        super().__init__(ExponentialBackoff(cap=0.5, base=0.05), _RETRIES, (redis.ConnectionError, redis.ReadOnlyError))
        self._seconds = seconds
        self._lock = threading.Lock()
        self._away_until = 0.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this object: redis-py copies its policy, and all connections share one state."""
        return self

    def call_with_retry(
        self,
        do: Callable[[], Any],
        fail: Callable[..., object],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,  # noqa: FBT001, FBT002 # redis-py's signature
    ) -> Any:
        """Return the result of `do`; call `fail` after each failure (it disconnects).

        Raises
        ------
        CircuitOpenError
            At once, if the server did not answer a moment ago.

        """
        if _IS_CALLING.get():
            return self._retried(do, fail, is_retryable, with_failure_count)
        is_trial = self._require_closed()
        token = _IS_CALLING.set(True)
        try:
            answer = self._retried(do, fail, is_retryable, with_failure_count)
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise
        except Exception:
            self._away_until = 0.0  # the server answered with an error
            raise
        except BaseException:  # the client is gone; without an answer the next call tries
            if is_trial:
                self._away_until = time.monotonic()
            raise
        finally:
            _IS_CALLING.reset(token)
        self._away_until = 0.0
        return answer

    def _retried(
        self,
        do: Callable[[], Any],
        fail: Callable[..., object],
        is_retryable: Callable[[Exception], bool] | None,
        with_failure_count: bool,  # noqa: FBT001 # redis-py's option
    ) -> Any:
        """Return the result of `do`, as redis-py's policy, whose pauses would block an event loop."""
        failures = 0
        while True:
            try:
                return do()
            except self._supported_errors as error:
                if is_retryable is not None and not is_retryable(error):
                    raise
                failures += 1
                fail(*((error, failures) if with_failure_count else (error,)))
                if failures > self._retries:
                    raise
                pause(self._backoff.compute(failures))

    def _require_closed(self) -> bool:
        """Return whether the call is a trial after a failure; raise `CircuitOpenError` unless it may be made."""
        with self._lock:
            now = time.monotonic()
            if now < self._away_until:
                raise CircuitOpenError("The Redis server did not answer a moment ago.")
            if not self._away_until:
                return False
            self._away_until = now + 2 * self._seconds  # if this trial hangs, another one tries later
            return True
