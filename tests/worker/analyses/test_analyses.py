"""Analysis specifications, and their tasks run in this process."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

import glle_engine
from glle_engine.base.spec import FitSpec
from glle_engine.metrics.ranks import local_trustworthiness
from glle_engine.posterior.cost.estimate import estimate
from glle_engine.posterior.selection import advise
from glle_engine.reliability.ensemble import ensemble
from glle_engine.reliability.resamples import STREAMS
from tests.conftest import error_of
from tests.worker.analyses.conftest import analysis_job, run_analysis, store_dataset
from tests.worker.execution.workers import SHEET, draws_job, fit_job
from worker.analyses import posterior_analyses, registry
from worker.analyses.audit import AuditSpec
from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.posterior_analyses import (
    AdviceSpec,
    CalibrationSpec,
    EstimateSpec,
    ReconstructionsSpec,
    SummarySpec,
    TransformSpec,
)
from worker.analyses.registry import analysis_of
from worker.analyses.resamples import PART
from worker.base.problems import ProblemError
from worker.execution import context, tasks
from worker.execution import draws as drawing
from worker.jobs.store import Kind
from worker.records.cache_entry import Entry
from worker.records.draws import AUTO

if TYPE_CHECKING:
    from worker.analyses.base import AnalysisSpec
    from worker.stores import Stores

STREAM: dict[str, Any] = {"first": 2, "seed": 5, "scale": 0.5, "source": "posterior"}
SUMMARY = SummarySpec(count=6, **STREAM)
TRANSFORM = TransformSpec(dataset="ds_1", draws=4, **STREAM)
RECONSTRUCTIONS = ReconstructionsSpec(count=3, **STREAM)
ADVICE = AdviceSpec(dataset="ds_1", n_neighbors=(5, 8), n_components=2, max_components=4, reg=1e-3)
ESTIMATE = EstimateSpec(dataset="ds_1", parameters=FitSpec(n_neighbors=8).to_dict())
CALIBRATION = CalibrationSpec(half_samples=4, draws=8, seed=1)
EMBEDDING = EmbeddingSpec(dataset="ds_1", method="pca", parameters={"n_components": 2}, scores=("trustworthiness",))
COMPARISON = ComparisonSpec(
    dataset="ds_1",
    methods=({"label": "a", "method": "pca", "parameters": {"n_components": 2}, "problem": None},),
    scores=("trustworthiness",),
)
AUDIT = AuditSpec(dataset="ds_1", coordinates="ds_2")
SPECS = [SUMMARY, TRANSFORM, RECONSTRUCTIONS, CALIBRATION, ADVICE, ESTIMATE, EMBEDDING, COMPARISON, AUDIT]
OF_DATA = {"advice", "estimate", "embedding", "comparison", "audit"}  # the other analyses need a posterior


def record_draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the index of each new draw."""
    indices: list[int] = []
    real = drawing.draw_and_cache

    def draw_and_record(*arguments: Any) -> Any:
        indices.extend(key.index for key in arguments[3])
        return real(*arguments)

    monkeypatch.setattr(context, "draw_and_cache", draw_and_record)
    return indices


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_specification_survives_json(stores: Stores, spec: AnalysisSpec) -> None:
    """The job's record gives the same value and key."""
    job = analysis_job(stores, spec, None if spec.kind in OF_DATA else "post_1")
    assert analysis_of(job) == spec
    assert analysis_of(job).cache_key(job.subject) == spec.cache_key(job.subject)
    assert (job.total, job.subject) == (spec.total, "ds_1" if spec.kind in OF_DATA else "post_1")


def test_every_kind_of_job_has_a_task() -> None:
    """The kinds are fits, draws and the registered analyses."""
    assert {"fit", "draws", *registry._BY_KIND} == set(get_args(Kind))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_the_cache_key_covers_every_field(spec: AnalysisSpec) -> None:
    """The key of a result also covers the engine's version and the subject."""
    other: dict[str, Any] = {
        "first": 3, "seed": 6, "scale": 0.25, "source": "prior", "count": 7, "dataset": "ds_2", "draws": 5,
        "n_neighbors": (5, 9), "n_components": 3, "max_components": 5, "reg": 1e-2, "engine": "0.0.0",
        "calibrated": True, "half_samples": 6, "method": "lle", "parameters": {"n_components": 1}, "labels": "ds_2",
        "truth": "ds_2", "scores": ("residual-variance",), "standardize": "variance", "metric": "cosine",
        "methods": COMPARISON.methods * 2, "align": "first", "coordinates": "ds_3", "embedding": "emb_1",
        "recipe": asdict(EMBEDDING.recipe),
    }  # fmt: skip
    if spec.kind in {"embedding", "comparison"}:
        other["n_neighbors"] = 5
    keys = {replace(spec, **{name: other[name]}).cache_key("a") for name in spec.to_dict()}
    assert len(keys | {spec.cache_key("a"), spec.cache_key("b")}) == len(spec.to_dict()) + 2


def test_auto_is_the_recorded_scale(stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request calibrates; draws and summaries of any seed then use the record."""
    real, runs = CalibrationSpec.run, []

    def run_and_record(spec: CalibrationSpec, analysis_context: Any) -> Entry:
        runs.append(spec)
        return real(spec, analysis_context)

    monkeypatch.setattr(CalibrationSpec, "run", run_and_record)
    job, spec = draws_job(stores, posterior_id, count=5, scales=(AUTO, 1.0), grid=True)
    stages: list[str] = []
    write_stage = stores.jobs.stage

    def record_stage(id_: str, stage: str, **progress: int) -> None:
        stages.append(stage)
        write_stage(id_, stage, **progress)

    monkeypatch.setattr(stores.jobs, "stage", record_stage)
    for shard in range(spec.shards):
        tasks.draw(job.id, job.round, shard)
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.done, ended.total) == ("succeeded", 10, 10)
    assert "calibrating: half-samples" in stages
    calibration = stores.posteriors.calibration(posterior_id)
    assert calibration is not None
    alone = run_analysis(stores, CalibrationSpec(), posterior_id)
    assert calibration == posterior_analyses.calibration_facts(alone.meta)
    summary = run_analysis(stores, replace(SUMMARY, scale=1.0, calibrated=True), posterior_id)
    assert calibration == summary.meta["calibration"]
    assert len(runs) == 1
    keys = list(spec.at(calibration["scale"]).draws())
    assert all(stores.draws.contains(stores.posteriors.arrays_id(posterior_id), keys))
    numbered, _ = draws_job(stores, posterior_id, count=5, scales=(calibration["scale"],))
    indices = record_draws(monkeypatch)
    tasks.draw(numbered.id, 0, 0)
    assert indices == [], "a draw at auto equals the draw at its number"
    stores.cache.client.flushall()
    assert run_analysis(stores, CalibrationSpec(), posterior_id).meta["scale"] == calibration["scale"]
    stores.posteriors.delete(posterior_id)
    assert stores.posteriors.calibration(posterior_id) is None


def test_the_first_calibration_stays(stores: Stores, posterior_id: str) -> None:
    """A repeated calibration with other bits does not change the recorded scale."""
    stores.posteriors.calibrate(posterior_id, {"scale": 0.25, "ratio": 1.0})
    assert run_analysis(stores, CalibrationSpec(), posterior_id).meta["scale"] == 0.25
    assert stores.posteriors.calibration(posterior_id) == {"scale": 0.25, "ratio": 1.0}
    other = run_analysis(stores, CALIBRATION, posterior_id)
    assert other.meta["scale"] != 0.25, "an explicit calibration with other parameters is separate"


def test_summary_is_the_engines(stores: Stores, posterior_id: str) -> None:
    """Arrays equal the engine's to the bit, with local trust, quantiles and the notes of the fit."""
    direct = glle_engine.fit(SHEET.X)
    summary = direct.summary(6, first=2, seed=5, scale=0.5)
    entry = run_analysis(stores, SUMMARY, posterior_id)
    for name in ("consensus", "covariance", "spread", "stability", "eigenvalues", "relative_gaps", "agreement"):
        np.testing.assert_array_equal(entry.arrays[name], getattr(summary, name), err_msg=name)
    trust = local_trustworthiness(SHEET.X, direct.embedding, 10)
    np.testing.assert_array_equal(entry.arrays["local_trust"], trust)
    quantiles = entry.meta["quantiles"]
    assert quantiles["levels"][3] == 0.5
    assert quantiles["spread"][3] == pytest.approx(np.median(summary.spread))
    assert quantiles["local_trust"][0] == pytest.approx(trust.min())
    assert entry.meta["notes"] == direct.diagnostics.to_dict()["notes"]
    assert (entry.meta["count"], entry.meta["first"], entry.meta["scale"]) == (6, 2, 0.5)


def test_draws_are_shared_with_draws_jobs(stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws jobs and summaries share cached draws with the same bits."""
    job, spec = draws_job(stores, posterior_id, count=4, first=2, seed=5, scales=(0.5,))
    for shard in range(spec.shards):
        tasks.draw(job.id, 0, shard)
    indices = record_draws(monkeypatch)
    shared = run_analysis(stores, SUMMARY, posterior_id)
    assert indices == [6, 7]
    run_analysis(stores, replace(TRANSFORM, dataset=store_dataset(stores, SHEET.X[:3])), posterior_id)
    assert indices == [6, 7]
    stores.cache.client.flushall()
    alone = run_analysis(stores, SUMMARY, posterior_id)
    assert indices == [6, 7, 2, 3, 4, 5, 6, 7]
    assert alone.meta == shared.meta, "it contains the digest of all bits"


def test_new_points_are_the_engines_in_any_blocks(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embedding, distances, mean and covariance do not depend on the block size."""
    new = SHEET.X[:40] + 0.05
    spec = replace(TRANSFORM, dataset=store_dataset(stores, new))
    entry = run_analysis(stores, spec, posterior_id)
    direct = glle_engine.fit(SHEET.X)
    extension = direct.extend(SHEET.X, new)
    mean, covariance = extension.spread(direct.draws(4, first=2, seed=5, scale=0.5), direct.embedding)
    expected = {
        "embedding": extension.embed(direct.embedding),
        "distances": extension.distances,
        "mean": mean,
        "covariance": covariance,
    }
    assert set(entry.arrays) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(entry.arrays[name], array, err_msg=name)
    stores.cache.delete(spec.cache_key(posterior_id))
    monkeypatch.setattr(posterior_analyses, "EXTENSION_WORK", 0)
    assert run_analysis(stores, spec, posterior_id).meta == entry.meta


def test_advice_is_the_engines(stores: Stores) -> None:
    """Curves and suggestions need neither arrays nor a posterior."""
    spec = replace(ADVICE, dataset=store_dataset(stores, SHEET.X))
    entry = run_analysis(stores, spec, None)
    fields = {name: value for name, value in entry.meta.items() if name != "sha256"}
    direct = advise(SHEET.X, n_neighbors=(5, 8), max_components=4).to_dict()
    assert fields == json.loads(json.dumps(direct))
    assert entry.arrays == {}


def test_an_estimate_is_the_engines(stores: Stores) -> None:
    """The figures of the engine, from data and parameters alone."""
    spec = replace(ESTIMATE, dataset=store_dataset(stores, SHEET.X))
    entry = run_analysis(stores, spec, None)
    fields = {name: value for name, value in entry.meta.items() if name != "sha256"}
    assert fields == json.loads(json.dumps(estimate(SHEET.X, n_neighbors=8).to_dict()))
    assert entry.arrays == {}


def test_cancel_stops_between_groups(stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished draws stay cached, the result does not, and the next summary continues with them."""
    monkeypatch.setattr(context, "PROGRESS_SECONDS", 0.0)
    job = analysis_job(stores, SUMMARY, posterior_id)
    indices = record_draws(monkeypatch)
    recording_draw = context.draw_and_cache  # type: ignore[attr-defined] # replaced by `record_draws`

    def draw_and_cancel(*arguments: Any) -> Any:
        draws = recording_draw(*arguments)
        stores.jobs.cancel(job.id)
        return draws

    monkeypatch.setattr(context, "draw_and_cache", draw_and_cancel)
    tasks.analyse(job.id, 0)
    assert stores.jobs.fetch(job.id).status == "cancelled"
    assert stores.cache.contains([SUMMARY.cache_key(posterior_id)]) == [False]
    assert indices == [2, 3, 4, 5]
    run_analysis(stores, SUMMARY, posterior_id)
    assert indices == [2, 3, 4, 5, 6, 7]


def test_result_that_is_not_finite_is_refused() -> None:
    """NaN is accepted only in the array in which it has a meaning."""
    with pytest.raises(ProblemError, match="data of this reconstructions are not finite"):
        context.require_finite("reconstructions", Entry({}, {"data": np.array([np.inf])}))
    with pytest.raises(ProblemError, match="spread"):
        context.require_finite("summary", Entry({}, {"spread": np.array([np.nan])}), SUMMARY.may_be_nan)
    context.require_finite("summary", Entry({}, {"relative_gaps": np.array([np.nan])}), SUMMARY.may_be_nan)


def test_results_of_a_deleted_posterior_are_deleted(stores: Stores, posterior_id: str) -> None:
    """The cache is empty, and a later analysis is a 404."""
    run_analysis(stores, SUMMARY, posterior_id)
    run_analysis(stores, RECONSTRUCTIONS, posterior_id)
    job = analysis_job(stores, SUMMARY, posterior_id)
    stores.posteriors.delete(posterior_id)
    assert list(stores.cache.client.scan_iter("*")) == []
    tasks.analyse(job.id, 0)
    failed = error_of(stores, job.id)
    assert (failed.code, failed.status) == ("posterior-not-found", 404)
    assert list(stores.cache.client.scan_iter("*")) == []


ENSEMBLE = SummarySpec(count=8, first=0, seed=0, scale=1.0, source="posterior", calibrated=True, resamples=4)


def test_an_ensemble_is_the_engines(stores: Stores, posterior_id: str) -> None:
    """Places, spreads of the parts, regions, reliability and calibration equal the engine's to the bit."""
    direct = glle_engine.fit(SHEET.X)
    expected = ensemble(direct, SHEET.X, n_draws=8, n_resamples=4)
    entry = run_analysis(stores, ENSEMBLE, posterior_id)
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


def test_more_resamples_use_those_that_exist(stores: Stores, posterior_id: str, blocks: list[tuple[str, int]]) -> None:
    """Each block is made once: another number, other draws and the calibration take the cached ones."""
    run_analysis(stores, CalibrationSpec(half_samples=8, draws=8), posterior_id)
    assert blocks == [("half-samples", 0), ("half-samples", 4)]
    run_analysis(stores, replace(ENSEMBLE, resamples=8), posterior_id)
    names = [stream.name for stream in STREAMS]
    assert set(blocks) == {(name, first) for name in names for first in (0, 4)} | {
        (names[0], first) for first in range(0, 20, PART)
    }
    assert len(blocks) == len(set(blocks))
    before = len(blocks)
    run_analysis(stores, replace(ENSEMBLE, resamples=8, count=4), posterior_id)
    run_analysis(stores, replace(ENSEMBLE, first=2), posterior_id)
    assert len(blocks) == before
    run_analysis(stores, replace(ENSEMBLE, seed=1), posterior_id)
    assert len(blocks) == before + len(STREAMS)


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
