"""The service as separate processes with meters: processor time, traffic, and stored bytes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from service.cli import BLAS_VARIABLES
from service.cli.main import listen
from worker.base.settings import Settings
from worker.execution import process_guard
from worker.observability.counters import Counters
from worker.observability.live_workers import live_workers
from worker.operations.embedded_redis import Server, cache_server, queue_server

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
TICK = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 60.0
CACHE_BYTES = 4 * 2**30
_META = ("info", "hello", "client", "memory", "config", "scan", "auth")  # commands of the meter itself

Reading = dict[str, float]


@dataclass
class Deployment:
    """A running service.

    Attributes
    ----------
    url : str
        URL of the API.
    queue, cache : redis.Redis
        Clients of its servers.
    folder : Path
        Data folder.
    processes : dict
        API and workers by name.

    """

    url: str
    queue: redis.Redis
    cache: redis.Redis
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def reading(self) -> Reading:
        """Return every meter; counters only grow, the others are sizes."""
        meters: Reading = {"tasks": self._tasks()}
        for kind in ("api", "worker"):
            processes = [process for name, process in self.processes.items() if name.startswith(kind)]
            meters[f"{kind}_cpu"] = sum(cpu_seconds(process.pid) for process in processes)
        for name, client in (("queue", self.queue), ("cache", self.cache)):
            info: dict[str, Any] = client.info("everything")
            commands = {what: label for what, label in info.items() if what.startswith("cmdstat_")}
            own = {what for what in commands if what.removeprefix("cmdstat_").partition("|")[0] in _META}
            meters |= {
                f"{name}_cpu": info["used_cpu_user"] + info["used_cpu_sys"],
                f"{name}_commands": sum(label["calls"] for what, label in commands.items() if what not in own),
                f"{name}_in": info["total_net_input_bytes"],
                f"{name}_out": info["total_net_output_bytes"],
                f"{name}_aof": info.get("aof_current_size", 0),
            }
        return meters

    def _tasks(self) -> int:
        """Return the number of tasks ever started."""
        spreads = Counters(self.queue).read()[1]
        return sum(
            sum(spread.counts)
            for series, spread in spreads.items()
            if series[0] == "task_seconds" and series[-1] == "queued"
        )

    def calm(self) -> None:
        """Wait until the workers have written their counters, which happens after the end of a task."""
        before = -1.0
        while (now := cpu_total(self)) - before > 2 / TICK:
            before = now
            time.sleep(0.15)


def cpu_total(deployment: Deployment) -> float:
    """Return the processor seconds of all workers."""
    return sum(cpu_seconds(process.pid) for name, process in deployment.processes.items() if name.startswith("worker"))


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds of a process, its descendants, and those that have ended, such as work-horses."""
    ticks = 0
    for process in tree(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile, and counted by its parent
            result = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, result[11:15]))
    return ticks / TICK


def tree(pid: int) -> list[int]:
    """Return the pids of a process and its descendants, such as the sampler of a worker."""
    pids = [pid]
    for process in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pids += [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return pids


@contextlib.contextmanager
def running(workers: int, **changed: Any) -> Iterator[Deployment]:
    """Run two servers, one API process and this number of workers; stop them in order."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glle-capacity-")))
        changed = {"cache_bytes": CACHE_BYTES, "queue_bytes": 2 * 2**30, **changed}
        settings = Settings(data_dir=str(folder), workers=workers, log_level="warning", **changed)
        servers = [queue_server(settings), cache_server(settings)]
        for server in servers:
            server.spawn()
            stack.callback(server.stop)
        queue, cache = (_client(stack, server) for server in servers)
        sock = stack.enter_context(listen("127.0.0.1", 0))
        deployment = Deployment(f"http://127.0.0.1:{sock.getsockname()[1]}", queue, cache, folder)
        environment = {
            **os.environ,
            **settings.to_env(),
            "GLLE_REDIS_URL": servers[0].url,
            "GLLE_CACHE_URL": servers[1].url,
            "PYTHONPATH": str(ROOT),
            **dict.fromkeys(BLAS_VARIABLES, "1"),
        }
        names = ["api", *(f"worker-{number}" for number in range(1, workers + 1))]
        for name in names:
            arguments = ["serve", "--fd", str(sock.fileno())] if name == "api" else ["worker", "--name", name]
            process = _spawn(arguments, environment, sock.fileno())
            stack.callback(_stop, process)
            deployment.processes[name] = process
        _wait_until_ready(deployment, workers)
        yield deployment


def _client(stack: contextlib.ExitStack, server: Server) -> redis.Redis:
    client = redis.Redis.from_url(server.wait().url)
    stack.callback(client.close)
    return client


def _spawn(arguments: list[str], environment: dict[str, str], descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 # this Python
        [sys.executable, "-m", "service.cli", *arguments],
        env=environment,
        pass_fds=(descriptor,),
        start_new_session=True,
        preexec_fn=process_guard.preexec(signal.SIGTERM),  # noqa: PLW1509 # ends with this process
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until_ready(deployment: Deployment, workers: int) -> None:
    """Wait until every worker is registered and the API answers."""
    import httpx

    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.get(f"{deployment.url}/readyz", timeout=2, trust_env=False)
            if answer.status_code == 200 and len(live_workers(deployment.queue)) == workers:
                return
        time.sleep(0.1)
    raise RuntimeError("The service did not become ready.")
