"""Priorities of jobs, also of shared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.jobs.store import Job
    from worker.records.job import Priority
    from worker.stores import Stores


def create(stores: Stores, priority: Priority = "batch") -> Job:
    """Create or share a job."""
    return stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1, priority=priority)[0]


def test_interactive_stays_interactive(stores: Stores) -> None:
    """An interactive request promotes a batch; a batch request never demotes a job."""
    assert create(stores).priority == "batch"
    assert create(stores, "interactive").priority == "interactive"
    assert create(stores).priority == "interactive"
