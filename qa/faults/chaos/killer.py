"""Killer with a separate seed: after random numbers of requests, each kind of process once, then random kinds.

Kills are spaced by requests instead of seconds, so that a slow machine runs the same test.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qa.faults.chaos.processes import Kind, marked, tree

if TYPE_CHECKING:
    from qa.load.ledger import Ledger

SHARES: dict[Kind, int] = {"API": 2, "worker": 3, "work-horse": 4, "queue server": 2, "cache server": 2}
STRAY_SECONDS = 2.0  # seconds until a process that lost its parent should end
LOOK_SECONDS = 0.2
WAIT_SECONDS = 10.0  # seconds to wait for a process of a kind; a work-horse lives for milliseconds


@dataclass(frozen=True)
class Kill:
    """A killed process, with the time of the kill (`time.time`)."""

    kind: Kind
    pid: int
    at: float


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
        self._thread = threading.Thread(target=self._run, name="killer")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Kill one more process, of a kind that is always running, and stop. Checks count from this last kill."""
        self._stop.set()
        self._thread.join()
        lasting = [kind for kind in SHARES if kind != "work-horse"]
        self._kill(self._rng.choice(lasting))

    def _run(self) -> None:
        next_kill = self._rng.expovariate(1 / self.between)
        while not self._stop.wait(LOOK_SECONDS):
            self._look_for_strays()
            if self.ledger.requests < next_kill:
                continue
            next_kill = self.ledger.requests + self._rng.expovariate(1 / self.between)
            spared = [kind for kind in SHARES if all(kill.kind != kind for kill in self.kills)]
            kind = self._rng.choice(spared) if spared else self._rng.choices(list(SHARES), list(SHARES.values()))[0]
            self._kill(kind)

    def _kill(self, kind: Kind) -> None:
        """Kill a process of a kind; wait until there is one."""
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            if candidates := [process for process in tree(self.head) if process.kind == kind]:
                victim = self._rng.choice(candidates)
                os.kill(victim.pid, signal.SIGKILL)
                self.kills.append(Kill(kind, victim.pid, time.time()))
                return
            time.sleep(0.002)

    def _look_for_strays(self) -> None:
        self.looks += 1
        there = marked(self.mark)
        lonely = {pid for pid, parent in there.items() if parent not in there and pid != self.head}
        now = time.monotonic()
        self._lonely = {pid: self._lonely.get(pid, now) for pid in lonely}
        self.strays |= {pid for pid, since in self._lonely.items() if now - since > STRAY_SECONDS}
