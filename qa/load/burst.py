"""`python -m qa.load.burst`: 10,000 POST requests at once, first with a quota of few open jobs, then with the default.

Each request asks `glle up` for another fit or draw, as fast as possible. The program checks that

- each answer is 202, 200, or 429 or 503 with a Retry-After between 1 and 60 seconds;
- each accepted job has a record; refused requests leave nothing in Redis, and its memory does not become so full that
  no worker could register;
- `/livez` answers 200 all the time.

Durations are printed. The exit code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from qa.frame import repeat, say
from qa.load.probes import Probes, probe
from tests.system.conftest import Up, fit_posterior, running, synthetic
from worker.operations.health import FULL
from worker.records.ids import text
from worker.records.job import job_key
from worker.storage.free_space import memory_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

REFUSALS = frozenset({"quota-exceeded", "too-many-jobs", "too-many-requests", "redis-full"})
JOB_BYTES = 16 * 2**10  # maximum bytes of an accepted job in Redis: record, task, lists
SLACK_BYTES = 16 * 2**20  # further bytes that Redis may use, for connections, scripts and counters
POLL_SECONDS = 0.05
MEMORY_SECONDS = 0.25
POINTS = 60
LONGEST_SECONDS = 60  # longest Retry-After that is allowed


@dataclass
class Outcome:
    """Answers and measurements of a burst.

    Attributes
    ----------
    answers
        Number of answers by status and problem code.
    jobs
        Ids of the accepted jobs.
    retries
        Retry-After of each refusal in seconds.
    alive
        Answers of `/livez`.
    before, peak, share
        Bytes of the queue server's memory before the burst and at most, and the highest used share of its limit.
    faults
        Broken promises, as sentences.

    """

    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    jobs: list[str] = field(default_factory=list)
    retries: list[int] = field(default_factory=list)
    alive: Probes = field(default_factory=Probes)
    before: int = 0
    peak: int = 0
    share: float = 0.0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def count(self, answer: httpx.Response) -> None:
        """Count the answer to a request, and record the accepted job, the Retry-After, or a broken promise."""
        body = answer.json()
        code = str(body.get("type", "")).rpartition(":")[2]
        self.answers[answer.status_code, code] += 1
        if answer.status_code in {HTTPStatus.OK, HTTPStatus.ACCEPTED}:
            self.jobs.append(body["id"])
            return
        if answer.status_code == HTTPStatus.CREATED:  # the job ended before the answer, which is its result
            return
        retry = answer.headers.get("retry-after", "")
        if code not in REFUSALS:
            self.faults.append(f"a post was answered {answer.status_code} {code}")
        elif not retry.isdigit() or not 1 <= int(retry) <= LONGEST_SECONDS:
            self.faults.append(f"a refusal {code} has Retry-After {retry!r}")
        else:
            self.retries.append(int(retry))

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        posts = self.answers.total()
        yield f"{posts} posts in {self.seconds:.1f} s, {posts / self.seconds:.0f} a second"
        yield "answers: " + ", ".join(f"{n} x {s} {code}".strip() for (s, code), n in sorted(self.answers.items()))
        if self.retries:
            low, median, high = np.quantile(self.retries, (0.0, 0.5, 1.0))
            yield f"Retry-After: {low:.0f} to {high:.0f} s, median {median:.0f} s"
        yield f"/livez: {self.alive.answered} answers, at most {1000 * self.alive.slowest:.1f} ms"
        grown = self.peak - self.before
        yield (
            f"queue server: {grown / 2**20:.1f} MiB more, {grown / max(1, len(self.jobs)):.0f} bytes an accepted job, "
            f"at most {self.share:.1%} of its limit"
        )
        yield from self.faults


def run(up: Up, posts: int, clients: int = 100) -> Outcome:
    """Send `posts` different requests for fits and draws by `clients` connections at once; return what happened."""
    outcome = Outcome()
    with httpx.Client(base_url=up.url, timeout=60) as client:
        dataset = synthetic(client, POINTS, seed=posts)
        posterior = fit_posterior(client, dataset)
    server = up.redis("GLLE_REDIS_URL")
    outcome.before = int(server.info("memory")["used_memory"])
    with (
        repeat(lambda: _measure(server, outcome), seconds=MEMORY_SECONDS),
        probe(f"{up.url}/livez", seconds=POLL_SECONDS) as outcome.alive,
    ):
        started = time.monotonic()
        asyncio.run(_post(up.url, dataset, posterior, posts, clients, outcome))
        outcome.seconds = time.monotonic() - started
    outcome.faults += outcome.alive.failed
    if outcome.answers.total() != posts:
        outcome.faults.append(f"{posts - outcome.answers.total()} posts have no answer")
    lost, distinct = [job for job in outcome.jobs if _status(server, job) is None], len(set(outcome.jobs))
    if lost or distinct < len(outcome.jobs):
        outcome.faults.append(f"{len(lost)} accepted jobs have no record; {distinct} ids are distinct")
    if outcome.peak - outcome.before > len(outcome.jobs) * JOB_BYTES + SLACK_BYTES:
        outcome.faults.append(f"{outcome.peak - outcome.before:,} bytes for {len(outcome.jobs)} jobs")
    if outcome.share > FULL:
        outcome.faults.append(f"the queue server was filled to {outcome.share:.1%}")
    return outcome


def _status(server: redis.Redis, job: str) -> str | None:
    raw = server.hget(job_key(job), "status")
    return None if raw is None else text(raw)


async def _post(url: str, dataset: str, posterior: str, posts: int, clients: int, outcome: Outcome) -> None:
    numbers = iter(range(posts))

    async def post(client: httpx.AsyncClient) -> None:
        for number in numbers:
            path, body = _request(dataset, posterior, number, posts)
            try:
                outcome.count(await client.post(path, json=body))
            except httpx.TransportError as error:
                outcome.faults.append(f"a post has no answer: {type(error).__name__}")

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        await asyncio.gather(*(post(client) for _ in range(clients)))


def _request(dataset: str, posterior: str, number: int, posts: int) -> tuple[str, dict[str, Any]]:
    """Return path and body of a request for a fit or a draw that no other request asks for."""
    if number % 2:
        return f"{posterior}/draws", {"n_draws": 1, "seed": number}
    return "/v1/posteriors", {"dataset": dataset, "reg": 1e-3 * (2 + number / posts)}


def _measure(server: redis.Redis, outcome: Outcome) -> None:
    info = server.info("memory")
    outcome.peak = max(outcome.peak, int(info["used_memory"]))
    outcome.share = max(outcome.share, memory_share(info) or 0.0)


def main() -> int:
    """Run the bursts, and print what happened; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m qa.load.burst", description=__doc__)
    parser.add_argument("--posts", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--max-jobs", type=int, nargs="*", default=[200, 10_000])
    options = parser.parse_args()
    has_faults = False
    for max_jobs in options.max_jobs:
        with tempfile.TemporaryDirectory() as folder, running(Path(folder), GLLE_QUOTAS=f"*=jobs:{max_jobs}") as up:
            outcome = run(up, options.posts, options.clients)
        say(f"at most {max_jobs:,} open jobs:", *(f"  {line}" for line in outcome.lines()))
        has_faults |= bool(outcome.faults)
    return int(has_faults)


if __name__ == "__main__":
    sys.exit(main())
