"""Kill processes of a running `glle up` at random, and measure how soon requests succeed again.

After random numbers of requests, the killer first kills each kind of process once, and then random kinds, mostly right
before one of the next writes of the process (`qa.faults.chaos.stopping`). Kills are spaced by numbers of requests and
not by seconds, so that a slow machine runs the same test. Processes are found in /proc.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from qa.load.ledger import percentiles
from tests.processes import children, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from qa.load.ledger import Ledger

Kind = Literal[
    "API", "worker", "sampler", "quick RQ worker", "batch RQ worker", "work-horse", "queue server", "cache server"
]
RESIDENTS: dict[str, Kind] = {
    "glle-sampler": "sampler", "glle-quick": "quick RQ worker", "glle-batch": "batch RQ worker",
}  # by their comm  # fmt: skip
OF_HEAD: dict[str, Kind] = {
    "glle-api": "API",
    "glle-worker": "worker",
    "queue": "queue server",
    "cache": "cache server",
}
SHORT_LIVED: tuple[Kind, ...] = ("work-horse",)
SHARES: dict[Kind, int] = {
    "API": 4, "worker": 3, "sampler": 4, "quick RQ worker": 3, "batch RQ worker": 3, "work-horse": 4, "queue server": 2,
    "cache server": 2,
}  # fmt: skip
STRAY_SECONDS = 2.0  # seconds until a process that lost its parent should end
LOOK_SECONDS = 0.2
WAIT_SECONDS = 10.0  # seconds to wait for a process of a kind; a work-horse lives for milliseconds
BUSY_SECONDS = 0.5  # seconds to wait for a sampler at work, because an idle one has no task to lose
STOP_SHARE = 0.75  # of the kills of a process that writes
STOP_WRITES = 8  # a process ends before one of that many next writes
STOP_SECONDS = 2.0  # an idle process writes nothing; after this time it is killed as it is
# Operations that succeed only with a process of that kind.
_SHOWN_BY = {
    "API": ("GET data", "GET datasets", "GET jobs", "GET job", "GET posterior", "GET draw"),
    "queue server": ("GET jobs", "GET job", "GET posterior", "GET posteriors", "POST draws"),
    "cache server": ("GET draw", "GET arrays", "GET summary", "GET coordinates"),
    "worker": ("GET draw", "GET summary", "POST posterior"),
    "sampler": ("GET draw",),
    "quick RQ worker": ("GET summary", "POST posterior"),
    "batch RQ worker": ("GET summary", "POST posterior"),
    "work-horse": ("GET draw", "GET summary", "POST posterior"),
}


@dataclass(frozen=True)
class Process:
    """A process of the service: its pid, its kind, and the pid of its parent."""

    pid: int
    kind: Kind
    parent: int

    @property
    def is_busy(self) -> bool:
        """Whether a thread of the process computes at this moment."""
        return "R" in _status(self.pid)


def tree(head: int) -> list[Process]:
    """Return the processes of the service, below the pid `head` of `glle up`, with their kinds.

    The children of a worker are a sampler and two RQ workers, and theirs are work-horses, which the kernel shows with
    the names of their parents.
    """
    processes = []
    for child in children(head):
        if (kind := _kind(child)) is None:
            continue
        processes.append(Process(child, kind, head))
        for resident in children(child) if kind == "worker" else ():
            processes.append(Process(resident, RESIDENTS.get(name_of(resident), "work-horse"), child))
            processes += [Process(horse, "work-horse", resident) for horse in children(resident)]
    return processes


def without_residents(processes: list[Process]) -> list[str]:
    """Return a line for each sampler and each RQ worker that a worker should have, but has not."""
    workers = [process.pid for process in processes if process.kind == "worker"]
    residents = {(process.parent, process.kind) for process in processes}
    return [
        f"worker {pid}: no {kind}" for pid in workers for kind in RESIDENTS.values() if (pid, kind) not in residents
    ]


def parents_by_mark(mark: str) -> dict[int, int]:
    """Find all processes with the entry `mark` in their environment, on the whole machine; return pids and parents."""
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                processes[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # ended meanwhile, or owned by another user
            continue
    return processes


def _status(pid: int) -> str:
    """Return the states of the threads of a process, one letter each, such as R for running."""
    states = ""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states += stat.read_text().rpartition(")")[2].split()[0]
        except OSError:  # ended meanwhile
            continue
    return states


def _kind(pid: int) -> Kind | None:
    """Return the kind of a child of `glle up`, or None for another process."""
    name = name_of(pid)
    if name == "valkey-server":
        with contextlib.suppress(OSError):  # ended meanwhile
            name = Path(f"/proc/{pid}/cwd").readlink().name  # data/queue or data/cache
    return next((kind for prefix, kind in OF_HEAD.items() if name.startswith(prefix)), None)


@dataclass(frozen=True)
class Kill:
    """A process that was killed, the time (`time.time`), and the write right before which it ended, if any."""

    kind: Kind
    pid: int
    at: float
    is_busy: bool = False
    write: str = ""


@dataclass
class Killer:
    """A thread that kills processes of the service, and looks for processes that have lost their parent.

    Parameters
    ----------
    head
        Pid of `glle up`.
    requests
        Returns the number of requests so far.
    between
        Mean number of requests between two kills.
    mark
        Environment entry of every process of the service.
    stops
        Folder in which processes are asked to end before a write.

    Attributes
    ----------
    strays : set of int
        Pids of processes that kept running for `STRAY_SECONDS` after the end of their parent.
    looks : int
        How often such processes were looked for.

    """

    head: int
    seed: int
    requests: Callable[[], int]
    between: float
    mark: str
    stops: Path
    kills: list[Kill] = field(default_factory=list)
    strays: set[int] = field(default_factory=set)
    looks: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)  # noqa: S311 # not for secrets
        self._stop = threading.Event()
        self._lonely: dict[int, float] = {}
        self._seen: set[Kind] = set()
        self._thread = threading.Thread(target=self._run, name="killer")

    @property
    def kinds(self) -> list[Kind]:
        """Kinds of process to kill: samplers and RQ workers only once there was one."""
        return [kind for kind in SHARES if kind not in RESIDENTS.values() or kind in self._seen]

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; then kill one process of each kind that was never killed, or of a random kind.

        The checks wait from this last kill on. Work-horses are left out, because they do not run all the time.
        """
        self._stop.set()
        self._thread.join()
        running = [kind for kind in self.kinds if kind not in SHORT_LIVED]
        spared = [kind for kind in running if all(kill.kind != kind for kill in self.kills)]
        for kind in spared or [self._rng.choice(running)]:
            self._kill(kind)

    def _run(self) -> None:
        next_kill = self._rng.expovariate(1 / self.between)
        while not self._stop.wait(LOOK_SECONDS):
            self._look_for_strays()
            self._seen |= {process.kind for process in tree(self.head)}
            if self.requests() < next_kill:
                continue
            next_kill = self.requests() + self._rng.expovariate(1 / self.between)
            spared = [kind for kind in self.kinds if all(kill.kind != kind for kill in self.kills)]
            shares = [SHARES[kind] for kind in self.kinds]
            first = [kind for kind in spared if kind in SHORT_LIVED] or spared  # the load may end before one is there
            self._kill(self._rng.choice(first) if first else self._rng.choices(self.kinds, shares)[0])

    def _kill(self, kind: Kind) -> None:
        """Kill a process of a kind; wait until there is one, and some time until a sampler is busy."""
        started = time.monotonic()
        while (waited := time.monotonic() - started) < WAIT_SECONDS:
            candidates = [process for process in tree(self.head) if process.kind == kind]
            busy = [process for process in candidates if process.is_busy]
            if candidates and (busy or kind != "sampler" or waited > BUSY_SECONDS):
                victim = self._rng.choice(busy if kind == "sampler" and busy else candidates)
                write = (
                    ""
                    if kind.endswith("server") or self._rng.random() > STOP_SHARE
                    else self._stop_before_write(victim)
                )
                with contextlib.suppress(ProcessLookupError):  # ended meanwhile
                    if not write:
                        os.kill(victim.pid, signal.SIGKILL)
                    self.kills.append(Kill(kind, victim.pid, time.time(), victim in busy, write))
                    return
            time.sleep(0.002)

    def _stop_before_write(self, victim: Process) -> str:
        """Make a process end before one of its next writes; return the name of the write, "" if there was none."""
        request = self.stops / str(victim.pid)
        request.write_text(str(self._rng.randrange(STOP_WRITES)))
        until, reply = time.monotonic() + STOP_SECONDS, request.with_suffix(".at")
        while not reply.exists() and name_of(victim.pid) and time.monotonic() < until:
            time.sleep(0.002)
        request.unlink()
        return reply.read_text() if reply.exists() else ""

    def _look_for_strays(self) -> None:
        self.looks += 1
        there = parents_by_mark(self.mark)
        lonely = {pid for pid, parent in there.items() if parent not in there and pid != self.head}
        now = time.monotonic()
        self._lonely = {pid: self._lonely.get(pid, now) for pid in lonely}
        self.strays |= {pid for pid, since in self._lonely.items() if now - since > STRAY_SECONDS}


def recoveries(kills: list[Kill], ledger: Ledger) -> dict[str, dict[str, float]]:
    """Return, for each kind of process, percentiles of the seconds from a kill to the next success.

    This is the end of the first successful request that began after the kill and needs a process of this kind.
    """
    recovery_seconds: dict[str, list[float]] = {}
    for kind, operations in _SHOWN_BY.items():
        good = sorted(
            (attempt.at, attempt.at + attempt.seconds)
            for attempt in ledger.attempts
            if attempt.operation in operations and attempt.status in {200, 201, 202}
        )
        begun = [begin for begin, _ in good]
        for kill in kills:
            if kill.kind == kind and (place := bisect_left(begun, kill.at)) < len(good):
                ends = [end for _, end in good[place : place + 50]]
                recovery_seconds.setdefault(kind, []).append(min(ends) - kill.at)
    return {kind: percentiles(seconds) for kind, seconds in recovery_seconds.items()}
