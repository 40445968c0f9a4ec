"""Redis Cluster client with the interface of a client of one server, for the array cache.

It connects at the first command, and each failure is a `redis.RedisError`. A transaction covers the commands of one
key: a value of the cache is one key, and keys are spread over the servers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import redis
from redis.exceptions import RedisClusterException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis.cluster import RedisCluster
    from redis.retry import Retry


_TOTALS = ("used_memory", "maxmemory", "evicted_keys")  # of INFO: summed over the servers
_PRIMARIES = "primaries"

Command = tuple[str, tuple[Any, ...], dict[str, Any]]  # name, arguments, options


class Cluster:
    """Client of a cluster.

    Parameters
    ----------
    connect
        Returns redis-py's client, which discovers the nodes.
    retry
        Retry policy for unreachable or changing nodes.

    """

    def __init__(self, connect: Callable[[], RedisCluster], retry: Retry) -> None:
        self._connect = connect
        self._retry = retry
        self._lock = threading.Lock()
        self._cluster: RedisCluster | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a command of redis-py's client."""

        def command(*arguments: Any, **options: Any) -> Any:
            return self.do(lambda cluster: getattr(cluster, name)(*arguments, **options))

        return command

    def do(self, work: Callable[[RedisCluster], Any]) -> Any:
        """Return the result of `work` with redis-py's client; retry while nodes are unreachable or change."""
        try:
            return self._retry.call_with_retry(lambda: work(self._client()), self._refresh_topology)
        except RedisClusterException as error:  # not a RedisError
            raise redis.ConnectionError(str(error)) from error

    def pipeline(self, *, transaction: bool = True) -> _Pipeline:
        """Return a pipeline; with `transaction` the commands of each key are one transaction."""
        return _Pipeline(self, transaction=transaction)

    def scan_iter(self, **options: Any) -> Iterator[bytes]:
        """Return the keys of all servers."""
        return iter(self.do(lambda cluster: list(cluster.scan_iter(**options))))

    def info(self, *sections: str) -> dict[str, Any]:
        """Return INFO of one server, with memory and evictions summed over all primaries."""
        reply = self.do(lambda cluster: cluster.info(*sections, target_nodes=_PRIMARIES))
        servers = [reply] if "redis_version" in reply else list(reply.values())
        totals = {name: sum(int(server.get(name, 0)) for server in servers) for name in _TOTALS}
        policies = sorted({str(server["maxmemory_policy"]) for server in servers if "maxmemory_policy" in server})
        return {**servers[0], **totals, "maxmemory_policy": ", ".join(policies)}

    def ping(self) -> Any:
        """Ping all primaries."""
        return self.do(lambda cluster: cluster.ping(target_nodes=_PRIMARIES))

    def time(self) -> Any:
        """Return the time of one server."""
        return self.do(lambda cluster: cluster.get_default_node().redis_connection.time())  # type: ignore[no-untyped-call] # redis-py's

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()

    def _refresh_topology(self, _: Exception) -> None:
        """Discover the nodes again, which redis-py omits after some failures of a transaction."""
        if self._cluster is not None:
            with suppress(RedisClusterException, redis.RedisError):
                self._cluster.nodes_manager.initialize()

    def _client(self) -> RedisCluster:
        with self._lock:
            if self._cluster is None:
                self._cluster = self._connect()
            return self._cluster


class _Pipeline:
    """Recorded commands, because a retry needs them again and redis-py sends its pipeline once."""

    def __init__(self, cluster: Cluster, *, transaction: bool) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._commands: list[Command] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._commands = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def record(*arguments: Any, **options: Any) -> None:
            self._commands.append((name, arguments, options))

        return record

    def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        """Send the commands; return the replies, in the order of the commands unless there are transactions."""
        if not self._transaction:
            return self._send(self._commands, raise_on_error=raise_on_error)
        by_key: defaultdict[Any, list[Command]] = defaultdict(list)
        for command in self._commands:
            by_key[_key(command)].append(command)
        return [reply for commands in by_key.values() for reply in self._send(commands)]

    def _send(self, commands: list[Command], *, raise_on_error: bool = True) -> list[Any]:
        def send(cluster: RedisCluster) -> list[Any]:
            with cluster.pipeline(transaction=self._transaction) as pipeline:  # type: ignore[no-untyped-call] # redis-py's
                for name, arguments, options in commands:
                    if name == "eval":  # redis-py's pipeline has no such method
                        pipeline.execute_command("EVAL", *arguments)
                    else:
                        getattr(pipeline, name)(*arguments, **options)
                return list(pipeline.execute(raise_on_error))

        return list(self._cluster.do(send)) if commands else []


def _key(command: Command) -> Any:
    """Return the key of a command; in EVAL it follows script and number of keys."""
    name, arguments, _ = command
    return arguments[2] if name == "eval" else arguments[0]
