"""Retry policy and circuit breaker for a Redis that is unreachable for a while.

During a failover a server is unreachable, loading, read-only, or lacks its required replicas. A worker waits, so that
its task is not lost. A request fails at once, so that the client tries again. After one call got no answer, further
calls fail at once, until one of them is allowed to try. Clients then get their 503 within milliseconds. Without the
circuit breaker, each request would hold a connection, and some a thread, until the socket's timeout.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthorizationError
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

MIN_RETRIES = 2  # even with a time limit of 0, because an idle connection may have been cut
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5  # seconds
_LOST = (redis.ConnectionError, redis.TimeoutError, OSError)
_PERMANENT = (redis.AuthenticationError, AuthorizationError)
_TOO_FEW_REPLICAS = "NOREPLICAS"
AWAY_SECONDS = 0.5  # calls fail at once for this long after a call without an answer
_IS_CALLING = ContextVar("is_calling", default=False)  # connecting makes a nested call within a call

A = TypeVar("A")
T = TypeVar("T")
log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # commands that configure no log report the error themselves


class RetryPolicy(Retry):
    """Retry policy with a time limit.

    Parameters
    ----------
    seconds
        Transient failures are retried for this long.
    variable
        Variable that has the server's URL, for the log.

    """

    def __init__(self, seconds: float, variable: str) -> None:
        super().__init__(ExponentialBackoff(cap=_LONGEST_PAUSE, base=_FIRST_PAUSE), MIN_RETRIES)
        self._seconds = seconds
        self.variable = variable

    def is_retried(self, error: Exception) -> bool:
        """Return whether a retry may succeed: if the server is unreachable or changing, not if it refuses a command."""
        if isinstance(error, _PERMANENT):
            return False
        return isinstance(error, (*_LOST, redis.ReadOnlyError)) or (
            isinstance(error, redis.ResponseError)
            and _TOO_FEW_REPLICAS in str(error)  # a pipeline puts its command before the message
        )

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., object],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,  # noqa: FBT001, FBT002 # redis-py's signature
    ) -> T:
        """Return the result of `do`; call `fail` after each failure (it disconnects)."""
        until, failures = time.monotonic() + self._seconds, 0
        while True:
            try:
                result = do()
            except (redis.RedisError, OSError) as error:
                if not self.is_retried(error) or (is_retryable is not None and not is_retryable(error)):
                    raise
                failures += 1
                fail(*((error, failures) if with_failure_count else (error,)))
                if failures > self._retries and time.monotonic() >= until:
                    raise
                if failures == self._retries + 1:
                    self.log_loss(error)
                time.sleep(self._backoff.compute(failures))
            else:
                if failures > self._retries:
                    self.log_return()
                return result

    def log_loss(self, error: Exception) -> None:
        """Log that the server does not answer."""
        log.warning("The server of %s does not answer: %s", self.variable, error)

    def log_return(self) -> None:
        """Log that the server answers again."""
        log.warning("The server of %s answers again", self.variable)


class CircuitOpenError(redis.ConnectionError):
    """The call was refused because the server did not answer a moment ago."""


class CircuitBreaker(RetryPolicy):
    """Circuit breaker for all connections of one client; a call on a broken connection is repeated at once.

    Parameters
    ----------
    seconds
        Socket timeout of the client, which limits the duration of a trial call.
    variable
        Variable that has the server's URL, for the log.

    """

    def __init__(self, seconds: float, variable: str) -> None:
        super().__init__(0.0, variable)
        self._is_away = False
        self._trial_seconds = 2 * seconds
        self._lock = threading.Lock()
        self._away_until = 0.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this object: redis-py copies its policy, and all connections share one state."""
        return self

    def is_retried(self, error: Exception) -> bool:
        """Return whether a call is repeated; not after a timeout, which has already taken seconds."""
        return isinstance(error, redis.ConnectionError | redis.ReadOnlyError)

    def call_with_retry(self, do: Callable[[], T], fail: Callable[..., object], *arguments: Any, **options: Any) -> T:
        """Return the result of `do`; call `fail` after each failure (it disconnects).

        Raises
        ------
        CircuitOpenError
            At once, if the server did not answer a moment ago.

        """
        if _IS_CALLING.get():
            return super().call_with_retry(do, fail, *arguments, **options)
        with self._watch():
            return super().call_with_retry(do, fail, *arguments, **options)

    async def call_on_loop(self, do: Callable[[A], Awaitable[T]], argument: A) -> T:
        """Return the result of the coroutine `do`, as `call_with_retry` does; `do` must close a broken connection."""
        with self._watch():
            try:
                return await do(argument)
            except (redis.RedisError, OSError) as error:
                if not self.is_retried(error):
                    raise
            return await do(argument)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        """Refuse a call while the server does not answer, and record whether it answers this call."""
        is_trial = self._require_closed()
        token = _IS_CALLING.set(True)
        try:
            yield
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            self._away_until = time.monotonic() + AWAY_SECONDS
            if not self._is_away:
                self._is_away = True
                self.log_loss(error)
            raise
        except Exception:
            self._close()  # the server answered with an error
            raise
        except BaseException:  # the call was cancelled, so the next one may try
            if is_trial:
                self._away_until = time.monotonic()
            raise
        finally:
            _IS_CALLING.reset(token)
        self._close()

    def _close(self) -> None:
        """Close the circuit: admit all calls."""
        self._away_until = 0.0
        if self._is_away:
            self._is_away = False
            self.log_return()

    def _require_closed(self) -> bool:
        """Return whether the call is a trial after a failure; raise `CircuitOpenError` unless it may be made."""
        with self._lock:
            now = time.monotonic()
            if now < self._away_until:
                raise CircuitOpenError(f"The server of {self.variable} did not answer a moment ago.")
            if not self._away_until:
                return False
            self._away_until = now + self._trial_seconds  # if this trial hangs, another call may try then
            return True
