"""Killer with a separate seed: after random numbers of requests, each kind of process once, then random kinds.

Kills are spaced by requests instead of seconds, so that a slow machine runs the same test.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qa.faults.chaos.processes import RESIDENTS, SHORT_LIVED, Kind, marked, tree

if TYPE_CHECKING:
    from qa.load.ledger import Ledger

SHARES: dict[Kind, int] = {
    "API": 2, "worker": 3, "sampler": 4, "quick RQ worker": 1, "batch RQ worker": 1, "work-horse": 4, "queue server": 2,
    "cache server": 2,
}  # fmt: skip
STRAY_SECONDS = 2.0  # seconds until a process that lost its parent should end
LOOK_SECONDS = 0.2
WAIT_SECONDS = 10.0  # seconds to wait for a process of a kind; a work-horse lives for milliseconds
BUSY_SECONDS = 0.5  # seconds to wait for a sampler at work, because an idle one has no task to lose


@dataclass(frozen=True)
class Kill:
    """A killed process, with the time of the kill (`time.time`)."""

    kind: Kind
    pid: int
    at: float
    is_busy: bool = False


@dataclass
class Killer:
    """Thread that kills processes below a supervisor and looks for strays.

    Parameters
    ----------
    ledger
        Counts the requests.
    between
        Mean number of requests between two kills.
    mark
        Environment entry of every process of the tree.

    Attributes
    ----------
    strays : set of int
        Processes that kept running without their parent.

    """

    head: int
    seed: int
    ledger: Ledger
    between: float
    mark: str
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
        """Kinds of process to kill: residents of a worker only once the tree had one."""
        return [kind for kind in SHARES if kind not in RESIDENTS.values() or kind in self._seen]

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Kill one more process, of a kind that is always running, and stop. Checks count from this last kill."""
        self._stop.set()
        self._thread.join()
        self._kill(self._rng.choice([kind for kind in self.kinds if kind not in SHORT_LIVED]))

    def _run(self) -> None:
        next_kill = self._rng.expovariate(1 / self.between)
        while not self._stop.wait(LOOK_SECONDS):
            self._look_for_strays()
            self._seen |= {process.kind for process in tree(self.head)}
            if self.ledger.requests < next_kill:
                continue
            next_kill = self.ledger.requests + self._rng.expovariate(1 / self.between)
            spared = [kind for kind in self.kinds if all(kill.kind != kind for kill in self.kills)]
            shares = [SHARES[kind] for kind in self.kinds]
            self._kill(self._rng.choice(spared) if spared else self._rng.choices(self.kinds, shares)[0])

    def _kill(self, kind: Kind) -> None:
        """Kill a process of a kind; wait until there is one, and for a sampler until one is busy."""
        started = time.monotonic()
        while (waited := time.monotonic() - started) < WAIT_SECONDS:
            candidates = [process for process in tree(self.head) if process.kind == kind]
            busy = [process for process in candidates if process.is_busy]
            if candidates and (busy or kind != "sampler" or waited > BUSY_SECONDS):
                victim = self._rng.choice(busy if kind == "sampler" and busy else candidates)
                with contextlib.suppress(ProcessLookupError):  # ended meanwhile
                    os.kill(victim.pid, signal.SIGKILL)
                    self.kills.append(Kill(kind, victim.pid, time.time(), is_busy=victim in busy))
                    return
            time.sleep(0.002)

    def _look_for_strays(self) -> None:
        self.looks += 1
        there = marked(self.mark)
        lonely = {pid for pid, parent in there.items() if parent not in there and pid != self.head}
        now = time.monotonic()
        self._lonely = {pid: self._lonely.get(pid, now) for pid in lonely}
        self.strays |= {pid for pid, since in self._lonely.items() if now - since > STRAY_SECONDS}
