"""Run one deployment under load through all situations, each a fault, and collect what its clients saw."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from qa.faults.chaos import checks
from qa.faults.degraded.situations import SITUATIONS, run_degradable
from qa.frame import say
from qa.load.content import Content, Fit, dataset_of
from qa.load.probes import probe
from qa.load.running import SHARED, Load, run_beside, user_of
from tests.conftest import until
from worker.records.ids import text
from worker.records.job import job_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import redis

    from qa.faults.degraded.situations import Degraded, Situation
    from qa.load.ledger import Attempt, Ledger

HEAL_SECONDS = 30.0  # time limit of the recovery
LONGEST_SECONDS = 15.0  # time limit of an answer
MIN_ANSWERS = 30  # minimum number of answers in each situation
PROBED = 3  # resources that are read beside the load
RESULTS = 20  # results that are read again after a situation
MOUNT, UMOUNT = shutil.which("mount") or "mount", shutil.which("umount") or "umount"
DISKS = {"queue": "64m", "data": "96m"}
# Without retries and large fits; a request every 50 ms.
LOAD = Load(clients=6, rate=20.0, patience=0.0, keeps=10**6)
# Operations that show that API, servers and worker are well: before a situation, and after it.
SHOWN = frozenset(("GET data", "GET job", "GET draw", "GET summary", "POST posterior", "POST draws"))
_HEAD = ("situation", "2xx", "503", "other", "wrong", "lost", "worst s", "livez s", "healed s")


@dataclass(frozen=True)
class Row:
    """What clients saw in one situation.

    Parameters
    ----------
    good, refused
        Numbers of right answers, and of answers 503 or 507.
    other
        Numbers of other errors, by what they are.
    wrong, lost
        Answers that contradict others, and accepted work that is missing or has not succeeded.
    worst, alive
        Seconds of the slowest answer, and of the slowest answer of `/livez`.
    healed
        Seconds from the end of the fault to the last refusal.

    """

    name: str
    good: int
    refused: int
    other: dict[str, int]
    wrong: list[str]
    lost: list[str]
    worst: float = 0.0
    alive: float = 0.0
    healed: float = 0.0

    def is_well(self, usual: float = 0.0) -> bool:
        """Return whether nothing was wrong, lost or too slow; `usual` is how slow answers are without a fault (s)."""
        bad = self.other or self.wrong or self.lost
        return not bad and self.worst < LONGEST_SECONDS + usual and self.healed < HEAL_SECONDS + usual

    def lines(self) -> Iterator[str]:
        """Yield the situation's line of the table, then a line for each broken promise."""
        counts = (self.good, self.refused, sum(self.other.values()), len(self.wrong), len(self.lost))
        seconds = (self.worst, self.alive, self.healed)
        yield f"{self.name:48}" + "".join(f"{n:7d}" for n in counts) + "".join(f"{s:9.2f}" for s in seconds)
        for what in [*(f"other: {n} x {what}" for what, n in self.other.items()), *self.wrong[:5], *self.lost[:5]]:
            yield f"    {what}"


@contextmanager
def small_disks(folder: Path) -> Iterator[None]:
    """Mount a small disk for the queue's log, and one for the data folder, during the context."""
    for name, size in DISKS.items():
        (folder / name).mkdir()
        subprocess.run([MOUNT, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder / name)], check=True)
    try:
        yield
    finally:
        for name in DISKS:
            subprocess.run([UMOUNT, "--lazy", str(folder / name)], check=True)


def run(folder: Path, word: str, *, can_mount: bool) -> list[Row]:
    """Run the situations whose names contain `word`; print a row after each, and return all rows.

    Parameters
    ----------
    can_mount
        Whether the process may mount disks.

    """
    narrow, wide = _HEAD[1:6], _HEAD[6:]
    say(f"{_HEAD[0]:48}" + "".join(f"{head:>7}" for head in narrow) + "".join(f"{head:>9}" for head in wide))
    rows = []
    with small_disks(folder) if can_mount else nullcontext(), run_degradable(folder) as deployment:
        for row in _rows(deployment, word, can_mount=can_mount):
            say(*row.lines())
            rows.append(row)
    if not can_mount:
        say("Full disks were skipped: they need root, and a mount namespace.")
    return rows


def _rows(deployment: Degraded, word: str, *, can_mount: bool) -> Iterator[Row]:
    for seed, situation in enumerate(SITUATIONS):
        if word in situation.name and (can_mount or "disk" not in situation.name):
            yield _row(deployment, situation, replace(LOAD, seed=seed))


def _row(deployment: Degraded, situation: Situation, load: Load) -> Row:
    """Run a load on the service with a fault in the middle, then check every promise; return the row of the table."""
    with run_beside(load, [deployment.url]) as ledger, probe(f"{deployment.url}/livez") as alive:
        until(lambda: _successes(ledger.attempts) >= SHOWN and len(_permanent(ledger)) >= PROBED)
        paths = _permanent(ledger)[:PROBED]
        with probe(*(deployment.url + path for path in paths), times=situation.times) as probes:
            started = time.time()
            with situation.trouble(deployment):
                time.sleep(situation.seconds)
                until(lambda: len(_since(ledger, started)) >= MIN_ANSWERS)
            repaired = time.time()
        healed, missing = _wait_for_recovery(ledger, repaired)
    attempts = list(ledger.attempts)
    allowed = {"storage-full"} if situation.name.startswith("data folder") else set()
    bad = [one for one in attempts if (one.is_error or not one.status) and one.code.rpartition(":")[2] not in allowed]
    other = Counter(f"{one.operation}: {one.status} {one.code}" for one in bad) + Counter(probes.failed + alive.failed)
    refused = sum(one.status in {503, 507} for one in set(attempts).difference(bad))
    during = [one for one in _since(ledger, started) if one.at < repaired]
    if situation.refuses and not probes.refused and all(0 < one.status < 500 for one in during):
        other["no request was refused: the fault had no effect"] = 1
    user = user_of(replace(load, patience=60.0), [deployment.url], ledger)
    with deployment.direct("queue") as queue:
        rows, _ = checks.all_ended(queue, ledger, time.time())
        lost = [fault for row in rows for fault in row.violations] + _without_success(queue, ledger)
    wrong = [fault for row in checks.read_again(user, RESULTS) for fault in row.violations]
    return Row(
        name=situation.name,
        good=sum(0 < one.status < 500 for one in attempts) + probes.answered + alive.answered,
        refused=refused + probes.refused + alive.refused,
        other=dict(other),
        wrong=[*dict.fromkeys([*ledger.faults, *wrong])],
        lost=[*lost, *(f"no success of {operation} after the repair" for operation in missing)],
        worst=max([one.seconds for one in attempts] + [probes.slowest, alive.slowest]),
        alive=alive.slowest,
        healed=healed,
    )


def _permanent(ledger: Ledger) -> list[str]:
    """Return the paths of the data sets that all clients share, and of their posteriors: no client deletes them."""
    stored = dict(ledger.stored).items()
    return [path for path, what in stored if isinstance(what, Content | Fit) and dataset_of(what) in SHARED]


def _without_success(queue: redis.Redis, ledger: Ledger) -> list[str]:
    """Return the accepted jobs without success, although no client has cancelled them or deleted their data."""
    jobs = [job for job in ledger.jobs.values() if not (job.is_cancelled or job.is_doomed)]
    states = {job.id: text(queue.hget(job_key(job.id), "status") or "") for job in jobs}
    return [f"{id_}: {state}" for id_, state in states.items() if state != "succeeded"]


def _wait_for_recovery(ledger: Ledger, repaired: float) -> tuple[float, frozenset[str]]:
    """Wait until each of the operations `SHOWN` has succeeded since the last refusal.

    Return the seconds from the end of the fault, at `repaired` (`time.time`), to the last refusal, and the operations
    that still fail after `HEAL_SECONDS`.
    """
    missing = SHOWN
    deadline = time.monotonic() + HEAL_SECONDS
    while time.monotonic() < deadline:
        attempts = _since(ledger, repaired)
        last = max([one.at + one.seconds for one in attempts if not 0 < one.status < 500], default=repaired)
        if not (missing := SHOWN - _successes([one for one in attempts if one.at >= last])):
            return last - repaired, missing
        time.sleep(0.1)
    return float("inf"), missing


def _since(ledger: Ledger, begin: float) -> list[Attempt]:
    """Return the attempts that began at or after the time `begin` (`time.time`)."""
    return [one for one in list(ledger.attempts) if one.at >= begin]


def _successes(attempts: Iterable[Attempt]) -> set[str]:
    """Return the names of the operations of which an attempt has succeeded."""
    return {one.operation for one in list(attempts) if HTTPStatus.OK <= one.status < HTTPStatus.MULTIPLE_CHOICES}
