"""Kill random processes of `glle up` under a mixed load of two tenants, then check that no promise was broken.

Most kills end a process right before one of its writes, because a death between two writes leaves most behind.

`python -m qa.faults.chaos` prints a report with the kills, the recovery times and one row for each check, and writes
the report to `<out>/chaos.json`. The exit code is 1 if a check has found violations.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported; the bits of some methods depend on it

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx

from qa.faults.chaos import checks, stopping
from qa.faults.chaos.killer import RESIDENTS, Killer, parents_by_mark, recoveries
from qa.frame import Row, align, say, write_report
from qa.load.ledger import Ledger, joined, percentiles
from qa.load.running import Load, run, user_of
from service.cli.data_folder import connect_stores
from tests.system.conftest import Up, running
from worker.base.settings import Settings
from worker.execution.sweep import sweep

TENANTS = ("alice", "bob")  # each with a key and half of the clients


def main() -> int:
    """Run the command and return its exit code."""
    options = _options()
    mark = f"CHAOS_RUN={os.getpid()}-{options.seed}"
    os.environ["CHAOS_RUN"] = mark.partition("=")[2]
    with tempfile.TemporaryDirectory(prefix="glle-chaos-") as folder:
        settings = {"GLLE_WORKERS": str(options.workers), "GLLE_API_PROCESSES": str(options.apis)}
        settings["GLLE_AUTH"] = "required"
        stops = Path(folder) / "stops"
        stops.mkdir()
        settings |= {stopping.FOLDER: str(stops), "GLLE_HEARTBEAT": "5"}
        with running(Path(folder), program=(sys.executable, "-m", stopping.__name__), **settings) as up:
            report = _run(options, up, mark, stops)
        del os.environ["CHAOS_RUN"]
        write_report(options.out / "chaos.json", report)
        shutil.copy(Path(folder) / "up.log", options.out)
    return _print(report)


def _run(options: argparse.Namespace, up: Up, mark: str, stops: Path) -> dict[str, Any]:
    """Run the load while processes are killed, then all checks; return the report.

    `mark` is an environment entry by which all processes of the service are found. `stops` is the folder in which the
    killer asks processes to end before a write.
    """
    folder = up.log.parent / "data"
    with connect_stores(Settings(data_dir=str(folder))) as stores:
        tokens = [stores.keys.create(tenant, ("write",), "", None)[1] for tenant in TENANTS]
    keys = [{"Authorization": f"Bearer {token}"} for token in tokens]
    ledgers = [Ledger() for _ in keys]
    killer = Killer(
        up.process.pid, options.seed, lambda: sum(each.requests for each in ledgers), options.between, mark, stops
    )
    tenants = len(keys)
    all_clients = Load(
        requests=options.requests // tenants,
        seconds=options.seconds,
        clients=options.clients // tenants,
        seed=options.seed,
    )
    loads = [replace(all_clients, headers=headers) for headers in keys]
    started = time.time()
    killer.start()
    try:
        with ThreadPoolExecutor(tenants) as pool:
            list(pool.map(lambda load, ledger: run(load, [up.url], ledger=ledger), loads, ledgers))
    finally:
        killer.stop()
    seconds, ledger = time.time() - started, joined(ledgers)
    requests = ledger.requests
    last = max([kill.at for kill in killer.kills], default=time.time())
    rows, waited = checks.all_ended(up.redis("GLLE_REDIS_URL"), ledger, last)
    rows += checks.wrong(ledger)
    for tenant, load, of_tenant in zip(TENANTS, loads, ledgers, strict=True):
        again = checks.read_again(user_of(load, [up.url], of_tenant), options.results // tenants)
        rows += [replace(row, name=f"{row.name} ({tenant})") for row in again]
    ledger = joined(ledgers)
    clients = [httpx.Client(base_url=up.url, timeout=60, headers=headers) for headers in keys]
    with connect_stores(Settings(data_dir=str(folder))) as stores:
        sweep(stores, age=0)  # what killed uploads, tasks and deletions have left
    row, census = checks.keys(up.redis("GLLE_REDIS_URL"), up.redis("GLLE_CACHE_URL"), clients)
    if set(killer.kinds) & set(RESIDENTS.values()):
        rows.append(checks.residents(up.process.pid))
    rows += [row, checks.files(folder, up.redis("GLLE_REDIS_URL")), _check_stop(up, mark)]
    rows.append(Row("work-horses without a worker while it ran", killer.looks, sorted(map(str, killer.strays))))
    failed = Counter(job.error for job in ledger.jobs.values() if job.status == "failed")
    rows.append(Row("kinds of process that were not killed", len(killer.kinds), _never_killed(killer, requests)))
    return {
        "requests": requests,
        "attempts": len(ledger.attempts),
        "seconds": round(seconds, 1),
        "arrays": ledger.received,
        "seen last": dict(Counter(job.status for job in ledger.jobs.values())),
        "failed": dict(failed),
        "doomed": sum(job.is_doomed for job in ledger.jobs.values()),
        "kills": dict(Counter(kill.kind for kill in killer.kills)),
        "killed before a write": dict(Counter(_kind_of_write(kill.write) for kill in killer.kills if kill.write)),
        "busy when killed": dict(Counter(kill.kind for kill in killer.kills if kill.is_busy)),
        "unanswered": sum(not attempt.status for attempt in ledger.attempts),
        "refused": sum(attempt.status == 503 for attempt in ledger.attempts),
        "seconds until all jobs had ended": round(waited, 2),
        "recovery": recoveries(killer.kills, ledger),
        "latency": {name: percentiles(ledger.seconds(name)) for name in ledger.operations()},
        "census": {name: [count, census.expiring[name]] for name, count in sorted(census.counts.items())},
        "checks": [asdict(row) for row in rows],
    }


def _check_stop(up: Up, mark: str) -> Row:
    """Stop the service with SIGTERM, and check that no process remains."""
    tree = [pid for pid in parents_by_mark(mark) if pid != os.getpid()]
    up.process.send_signal(signal.SIGTERM)
    try:
        code = up.process.wait(60)
    except subprocess.TimeoutExpired:
        return Row("processes left after a stop", len(tree), ["the supervisor"])
    remaining = [str(pid) for pid in parents_by_mark(mark) if pid != os.getpid()]
    return Row("processes left after a stop", len(tree), remaining + ([f"exit code {code}"] if code else []))


def _kind_of_write(write: str) -> str:
    """Return the Redis command of a write and the beginning of its key, without ids and names, to group writes."""
    command, _, key = write.partition(" ")
    return f"{command} {':'.join(key.split(':')[:2])}".strip()


def _never_killed(killer: Killer, requests: int) -> list[str]:
    """Return the kinds of process that were never killed; none for short runs, which may miss some."""
    killed = {kill.kind for kill in killer.kills}
    return [] if requests < 300 else [kind for kind in killer.kinds if kind not in killed]


def _print(report: dict[str, Any]) -> int:
    names = ("requests", "attempts", "unanswered", "refused", "seconds", "arrays", "seen last", "failed", "doomed")
    kills = []
    for kind, times in report["kills"].items():
        recovery = report["recovery"].get(kind, {})
        seconds = (f"{recovery.get(quantile, 0):.2f}" for quantile in ("p50", "p95", "p100"))
        kills.append((kind, times, report["busy when killed"].get(kind, 0), *seconds))
    tables: list[list[tuple[object, ...]]] = [
        [("", "figure"), *((name, report[name]) for name in (*names, "seconds until all jobs had ended"))],
        [("killed before the write", "times"), *report["killed before a write"].items()],
        [("killed", "times", "busy", "seconds to the next success: p50", "p95", "most"), *kills],
        [("keys of", "count", "expire"), *((name, *counts) for name, counts in report["census"].items())],
        [
            ("must be zero", "checked", "violations"),
            *((row["name"], row["checked"], len(row["violations"])) for row in report["checks"]),
        ],
    ]
    for table in tables:
        say(align(table) + "\n")
    shown = ((row["name"], row["violations"][: checks.SHOWN]) for row in report["checks"])
    findings = [f"{name}: {violation}" for name, violations in shown for violation in violations]
    say(*findings)
    return 1 if findings else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m qa.faults.chaos", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, help="time limit in seconds, whatever the number of requests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--apis", type=int, default=2, help="number of API processes")
    parser.add_argument("--between", type=float, default=30, help="mean number of requests between two kills")
    parser.add_argument("--results", type=int, default=500, help="number of results requested again at the end")
    parser.add_argument("--out", type=Path, default=Path("out/chaos"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
