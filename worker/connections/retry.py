"""Retry policy and circuit breaker for a Redis server that is unreachable for a while.

During a failover a server is unreachable, loading, read-only, or lacks its required replicas. A worker waits for the
server, so that its task is not lost (`RetryPolicy`). An HTTP request fails, so that its client tries again
(`CircuitBreaker`): after a call without an answer, further calls fail at once for `AWAY_SECONDS`, and then one call
tries the server again. Clients get status 503 within milliseconds. Without the circuit breaker, each request would hold
a connection, and some requests also a thread, until the socket's timeout.
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

# A call is repeated this often even with a time limit of 0, because an idle connection may have been cut.
MIN_RETRIES = 2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5  # seconds
_LOST = (redis.ConnectionError, redis.TimeoutError, OSError)
_PERMANENT = (redis.AuthenticationError, AuthorizationError)
_TOO_FEW_REPLICAS = "NOREPLICAS"
AWAY_SECONDS = 0.5  # calls fail at once for this long after a call without an answer
# True during a call. To connect, redis-py makes another call within this call. The circuit breaker leaves the inner
# call to the outer one, whose failure or success opens or closes the circuit.
_IS_CALLING = ContextVar("is_calling", default=False)

A = TypeVar("A")
T = TypeVar("T")
log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # keep warnings off stderr in commands that report the error themselves


class RetryPolicy(Retry):
    """Retry policy of redis-py that repeats a failed call until a time limit.

    Parameters
    ----------
    seconds
        Transient failures are retried for this long.
    variable
        Environment variable with the server's URL, which log lines name.

    """

    def __init__(self, seconds: float, variable: str) -> None:
        super().__init__(ExponentialBackoff(cap=_LONGEST_PAUSE, base=_FIRST_PAUSE), MIN_RETRIES)
        self._seconds = seconds
        self.variable = variable

    def is_retried(self, error: Exception) -> bool:
        """Return whether repeating a failed call may succeed.

        Repeating may help if the server is unreachable, is read-only or lacks replicas, but not if the server refuses
        the command.
        """
        if isinstance(error, _PERMANENT):
            return False
        return isinstance(error, (*_LOST, redis.ReadOnlyError)) or (
            isinstance(error, redis.ResponseError)
            and _TOO_FEW_REPLICAS in str(error)  # in a pipeline, the message begins with the command
        )

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., object],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,  # noqa: FBT001, FBT002 # redis-py's signature
    ) -> T:
        """Call `do` until it succeeds or the time limit is over, and return the result of `do`.

        After each failure, `fail` is called with the error, to close the connection; with `with_failure_count`, also
        with the number of failures. An error that `is_retried` or `is_retryable` rejects is raised at once. When the
        time limit is over, the last error is raised.
        """
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
    """A call was refused, and not sent, because the server did not answer a moment ago."""


class CircuitBreaker(RetryPolicy):
    """Circuit breaker for all connections of one client, which also repeats a call on a broken connection at once.

    Parameters
    ----------
    seconds
        Socket timeout of the client, which limits the duration of a trial call.
    variable
        Environment variable with the server's URL, which log lines name.

    """

    def __init__(self, seconds: float, variable: str) -> None:
        super().__init__(0.0, variable)
        self._is_away = False
        self._trial_seconds = 2 * seconds
        self._lock = threading.Lock()
        self._away_until = 0.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this object, so that all connections share its state although redis-py copies the retry policy."""
        return self

    def is_retried(self, error: Exception) -> bool:
        """Return whether a failed call is repeated at once: not after a timeout, which has already taken seconds."""
        return isinstance(error, redis.ConnectionError | redis.ReadOnlyError)

    def call_with_retry(self, do: Callable[[], T], fail: Callable[..., object], *arguments: Any, **options: Any) -> T:
        """Return the result of `do`, which is called again at once if its connection was broken.

        Parameters
        ----------
        do
            Sends a command, and reads the reply.
        fail
            Called after each failure, to close the connection.

        Raises
        ------
        CircuitOpenError
            At once and without calling `do`, if the server did not answer a moment ago.

        """
        if _IS_CALLING.get():
            return super().call_with_retry(do, fail, *arguments, **options)
        with self._watch():
            return super().call_with_retry(do, fail, *arguments, **options)

    async def call_on_loop(self, do: Callable[[A], Awaitable[T]], argument: A) -> T:
        """Return the result of the coroutine `do(argument)`; the same as `call_with_retry`, for an event loop.

        `do` itself must close a broken connection.
        """
        with self._watch():
            try:
                return await do(argument)
            except (redis.RedisError, OSError) as error:
                if not self.is_retried(error):
                    raise
            return await do(argument)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        """Raise `CircuitOpenError` while the circuit is open; otherwise watch the call that is made in the context.

        A call without an answer opens the circuit. Any answer of the server, errors included, closes the circuit.
        """
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
            self._close()  # the circuit: a server that answers with an error is reachable
            raise
        except BaseException:  # the call was cancelled, so the next call may try the server
            if is_trial:
                self._away_until = time.monotonic()
            raise
        finally:
            _IS_CALLING.reset(token)
        self._close()

    def _close(self) -> None:
        """Let all calls through again, because the server has answered."""
        self._away_until = 0.0
        if self._is_away:
            self._is_away = False
            self.log_return()

    def _require_closed(self) -> bool:
        """Raise `CircuitOpenError` while the circuit is open; return whether this call is the trial after a failure."""
        with self._lock:
            now = time.monotonic()
            if now < self._away_until:
                raise CircuitOpenError(
                    f"The server of {self.variable} did not answer a moment ago, so this call was not sent. Try again "
                    f"in {AWAY_SECONDS:g} s."
                )
            if not self._away_until:
                return False
            self._away_until = now + self._trial_seconds  # if this trial hangs, another call may try after this time
            return True
