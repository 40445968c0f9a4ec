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
from glle_engine.reliability.calibration import calibrate
from tests.worker.analyses.conftest import analysis_job, run_analysis, stored
from tests.worker.execution.jobs import SHEET, N, draws_job, fit_job
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


def test_auto_is_the_recorded_scale(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request calibrates; draws and summaries of any seed then use the record."""
    real, runs = CalibrationSpec.run, []

    def run_and_record(spec: CalibrationSpec, analysis_context: Any) -> Entry:
        runs.append(spec)
        return real(spec, analysis_context)

    monkeypatch.setattr(CalibrationSpec, "run", run_and_record)
    job, spec = draws_job(stores, fitted, count=5, scales=(AUTO, 1.0), grid=True)
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
    calibration = stores.posteriors.calibration(fitted)
    assert calibration is not None
    assert calibration == posterior_analyses.calibration_facts(run_analysis(stores, CalibrationSpec(), fitted).meta)
    assert calibration == run_analysis(stores, replace(SUMMARY, scale=1.0, calibrated=True), fitted).meta["calibration"]
    assert len(runs) == 1
    keys = list(spec.at(calibration["scale"]).draws())
    assert all(stores.draws.contains(stores.posteriors.arrays_id(fitted), keys))
    numbered, _ = draws_job(stores, fitted, count=5, scales=(calibration["scale"],))
    indices = record_draws(monkeypatch)
    tasks.draw(numbered.id, 0, 0)
    assert indices == [], "a draw at auto equals the draw at its number"
    stores.cache.client.flushall()
    assert run_analysis(stores, CalibrationSpec(), fitted).meta["scale"] == calibration["scale"]
    stores.posteriors.delete(fitted)
    assert stores.posteriors.calibration(fitted) is None


def test_the_first_calibration_stays(stores: Stores, fitted: str) -> None:
    """A repeated calibration with other bits does not change the recorded scale."""
    stores.posteriors.calibrate(fitted, {"scale": 0.25, "ratio": 1.0})
    assert run_analysis(stores, CalibrationSpec(), fitted).meta["scale"] == 0.25
    assert stores.posteriors.calibration(fitted) == {"scale": 0.25, "ratio": 1.0}
    other = run_analysis(stores, CALIBRATION, fitted)
    assert other.meta["scale"] != 0.25, "an explicit calibration with other parameters is separate"


def test_calibration_is_the_engines(stores: Stores, fitted: str) -> None:
    """Scale and both spreads equal those of the engine on the same data."""
    entry = run_analysis(stores, CALIBRATION, fitted)
    posterior = stores.posteriors.load(fitted)
    assert posterior is not None
    data = np.asarray(stores.datasets.values(stores.posteriors.fetch(fitted).dataset))
    calibration = calibrate(posterior, data, n_half_samples=4, n_draws=8, seed=1)
    assert {name: entry.meta[name] for name in calibration.to_dict()} == calibration.to_dict()
    np.testing.assert_array_equal(entry.arrays["half_sample_spread"], calibration.half_sample_spread)
    np.testing.assert_array_equal(entry.arrays["draw_spread"], calibration.draw_spread)


def test_the_order_of_n_neighbors_does_not_matter() -> None:
    """Order and repetition of n_neighbors change nothing."""
    assert replace(ADVICE, n_neighbors=(8, 5, 8)) == ADVICE


def test_summary_is_the_engines(stores: Stores, fitted: str) -> None:
    """Arrays equal the engine's to the bit, with local trust, quantiles and the notes of the fit."""
    direct = glle_engine.fit(SHEET.X)
    summary = direct.summary(6, first=2, seed=5, scale=0.5)
    entry = run_analysis(stores, SUMMARY, fitted)
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


def test_trust_of_few_points_counts_fewer_neighbors(stores: Stores) -> None:
    """With fewer than twenty points, local trust uses as many neighbors as possible."""
    job = fit_job(stores, SHEET.X[:15], n_neighbors=5)
    tasks.fit(job.id)
    posterior = stores.posteriors.load(job.subject)
    assert posterior is not None
    expected = local_trustworthiness(SHEET.X[:15], posterior.embedding, 7)
    np.testing.assert_array_equal(run_analysis(stores, SUMMARY, job.subject).arrays["local_trust"], expected)


def test_draws_are_shared_with_draws_jobs(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws jobs and summaries share cached draws with the same bits."""
    job, spec = draws_job(stores, fitted, count=4, first=2, seed=5, scales=(0.5,))
    for shard in range(spec.shards):
        tasks.draw(job.id, 0, shard)
    indices = record_draws(monkeypatch)
    shared = run_analysis(stores, SUMMARY, fitted)
    assert indices == [6, 7]
    run_analysis(stores, replace(TRANSFORM, dataset=stored(stores, SHEET.X[:3])), fitted)
    assert indices == [6, 7]
    stores.cache.client.flushall()
    alone = run_analysis(stores, SUMMARY, fitted)
    assert indices == [6, 7, 2, 3, 4, 5, 6, 7]
    assert alone.meta == shared.meta, "it contains the digest of all bits"


def test_evicted_posterior_is_fitted_again(stores: Stores, fitted: str) -> None:
    """After a flush of the cache a result has the same bits, and the posterior is cached again."""
    before = {spec.kind: run_analysis(stores, spec, fitted).meta["sha256"] for spec in (SUMMARY, RECONSTRUCTIONS)}
    stores.cache.client.flushall()
    after = {spec.kind: run_analysis(stores, spec, fitted).meta["sha256"] for spec in (SUMMARY, RECONSTRUCTIONS)}
    assert after == before
    assert stores.posteriors.load(fitted) is not None


def test_a_cached_result_is_not_computed_again(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated task with a cached result only records the success."""
    run_analysis(stores, SUMMARY, fitted)
    monkeypatch.setattr(SummarySpec, "run", lambda *_: pytest.fail("computed again"))
    run_analysis(stores, SUMMARY, fitted)


def test_task_of_an_old_round_does_nothing(stores: Stores, fitted: str) -> None:
    """A task of an earlier round does nothing; a task of the new round computes the result."""
    job = analysis_job(stores, RECONSTRUCTIONS, fitted)
    tasks.analyse(job.id, 0)
    stores.cache.client.flushall()
    assert stores.jobs.reopen(stores.jobs.fetch(job.id))
    key = RECONSTRUCTIONS.cache_key(fitted)
    tasks.analyse(job.id, 0)
    assert stores.cache.contains([key]) == [False]
    tasks.analyse(job.id, 1)
    assert stores.cache.contains([key]) == [True]
    assert stores.jobs.fetch(job.id).status == "succeeded"


def test_new_points_are_the_engines_in_any_blocks(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding, distances, mean and covariance do not depend on the block size."""
    new = SHEET.X[:40] + 0.05
    spec = replace(TRANSFORM, dataset=stored(stores, new))
    entry = run_analysis(stores, spec, fitted)
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
    stores.cache.delete(spec.cache_key(fitted))
    monkeypatch.setattr(posterior_analyses, "EXTENSION_WORK", 0)
    assert run_analysis(stores, spec, fitted).meta == entry.meta


@pytest.mark.parametrize("variant", ["constrained", "published"])
def test_generated_data_are_the_engines(stores: Stores, variant: str) -> None:
    """Each data set is rebuilt from the weights of its draw."""
    job = fit_job(stores, variant=variant)
    tasks.fit(job.id)
    entry = run_analysis(stores, replace(RECONSTRUCTIONS, source="prior"), job.subject)
    direct = stores.posteriors.load(job.subject)
    assert direct is not None
    assert entry.arrays["data"].shape == (3, N, 3)
    for data, index in zip(entry.arrays["data"], (2, 3, 4), strict=True):
        weights = direct.weights(index, seed=5, scale=0.5, source="prior")
        np.testing.assert_array_equal(data, direct.reconstruct(SHEET.X, weights))


def test_advice_is_the_engines(stores: Stores) -> None:
    """Curves and suggestions need neither arrays nor a posterior."""
    spec = replace(ADVICE, dataset=stored(stores, SHEET.X))
    entry = run_analysis(stores, spec, None)
    fields = {name: value for name, value in entry.meta.items() if name != "sha256"}
    direct = advise(SHEET.X, n_neighbors=(5, 8), max_components=4).to_dict()
    assert fields == json.loads(json.dumps(direct))
    assert entry.arrays == {}


def test_an_estimate_is_the_engines(stores: Stores) -> None:
    """The figures of the engine, from data and parameters alone."""
    spec = replace(ESTIMATE, dataset=stored(stores, SHEET.X))
    entry = run_analysis(stores, spec, None)
    fields = {name: value for name, value in entry.meta.items() if name != "sha256"}
    assert fields == json.loads(json.dumps(estimate(SHEET.X, n_neighbors=8).to_dict()))
    assert entry.arrays == {}


def test_cancel_stops_between_groups(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished draws stay cached, the result does not, and the next summary continues with them."""
    monkeypatch.setattr(context, "PROGRESS_SECONDS", 0.0)
    job = analysis_job(stores, SUMMARY, fitted)
    indices = record_draws(monkeypatch)
    recording_draw = context.draw_and_cache  # type: ignore[attr-defined] # replaced by `record_draws`

    def draw_and_cancel(*arguments: Any) -> Any:
        draws = recording_draw(*arguments)
        stores.jobs.cancel(job.id)
        return draws

    monkeypatch.setattr(context, "draw_and_cache", draw_and_cancel)
    tasks.analyse(job.id, 0)
    assert stores.jobs.fetch(job.id).status == "cancelled"
    assert stores.cache.contains([SUMMARY.cache_key(fitted)]) == [False]
    assert indices == [2, 3, 4, 5]
    run_analysis(stores, SUMMARY, fitted)
    assert indices == [2, 3, 4, 5, 6, 7]


def test_refusal_of_the_engine_is_the_jobs_problem(stores: Stores, fitted: str) -> None:
    """New points with other features end the job with the engine's problem, a 422."""
    job = analysis_job(stores, replace(TRANSFORM, dataset=stored(stores, SHEET.X[:, :2])), fitted)
    tasks.analyse(job.id, 0)
    failed = stores.jobs.fetch(job.id).error
    assert failed is not None
    assert (failed.code, failed.status) == ("invalid-shape", 422)


def test_result_that_is_not_finite_is_refused() -> None:
    """NaN is accepted only in the array in which it has a meaning."""
    with pytest.raises(ProblemError, match="data of this reconstructions are not finite"):
        context.require_finite("reconstructions", Entry({}, {"data": np.array([np.inf])}))
    with pytest.raises(ProblemError, match="spread"):
        context.require_finite("summary", Entry({}, {"spread": np.array([np.nan])}), SUMMARY.may_be_nan)
    context.require_finite("summary", Entry({}, {"relative_gaps": np.array([np.nan])}), SUMMARY.may_be_nan)


def test_results_of_a_deleted_posterior_are_deleted(stores: Stores, fitted: str) -> None:
    """The cache is empty, and a later analysis is a 404."""
    run_analysis(stores, SUMMARY, fitted)
    run_analysis(stores, RECONSTRUCTIONS, fitted)
    job = analysis_job(stores, SUMMARY, fitted)
    stores.posteriors.delete(fitted)
    assert list(stores.cache.client.scan_iter("*")) == []
    tasks.analyse(job.id, 0)
    failed = stores.jobs.fetch(job.id).error
    assert failed is not None
    assert (failed.code, failed.status) == ("posterior-not-found", 404)
    assert list(stores.cache.client.scan_iter("*")) == []
