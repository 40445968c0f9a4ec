"""Clients of the queue's and the cache's Redis: one server, or a master behind sentinels."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, cast

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.exceptions import AuthorizationError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from worker.base.settings import Settings, SettingsError
from worker.connections.loop_commands import LoopCommands
from worker.connections.retry import RetryPolicy
from worker.connections.urls import RedisUrl, parse_redis_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.connections.circuit_breaker import CircuitBreaker

READ_SIZE = 2**20  # bytes, for arrays: redis-py's 32 KB halves the speed of large values
RECORD_SIZE = 2**16
ANSWER_SECONDS = 5.0  # socket timeout
CONNECT_SECONDS = 2.0
# Otherwise each connection reads the library's version from the disk, which takes as long as a hundred commands.
_UNNAMED: dict[str, Any] = {"driver_info": None}
SENTINEL_SECONDS = 1.0  # timeout of one sentinel; the last responsive one is asked first


def connect_queue(settings: Settings, seconds: float = ANSWER_SECONDS, retry: Retry | None = None) -> redis.Redis:
    """Return a client of the queue's Redis.

    Parameters
    ----------
    seconds
        Socket timeout.
    retry
        Retry policy; by default a broken connection is retried at once.

    Raises
    ------
    SettingsError
        If its URL is missing or malformed.

    """
    target = _parse(settings.redis_url, "GLLE_REDIS_URL")
    options = {"socket_timeout": seconds, "socket_read_size": RECORD_SIZE}
    return _connect(target, "GLLE_REDIS_URL", options, retry or RetryPolicy(0.0))


def connect_cache(settings: Settings, seconds: float = ANSWER_SECONDS, retry: Retry | None = None) -> redis.Redis:
    """Return a client of the cache's Redis; otherwise as `connect_queue`."""
    target = _parse(settings.cache_url, "GLLE_CACHE_URL")
    if target.replicas:
        raise SettingsError("GLLE_CACHE_URL cannot have replicas=: arrays are not lost, but made again. Remove it.")
    options = {"socket_timeout": seconds, "socket_read_size": READ_SIZE}
    return _connect(target, "GLLE_CACHE_URL", options, retry or RetryPolicy(0.0))


def require_login(settings: Settings) -> None:
    """Raise `SettingsError` if a server refuses the user or the password; one that is away may come later."""
    for variable, connect in (("GLLE_REDIS_URL", connect_queue), ("GLLE_CACHE_URL", connect_cache)):
        try:
            with connect(settings) as client:
                client.ping()
        except (redis.AuthenticationError, AuthorizationError) as error:
            message = f"The server of {variable} refuses the login ({error}). Correct the password in it."
            raise SettingsError(message) from error
        except (redis.RedisError, OSError):
            continue


def subscriber(client_of: str, settings: Settings) -> Callable[[], redis_asyncio.Redis]:
    """Return a function that makes a client of redis.asyncio for a subscription, which waits for messages for ever.

    Parameters
    ----------
    client_of
        ``queue`` or ``cache``: the server.

    """
    name, url = {"queue": ("REDIS", settings.redis_url), "cache": ("CACHE", settings.cache_url)}[client_of]
    target = _parse(url, f"GLLE_{name}_URL")
    # With a timeout redis-py calls `asyncio.wait_for`, which loses cancellations in Python 3.11.
    options: dict[str, Any] = {"socket_timeout": None, "protocol": 2}  # RESP3 logs each message
    options |= {"socket_connect_timeout": CONNECT_SECONDS, **_UNNAMED}
    if not target.service:
        return lambda: redis_asyncio.Redis.from_url(target.url, **options)
    options |= {"ssl": target.encrypted, **target.options}
    login = {"socket_timeout": SENTINEL_SECONDS, "ssl": target.encrypted, **target.login}
    certificates = {key: value for key, value in target.options.items() if key.startswith("ssl_")}

    def master() -> redis_asyncio.Redis:
        sentinels = AsyncSentinel(target.hosts, sentinel_kwargs={**certificates, **login})  # type: ignore[no-untyped-call] # redis-py's
        return cast("redis_asyncio.Redis", sentinels.master_for(target.service, **options))

    return master


def cache_commands(settings: Settings, breaker: CircuitBreaker, seconds: float) -> LoopCommands:
    """Return the commands of event loops to the cache's Redis; parameters as of `LoopCommands`."""
    return LoopCommands(subscriber("cache", settings), breaker, seconds)


def replicas_of(settings: Settings) -> int:
    """Return the number of replicas of the queue's Redis that must have a job before it is accepted."""
    return _parse(settings.redis_url, "GLLE_REDIS_URL").replicas


def _parse(url: str, variable: str) -> RedisUrl:
    if not url:
        raise SettingsError(f"{variable} is not set. Set it to the Redis to use, or start `glle up`.")
    try:
        return parse_redis_url(url)
    except ValueError as error:
        raise SettingsError(f"{variable} is not a Redis URL: {error}") from error


def _connect(target: RedisUrl, variable: str, options: dict[str, Any], retry: Retry) -> redis.Redis:
    options = {"socket_connect_timeout": CONNECT_SECONDS, **_UNNAMED, **options}
    try:
        if target.service:
            client = _master(target, options, retry)
        else:
            client = redis.Redis.from_url(target.url, **options, retry=retry)
        client.connection_pool.make_connection()  # checks the parameters, and sends nothing
    except (TypeError, ValueError, redis.RedisError) as error:
        raise SettingsError(f"{variable} is not a Redis URL: {error}") from error
    return client


class _Sentinels(Sentinel):
    """Sentinels, the last responsive one first."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the master's address.

        redis-py swaps entries of its list while it asks, so that concurrent calls would lose some.
        """
        view = copy(self)
        view.sentinels = list(self.sentinels)
        address = super(_Sentinels, view).discover_master(service_name)  # type: ignore[no-untyped-call] # redis-py's
        self.sentinels = view.sentinels
        return cast("tuple[str, int]", address)


class _MasterConnection(SentinelManagedConnection):
    """Connection to the current master."""

    def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 # redis-py's signature
        """Connect to the current master; redis-py reconnects a broken connection to the previous one."""
        if self._sock is None:
            self.host, self.port = self.connection_pool.get_master_address()
        super().connect_check_health(check_health=check_health, retry_socket_connect=False)

    def _connect_retry(self) -> None:
        self.connect_check_health(check_health=self.connection_pool.check_connection)

    def read_response(self, disable_decoding: bool = False, **options: Any) -> Any:  # noqa: FBT001, FBT002 # redis-py's signature
        """Return a reply; disconnect if a signal interrupts it.

        An open connection would return the rest of that reply to the next command.
        """
        return super().read_response(disable_decoding, **{"disconnect_on_error": True, **options})


class _EncryptedMasterConnection(_MasterConnection, SentinelManagedSSLConnection):
    """Connection to the current master with TLS."""


def _master(target: RedisUrl, options: dict[str, Any], retry: Retry) -> redis.Redis:
    """Return a client that asks the sentinels for the master at every connection."""
    sentinel_options = {
        "socket_timeout": SENTINEL_SECONDS,
        "socket_connect_timeout": SENTINEL_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # the next sentinel is asked
        **{name: value for name, value in target.options.items() if name.startswith("ssl_")},
        **target.login,
    }
    sentinels = _Sentinels(target.hosts, sentinel_kwargs={**sentinel_options, "ssl": target.encrypted})  # type: ignore[no-untyped-call] # redis-py's
    client = sentinels.master_for(  # type: ignore[no-untyped-call] # redis-py's
        target.service,
        connection_class=_EncryptedMasterConnection if target.encrypted else _MasterConnection,
        retry=retry,
        **{**options, **target.options},
    )
    return cast("redis.Redis", client)
