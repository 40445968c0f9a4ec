"""How much processor time each operation costs the parts of a deployment, and which part limits 50 workers.

`python -m bench.capacity` (some minutes) measures a running service, and writes the table of docs/how-to/scaling.md. A
part that works s seconds for an operation can do at most 1 / s operations a second. Each sampler that waits for
requests costs the cache's Redis some time at every request for a single draw.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import statistics
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import redis

from bench.data import data_of
from bench.report import machine
from bench.service.deployment import running_service
from bench.service.uncached import DRAWS, run_job
from docs.figures.methods.tables import put, table
from glle_engine.linalg import LANES
from qa.frame import repeat
from tests.processes import children
from worker.base.settings import Settings
from worker.connections.clients import subscriber
from worker.connections.loop_commands import LoopCommands
from worker.connections.retry import CircuitBreaker
from worker.jobs.draw_stream import DrawBatch, DrawRequests, DrawStream
from worker.operations.embedded_redis import cache_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bench.service.deployment import Service

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "scaling.md"
WORKERS = 50
SIZES = {5_000: 12, 20_000: 4}  # points, and repetitions in a window
WINDOWS = 3  # of which each figure is the median
CALM_SECONDS = 4.0  # counters are written every three seconds
IDLE_SECONDS = 20.0
HEARTBEAT = Settings().heartbeat
FEW_WORKERS, MANY_WORKERS = 1, 4  # workers, whose difference is the cost of an idle one
REQUESTS, PAUSE = 400, 0.003  # of samplers that wait
SCRIPTS = ("eval", "fcall")  # the commands inside of scripts count, not the scripts
OWN = ("info", "client", "hello", "auth", "config")  # of this program
HEAD = (
    "operation", "points", "commands", "µs in commands", "queue server, µs", "cache server, µs", "API, ms",
    "worker, ms", "most a second", "full first", "API processes then",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one operation, or one second without operations, costs the parts of a deployment.

    Parameters
    ----------
    commands, command_seconds
        Number of Redis commands on both servers, and their time, by INFO commandstats.
    queue, cache
        Processor seconds of the main threads of the queue's and of the cache's Redis.
    api, worker
        Processor seconds of the API processes and of the workers, with all their child processes.

    """

    commands: float = 0.0
    command_seconds: float = 0.0
    queue: float = 0.0
    cache: float = 0.0
    api: float = 0.0
    worker: float = 0.0

    def plus(self, other: Cost, times: float = 1.0) -> Cost:
        """Return this cost plus `times` the `other` cost."""
        return Cost(**{name: value + times * getattr(other, name) for name, value in asdict(self).items()})

    def per(self, times: float) -> Cost:
        """Return this cost divided by a number of operations or seconds."""
        return Cost(**{name: value / times for name, value in asdict(self).items()})


def ceiling(cost: Cost, idle: Cost, waiting: float = 0.0, workers: int = WORKERS) -> tuple[float, str]:
    """Return how many operations a second a deployment can do, and the part that limits the rate.

    Parameters
    ----------
    cost
        Cost of one operation.
    idle
        Cost of one second of all workers while there is no work.
    waiting
        Seconds of the cache's Redis for each operation and each worker that waits for work.

    """
    rates = np.linspace(0.0, workers / cost.worker if cost.worker else 1 / max(cost.cache, cost.queue), 10_001)[1:]
    idle_workers = np.maximum(0.0, workers - rates * cost.worker)
    for rate, count in zip(rates.tolist(), idle_workers.tolist(), strict=True):
        busy = {
            "queue server": idle.queue + rate * cost.queue,
            "cache server": idle.cache + rate * (cost.cache + waiting * count),
        }
        if (full := max(busy, key=lambda name: busy[name])) and busy[full] >= 1:
            return rate, full
    return float(rates[-1]), "workers"


def main() -> None:
    """Measure all costs, and write the table of docs/how-to/scaling.md."""
    text = operations_table(Cost().plus(_idle_worker(), WORKERS), _waiting_sampler(), _operations())
    put(PAGE, "capacity", f"{text}\n\n`{json.dumps(machine())}`")


def operations_table(together: Cost, waiting: float, operations: Iterable[tuple[str, int, Cost]]) -> str:
    """Return a Markdown table with a row for each operation, and rows for idle workers and a waiting sampler.

    `together` is the cost of a second of 50 idle workers, `waiting` as in `ceiling`, and `operations` has names,
    numbers of points and costs.
    """
    rows = []
    for what, points, cost in operations:
        slowest, full = ceiling(cost, together, waiting if what == "a single draw" else 0.0)
        rows.append(
            [what, f"{points:,}", *_cells(cost), _number(slowest), full, _number(math.ceil(slowest * cost.api))]
        )
    rows.append([f"a second of {WORKERS} idle workers", "-", *_cells(together), "-", "-", "-"])
    rows.append(["each sampler that waits, at a request", "-", "-", "-", "-", _number(1e6 * waiting), *["-"] * 5])
    return table(HEAD, rows)


def _cells(cost: Cost) -> list[str]:
    scales = (1.0, 1e6, 1e6, 1e6, 1e3, 1e3)
    return [_number(scale * value) for scale, value in zip(scales, asdict(cost).values(), strict=True)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value > 0 else "-"


def _operations() -> Iterator[tuple[str, int, Cost]]:
    """Yield (name, number of points, cost) for each operation, from a running service."""
    with running_service(1, 1) as service:
        time.sleep(IDLE_SECONDS)  # the readers of uploads start
        idle = _measure_cost(service, partial(time.sleep, IDLE_SECONDS)).per(IDLE_SECONDS + CALM_SECONDS)
        for n, times in SIZES.items():
            for what, count, do in _requests(service, n, times):
                yield what, n, _cost(service, idle, count, do)


def _requests(service: Service, n: int, times: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Yield (name, repetitions in a window of measurement, function) for each operation on n points."""
    seeds, groups = itertools.count(n * 1000), itertools.count()
    path, singles = service.fit_synthetic("swiss_roll", n), 4 * times
    datasets = [service.upload(data_of("swiss_roll", n, next(seeds))) for _ in range(WINDOWS * times)]
    yield "a fit", times, lambda: service.posterior(datasets.pop())
    job = f"a job of {DRAWS} draws, its result as npy"
    yield job, times, lambda: run_job(service.http, path, n, DRAWS, next(seeds))
    yield "a single draw", singles, lambda: service.http.npy(f"{path}/draws/0?seed={next(seeds)}")
    for group in range(WINDOWS * singles):
        service.http.npy(f"{path}/draws/{LANES * group}")  # the other draws of its lane group are cached with it
    yield "a draw from the cache", singles, lambda: service.http.npy(f"{path}/draws/{LANES * next(groups) + 1}")


def _cost(service: Service, idle: Cost, times: int, do: Callable[[], object]) -> Cost:
    """Return the median cost of the operation `do` over several windows, without the cost of an idle service."""
    costs = []
    for _ in range(WINDOWS):
        started = time.monotonic()
        spent = _measure_cost(service, lambda: [do() for _ in range(times)])
        costs.append(spent.plus(idle, started - time.monotonic()).per(times))
    fields = {name: max(0.0, statistics.median(getattr(cost, name) for cost in costs)) for name in asdict(Cost())}
    print(times, fields, flush=True)
    return Cost(**fields)


def _measure_cost(service: Service, do: Callable[[], object]) -> Cost:
    before = _reading(service)
    do()
    time.sleep(CALM_SECONDS)
    return _reading(service).plus(before, -1.0)


def _reading(service: Service) -> Cost:
    """Return all costs of a service since its start."""
    cost = Cost(
        api=sum(map(_processor_seconds, service.up.apis())),
        worker=sum(map(_processor_seconds, service.up.workers())),
    )
    for server, url in service.urls.items():
        with redis.Redis.from_url(url) as client:
            info: dict[str, Any] = client.info("everything")
            thread = _thread_seconds(client)
        counted = {label.removeprefix("cmdstat_"): fields for label, fields in info.items() if label[:8] == "cmdstat_"}
        commands = [fields for label, fields in counted.items() if not label.startswith(SCRIPTS + OWN)]
        calls, microseconds = (sum(fields[name] for fields in commands) for name in ("calls", "usec"))
        cost = cost.plus(Cost(**{server: thread}, commands=calls, command_seconds=microseconds / 1e6))
    return cost


def _thread_seconds(client: redis.Redis) -> float:
    """Return the processor seconds of the main thread of a Redis server."""
    info: dict[str, Any] = client.info("cpu")
    return float(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"])


def _processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process and all its descendants, also of those that have ended."""
    ticks = 0
    with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile, and counted by its parent
        ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(_processor_seconds, children(pid)))


def _idle_worker() -> Cost:
    """Return what one more idle worker costs in a second: the difference of services with four workers and with one."""
    costs = []
    for workers in (FEW_WORKERS, MANY_WORKERS):
        with running_service(workers, 1, HEARTBEAT) as service:
            time.sleep(CALM_SECONDS)
            costs.append(_measure_cost(service, partial(time.sleep, IDLE_SECONDS)).per(IDLE_SECONDS + CALM_SECONDS))
    cost = costs[1].plus(costs[0], -1.0).per(MANY_WORKERS - FEW_WORKERS)
    return Cost(**{name: max(0.0, value) for name, value in asdict(cost).items()})


def _waiting_sampler() -> float:
    """Return how many seconds one more waiting sampler costs the cache's Redis at each request for a draw."""
    with tempfile.TemporaryDirectory() as folder:
        server = cache_server(Settings(data_dir=folder))
        server.spawn()
        try:
            url = server.wait().url
            one, all_ = (_request_seconds(url, samplers) for samplers in (1, WORKERS))
        finally:
            server.stop()
    return (all_ - one) / (WORKERS - 1)


def _request_seconds(url: str, samplers: int) -> float:
    """Return the seconds of the cache's Redis for a request while this number of samplers waits for requests."""

    def answer(stream: DrawStream) -> None:
        for request in stream.read(1, 1.0):
            stream.finish(DrawBatch([request]), "drawn")

    async def send() -> None:
        commands = LoopCommands(subscriber(url, "GLLE_CACHE_URL"), CircuitBreaker(1.0, "GLLE_CACHE_URL"), 1.0)
        requests = DrawRequests(commands, "reply")
        for number in range(REQUESTS):
            await requests.send(f"posterior posterior procrustes 0:{number}:1.0", {})
            await asyncio.sleep(PAUSE)
        commands.close()

    with ExitStack() as stack:
        client, *clients = (stack.enter_context(redis.Redis.from_url(url)) for _ in range(samplers + 1))
        streams = [DrawStream(one, str(number)) for number, one in enumerate(clients)]
        with repeat(*(partial(answer, stream) for stream in streams)):
            time.sleep(CALM_SECONDS)
            before = _thread_seconds(client)
            asyncio.run(send())
            spent = _thread_seconds(client) - before
        for stream in streams:
            stream.leave()
    return spent / REQUESTS


if __name__ == "__main__":
    main()
