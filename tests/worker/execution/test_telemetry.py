"""Telemetry of tasks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from tests.worker.execution.workers import draws_job, fit_job
from worker.execution import tasks
from worker.execution.telemetry import count_draws, observe_task

if TYPE_CHECKING:
    from worker.stores import Stores

pytestmark = pytest.mark.usefixtures("here")


def test_a_fit_is_timed_and_logged(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    """Each stage of the fit is counted once, and the job by its status, from its request to its end.

    Two log lines have the kind of the job: its start, and its end with the status.
    """
    job, failing = fit_job(stores), fit_job(stores, n_neighbors=5000)
    with caplog.at_level(logging.INFO, "worker.execution.telemetry"):
        tasks.fit(job.id)
    lines = [record.getMessage() for record in caplog.records if record.name == "worker.execution.telemetry"]
    assert lines[0] == "Task of fit job: started"
    assert lines[1].startswith("Task of fit job: succeeded after ")
    assert len(lines) == 2
    _, spreads = stores.counts.read()
    stages = {series[2]: spread for series, spread in spreads.items() if series[:2] == ("task_seconds", "fit")}
    assert set(stages) == {"neighbors", "weights", "embedding", "posterior", "diagnostics", "storing"}
    assert all(sum(spread.counts) == 1 for spread in stages.values())
    recorded = stores.posteriors.fetch(job.subject).stages
    assert stages["weights"].seconds == pytest.approx(recorded["weights"], abs=1e-5)
    tasks.fit(failing.id)
    for status in ("succeeded", "failed"):
        assert sum(stores.counts.read()[1]["job_seconds", "fit", status].counts) == 1


def test_draws_are_counted_by_solver(stores: Stores, posterior_id: str) -> None:
    """Each draw counts for the solver that made it; draws that were stored before do not count."""
    job, spec = draws_job(stores, posterior_id, n_draws=9)
    for shard in (*range(spec.shards - 1), 0, spec.shards - 1):
        tasks.draw(job.id, shard)
    counts = {series[1]: count for series, count in stores.counts.read()[0].items() if series[0] == "draws"}
    assert sum(counts.values()) == 9
    entries = [stores.results.fetch_entry(spec.result_key(posterior_id, shard)) for shard in range(spec.shards)]
    assert set(counts) == {draw["diagnostics"]["solver"] for entry in entries for draw in entry.meta["draws"]}
    _, spreads = stores.counts.read()
    assert {series[2] for series in spreads if series[:2] == ("task_seconds", "draws")} >= {"drawing", "storing"}
    assert sum(spreads["job_seconds", "draws", "succeeded"].counts) == 1, "once, however many shards"


def test_rejected_solvers_are_counted(stores: Stores, posterior_id: str) -> None:
    """If the result of a solver was rejected, the draw counts for the next solver, and as rejected for the first."""
    posterior = stores.posteriors.load(stores.posteriors.fetch(posterior_id))
    draw = posterior.draw(0)
    draw.diagnostics.update(solver="lu", rejected=["lanes: deviation 1 > 0.1", "lanes-repinned: not finite"])
    with observe_task(stores, "job_1"):
        count_draws([draw])
    counters, _ = stores.counts.read()
    assert counters["draws", "lu"] == 1
    assert counters["draws_rejected", "lanes"] == 1
    assert counters["draws_rejected", "lanes-repinned"] == 1
