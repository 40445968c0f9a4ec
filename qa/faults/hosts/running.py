"""Everything that runs inside the namespaces, in order."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from qa.faults.hosts.deployment import Deployment, worker_names
from qa.faults.hosts.faults import WORKERS, faults
from qa.faults.hosts.joined import measure_joining
from qa.faults.hosts.network import quotas
from qa.faults.hosts.network.namespaces import Network, run, wait_until
from qa.faults.hosts.report import Row, table
from qa.faults.hosts.rolling import APIS, rollings
from qa.faults.hosts.work import Work

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from pathlib import Path

POINTS = 1500
MANY_POINTS = 5000
START_SECONDS = 300.0  # time limit for all processes on a busy machine, s
# Shares of a core: other machines, and worker machines.
FULL_SHARE = 1.0
FAULT_SHARE = 0.15  # a job must run long enough to be interrupted
JOINED_SHARE = 0.125  # eight workers, the API and the servers must fit on two cores
# Variables of docker-compose.yml. Keys have separate tests; the API's address is not loopback.
VARIABLES = {"GLLE_AUTH": "off", "GLLE_DRAIN": "3", "GLLE_LOG_FORMAT": "json"}


def run_all(chosen: argparse.Namespace, folder: Path) -> int:
    """Create the machines, run the selected scenarios, print and store the report; return the exit code."""
    (folder / "hosts").touch()
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    if (own := quotas.create_cgroup(f"{folder.name}-tests", FULL_SHARE)) is not None:
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
        wait_until("ready", deployment.is_ready, START_SECONDS)

        def is_chosen(name: str) -> bool:
            return not chosen.only or any(word in name for word in chosen.only)

        if is_chosen("joined"):
            _measure_joined(deployment, out)
        work = Work(deployment.url(), POINTS)
        rows: list[Row] = []
        for share, scenarios in ((FAULT_SHARE, faults), (FULL_SHARE, rollings)):
            _share(deployment, WORKERS, share)
            for name, scenario in scenarios(deployment, work):
                if is_chosen(name):
                    started = time.monotonic()
                    rows.append(scenario())
                    print(f"{table(rows[-1:]).splitlines()[-1]}   ({time.monotonic() - started:.0f} s)", flush=True)
        print("\n" + table(rows), flush=True)
        (out / "faults.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        return int(not all(row.is_good for row in rows))
    finally:
        deployment.stop()
        for log in folder.glob("*/log"):
            shutil.copy(log, out / f"{log.parent.name}.log")


def _share(deployment: Deployment, names: Iterable[str], share: float) -> None:
    """Give each of these machines this share of a core."""
    for name in names:
        deployment.quotas[name] = quotas.create_cgroup(f"{deployment.folder.name}-{name}", share)


def _measure_joined(deployment: Deployment, out: Path) -> None:
    """Measure, print and store the speed-up by machines that join; restore the initial number afterwards."""
    names = worker_names(8)
    _share(deployment, names, JOINED_SHARE)
    joining = measure_joining(deployment, Work(deployment.url(), MANY_POINTS), 4, len(names))
    (out / "joined.json").write_text(json.dumps(asdict(joining), indent=1) + "\n")
    print(joining.report() + "\n", flush=True)
    assert joining.wrong == 0, joining
    _share(deployment, names, FULL_SHARE)
    deployment.set_workers(*WORKERS)
