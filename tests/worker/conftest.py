"""Fixtures of tests that run tasks in their own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.worker.execution.workers import fit_job
from worker.execution import tasks

if TYPE_CHECKING:
    from worker.stores import Stores


@pytest.fixture
def here(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tasks that run in this process use the stores of the test."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)


@pytest.fixture
def posterior_id(stores: Stores, here: None) -> str:
    """Fit a posterior, and return its id."""
    del here
    job = fit_job(stores)
    tasks.fit(job.id)
    return job.subject
