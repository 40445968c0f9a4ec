"""Retry policy for a Redis that is unreachable for a while.

During a failover (sentinels, a managed server) a server is unreachable, loading, read-only, or without its
required replicas. A worker waits, so that its task is not lost; a request fails at once, so that the client retries.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthorizationError
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_RETRIES = 2  # even with a time limit of 0, because an idle connection may be cut
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5  # seconds
_LOST = (redis.ConnectionError, redis.TimeoutError, OSError)
_PERMANENT = (redis.AuthenticationError, AuthorizationError)
_TOO_FEW_REPLICAS = "NOREPLICAS"

T = TypeVar("T")


class RetryPolicy(Retry):
    """Retry policy with a time limit.

    Parameters
    ----------
    seconds
        Transient failures are retried for so long.

    """

    def __init__(self, seconds: float) -> None:
        super().__init__(ExponentialBackoff(cap=_LONGEST_PAUSE, base=_FIRST_PAUSE), MIN_RETRIES)
        self._seconds = seconds

    def is_retried(self, error: Exception) -> bool:
        """Return whether a call is repeated after an error."""
        return is_transient(error)

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
                return do()
            except (redis.RedisError, OSError) as error:
                if not self.is_retried(error) or (is_retryable is not None and not is_retryable(error)):
                    raise
                failures += 1
                fail(*((error, failures) if with_failure_count else (error,)))
                if failures > self._retries and time.monotonic() >= until:
                    raise
                time.sleep(self._backoff.compute(failures))


def is_transient(error: Exception) -> bool:
    """Return whether a retry may succeed: an unreachable or changing server, not a refused command or password."""
    if isinstance(error, _PERMANENT):
        return False
    return isinstance(error, (*_LOST, redis.ReadOnlyError)) or (
        isinstance(error, redis.ResponseError) and _TOO_FEW_REPLICAS in str(error)  # a pipeline prefixes its command
    )
