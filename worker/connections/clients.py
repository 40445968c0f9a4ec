"""Clients of the two Redis servers, the queue's and the cache's, made from the URLs in the settings.

    redis://user:password@host:6379/0            rediss:// with TLS, unix:///path for a socket

In the queue's URL, `?replicas=1` is the number of replicas that must have a job before the job is accepted. All other
parameters are parameters of redis-py, such as `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`. If the master can
change, the URL needs an address that stays: a name in DNS, or a proxy that follows the master (docs/how-to/storage.md).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import redis
from redis import asyncio as redis_asyncio
from redis.connection import parse_url
from redis.exceptions import AuthorizationError

from worker.base.settings import Settings, SettingsError
from worker.connections.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.retry import Retry

READ_BYTES = 2**20  # a client reads this many bytes at a time; redis-py's 32 KB halves the speed of large values
RECORD_SIZE = 2**16  # the queue's client reads this many bytes at a time, because records are small
SOCKET_TIMEOUT_SECONDS = 5.0  # time limit for each reply of a server
CONNECT_SECONDS = 2.0
# Without this option, each connection reads redis-py's version from disk, which takes as long as a hundred commands.
_UNNAMED: dict[str, Any] = {"driver_info": None}
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_LOGIN = "the password or user name has a character reserved in URLs. Write / as %2F, # as %23, ? as %3F, [ as %5B."


def connect_queue(
    settings: Settings, seconds: float = SOCKET_TIMEOUT_SECONDS, retry: Retry | None = None
) -> redis.Redis:
    """Return a client of the queue's Redis; nothing is sent to the server yet.

    Parameters
    ----------
    seconds
        Socket timeout.
    retry
        Retry policy; by default a command is repeated at once if its connection is broken.

    Raises
    ------
    SettingsError
        If the URL is missing or malformed, or names a certificate or key file that cannot be read.

    """
    url, _ = _parse(settings.redis_url, "GLLE_REDIS_URL")
    return _connect(url, "GLLE_REDIS_URL", seconds, RECORD_SIZE, retry)


def connect_cache(
    settings: Settings, seconds: float = SOCKET_TIMEOUT_SECONDS, retry: Retry | None = None
) -> redis.Redis:
    """Return a client of the cache's Redis; parameters and errors are the same as for `connect_queue`."""
    url, replicas = _parse(settings.cache_url, "GLLE_CACHE_URL")
    if replicas:
        raise SettingsError(
            "GLLE_CACHE_URL has the parameter replicas=, which only GLLE_REDIS_URL can have, because a cache may be "
            "lost. Remove replicas=."
        )
    return _connect(url, "GLLE_CACHE_URL", seconds, READ_BYTES, retry)


def require_login(settings: Settings) -> list[str]:
    """Check user and password of both Redis servers, and return which of the servers do not answer yet.

    A server is named by the environment variable with its URL: GLLE_REDIS_URL or GLLE_CACHE_URL.

    Raises
    ------
    SettingsError
        If a server refuses the user or the password.

    """
    away = []
    for variable, connect in (("GLLE_REDIS_URL", connect_queue), ("GLLE_CACHE_URL", connect_cache)):
        try:
            with connect(settings) as client:
                client.ping()
        except (redis.AuthenticationError, AuthorizationError) as error:
            message = f"The server of {variable} refuses the login ({error}). Correct user and password in {variable}."
            raise SettingsError(message) from error
        except (redis.RedisError, OSError):
            away.append(variable)
    return away


def subscriber(url: str, variable: str) -> Callable[[], redis_asyncio.Redis]:
    """Return a function that connects to a server by redis.asyncio, without a socket timeout, for subscriptions.

    `variable` is the name of the environment variable with the URL, for error messages.
    """
    url, _ = _parse(url, variable)
    # With a timeout redis-py calls `asyncio.wait_for`, which loses cancellations in Python 3.11.
    options: dict[str, Any] = {"socket_timeout": None, "protocol": 2}  # with RESP3, redis-py logs each message
    options |= {"socket_connect_timeout": CONNECT_SECONDS, **_UNNAMED}
    return lambda: redis_asyncio.Redis.from_url(url, **options)


def replicas_of(settings: Settings) -> int:
    """Return the number of replicas of the queue's Redis that must have a job before the job is accepted."""
    return _parse(settings.redis_url, "GLLE_REDIS_URL")[1]


def _connect(url: str, variable: str, seconds: float, read_size: int, retry: Retry | None) -> redis.Redis:
    options = {"socket_timeout": seconds, "socket_read_size": read_size, "socket_connect_timeout": CONNECT_SECONDS}
    try:
        client = redis.Redis.from_url(url, **options, **_UNNAMED, retry=retry or RetryPolicy(0.0, variable))
        client.connection_pool.make_connection()  # checks the parameters without sending anything
    except (TypeError, ValueError, redis.RedisError) as error:
        raise SettingsError(f"{variable} is not a Redis URL: {error}") from error
    return client


def _parse(url: str, variable: str) -> tuple[str, int]:
    """Return the URL without its parameter `replicas`, and the number of replicas; raise `SettingsError` if invalid."""
    if not url:
        raise SettingsError(f"{variable} is not set. Set it to the Redis to use, or start `glle up`.")
    try:
        url, replicas = _without_replicas(url)
        _require_valid(url)
    except ValueError as error:
        raise SettingsError(f"{variable} is not a Redis URL: {error}") from error
    return url, replicas


def _without_replicas(url: str) -> tuple[str, int]:
    """Return a URL without the parameter `replicas`, which redis-py does not know; and the parameter's value, or 0."""
    place, _, query = url.partition("?")
    fields = query.split("&") if query else []
    values = [field.removeprefix("replicas=") for field in fields if field.startswith("replicas=")]
    if any(not (value.isascii() and value.isdecimal()) for value in values):
        raise ValueError("the parameter replicas= is not a number. Write, for example, ?replicas=1.")
    rest = "&".join(field for field in fields if not field.startswith("replicas="))
    return f"{place}?{rest}" if rest else place, int(values[-1]) if values else 0


def _require_valid(url: str) -> None:
    """Raise ValueError for a URL that redis-py refuses, a database that is not a number, or an unreadable file.

    Otherwise redis-py would use database 0 in place of a name, and with an unreadable certificate or key file every
    request would fail. Error messages of Python that may quote the password are replaced.
    """
    try:
        options = parse_url(url)  # type: ignore[no-untyped-call] # redis-py's
    except ValueError as error:
        if "@" in url and not str(error).startswith(("Redis URL must", "Invalid value for")):
            raise ValueError(_LOGIN) from None
        raise
    path = urlsplit(url).path.strip("/")
    if path and not {"db", "path"} & set(options):
        raise ValueError(_LOGIN if "@" in path else f"the database {path!r} is not a number. Write, for example, /0.")
    for name in _FILES:
        if name in options and not os.access(options[name], os.R_OK):
            raise ValueError(f"the file {options[name]} of {name}= cannot be read. Check the path and its permissions.")
