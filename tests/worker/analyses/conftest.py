"""A fitted posterior, and the tasks of analyses run in the test process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from glle_engine.reliability import resamples as engine
from worker.analyses import resamples
from worker.execution import tasks

if TYPE_CHECKING:
    from worker.analyses.base import AnalysisSpec
    from worker.jobs.store import Job
    from worker.records.cache_entry import Entry
    from worker.stores import Stores


@pytest.fixture(autouse=True)
def _tasks_run_here(here: None) -> None:
    """Make the tasks use the stores of the test."""


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return a list that collects the stream and the first resample of each block of resamples that a task makes."""
    blocks: list[tuple[str, int]] = []
    real = engine.resample

    def resample_and_record(*arguments: Any, **options: Any) -> Any:
        placed = real(*arguments, **options)
        blocks.append((options["stream"].name, options["first"]))
        return placed

    monkeypatch.setattr(resamples, "resample", resample_and_record)
    return blocks


def analysis_job(stores: Stores, spec: AnalysisSpec, posterior: str | None) -> Job:
    """Create the job of an analysis."""
    subject = posterior or spec.to_dict()["dataset"]
    return stores.jobs.create(
        kind=spec.kind, claim=spec.key(subject), posterior=posterior, spec=spec.to_dict(), total=spec.total
    )[0]


def run_analysis(stores: Stores, spec: AnalysisSpec, posterior: str | None) -> Entry:
    """Run an analysis and return its result."""
    job = analysis_job(stores, spec, posterior)
    tasks.analyze(job.id)
    ended = stores.jobs.fetch(job.id)
    assert ended.status == "succeeded", ended.error
    assert ended.done == ended.total
    return found(stores, spec, job.subject)


def found(stores: Stores, spec: AnalysisSpec, subject: str) -> Entry:
    """Return the stored result of an analysis."""
    entry = stores.find_result(spec, subject)
    assert entry is not None
    return entry
