"""Scenarios on several machines: faults in the middle of a job, a rolling restart, machines that join; their report.

`run_all` runs inside the namespaces.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from qa.faults.hosts.deployment import PORT, Deployment, worker_names
from qa.faults.hosts.network import HOST_ADDRESS, Balancer, Network, create_cgroup, run
from qa.frame import align, write_report
from qa.load.running import Load, run_beside
from qa.load.work import OPEN, Work, probe
from tests.conftest import until

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from qa.faults.hosts.network import Machine
    from qa.load.ledger import Ledger

HEAD = ("scenario", "jobs", "finished", "wrong bits", "failed requests", "503s", "slowest answer", "seconds to heal")
DRAWS = 1024
WORKERS = worker_names(3)
PATIENCE = 150.0  # time limit for the end of the job and the recovery, s
WARM_UP_DRAWS, JOINED_DRAWS = 256, 3072  # the job takes two minutes for the first hosts alone
JOINED_SECONDS = 600.0
APIS = ("api-1", "api-2")
LOAD_SECONDS = 1800.0  # longest duration of the load
START_PATIENCE = 300.0  # time limit of a process start on a busy machine, s
BEFORE, AFTER = 5.0, 5.0  # seconds of load before and after
POINTS = 1500
MANY_POINTS = 5000
START_SECONDS = 300.0  # time limit for all processes on a busy machine, s
# Shares of a core: other machines, and worker machines.
FULL_SHARE = 1.0
FAULT_SHARE = 0.15  # a job must run long enough to be interrupted
JOINED_SHARE = 0.125  # eight workers, the API and the servers must fit on two cores
# Variables of docker-compose.yml. Keys have separate tests; the API's address is not loopback.
VARIABLES = {"GLLE_AUTH": "off", "GLLE_DRAIN": "3", "GLLE_LOG_FORMAT": "json"}


@dataclass(frozen=True)
class Row:
    """Outcome of one fault.

    Parameters
    ----------
    jobs, finished
        Jobs that were accepted, and that succeeded.
    wrong
        Draws that differ from the engine's in any bit.
    failed
        Answers other than success, or 503 with Retry-After.
    refused
        Answers of 503 with Retry-After.
    heal
        Seconds from the fault, or from its end, to the end of the job.
    left
        Differences that remain, such as a worker that is missing from the registry or in it twice.
    requests
        Number of requests of the load; 0 without one.

    """

    scenario: str
    jobs: int
    finished: int
    wrong: int
    failed: int
    refused: int
    slowest: float
    heal: float
    left: str = ""
    requests: int = 0

    @property
    def is_good(self) -> bool:
        """Return whether every column that must be zero is zero."""
        return self.jobs == self.finished and not (self.wrong or self.failed or self.left)


def table(rows: list[Row]) -> str:
    """Return the rows as a table."""
    result = [
        (
            row.scenario + (f" ({row.left})" if row.left else ""),
            row.jobs,
            row.finished,
            row.wrong,
            row.failed,
            row.refused,
            f"{row.slowest:.1f} s",
            f"{row.heal:.1f}",
        )
        for row in rows
    ]
    return align([HEAD, *result])


def faults(deployment: Deployment, work: Work) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield each fault by name, with the function that runs it."""

    def row(name: str, fault: Callable[[], object], *, begun: bool = True) -> Row:
        """Start a job, run a fault in its middle or before it, and record the result of both."""
        with probe(*work.probes()) as probes:
            job = work.start(DRAWS) if begun else None
            if (running := job) is not None:
                until(lambda: work.done(running) > 0, PATIENCE)
            fault()
            fault_end = time.monotonic()
            job = job or work.start(DRAWS)
            status = work.status(job, PATIENCE)
            heal = time.monotonic() - fault_end
            differences = _restore(deployment)
        for failure in probes.failed[:5]:
            print(f"  failed: {failure}", flush=True)
        finished = int(status == "succeeded")
        wrong = work.wrong(job) if finished else job.count
        return Row(name, 1, finished, wrong, len(probes.failed), probes.refused, probes.slowest, heal, differences)

    def machine(name: str) -> Machine:
        return deployment.processes[name].machine

    def cut(name: str, seconds: float) -> None:
        machine(name).cut()
        time.sleep(seconds)
        machine(name).heal()

    def power_cut(name: str, seconds: float) -> None:
        deployment.vanish(name)
        time.sleep(seconds)
        deployment.add(name)

    scenarios: dict[str, Callable[[], object]] = {
        "nothing": time.monotonic,
        "worker vanishes in a job": lambda: deployment.vanish("worker-1"),
        "idle worker vanishes, then a job": lambda: deployment.vanish("worker-2"),
        "worker cut off for 5 s": lambda: cut("worker-1", 5),
        "worker cut off for 40 s": lambda: cut("worker-2", 40),
        "queue cut off for 5 s": lambda: cut("queue", 5),
        "queue cut off for 40 s": lambda: cut("queue", 40),
        "cache cut off for 5 s": lambda: cut("cache", 5),
        "cache cut off for 40 s": lambda: cut("cache", 40),
        "queue vanishes, back in 5 s": lambda: power_cut("queue", 5),
        "cache vanishes, back in 5 s": lambda: power_cut("cache", 5),
        "worker's link loses 5 %": lambda: machine("worker-3").lose(5),
        "queue's link loses 5 %": lambda: machine("queue").lose(5),
        "cache's link loses 5 %": lambda: machine("cache").lose(5),
        "worker's link: 2 Mbit/s": lambda: machine("worker-3").throttle("2mbit"),
    }
    for name, fault in scenarios.items():
        yield name, partial(row, name, fault, begun="then a job" not in name)


def _restore(deployment: Deployment) -> str:
    """Restore machines and links; return the remaining differences."""
    for process in list(deployment.processes.values()):
        process.machine.mend()
    for name in WORKERS:
        if name not in deployment.processes:
            deployment.add(name)
    try:
        deployment.expect_workers(*WORKERS, seconds=PATIENCE)
        until(deployment.is_ready, PATIENCE)
    except AssertionError as error:
        return f"{error}; the registry has {deployment.workers()}"
    return ""


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


def measure_joining(deployment: Deployment, work: Work, hosts: int, then: int) -> Joined:
    """Start a job, then more worker hosts, and measure the speed-up."""
    deployment.set_workers(*worker_names(hosts))
    for _ in range(2):  # each worker then has the posterior in memory
        work.status(work.start(WARM_UP_DRAWS), JOINED_SECONDS)
    job = work.start(JOINED_DRAWS)
    until(lambda: work.done(job) > 0, JOINED_SECONDS)
    started, first = time.monotonic(), work.done(job)
    deployment.set_workers(*worker_names(then))
    joined_at, late = time.monotonic(), work.done(job)
    status = work.status(job, JOINED_SECONDS)
    ended = time.monotonic()
    assert status == "succeeded", status
    before, after = (late - first) / (joined_at - started), (JOINED_DRAWS - late) / (ended - joined_at)
    return Joined(hosts, then, before, after, late, JOINED_DRAWS, work.wrong(job))


def rolling(deployment: Deployment, work: Work) -> Row:
    """Restart every process once, under load; return the row.

    The load does not retry: a 503 or a missing answer is a failed request.
    """
    if "api-2" not in deployment.processes:
        deployment.add("api-2")
    for name in APIS:
        until(partial(deployment.is_ready, name), START_PATIENCE)
    load = Load(seconds=LOAD_SECONDS, clients=4, seed=1, rate=15.0, patience=0.0)
    with Balancer(HOST_ADDRESS, [(deployment.network.addresses[name], PORT) for name in APIS]) as balancer:
        until(lambda: len(balancer.ready) == len(APIS), 60)
        with run_beside(load, [balancer.url]) as ledger:
            time.sleep(BEFORE)
            job = work.start(DRAWS)
            started = time.monotonic()
            for name in APIS:
                deployment.replace(name)
                until(partial(deployment.is_ready, name), START_PATIENCE)
                until(lambda: len(balancer.ready) == len(APIS), 60)
            for name in WORKERS:
                deployment.replace(name, 120)
                deployment.expect_workers(*WORKERS, seconds=START_PATIENCE)
            duration = time.monotonic() - started
            time.sleep(AFTER)
        status = work.status(job, 120)
    failed = [attempt for attempt in ledger.attempts if attempt.status in {0, 503} or attempt.is_error]
    for attempt in failed[:10]:
        print(f"  failed: {attempt}")
    for fault in ledger.faults[:10]:
        print(f"  fault: {fault}")
    twice = sum(len(digests) > 1 for digests in ledger.arrays.values())
    wrong = (work.wrong(job) if status == "succeeded" else job.count) + twice + len(ledger.faults)
    unfinished = _still_open(work, ledger)
    accepted = len(ledger.jobs) + 1
    finished, slowest = accepted - unfinished - (status != "succeeded"), max(one.seconds for one in ledger.attempts)
    requests = len(ledger.attempts)
    return Row("rolling restart", accepted, finished, wrong, len(failed), 0, slowest, duration, requests=requests)


def _still_open(work: Work, ledger: Ledger) -> int:
    """Return the number of the load's jobs that do not end within 30 s."""

    def is_open(id_: str) -> bool:
        return str(work.request_json("GET", f"/v1/jobs/{id_}")["status"]) in OPEN

    open_jobs = set(ledger.jobs)
    deadline = time.monotonic() + 30
    while open_jobs and time.monotonic() < deadline:
        open_jobs = {id_ for id_ in open_jobs if is_open(id_)}
    return len(open_jobs)


def run_all(chosen: argparse.Namespace, folder: Path) -> int:
    """Create the machines, run the selected scenarios, print and store the report; return the exit code."""
    (folder / "hosts").touch()
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    if (own := create_cgroup(f"{folder.name}-tests", FULL_SHARE)) is not None:
        (own / "cgroup.procs").write_text("0")
    out = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    deployment = Deployment(folder, VARIABLES, Network())
    try:
        _share(deployment, ("queue", "cache", *APIS, *WORKERS), FULL_SHARE)
        for name in ("queue", "cache", "api-1", *WORKERS):
            deployment.add(name)
        deployment.watch()
        deployment.expect_workers(*WORKERS, seconds=START_SECONDS)
        until(deployment.is_ready, START_SECONDS)

        def is_chosen(name: str) -> bool:
            return not chosen.only or any(word in name for word in chosen.only)

        if is_chosen("joined"):
            _measure_joined(deployment, out)
        work = Work(deployment.url(), POINTS)
        rows: list[Row] = []
        restarts = [("rolling restart", partial(rolling, deployment, work))]
        for share, scenarios in ((FAULT_SHARE, faults(deployment, work)), (FULL_SHARE, restarts)):
            _share(deployment, WORKERS, share)
            for name, scenario in scenarios:
                if is_chosen(name):
                    started = time.monotonic()
                    rows.append(scenario())
                    print(f"{table(rows[-1:]).splitlines()[-1]}   ({time.monotonic() - started:.0f} s)", flush=True)
        print("\n" + table(rows), flush=True)
        write_report(out / "faults.json", [asdict(row) for row in rows])
        return int(not all(row.is_good for row in rows))
    finally:
        deployment.stop()
        for log in folder.glob("*/log"):
            shutil.copy(log, out / f"{log.parent.name}.log")


def _share(deployment: Deployment, names: Iterable[str], share: float) -> None:
    """Give each of these machines this share of a core."""
    for name in names:
        deployment.quotas[name] = create_cgroup(f"{deployment.folder.name}-{name}", share)


def _measure_joined(deployment: Deployment, out: Path) -> None:
    """Measure, print and store the speed-up by machines that join; restore the initial number afterwards."""
    names = worker_names(8)
    _share(deployment, names, JOINED_SHARE)
    joining = measure_joining(deployment, Work(deployment.url(), MANY_POINTS), 4, len(names))
    write_report(out / "joined.json", asdict(joining))
    print(joining.report() + "\n", flush=True)
    assert joining.wrong == 0, joining
    _share(deployment, names, FULL_SHARE)
    deployment.set_workers(*WORKERS)
