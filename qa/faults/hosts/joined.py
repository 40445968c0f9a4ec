"""Worker machines that join during a job of draws, each with a share of a core."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qa.faults.hosts.deployment import worker_names
from qa.faults.hosts.network.namespaces import wait_until

if TYPE_CHECKING:
    from qa.faults.hosts.deployment import Deployment
    from qa.faults.hosts.work import Work

WARM_UP_DRAWS, DRAWS = 256, 3072  # the job takes two minutes for the first hosts alone
SECONDS = 600.0


@dataclass(frozen=True)
class Joined:
    """A job, and the worker hosts that joined during it.

    Parameters
    ----------
    hosts, then
        Number of worker hosts at the start and at the end.
    before, after
        Draws per second before and after the other hosts registered.
    late
        Number of draws done at that moment.
    wrong
        Draws that differ from the engine's in any bit.

    """

    hosts: int
    then: int
    before: float
    after: float
    late: int
    draws: int
    wrong: int

    def report(self) -> str:
        """Return the result as a sentence."""
        return (
            f"{self.draws} draws by {self.hosts} worker hosts: {self.before:.1f} draws/s; by {self.then}, from draw "
            f"{self.late} on: {self.after:.1f} draws/s, {self.after / self.before:.2f} times; {self.wrong} wrong bits"
        )


def measure_joining(deployment: Deployment, work: Work, hosts: int, then: int) -> Joined:
    """Start a job, then more worker hosts, and measure the speed-up."""
    deployment.set_workers(*worker_names(hosts))
    for _ in range(2):  # each worker then has the posterior in memory
        work.status(work.start(WARM_UP_DRAWS), SECONDS)
    job = work.start(DRAWS)
    wait_until("the job is running", lambda: work.done(job) > 0, SECONDS)
    started, first = time.monotonic(), work.done(job)
    deployment.set_workers(*worker_names(then))
    joined_at, late = time.monotonic(), work.done(job)
    status = work.status(job, SECONDS)
    ended = time.monotonic()
    assert status == "succeeded", status
    before, after = (late - first) / (joined_at - started), (DRAWS - late) / (ended - joined_at)
    return Joined(hosts, then, before, after, late, DRAWS, work.wrong(job))
