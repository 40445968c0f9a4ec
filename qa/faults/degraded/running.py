"""Run all situations in one deployment and tabulate the outcomes."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from qa.faults.degraded.clients import Clients
from qa.faults.degraded.deployment import Deployment
from qa.faults.degraded.large import reads
from qa.faults.degraded.reference import Truth
from qa.faults.degraded.situations import SITUATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from qa.faults.degraded.situations import Situation

LARGE = "cache: everything evicted while it is read"
HEAL_SECONDS = 30.0  # time limit of the recovery
LONGEST_SECONDS = 15.0  # time limit of an answer
MIN_ANSWERS = 30  # minimum number of answers in each situation, so that every kind occurs
MOUNT, UMOUNT = shutil.which("mount") or "mount", shutil.which("umount") or "umount"
DISKS = {"queue": "8m", "data": "4m"}
_HEAD = ("situation", "2xx", "503", "other", "wrong", "lost", "worst s", "livez s", "healed s")


@dataclass(frozen=True)
class Row:
    """Outcome of one situation."""

    name: str
    good: int
    refused: int
    other: dict[str, int]
    wrong: list[str]
    lost: list[str]
    worst: float
    alive: float
    healed: float
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)

    def is_well(self, usual: float = 0.0) -> bool:
        """Return whether the outcome is good; `usual` is the slowest answer without a fault, in seconds."""
        bad = self.other or self.wrong or self.lost
        return not bad and self.worst < LONGEST_SECONDS + usual and self.healed < HEAL_SECONDS + usual

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON-able dictionary."""
        return asdict(self)

    def line(self) -> str:
        """Return the line of the table."""
        counts = (self.good, self.refused, sum(self.other.values()), len(self.wrong), len(self.lost))
        seconds = (self.worst, self.alive, self.healed)
        return f"{self.name:48}" + "".join(f"{n:7d}" for n in counts) + "".join(f"{s:9.2f}" for s in seconds)


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201 # the command's output


@contextmanager
def small_disks(folder: Path) -> Iterator[None]:
    """Mount a small disk for the queue's log and one for the data."""
    for name, size in DISKS.items():
        (folder / name).mkdir()
        subprocess.run([MOUNT, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder / name)], check=True)
    try:
        yield
    finally:
        for name in DISKS:
            subprocess.run([UMOUNT, "--lazy", str(folder / name)], check=True)


def run(folder: Path, word: str, *, can_mount: bool) -> list[Row]:
    """Run the situations whose names contain `word`, print the table as it grows, and return it.

    Parameters
    ----------
    can_mount
        Whether the process may mount disks.

    """
    truth = Truth()
    narrow, wide = _HEAD[1:6], _HEAD[6:]
    _print_line(f"{_HEAD[0]:48}" + "".join(f"{head:>7}" for head in narrow) + "".join(f"{head:>9}" for head in wide))
    possible = [situation for situation in SITUATIONS if can_mount or "disk" not in situation.name]
    chosen = [situation for situation in possible if word in situation.name]
    rows = []
    if chosen or word in LARGE:
        with small_disks(folder) if can_mount else nullcontext(), Deployment(folder) as deployment:
            rows += _rows(deployment, chosen, truth)
            if word in LARGE:
                rows.append(_announced(_large(deployment)))
    if not can_mount:
        _print_line("Full disks were skipped: they need root, and a mount namespace.")
    return rows


def _rows(deployment: Deployment, chosen: list[Situation], truth: Truth) -> list[Row]:
    clients = Clients(deployment.url, truth)
    return [_announced(_row(deployment, clients, situation)) for situation in chosen]


def _announced(row: Row) -> Row:
    _print_line(row.line())
    label = [f"other: {count} x {what}" for what, count in row.other.items()]
    for what in [*label, *row.wrong[:5], *row.lost[:5]]:
        _print_line(f"    {what}")
    return row


def _large(deployment: Deployment) -> Row:
    answers = list(reads(deployment))
    other = Counter(f"{answer.kind}: {answer.outcome}" for answer in answers if answer.outcome != "2xx")
    wrong = [f"{answer.kind}: {answer.wrong}" for answer in answers if answer.wrong]
    return Row(LARGE, len(answers) - other.total(), 0, dict(other), wrong, [], 0.0, 0.0, 0.0)


def _row(deployment: Deployment, clients: Clients, situation: Situation) -> Row:
    clients.reset()
    with clients.asking(situation.threads):
        with situation.trouble(deployment):
            _wait(deployment, situation.seconds)
            _wait_for_answers(deployment, clients)
        repaired_at = time.monotonic()
        during = list(clients.answers)
        healed = _wait_for_recovery(deployment, clients, repaired_at)
        _wait(deployment, 0.3)
    unfinished = _wait_for_jobs(deployment, clients)
    answers = list(clients.answers)
    outcomes = Counter(answer.outcome for answer in answers)
    allowed = {"2xx", "503", *(("507 storage-full",) if situation.name.startswith("data folder") else ())}
    other = Counter(f"{answer.kind}: {answer.outcome}" for answer in answers if answer.outcome not in allowed)
    if situation.refuses and all(answer.outcome == "2xx" for answer in during):
        other["no request was refused: the fault had no effect"] = 1
    kinds: dict[str, Counter[str]] = {}
    for answer in during:
        kinds.setdefault(answer.kind, Counter())[answer.outcome] += 1
    return Row(
        name=situation.name,
        good=outcomes["2xx"],
        refused=outcomes["503"] + outcomes["507 storage-full"],
        other=dict(other),
        wrong=[f"{answer.kind}: {answer.wrong}" for answer in answers if answer.wrong],
        lost=[*unfinished.values(), *clients.damaged()],
        worst=max((answer.seconds for answer in answers), default=0.0),
        alive=max((answer.seconds for answer in answers if answer.kind == "livez"), default=0.0),
        healed=healed,
        kinds={kind: dict(count) for kind, count in kinds.items()},
    )


def _wait_for_answers(deployment: Deployment, clients: Clients) -> None:
    """Wait for the minimum number of answers, also on a busy machine."""
    until = time.monotonic() + HEAL_SECONDS
    while len(clients.answers) < MIN_ANSWERS and time.monotonic() < until:
        _wait(deployment, 0.1)


def _wait_for_jobs(deployment: Deployment, clients: Clients) -> dict[str, str]:
    """Wait until all accepted jobs have succeeded; return the others once none has ended for some time."""
    before, since = clients.unfinished(), time.monotonic()
    while before and time.monotonic() < since + HEAL_SECONDS:
        _wait(deployment, 0.5)
        unfinished = clients.unfinished()
        if len(unfinished) < len(before):
            since = time.monotonic()
        before = unfinished
    return before


def _wait(deployment: Deployment, seconds: float) -> None:
    """Wait, and restart ended workers meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        deployment.supervise()
        time.sleep(0.1)


def _wait_for_recovery(deployment: Deployment, clients: Clients, since: float) -> float:
    """Poll until every request succeeds; return the seconds since then, or infinity after the time limit."""
    while time.monotonic() < since + HEAL_SECONDS:
        deployment.supervise()
        if clients.is_healthy():
            return time.monotonic() - since
    return float("inf")
