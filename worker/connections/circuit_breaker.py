"""Circuit breaker for an unresponsive Redis server.

After a call without an answer further calls fail at once, until one of them may try again. Clients get their 503 in
milliseconds, where each would otherwise wait for the socket's timeout with a connection, and in some requests with a
thread.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar

import redis

from worker.connections.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

AWAY_SECONDS = 0.5  # pause after a call without an answer
A = TypeVar("A")
T = TypeVar("T")
_IS_CALLING = ContextVar("is_calling", default=False)  # a thread's call connects by a nested call


class CircuitOpenError(redis.ConnectionError):
    """Call refused because the server did not answer a moment ago."""


class CircuitBreaker(RetryPolicy):
    """Circuit breaker for all connections of one client; broken connections are retried at once.

    Parameters
    ----------
    seconds
        The client's socket timeout, an upper bound of a trial's duration.

    """

    def __init__(self, seconds: float) -> None:
        super().__init__(0.0)
        self._trial_seconds = 2 * seconds
        self._lock = threading.Lock()
        self._away_until = 0.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this object: redis-py copies its policy, and all connections share one state."""
        return self

    def is_retried(self, error: Exception) -> bool:
        """Return whether a call is repeated: not after a timeout, which has taken seconds."""
        return isinstance(error, redis.ConnectionError | redis.ReadOnlyError)

    def call_with_retry(self, do: Callable[[], T], fail: Callable[..., object], *more: Any, **options: Any) -> T:
        """Return the result of `do`; call `fail` after each failure (it disconnects).

        Raises
        ------
        CircuitOpenError
            At once, if the server did not answer a moment ago.

        """
        if _IS_CALLING.get():
            return super().call_with_retry(do, fail, *more, **options)
        with self._watch():
            return super().call_with_retry(do, fail, *more, **options)

    async def call_on_loop(self, do: Callable[[A], Awaitable[T]], argument: A) -> T:
        """Return the result of `do`, as `call_with_retry`; `do` closes a broken connection."""
        with self._watch():
            try:
                return await do(argument)
            except (redis.RedisError, OSError) as error:
                if not self.is_retried(error):
                    raise
            return await do(argument)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        """Refuse a call while the server is away, and note whether it answers."""
        is_trial = self._require_closed()
        token = _IS_CALLING.set(True)
        try:
            yield
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

    def _require_closed(self) -> bool:
        """Return whether the call is a trial after a failure; raise `CircuitOpenError` unless it may be made."""
        with self._lock:
            now = time.monotonic()
            if now < self._away_until:
                raise CircuitOpenError("The Redis server did not answer a moment ago.")
            if not self._away_until:
                return False
            self._away_until = now + self._trial_seconds  # if this trial hangs, another one tries later
            return True
