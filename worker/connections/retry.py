"""Patience with a Redis that is away for a while: what passes by itself is tried again, for a given time.

While a replica becomes the master (sentinels, a cluster, a managed server) a server is away, or still loading, or
read-only, or without the replicas that it must have. A worker waits for that to pass, so that its task is not lost; a
request is told at once to come again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthorizationError, ClusterDownError, RedisClusterException, TryAgainError
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST = 2  # tries again even without patience: a connection that has idled may have been cut
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
_LOST = (redis.ConnectionError, redis.TimeoutError, OSError)
_SERVERS = (redis.ReadOnlyError, ClusterDownError, TryAgainError, RedisClusterException)
_FOR_GOOD = (redis.AuthenticationError, AuthorizationError)
_TOO_FEW_REPLICAS = "NOREPLICAS"

T = TypeVar("T")


class RetryPolicy(Retry):
    """redis-py's policy of trying again, by the clock.

    Parameters
    ----------
    seconds
        Time after which a failure is raised; before it, whatever `is_transient` is tried again.

    """

    def __init__(self, seconds: float) -> None:
        super().__init__(ExponentialBackoff(cap=_LONGEST_PAUSE, base=_FIRST_PAUSE), LEAST)
        self._seconds = seconds

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., object],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,  # noqa: FBT001, FBT002 # redis-py's signature
    ) -> T:
        """Return what `do` returns, once it does; `fail` is told of each failure (it hangs up)."""
        until, failures = time.monotonic() + self._seconds, 0
        while True:
            try:
                return do()
            except (redis.RedisError, RedisClusterException, OSError) as error:
                if not is_transient(error) or (is_retryable is not None and not is_retryable(error)):
                    raise
                failures += 1
                fail(*((error, failures) if with_failure_count else (error,)))
                if failures > self._retries and time.monotonic() >= until:
                    raise
                time.sleep(self._backoff.compute(failures))


def is_transient(error: Exception) -> bool:
    """Say whether a failure passes by itself: a server that is away or changes, not a command or a password refused."""
    if isinstance(error, _FOR_GOOD):
        return False
    return isinstance(error, (*_LOST, *_SERVERS)) or (
        isinstance(error, redis.ResponseError) and _TOO_FEW_REPLICAS in str(error)  # a pipeline says its command first
    )
