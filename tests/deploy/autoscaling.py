"""The autoscaler's arithmetic, played through: what the age of the oldest task asks for, and what the queue's length.

python -m tests.deploy.autoscaling      prints the table of docs/how-to/kubernetes.md
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TOLERANCE = 0.1  # of Kubernetes: a ratio so near to 1 changes nothing
LOOK_SECONDS = 15  # between two looks of the autoscaler
START_SECONDS = 30  # of a pod
LEAST, MOST, TARGET = 2, 40, 10.0


def desired(current: int, metric: float, target: float = TARGET) -> int:
    """Return how many an HPA wants, before it heeds its limits: ceil(current x metric / target)."""
    ratio = metric / target
    return current if abs(ratio - 1) <= TOLERANCE else math.ceil(current * ratio)


@dataclass(frozen=True)
class Outcome:
    """Result of a backlog: most workers at once, and start of the last task (s)."""

    workers: int
    seconds: int


def played(tasks: int, seconds: float, wanted: Callable[[int, int, float], int]) -> Outcome:
    """Play `tasks` of so many seconds each, all asked for at once, with the limits of the manifest.

    `wanted` is given the workers, the queue's length and the age of its oldest task. Time goes in steps of a second; a
    worker does `1 / seconds` tasks a second, and one that begins a task of many seconds is busy for them.
    """
    waiting, busy, starting = float(tasks), deque[float](), deque[int]()
    workers, most, now = LEAST, LEAST, 0
    while waiting > 0 and now < 36_000:
        while starting and starting[0] <= now:
            starting.popleft()
            workers += 1
        busy = deque(end for end in busy if end > now)
        free = workers - len(busy)
        if seconds <= 1:
            waiting -= free / seconds
        else:
            begun = min(free, math.ceil(waiting))
            waiting -= begun
            busy.extend(now + seconds for _ in range(begun))
        if now % LOOK_SECONDS == 0 and waiting > 0:
            have = workers + len(starting)
            want = min(wanted(have, math.ceil(waiting), float(now)), MOST, max(2 * have, have + 4))
            starting.extend([now + START_SECONDS] * max(0, want - have))
            most = max(most, want)
        now += 1
    return Outcome(most, now)


def by_age(workers: int, length: int, age: float) -> int:
    """Return what the manifest asks for."""
    del length
    return desired(workers, age)


def by_length(workers: int, length: int, age: float) -> int:
    """Return what is asked for by the length: a worker for so many tasks that wait."""
    del workers, age
    return math.ceil(length / TARGET)


def main() -> None:
    """Print the table."""
    print("| Asked for at once | by age: most workers, last begun | by length |\n|---|---|---|")  # noqa: T201 # the command's output
    for tasks, seconds in ((1500, 0.03), (200, 2.0), (40, 60.0)):
        age, length = played(tasks, seconds, by_age), played(tasks, seconds, by_length)
        result = f"| {age.workers}, {age.seconds} s | {length.workers}, {length.seconds} s |"
        print(f"| {tasks} tasks of {seconds:g} s {result}")  # noqa: T201 # the command's output


if __name__ == "__main__":
    main()
