"""Clients of the two Redis: of one server, of a master that sentinels know, of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from worker.base.settings import Settings, SettingsError
from worker.connections.cluster import Cluster
from worker.connections.retry import RetryPolicy
from worker.connections.urls import Address, address

if TYPE_CHECKING:
    from typing import Any

READ_SIZE = 2**20  # of arrays: redis-py's 32 KB halves the speed of large values
RECORD_SIZE = 2**16
ANSWER_SECONDS = 5.0  # for which a server may be silent
CONNECT_SECONDS = 2.0
SENTINEL_SECONDS = 1.0  # a sentinel that is away costs so long, once: the one that answered is asked first


def connect_queue(settings: Settings, seconds: float = ANSWER_SECONDS, retry: Retry | None = None) -> redis.Redis:
    """Return a client of the queue's Redis.

    Parameters
    ----------
    seconds
        For which it may be silent.
    retry
        What is tried again, and for how long; by default a broken connection, at once.

    Raises
    ------
    SettingsError
        When its URL is missing or malformed, or names a cluster.

    """
    where = _address(settings.redis_url, "GLLE_REDIS_URL")
    if where.kind == "cluster":
        raise SettingsError(
            "GLLE_REDIS_URL cannot be a cluster: a task and its job change together, on one server. "
            "Name one server, or one that sentinels know (docs/how-to/redis.md); GLLE_CACHE_URL may be a cluster."
        )
    options = {"socket_timeout": seconds, "socket_read_size": RECORD_SIZE}
    return _connect(where, "GLLE_REDIS_URL", options, retry or RetryPolicy(0.0))


def connect_cache(settings: Settings, seconds: float = ANSWER_SECONDS, retry: Retry | None = None) -> redis.Redis:
    """Return a client of the cache's Redis, a cluster's as well; as `connect_queue`."""
    where = _address(settings.cache_url, "GLLE_CACHE_URL")
    options = {"socket_timeout": seconds, "socket_read_size": READ_SIZE}
    return _connect(where, "GLLE_CACHE_URL", options, retry or RetryPolicy(0.0))


def _address(url: str, variable: str) -> Address:
    if not url:
        raise SettingsError(f"{variable} is not set. Set it to the Redis to use, or start `glle up`.")
    try:
        return address(url)
    except ValueError as error:
        raise SettingsError(f"{variable} is not a Redis URL: {error}") from error


def _connect(where: Address, variable: str, options: dict[str, Any], patience: Retry) -> redis.Redis:
    options = {"socket_connect_timeout": CONNECT_SECONDS, **options}
    try:
        if where.kind == "cluster":
            return _cluster(where, options, patience)
        if where.kind == "sentinel":
            made = _master(where, options, patience)
        else:
            made = redis.Redis.from_url(where.url, **options, retry=patience)
        made.connection_pool.make_connection()  # sends nothing, but knows the parameters
    except (TypeError, ValueError, redis.RedisError) as error:
        raise SettingsError(f"{variable} is not a Redis URL: {error}") from error
    return made


class _MasterConnection(SentinelManagedConnection):
    """A connection to whoever is the master now, as redis-py's is meant to be."""

    def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 # redis-py's signature
        """Connect; redis-py connects a connection that broke to the master of before, dead or not."""
        if self._sock is None:
            self.host, self.port = self.connection_pool.get_master_address()
        super().connect_check_health(check_health=check_health, retry_socket_connect=False)

    def _connect_retry(self) -> None:
        self.connect_check_health(check_health=self.connection_pool.check_connection)

    def read_response(self, disable_decoding: bool = False, **options: Any) -> Any:  # noqa: FBT001, FBT002 # redis-py's signature
        """Return a reply; hang up when a signal interrupts it, as redis-py's others do.

        Left open, the connection would give the rest of that reply for the answer to the next command.
        """
        return super().read_response(disable_decoding, **{"disconnect_on_error": True, **options})


class _EncryptedMasterConnection(_MasterConnection, SentinelManagedSSLConnection):
    """The same, with TLS."""


def _master(where: Address, options: dict[str, Any], patience: Retry) -> redis.Redis:
    """Return a client of the master, asked for anew at every connection."""
    asking = {
        "socket_timeout": SENTINEL_SECONDS,
        "socket_connect_timeout": SENTINEL_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # the next one is asked
        **{name: value for name, value in where.options.items() if name.startswith("ssl_")},
        **where.login,
    }
    sentinels = Sentinel(where.hosts, sentinel_kwargs={**asking, "ssl": where.encrypted})  # type: ignore[no-untyped-call] # redis-py's
    made = sentinels.master_for(  # type: ignore[no-untyped-call] # redis-py's
        where.service,
        connection_class=_EncryptedMasterConnection if where.encrypted else _MasterConnection,
        retry=patience,
        **{**options, **where.options},
    )
    return cast("redis.Redis", made)


def _cluster(where: Address, options: dict[str, Any], patience: Retry) -> redis.Redis:
    told = {name: value for name, value in {**options, **where.options}.items() if name != "db"}

    def connect() -> RedisCluster:
        return RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in where.hosts],  # type: ignore[no-untyped-call] # redis-py's
            require_full_coverage=False,  # what the other servers hold is there
            retry=Retry(NoBackoff(), 1),  # after it has asked for the nodes anew; ours has the patience
            ssl=where.encrypted,
            **told,
        )

    return cast("redis.Redis", Cluster(connect, patience))
