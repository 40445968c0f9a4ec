"""Faults, one at a time, in the middle of a job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from qa.faults.hosts.deployment import worker_names
from qa.faults.hosts.network.namespaces import wait_until
from qa.faults.hosts.report import Row
from qa.faults.hosts.work import Prober

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qa.faults.hosts.deployment import Deployment
    from qa.faults.hosts.work import Job, Work

DRAWS = 1024
WORKERS = worker_names(3)
PATIENCE = 150.0  # time limit for the end of the job and the recovery, s


def in_the_middle(work: Work, job: Job) -> None:
    """Wait until a small part of the job is done."""
    wait_until("the job is running", lambda: work.done(job) > 0, PATIENCE)


def faults(here: Deployment, work: Work) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield each fault by name, with the function that runs it."""

    def row(name: str, make: Callable[[], float], *, begun: bool = True) -> Row:
        """Start a job, run a fault, and record the result of both; `make` returns at the end of the fault."""
        with Prober(here.url(), work.posterior) as prober:
            job = work.start(DRAWS) if begun else None
            if job is not None:
                in_the_middle(work, job)
            over = make()
            job = job or work.start(DRAWS)
            status = work.status(job, PATIENCE)
            heal = time.monotonic() - over
            left = _as_it_was(here)
        for failure in prober.failed[:5]:
            print(f"  failed: {failure}", flush=True)
        finished = int(status == "succeeded")
        wrong = work.wrong(job) if finished else job.count
        return Row(name, 1, finished, wrong, len(prober.failed), prober.refused, prober.slowest, heal, left)

    def vanished(name: str) -> float:
        here.vanish(name)
        return time.monotonic()

    def cut(name: str, seconds: float) -> float:
        machine = here.kept[name].machine
        machine.cut()
        time.sleep(seconds)
        machine.heal()
        return time.monotonic()

    def power_cut(name: str, seconds: float) -> float:
        here.vanish(name)
        time.sleep(seconds)
        here.add(name)
        return time.monotonic()

    def lossy(name: str, percent: int) -> float:
        here.kept[name].machine.lose(percent)
        return time.monotonic()

    def narrow(name: str, rate: str) -> float:
        here.kept[name].machine.throttle(rate)
        return time.monotonic()

    def scenario(name: str, make: Callable[[], float], *, begun: bool = True) -> tuple[str, Callable[[], Row]]:
        return name, lambda: row(name, make, begun=begun)

    yield scenario("nothing", time.monotonic)
    yield scenario("worker vanishes in a job", lambda: vanished("worker-1"))
    yield scenario("idle worker vanishes, then a job", lambda: vanished("worker-2"), begun=False)
    yield scenario("worker cut off for 5 s", lambda: cut("worker-1", 5))
    yield scenario("worker cut off for 40 s", lambda: cut("worker-2", 40))
    yield scenario("queue cut off for 5 s", lambda: cut("queue", 5))
    yield scenario("queue cut off for 40 s", lambda: cut("queue", 40))
    yield scenario("cache cut off for 5 s", lambda: cut("cache", 5))
    yield scenario("cache cut off for 40 s", lambda: cut("cache", 40))
    yield scenario("queue vanishes, back in 5 s", lambda: power_cut("queue", 5))
    yield scenario("cache vanishes, back in 5 s", lambda: power_cut("cache", 5))
    yield scenario("worker's link loses 5 %", lambda: lossy("worker-3", 5))
    yield scenario("queue's link loses 5 %", lambda: lossy("queue", 5))
    yield scenario("cache's link loses 5 %", lambda: lossy("cache", 5))
    yield scenario("worker's link: 2 Mbit/s", lambda: narrow("worker-3", "2mbit"))


def _as_it_was(here: Deployment) -> str:
    """Restore machines and links; return the remaining differences."""
    for kept in list(here.kept.values()):
        kept.machine.mend()
    for name in WORKERS:
        if name not in here.kept:
            here.add(name)
    try:
        here.expect_workers(*WORKERS, seconds=PATIENCE)
        wait_until("ready", here.is_ready, PATIENCE)
    except TimeoutError as error:
        return f"{error}; the registry has {here.workers()}"
    return ""
