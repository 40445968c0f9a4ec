"""A Redis Cluster as the array cache uses it: a client like that of one server.

It is connected at the first command, whatever fails is a `redis.RedisError`, and a transaction is one for each key: a
value of the cache is one key, and keys lie on different servers.
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


_ADDED_UP = ("used_memory", "maxmemory", "evicted_keys")  # over the servers of a cluster
_PRIMARIES = "primaries"

Noted = tuple[str, tuple[Any, ...], dict[str, Any]]  # a command of a pipeline


class Cluster:
    """A client of a cluster.

    Parameters
    ----------
    connect
        Makes redis-py's client, which asks a node for all the others.
    patience
        With nodes that are away or change.

    """

    def __init__(self, connect: Callable[[], RedisCluster], patience: Retry) -> None:
        self._connect = connect
        self._patience = patience
        self._lock = threading.Lock()
        self._made: RedisCluster | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a command of redis-py's."""

        def command(*arguments: Any, **options: Any) -> Any:
            return self.do(lambda cluster: getattr(cluster, name)(*arguments, **options))

        return command

    def do(self, work: Callable[[RedisCluster], Any]) -> Any:
        """Return what `work` does with redis-py's client, again while nodes are away or change."""
        try:
            return self._patience.call_with_retry(lambda: work(self._client()), self._ask_anew)
        except RedisClusterException as error:  # it is no RedisError
            raise redis.ConnectionError(str(error)) from error

    def pipeline(self, *, transaction: bool = True) -> _Commands:
        """Return commands to do together; those of one key in one transaction, if one is asked for."""
        return _Commands(self, transaction=transaction)

    def scan_iter(self, **options: Any) -> Iterator[bytes]:
        """Return the keys of all servers."""
        return iter(self.do(lambda cluster: list(cluster.scan_iter(**options))))

    def info(self, *sections: str) -> dict[str, Any]:
        """Return what one of the servers says of itself, memory and evictions added up over all that hold arrays."""
        told = self.do(lambda cluster: cluster.info(*sections, target_nodes=_PRIMARIES))
        each = [told] if "redis_version" in told else list(told.values())
        totals = {name: sum(int(one.get(name, 0)) for one in each) for name in _ADDED_UP}
        policies = sorted({str(one["maxmemory_policy"]) for one in each if "maxmemory_policy" in one})
        return {**each[0], **totals, "maxmemory_policy": ", ".join(policies)}

    def ping(self) -> Any:
        """Ask all servers that hold arrays whether they answer."""
        return self.do(lambda cluster: cluster.ping(target_nodes=_PRIMARIES))

    def time(self) -> Any:
        """Return the time of one of the servers."""
        return self.do(lambda cluster: cluster.get_default_node().redis_connection.time())  # type: ignore[no-untyped-call] # redis-py's

    def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()

    def _ask_anew(self, _: Exception) -> None:
        """Ask who has which keys now; redis-py does not after every failure of a transaction."""
        if self._made is not None:
            with suppress(RedisClusterException, redis.RedisError):
                self._made.nodes_manager.initialize()

    def _client(self) -> RedisCluster:
        with self._lock:
            if self._made is None:
                self._made = self._connect()
            return self._made


class _Commands:
    """Commands noted, and sent together; noted, because redis-py's pipeline can be sent but once."""

    def __init__(self, cluster: Cluster, *, transaction: bool) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._noted: list[Noted] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._noted = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def note(*arguments: Any, **options: Any) -> None:
            self._noted.append((name, arguments, options))

        return note

    def execute(self) -> list[Any]:
        """Send the commands; return what they returned, without transactions in their order."""
        if not self._transaction:
            return self._send(self._noted)
        of: defaultdict[Any, list[Noted]] = defaultdict(list)
        for noted in self._noted:
            of[_key(noted)].append(noted)
        return [answer for together in of.values() for answer in self._send(together)]

    def _send(self, noted: list[Noted]) -> list[Any]:
        def send(cluster: RedisCluster) -> list[Any]:
            with cluster.pipeline(transaction=self._transaction) as together:  # type: ignore[no-untyped-call] # redis-py's
                for name, arguments, options in noted:
                    if name == "eval":  # its pipeline bars the method; the command is one like others
                        together.execute_command("EVAL", *arguments)
                    else:
                        getattr(together, name)(*arguments, **options)
                return list(together.execute())

        return list(self._cluster.do(send)) if noted else []


def _key(noted: Noted) -> Any:
    """Return the key that a command is about; a script names its keys after their number."""
    name, arguments, _ = noted
    return arguments[2] if name == "eval" else arguments[0]
