"""`python -m qa.load.backlog`: latencies and queue server cost while 10,000 jobs wait.

Fit jobs are queued in a `glle up`. Clients then repeat a round: a filtered list, a job's status, a wait for the job.
Two probes measure `/livez` and a cached draw, and the queue server's processor time is read.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from glle_engine import NUMBERS, FitSpec
from tests.system.conftest import Up, fitted, running, synthetic
from worker.base.settings import Settings
from worker.records.ids import DEFAULT, posterior_id
from worker.stores import Stores

FILTERS = ("status=failed", "status=queued", "status=running&kind=fit", "kind=draws", "status=succeeded&limit=100")
PROBES = {"GET /livez": 0.05, "a cached draw": 0.1}  # seconds between two probe requests
ALONE_SECONDS = 15.0  # seconds of the probes without clients, as a baseline
GOALS = {"GET /livez": 0.100, "a cached draw": 0.250}  # seconds, p99


def queue_jobs(up: Up, dataset: str, count: int) -> list[str]:
    """Queue fits of a data set, each with another regularisation; return the job ids."""
    settings = replace(Settings(), redis_url=up.redis_url("GLLE_REDIS_URL"), cache_url=up.redis_url("GLLE_CACHE_URL"))
    stores = Stores.connect(settings)
    here = stores.of(DEFAULT)

    def queue(number: int) -> str:
        spec = FitSpec(reg=1e-3 * (1 + number / count)).to_dict()
        id_ = posterior_id(dataset, spec, NUMBERS)
        asked = {"dataset": dataset, "spec": spec}
        job, _ = here.jobs.create(kind="fit", claim=id_, posterior=id_, spec=asked, total=1)
        here.queue.enqueue(job)
        return job.id

    with ThreadPoolExecutor(16) as pool:  # in parallel, because each waits for the disk
        ids = list(pool.map(queue, range(count)))
    stores.close()
    return ids


class Measurements:
    """Durations of each kind of request, at the client and in the API, and status counts."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.served: defaultdict[str, list[float]] = defaultdict(list)
        self.statuses: Counter[int] = Counter()

    def record(self, kind: str, started: float, answer: httpx.Response) -> None:
        """Record a complete answer."""
        self.seconds[kind].append(time.monotonic() - started)
        self.served[kind].append(float(answer.headers["server-timing"].partition("dur=")[2]) / 1000)
        self.statuses[answer.status_code] += 1

    def report(self) -> None:
        """Print the quantiles of each kind."""
        for where, measured in (("to the client", self.seconds), ("in the API", self.served)):
            for kind, seconds in sorted(measured.items()):
                p50, p95, p99 = np.quantile(seconds, (0.5, 0.95, 0.99))
                spread = f"p50 {p50:.3f}  p95 {p95:.3f}  p99 {p99:.3f}  most {max(seconds):.3f} s"
                sys.stdout.write(f"{kind:16} {where:14} {len(seconds):6}  {spread}\n")


async def rounds(
    client: httpx.AsyncClient, seed: int, ids: list[str], wait: float, until: float, results: Measurements
) -> None:
    """List, poll and wait until a moment."""
    rng = random.Random(seed)  # noqa: S311 # for a load, not for secrets
    await asyncio.sleep(rng.random() * wait)  # staggered start
    while time.monotonic() < until:
        job = rng.choice(ids)
        for kind, path in (
            ("a filtered list", f"/v1/jobs?{rng.choice(FILTERS)}"),
            ("a look", f"/v1/jobs/{job}"),
            (f"a wait of {wait:g} s", f"/v1/jobs/{job}?wait={wait}"),
        ):
            started = time.monotonic()
            results.record(kind, started, await client.get(path))


def probe(url: str, path: str, kind: str, until: float, results: Measurements) -> None:
    """Send one request at a steady pace until a moment."""
    with httpx.Client(base_url=url, timeout=60, headers={"accept": "application/x-npy"}) as client:
        while (started := time.monotonic()) < until:
            results.record(kind, started, client.get(path))
            time.sleep(max(0.0, started + PROBES[kind] - time.monotonic()))


def load(url: str, draw: str, ids: list[str], wait: float, seconds: float, clients: int) -> Measurements:
    """Run clients and probes; return the recorded answers."""
    results, until = Measurements(), time.monotonic() + seconds

    async def crowd() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
            await asyncio.gather(*(rounds(client, seed, ids, wait, until, results) for seed in range(clients)))

    with ThreadPoolExecutor(2) as pool:
        probes = [
            pool.submit(probe, url, path, kind, until, results)
            for kind, path in (("GET /livez", "/livez"), ("a cached draw", draw))
        ]
        asyncio.run(crowd())
        for future in probes:
            future.result()
    return results


def main() -> int:
    """Run the program, print the figures, and return 1 if a goal is missed or an answer was an error."""
    parser = argparse.ArgumentParser(prog="python -m qa.load.backlog", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--wait", type=float, default=2.0, help="wait of each round in seconds; 0: as fast as possible")
    parser.add_argument("--points", type=int, default=5000, help="points of the queued fits")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    write = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        fields = {"GLLE_WORKERS": str(options.workers), "GLLE_HEARTBEAT": "5"}
        with running(Path(folder), **fields) as up, httpx.Client(base_url=up.url, timeout=60) as client:
            draw = f"{fitted(client, synthetic(client, 1000))}/draws/0"
            client.get(f"{draw}?wait=30").raise_for_status()
            started = time.monotonic()
            ids = queue_jobs(up, synthetic(client, options.points), options.jobs)
            write(f"{options.jobs} jobs queued in {time.monotonic() - started:.1f} s\n")
            write("without clients:\n")
            load(up.url, draw, ids, options.wait, ALONE_SECONDS, 0).report()
            server = up.redis("GLLE_REDIS_URL")
            waiting, before, started = _waiting(client), server.info(), time.monotonic()
            measured = load(up.url, draw, ids, options.wait, options.seconds, options.clients)
            spent, after = time.monotonic() - started, server.info()
            write(f"with {options.clients} clients:\n")
            write(f"waiting tasks: {waiting} at the start, {_waiting(client)} at the end\n")
            cpu = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
            commands = after["total_commands_processed"] - before["total_commands_processed"]
            write(f"queue server: {cpu / spent:.2f} cores, {commands / spent:.0f} commands/s, {_mib(after)} MiB\n")
    measured.report()
    write(f"answers: {dict(measured.statuses)}\n")
    missed = [kind for kind, goal in GOALS.items() if np.quantile(measured.seconds[kind], 0.99) > goal]
    missed += ["queue server below one core"] if cpu > spent else []
    write(f"missed: {', '.join(missed) or 'nothing'}\n")
    return 1 if missed or measured.statuses.keys() - {200} else 0


def _waiting(client: httpx.Client) -> Any:
    return client.get("/readyz").raise_for_status().json()["queue_length"]


def _mib(info: dict[str, Any]) -> int:
    return int(info["used_memory"]) >> 20


if __name__ == "__main__":
    sys.exit(main())
