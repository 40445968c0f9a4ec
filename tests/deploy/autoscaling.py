"""Simulation of the autoscaler with two metrics: age of the oldest task, and length of the queue.

python -m tests.deploy.autoscaling      prints the table of docs/how-to/kubernetes.md
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TOLERANCE = 0.1  # tolerance of Kubernetes: a smaller relative deviation changes nothing
LOOK_SECONDS = 15  # seconds between two evaluations of the autoscaler
START_SECONDS = 30  # startup time of a pod, s
MIN_WORKERS, MAX_WORKERS, TARGET = 2, 40, 10.0


def desired(current: int, metric: float, target: float = TARGET) -> int:
    """Return the replicas that an HPA computes before its limits: ceil(current x metric / target)."""
    ratio = metric / target
    return current if abs(ratio - 1) <= TOLERANCE else math.ceil(current * ratio)


@dataclass(frozen=True)
class Outcome:
    """Result of a backlog: largest number of workers, and start of the last task (s)."""

    workers: int
    seconds: int


def simulate(tasks: int, seconds: float, policy: Callable[[int, int, float], int]) -> Outcome:
    """Simulate a backlog of `tasks` of equal duration with the manifest's limits.

    `policy` maps the workers, the queue's length and the age of its oldest task to a number of workers. Time advances
    in steps of 1 s. A worker completes `1 / seconds` tasks per second, and stays busy during a longer task.
    """
    waiting, busy, starting = float(tasks), deque[float](), deque[int]()
    workers, largest, now = MIN_WORKERS, MIN_WORKERS, 0
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
            want = min(policy(have, math.ceil(waiting), float(now)), MAX_WORKERS, max(2 * have, have + 4))
            starting.extend([now + START_SECONDS] * max(0, want - have))
            largest = max(largest, want)
        now += 1
    return Outcome(largest, now)


def by_age(workers: int, length: int, age: float) -> int:
    """Return the manifest's number of workers, by age."""
    del length
    return desired(workers, age)


def by_length(workers: int, length: int, age: float) -> int:
    """Return the number of workers by queue length: one worker per this number of waiting tasks."""
    del workers, age
    return math.ceil(length / TARGET)


def main() -> None:
    """Print the table."""
    print("| Requested at once | by age: most workers, last start | by length |\n|---|---|---|")  # noqa: T201 # the command's output
    for tasks, seconds in ((1500, 0.03), (200, 2.0), (40, 60.0)):
        age, length = simulate(tasks, seconds, by_age), simulate(tasks, seconds, by_length)
        result = f"| {age.workers}, {age.seconds} s | {length.workers}, {length.seconds} s |"
        print(f"| {tasks} tasks of {seconds:g} s {result}")  # noqa: T201 # the command's output


if __name__ == "__main__":
    main()
