"""Rolling restart of API processes and workers under load."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from qa.faults.hosts.composed import PORT
from qa.faults.hosts.faults import WORKERS
from qa.faults.hosts.network.balancer import Balancer
from qa.faults.hosts.network.namespaces import HOST_ADDRESS, wait_until
from qa.faults.hosts.report import Row
from qa.faults.hosts.work import OPEN
from qa.load.ledger import Ledger
from qa.load.running import Load, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from qa.faults.hosts.deployment import Deployment
    from qa.faults.hosts.work import Work

APIS = ("api-1", "api-2")
DRAWS = 1024
SECONDS = 1800.0  # longest duration of the load
PATIENCE = 300.0  # time limit of a process start on a busy machine, s
BEFORE, AFTER = 5.0, 5.0  # seconds of load before and after


def rolling(deployment: Deployment, work: Work) -> Row:
    """Restart every process once, under load; return the row.

    The load does not retry: a 503 or a missing answer is a failed request.
    """
    if "api-2" not in deployment.processes:
        deployment.add("api-2")
    for name in APIS:
        wait_until(f"{name} is ready", partial(deployment.is_ready, name), PATIENCE)
    ledger, stop = Ledger(), threading.Event()
    load = Load(seconds=SECONDS, clients=4, seed=1, rate=15.0, patience=0.0)
    with Balancer(HOST_ADDRESS, [(deployment.network.addresses[name], PORT) for name in APIS]) as balancer:
        wait_until("both are ready", lambda: len(balancer.ready) == len(APIS))
        client = threading.Thread(target=run, args=(load, [balancer.url]), kwargs={"ledger": ledger, "stop": stop})
        client.start()
        time.sleep(BEFORE)
        job = work.start(DRAWS)
        started = time.monotonic()
        for name in APIS:
            deployment.replace(name)
            wait_until(f"{name} is ready", partial(deployment.is_ready, name), PATIENCE)
            wait_until(f"the balancer knows of {name}", lambda: len(balancer.ready) == len(APIS))
        for name in WORKERS:
            deployment.replace(name, 120)
            deployment.expect_workers(*WORKERS, seconds=PATIENCE)
        duration = time.monotonic() - started
        time.sleep(AFTER)
        stop.set()
        client.join()
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
    name = f"rolling restart, {len(ledger.attempts)} requests"
    slowest = max(attempt.seconds for attempt in ledger.attempts)
    return Row(
        name, accepted, accepted - unfinished - (status != "succeeded"), wrong, len(failed), 0, slowest, duration
    )


def _still_open(work: Work, ledger: Ledger) -> int:
    """Return the number of the load's jobs that do not end within 30 s."""

    def is_open(id_: str) -> bool:
        return str(work.request_json("GET", f"/v1/jobs/{id_}")["status"]) in OPEN

    open_jobs = set(ledger.jobs)
    deadline = time.monotonic() + 30
    while open_jobs and time.monotonic() < deadline:
        open_jobs = {id_ for id_ in open_jobs if is_open(id_)}
    return len(open_jobs)


def rollings(deployment: Deployment, work: Work) -> list[tuple[str, Callable[[], Row]]]:
    """Return the scenario by its name, as `faults` does."""
    return [("rolling restart", lambda: rolling(deployment, work))]
