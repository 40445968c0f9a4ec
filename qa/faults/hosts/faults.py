"""Faults, one at a time, in the middle of a job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from qa.faults.hosts.deployment import worker_names
from qa.faults.hosts.network.namespaces import wait_until
from qa.faults.hosts.report import Row
from qa.faults.hosts.work import probed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qa.faults.hosts.deployment import Deployment
    from qa.faults.hosts.work import Job, Work

DRAWS = 1024
WORKERS = worker_names(3)
PATIENCE = 150.0  # time limit for the end of the job and the recovery, s


def wait_for_progress(work: Work, job: Job) -> None:
    """Wait until a small part of the job is done."""
    wait_until("the job is running", lambda: work.done(job) > 0, PATIENCE)


def faults(deployment: Deployment, work: Work) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield each fault by name, with the function that runs it."""

    def row(name: str, make: Callable[[], float], *, begun: bool = True) -> Row:
        """Start a job, run a fault, and record the result of both; `make` returns at the end of the fault."""
        with probed(deployment.url(), work.posterior) as probes:
            job = work.start(DRAWS) if begun else None
            if job is not None:
                wait_for_progress(work, job)
            fault_end = make()
            job = job or work.start(DRAWS)
            status = work.status(job, PATIENCE)
            heal = time.monotonic() - fault_end
            differences = _restore(deployment)
        for failure in probes.failed[:5]:
            print(f"  failed: {failure}", flush=True)
        finished = int(status == "succeeded")
        wrong = work.wrong(job) if finished else job.count
        return Row(name, 1, finished, wrong, len(probes.failed), probes.refused, probes.slowest, heal, differences)

    def vanished(name: str) -> float:
        deployment.vanish(name)
        return time.monotonic()

    def cut(name: str, seconds: float) -> float:
        machine = deployment.processes[name].machine
        machine.cut()
        time.sleep(seconds)
        machine.heal()
        return time.monotonic()

    def power_cut(name: str, seconds: float) -> float:
        deployment.vanish(name)
        time.sleep(seconds)
        deployment.add(name)
        return time.monotonic()

    def lossy(name: str, percent: int) -> float:
        deployment.processes[name].machine.lose(percent)
        return time.monotonic()

    def narrow(name: str, rate: str) -> float:
        deployment.processes[name].machine.throttle(rate)
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


def _restore(deployment: Deployment) -> str:
    """Restore machines and links; return the remaining differences."""
    for process in list(deployment.processes.values()):
        process.machine.mend()
    for name in WORKERS:
        if name not in deployment.processes:
            deployment.add(name)
    try:
        deployment.expect_workers(*WORKERS, seconds=PATIENCE)
        wait_until("ready", deployment.is_ready, PATIENCE)
    except TimeoutError as error:
        return f"{error}; the registry has {deployment.workers()}"
    return ""
