"""A fitted posterior, and the tasks of analyses run in the test process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine.reliability import resamples as engine
from glle_engine.tables.table import Table
from tests.worker.execution.workers import fit_job
from worker.analyses import resamples
from worker.base.problems import notes_in_http
from worker.execution import tasks

if TYPE_CHECKING:
    from glle_engine.posterior.summary import Summary
    from glle_engine.reliability.calibration import Calibration
    from worker.analyses.base import AnalysisSpec
    from worker.jobs.store import Job
    from worker.records.cache_entry import Entry
    from worker.stores import Stores


@pytest.fixture(autouse=True)
def _here(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tasks use the test's stores."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)


@pytest.fixture
def posterior_id(stores: Stores) -> str:
    """Fit a posterior and return its id."""
    job = fit_job(stores)
    tasks.fit(job.id)
    return job.subject


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Stream and first resample of each block that a task makes."""
    blocks: list[tuple[str, int]] = []
    real = engine.resample

    def resample_and_record(*arguments: Any, **options: Any) -> Any:
        placed = real(*arguments, **options)
        blocks.append((options["stream"].name, options["first"]))
        return placed

    monkeypatch.setattr(resamples, "resample", resample_and_record)
    return blocks


def check_bits(entry: Entry, direct: Summary, calibration: Calibration) -> None:
    """Compare every array of a calibrated summary, and its calibration, with the engine's, to the bit."""
    for name in ("consensus", "covariance", "spread", "stability", "eigenvalues", "relative_gaps", "agreement"):
        np.testing.assert_array_equal(entry.arrays[name], getattr(direct, name), err_msg=name)
    np.testing.assert_array_equal(entry.arrays["half_sample_spread"], calibration.half_sample_spread)
    assert entry.meta["calibration"] == {**calibration.to_dict(), "notes": notes_in_http(calibration.notes)}
    assert entry.meta["scale"] == calibration.scale


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


def store_dataset(stores: Stores, values: Any) -> str:
    """Store a data set and return its id."""
    return stores.datasets.add(Table(values=np.asarray(values), source={"kind": "test"}))[0].id
