"""Throughput by number of machines: a job of 256 draws, each machine with a share of a core."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from qa.faults.hosts.deployment import worker_names
from qa.faults.hosts.network.namespaces import wait_until
from qa.report import aligned
from worker.records.draws import DrawsSpec
from worker.records.sharding import SHARD_SECONDS

if TYPE_CHECKING:
    from qa.faults.hosts.deployment import Deployment
    from qa.faults.hosts.work import Work

DRAWS, WARM_UPS = 256, 2
LONG_DRAWS = 3072  # two minutes for the first hosts alone
SECONDS = 600.0
SERVERS = ("queue", "cache")


@dataclass(frozen=True)
class Figure:
    """Result of one job.

    Parameters
    ----------
    cpu
        Processor seconds of the workers; of the API, queue and cache together.
    round_trips
        Commands to the two servers.
    nbytes
        Bytes over the links of the workers.

    """

    hosts: int
    seconds: float
    cpu: float
    cpu_of_others: float
    round_trips: int
    nbytes: int


def throughput(deployment: Deployment, work: Work, hosts: tuple[int, ...], runs: int) -> tuple[list[Figure], float]:
    """Return `runs` jobs for each number of worker machines, and the engine's processor seconds for one job.

    An added machine has the share in `deployment.quotas`. The last number in `hosts` remains.
    """
    figures = []
    for many in hosts:
        names = worker_names(many)
        deployment.set_workers(*names)
        for _ in range(WARM_UPS):  # each worker then has the posterior in memory
            work.status(work.start(DRAWS), 300)
        figures += [_measured(deployment, work, names) for _ in range(runs)]
    return figures, median(work.engine_seconds(DRAWS) for _ in range(3))


def _measured(deployment: Deployment, work: Work, names: tuple[str, ...]) -> Figure:
    others = ("api-1", *SERVERS)

    def cpu(machines: tuple[str, ...]) -> float:
        return sum(deployment.processes[name].machine.cpu_seconds() for name in machines)

    def commands() -> int:
        return sum(int(deployment.redis(name).info("stats")["total_commands_processed"]) for name in SERVERS)

    def nbytes() -> int:
        return sum(deployment.processes[name].machine.bytes_over_link() for name in names)

    before = cpu(names), cpu(others), commands(), nbytes()
    started = time.monotonic()
    job = work.start(DRAWS)
    status = work.status(job, 300)
    seconds = time.monotonic() - started
    assert status == "succeeded", status
    after = cpu(names), cpu(others), commands(), nbytes()
    selected, their, sent, network_bytes = (now - then for now, then in zip(after, before, strict=True))
    return Figure(len(names), seconds, selected, their, int(sent), int(network_bytes))


def shards(n: int) -> int:
    """Return the number of shards of the job."""
    return DrawsSpec(
        n=n, p=2, count=DRAWS, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="procrustes",
        draw_seconds=1e-6 * n, shard_seconds=SHARD_SECONDS,
    ).shards  # fmt: skip


def table(figures: list[Figure], alone: float, n: int, share: float) -> str:
    """Return the medians as a table."""
    head = (
        "worker hosts", "seconds", "draws/s", "times one host", "their share in use, %", "CPU of workers, s",
        "of API and servers, s", "overhead a shard, ms", "round trips a shard", "KB a draw over the links",
    )  # fmt: skip
    lines: list[tuple[object, ...]] = [head]
    baseline = 0.0
    pieces = shards(n)
    for hosts in sorted({figure.hosts for figure in figures}):
        selected = [figure for figure in figures if figure.hosts == hosts]
        seconds, cpu = median(f.seconds for f in selected), median(f.cpu for f in selected)
        baseline = baseline or seconds
        lines.append(
            (
                str(hosts),
                f"{seconds:.2f}",
                f"{DRAWS / seconds:.0f}",
                f"{baseline / seconds:.2f}",
                f"{100 * median(f.cpu / (share * hosts * f.seconds) for f in selected):.0f}",
                f"{cpu:.2f}",
                f"{median(f.cpu_of_others for f in selected):.2f}",
                f"{1000 * (cpu - alone) / pieces:.0f}",
                f"{median(f.round_trips for f in selected) / pieces:.0f}",
                f"{median(f.nbytes for f in selected) / DRAWS / 1000:.1f}",
            )
        )
    result = f"{DRAWS} draws of {n} points, {pieces} shards; {share:g} of a core for each worker host"
    return f"{result}; the engine alone: {alone:.2f} s of CPU\n{aligned(lines)}"


@dataclass(frozen=True)
class Joined:
    """A job, and the worker hosts that joined during it.

    Parameters
    ----------
    hosts, then
        Number of worker hosts at the start and at the end.
    before, after
        Draws per second before and after the other hosts registered.
    late
        Number of draws done at that moment.
    wrong
        Draws that differ from the engine's in any bit.

    """

    hosts: int
    then: int
    before: float
    after: float
    late: int
    draws: int
    wrong: int

    def report(self) -> str:
        """Return the result as a sentence."""
        return (
            f"{self.draws} draws by {self.hosts} worker hosts: {self.before:.1f} draws/s; by {self.then}, from draw "
            f"{self.late} on: {self.after:.1f} draws/s, {self.after / self.before:.2f} times; {self.wrong} wrong bits"
        )


def joined(deployment: Deployment, work: Work, hosts: int, then: int) -> Joined:
    """Start a job, then more worker hosts, and measure the speed-up."""
    deployment.set_workers(*worker_names(hosts))
    for _ in range(WARM_UPS):
        work.status(work.start(DRAWS), SECONDS)
    job = work.start(LONG_DRAWS)
    wait_until("the job is running", lambda: work.done(job) > 0, SECONDS)
    started, first = time.monotonic(), work.done(job)
    deployment.set_workers(*worker_names(then))
    joined_at, late = time.monotonic(), work.done(job)
    status = work.status(job, SECONDS)
    ended = time.monotonic()
    assert status == "succeeded", status
    before, after = (late - first) / (joined_at - started), (LONG_DRAWS - late) / (ended - joined_at)
    return Joined(hosts, then, before, after, late, LONG_DRAWS, work.wrong(job))
