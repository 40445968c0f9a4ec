"""The processes of `glle up`: each is restarted when it ends by itself, and replaced without a gap when it is asked."""

from __future__ import annotations

import os
import select
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
STEADY_SECONDS = 5.0  # a child that lived so long was no failing start: it is restarted without a pause
READY_SECONDS = 60.0


@dataclass
class Started:
    """A process, how to see that it does its work, and the name that it has among the workers."""

    process: subprocess.Popen[bytes]
    is_up: Callable[[], bool] = lambda: True
    name: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None


@dataclass
class Child:
    """A place in the tree, and the process that fills it."""

    name: str
    spawn: Callable[[], Started]
    say: Callable[[str], None]
    running: Started | None = None
    pause: float = 0.0
    due: float = 0.0
    started: float = 0.0

    def start(self) -> None:
        """Start a process."""
        self.take(self.spawn())

    def take(self, new: Started) -> Started | None:
        """Have another process fill the place; return the one that did."""
        old, self.running = self.running, new
        self.started = time.monotonic()
        return old

    def ended(self) -> Started | None:
        """Return the process if it ran and is gone; then a `start` is due after a pause that grows."""
        gone = self.running
        if gone is None or not gone.is_over:
            return None
        steady = time.monotonic() - self.started > STEADY_SECONDS
        self.pause = 0.0 if steady else min(max(FIRST_PAUSE, 2 * self.pause), LONGEST_PAUSE)
        self.due = time.monotonic() + self.pause
        self.say(f"{self.name} ended with {gone.process.returncode}; again in {self.pause:g} s")
        self.running = None
        return gone


def replaced(
    children: list[Child],
    leaving: list[Started],
    patience: float,
    say: Callable[[str], None],
    over: Callable[[Started], None],
) -> Iterator[None]:
    """Replace the processes one after the other; yields whenever it has to wait.

    A new one does its work before the old one is told to stop, and the old one has ended what it was doing before the
    next is replaced. Where a new one does not start, those that are there go on.

    Parameters
    ----------
    leaving
        Holds the process that is ending.
    patience
        Seconds after which one that does not end is killed.
    over
        Called with each that has ended.

    """
    for child in children:
        new = child.spawn()
        leaving.append(new)  # nobody's yet: it is stopped with the rest
        deadline = time.monotonic() + READY_SECONDS
        while not (is_up := new.is_up()) and not new.is_over and time.monotonic() < deadline:
            yield
        leaving.remove(new)
        if not is_up:
            new.process.kill()
            new.process.wait()
            say(f"The new {child.name} did not start; what runs is left as it is. See the messages above.")
            return
        if (old := child.take(new)) is not None:
            leaving.append(old)
            old.process.terminate()
            deadline = time.monotonic() + patience
            while not old.is_over:
                if time.monotonic() > deadline:
                    old.process.kill()
                yield
            leaving.remove(old)
            over(old)
        say(f"{child.name} is a new process")
    say("Every process is a new one.")


def pipe_is_up(descriptor: int) -> Callable[[], bool]:
    """Return a look at a pipe's end: whether the process at the other end has said that it is ready.

    The end is closed when nobody can look any more.
    """
    told = False

    def is_up() -> bool:
        nonlocal told
        if not told and select.select([descriptor], [], [], 0)[0]:
            told = bool(os.read(descriptor, 1))  # nothing: it ended without a word
        return told

    weakref.finalize(is_up, os.close, descriptor)
    return is_up
