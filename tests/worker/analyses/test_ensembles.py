"""Summaries of draws and resamples, whose resamples are cached block by block."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import glle_engine
from glle_engine.reliability.ensemble import ensemble
from glle_engine.reliability.resamples import STREAMS
from tests.worker.analyses.conftest import run_analysis
from tests.worker.execution.jobs import SHEET, fit_job
from worker.analyses.posterior_analyses import CalibrationSpec, SummarySpec
from worker.execution import tasks
from worker.records.sharding import PER_BLOCK, resample_blocks

if TYPE_CHECKING:
    from worker.stores import Stores

ENSEMBLE = SummarySpec(count=8, first=0, seed=0, scale=1.0, source="posterior", calibrated=True, resamples=4)


def test_an_ensemble_is_the_engines(stores: Stores, fitted: str) -> None:
    """Places, spreads of the parts, regions, reliability and calibration equal the engine's to the bit."""
    direct = glle_engine.fit(SHEET.X)
    expected = ensemble(direct, SHEET.X, n_draws=8, n_resamples=4)
    entry = run_analysis(stores, ENSEMBLE, fitted)
    for name, array in expected.arrays().items():
        np.testing.assert_array_equal(entry.arrays[name], array, err_msg=name)
    np.testing.assert_array_equal(entry.arrays["center"], direct.embedding)
    assert entry.meta["regions"] == expected.regions.to_dict()
    assert entry.meta["reliability"] == expected.reliability.to_dict()
    assert expected.calibration is not None
    assert entry.meta["calibration"] == expected.calibration.to_dict()
    assert (entry.meta["scale"], entry.meta["resamples"]) == (expected.calibration.scale, 4)
    assert entry.meta["quantiles"]["spread"][3] == pytest.approx(np.median(expected.spread))
    codes = [note["code"] for note in entry.meta["notes"]]
    assert codes[: len(expected.reliability.notes)] == [note.code for note in expected.reliability.notes]
    drawn = direct.summary(8, scale=expected.calibration.scale)
    np.testing.assert_array_equal(entry.arrays["stability"], drawn.stability)
    np.testing.assert_array_equal(entry.arrays["eigenvalues"], drawn.eigenvalues)


def test_more_resamples_use_those_that_exist(stores: Stores, fitted: str, made: list[tuple[str, int]]) -> None:
    """Each block is made once: another number, other draws and the calibration take the cached ones."""
    run_analysis(stores, CalibrationSpec(half_samples=6, draws=8), fitted)
    assert made == [("half-samples", 0), ("half-samples", 4)]
    run_analysis(stores, replace(ENSEMBLE, resamples=6), fitted)
    names = [stream.name for stream in STREAMS]
    assert set(made) == {(name, first) for name in names for first in (0, 4)} | {
        (names[0], first) for first in range(0, 20, PER_BLOCK)
    }
    assert len(made) == len(set(made))
    before = len(made)
    run_analysis(stores, replace(ENSEMBLE, resamples=8, count=4), fitted)
    run_analysis(stores, replace(ENSEMBLE, first=2), fitted)
    assert len(made) == before
    run_analysis(stores, replace(ENSEMBLE, seed=1), fitted)
    assert len(made) == before + len(STREAMS)


def test_resamples_leave_with_their_posterior(stores: Stores, fitted: str) -> None:
    """No block of a deleted posterior stays in the cache."""
    run_analysis(stores, ENSEMBLE, fitted)
    record = stores.posteriors.fetch(fitted)
    keys = [block.cache_key(record.arrays_id) for stream in STREAMS for block in resample_blocks(stream.number, 0, 4)]
    assert all(stores.cache.contains(keys))
    stores.posteriors.delete(record.id)
    assert not any(stores.cache.contains(keys))


def test_a_posterior_without_resamples_says_so(stores: Stores) -> None:
    """The note has the reason; a posterior with an ensemble has no such note."""
    job = fit_job(stores, variant="published")
    tasks.fit(job.id)
    draws = SummarySpec(count=4, first=0, seed=0, scale=1.0, source="posterior")
    (message,) = [
        note["message"]
        for note in run_analysis(stores, draws, job.subject).meta["notes"]
        if note["code"] == "spread-of-draws"
    ]
    assert "draws alone" in message
    assert "constrained" in message
