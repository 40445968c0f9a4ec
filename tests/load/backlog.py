"""`python -m tests.load.backlog`: what clients see while 10,000 jobs wait, and what that costs the queue server.

Jobs of fits are queued in a `glle up`. Clients then repeat a round: a filtered list, a look at a job, a wait for it.
Meanwhile two probes measure `/livez` and a cached draw, and the queue server's own processor time is read.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from glle_engine import NUMBERS, FitSpec
from tests.system.conftest import Up, fitted, running, synthetic
from worker.identity import posterior_id
from worker.settings import Settings
from worker.stores import Stores
from worker.tenants import DEFAULT

FILTERS = ("status=failed", "status=queued", "status=running&kind=fit", "kind=draws", "status=succeeded&limit=100")
PROBES = {"GET /livez": 0.05, "a cached draw": 0.1}  # seconds between two
GOALS = {"GET /livez": 0.100, "a cached draw": 0.250}  # seconds, p99

Taken = defaultdict[str, list[float]]


def queue_jobs(up: Up, dataset: str, count: int) -> list[str]:
    """Queue fits of a data set, each with another regularisation, as requests do; return their ids."""
    settings = replace(Settings(), redis_url=up.redis_url("GLLE_REDIS_URL"), cache_url=up.redis_url("GLLE_CACHE_URL"))
    stores = Stores.connect(settings)
    here, ids = stores.of(DEFAULT), []
    for number in range(count):
        spec = FitSpec(reg=1e-3 * (1 + number / count)).to_dict()
        id_ = posterior_id(dataset, spec, NUMBERS)
        asked = {"dataset": dataset, "spec": spec}
        job, _ = here.jobs.create(kind="fit", claim=id_, posterior=id_, spec=asked, total=1)
        here.queue.enqueue(job)
        ids.append(job.id)
    stores.close()
    return ids


async def timed(client: httpx.AsyncClient, path: str, taken: list[float], answers: Taken) -> httpx.Response:
    """Ask, and note the seconds to the whole answer, and its status."""
    began = time.monotonic()
    answer = await client.get(path)
    taken.append(time.monotonic() - began)
    answers[str(answer.status_code)].append(taken[-1])
    return answer


async def client_of(url: str, seed: int, ids: list[str], wait: float, until: float, found: tuple[Taken, Taken]) -> None:
    """List, look and wait until a moment."""
    lot, (taken, answers) = random.Random(seed), found  # noqa: S311 # a load, no secret
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        while time.monotonic() < until:
            await timed(client, f"/v1/jobs?{lot.choice(FILTERS)}", taken["a filtered list"], answers)
            job = lot.choice(ids)
            await timed(client, f"/v1/jobs/{job}", taken["a look"], answers)
            await timed(client, f"/v1/jobs/{job}?wait={wait}", taken[f"a wait of {wait:g} s"], answers)


async def probe(url: str, path: str, name: str, until: float, found: tuple[Taken, Taken]) -> None:
    """Ask for one thing at a steady pace until a moment."""
    taken, answers = found
    async with httpx.AsyncClient(base_url=url, timeout=60, headers={"accept": "application/x-npy"}) as client:
        while (began := time.monotonic()) < until:
            await timed(client, path, taken[name], answers)
            await asyncio.sleep(max(0.0, began + PROBES[name] - time.monotonic()))


async def load(url: str, draw: str, ids: list[str], asked: argparse.Namespace) -> tuple[Taken, Taken]:
    """Run clients and probes; return the seconds of each kind of request, and of each status."""
    found: tuple[Taken, Taken] = (defaultdict(list), defaultdict(list))
    until = time.monotonic() + asked.seconds
    await asyncio.gather(
        probe(url, "/livez", "GET /livez", until, found),
        probe(url, draw, "a cached draw", until, found),
        *(client_of(url, seed, ids, asked.wait, until, found) for seed in range(asked.clients)),
    )
    return found


def main() -> int:
    """Run it, print the figures, and return 1 when a goal is missed or an answer was an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.backlog", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--wait", type=float, default=2.0, help="of each round, in seconds; 0: as fast as they come")
    parser.add_argument("--points", type=int, default=5000, help="of the fits that are queued")
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    say = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        told = {"GLLE_WORKERS": str(asked.workers), "GLLE_MAX_JOBS": "0", "GLLE_HEARTBEAT": "5"}
        with running(Path(folder), **told) as up, httpx.Client(base_url=up.url, timeout=60) as client:
            draw = f"{fitted(client, synthetic(client, 1000))}/draws/0"
            client.get(f"{draw}?wait=30").raise_for_status()
            began = time.monotonic()
            ids = queue_jobs(up, synthetic(client, asked.points), asked.jobs)
            say(f"{asked.jobs} jobs queued in {time.monotonic() - began:.1f} s\n")
            server = up.redis("GLLE_REDIS_URL")
            waiting, before, began = _waiting(client), server.info(), time.monotonic()
            taken, answers = asyncio.run(load(up.url, draw, ids, asked))
            spent, after = time.monotonic() - began, server.info()
            say(f"{waiting} tasks waited at the begin, {_waiting(client)} at the end\n")
            cpu = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
            commands = after["total_commands_processed"] - before["total_commands_processed"]
            say(f"queue server: {cpu / spent:.2f} cores, {commands / spent:.0f} commands/s, {_mib(after)} MiB\n")
    for name, seconds in sorted(taken.items()):
        p50, p95, p99 = np.quantile(seconds, (0.5, 0.95, 0.99))
        say(f"{name:20} {len(seconds):6}  p50 {p50:.3f}  p95 {p95:.3f}  p99 {p99:.3f}  most {max(seconds):.3f} s\n")
    say(f"answers: { ({status: len(seconds) for status, seconds in sorted(answers.items())}) }\n")
    missed = [name for name, goal in GOALS.items() if np.quantile(taken[name], 0.99) > goal]
    missed += ["queue server below one core"] if cpu > spent else []
    say(f"missed: {', '.join(missed) or 'nothing'}\n")
    return 1 if missed or answers.keys() - {"200"} else 0


def _waiting(client: httpx.Client) -> Any:
    return client.get("/readyz").raise_for_status().json()["queue_length"]


def _mib(info: dict[str, Any]) -> int:
    return int(info["used_memory"]) >> 20


if __name__ == "__main__":
    sys.exit(main())
