"""Analyses as values, and their task, run in this process."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

import glle_engine
from glle_engine.metrics.ranks import local_trustworthiness
from glle_engine.posterior.calibration import calibrate
from glle_engine.posterior.selection import advise
from tests.worker.execution.test_tasks import SHEET, N, draws_job, fit_job
from worker.analyses import posterior_analyses, registry
from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.posterior_analyses import (
    AdviceSpec,
    CalibrationSpec,
    ReconstructionsSpec,
    SummarySpec,
    TransformSpec,
)
from worker.analyses.registry import analysis_of
from worker.base.problems import ProblemError
from worker.execution import context, tasks
from worker.execution import draws as drawing
from worker.jobs.store import Job, Kind
from worker.records.cache_entry import Entry
from worker.records.draws import AUTO
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from worker.analyses.base import AnalysisSpec
    from worker.stores import Stores

STREAM: dict[str, Any] = {"first": 2, "seed": 5, "scale": 0.5, "source": "posterior"}
SUMMARY = SummarySpec(count=6, **STREAM)
TRANSFORM = TransformSpec(dataset="ds_1", draws=4, **STREAM)
RECONSTRUCTIONS = ReconstructionsSpec(count=3, **STREAM)
ADVICE = AdviceSpec(dataset="ds_1", n_neighbors=(5, 8), n_components=2, max_components=4, reg=1e-3)
CALIBRATION = CalibrationSpec(half_samples=4, draws=8, seed=1)
EMBEDDING = EmbeddingSpec(dataset="ds_1", method="pca", parameters={"n_components": 2}, scores=("trustworthiness",))
COMPARISON = ComparisonSpec(
    dataset="ds_1",
    methods=({"label": "a", "method": "pca", "parameters": {"n_components": 2}, "problem": None},),
    scores=("trustworthiness",),
)
SPECS = [SUMMARY, TRANSFORM, RECONSTRUCTIONS, CALIBRATION, ADVICE, EMBEDDING, COMPARISON]
OF_DATA = {"advice", "embedding", "comparison"}  # the others are of a posterior


@pytest.fixture(autouse=True)
def _here(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tasks use the test's stores."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)


@pytest.fixture
def fitted(stores: Stores) -> str:
    """The id of a fitted posterior."""
    job = fit_job(stores)
    tasks.fit(job.id)
    return job.subject


def analysis_job(stores: Stores, spec: AnalysisSpec, posterior: str | None) -> Job:
    """Create the job of an analysis."""
    subject = posterior or spec.to_dict()["dataset"]
    return stores.jobs.create(
        kind=spec.kind, claim=spec.cache_key(subject), posterior=posterior, spec=spec.to_dict(), total=spec.total
    )[0]


def made(stores: Stores, spec: AnalysisSpec, posterior: str | None) -> Entry:
    """Run an analysis and return its result."""
    job = analysis_job(stores, spec, posterior)
    tasks.analyse(job.id, job.round)
    ended = stores.jobs.fetch(job.id)
    assert ended.status == "succeeded", ended.error
    assert ended.done == ended.total
    entry = stores.cache.get(spec.cache_key(job.subject))
    assert entry is not None
    return entry


def stored(stores: Stores, values: Any) -> str:
    """Store a data set and return its id."""
    return stores.datasets.add(Table(values=np.asarray(values), source={"kind": "test"}))[0].id


def note_draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the index of each new draw is appended."""
    drawn: list[int] = []
    real = drawing.draw_and_cache

    def draw_and_note(*arguments: Any) -> Any:
        drawn.extend(key.index for key in arguments[3])
        return real(*arguments)

    monkeypatch.setattr(context, "draw_and_cache", draw_and_note)
    return drawn


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_survives_json(stores: Stores, spec: AnalysisSpec) -> None:
    """The job's record gives the same value and key."""
    job = analysis_job(stores, spec, None if spec.kind in OF_DATA else "post_1")
    assert analysis_of(job) == spec
    assert analysis_of(job).cache_key(job.subject) == spec.cache_key(job.subject)
    assert (job.total, job.subject) == (spec.total, "ds_1" if spec.kind in OF_DATA else "post_1")


def test_every_kind_of_job_is_made_by_someone() -> None:
    """The kinds are fits, draws, and the registered analyses."""
    assert {"fit", "draws", *registry._BY_KIND} == set(get_args(Kind))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_cache_key_tells_results_apart(spec: AnalysisSpec) -> None:
    """The key of a result covers each field, the engine's version, and the subject."""
    other: dict[str, Any] = {
        "first": 3, "seed": 6, "scale": 0.25, "source": "prior", "count": 7, "dataset": "ds_2", "draws": 5,
        "n_neighbors": (5, 9), "n_components": 3, "max_components": 5, "reg": 1e-2, "engine": "0.0.0",
        "calibrated": True, "half_samples": 6, "method": "lle", "parameters": {"n_components": 1}, "labels": "ds_2",
        "truth": "ds_2", "scores": ("residual-variance",), "methods": COMPARISON.methods * 2, "align": "first",
    }  # fmt: skip
    if spec.kind in {"embedding", "comparison"}:
        other["n_neighbors"] = 5
    keys = {replace(spec, **{name: other[name]}).cache_key("a") for name in spec.to_dict()}
    assert len(keys | {spec.cache_key("a"), spec.cache_key("b")}) == len(spec.to_dict()) + 2


def test_auto_is_one_number_for_everyone(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request calibrates; draws and summaries of any seed then use the record."""
    real, runs = CalibrationSpec.run, []

    def run_and_note(spec: CalibrationSpec, analysis_context: Any) -> Entry:
        runs.append(spec)
        return real(spec, analysis_context)

    monkeypatch.setattr(CalibrationSpec, "run", run_and_note)
    job, spec = draws_job(stores, fitted, count=5, scales=(AUTO, 1.0), grid=True)
    stages: list[str] = []
    monkeypatch.setattr(stores.jobs, "stage", lambda _, stage: stages.append(stage))
    for shard in range(spec.shards):
        tasks.draw(job.id, job.round, shard)
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.done, ended.total) == ("succeeded", 10, 10)
    assert "calibrating: half-samples" in stages
    known = stores.posteriors.calibration(fitted)
    assert known is not None
    assert known == posterior_analyses.calibration_facts(made(stores, CalibrationSpec(), fitted).meta)
    assert known == made(stores, replace(SUMMARY, scale=1.0, calibrated=True), fitted).meta["calibration"]
    assert len(runs) == 1
    keys = [key.cache_key(stores.posteriors.arrays_id(fitted)) for key in spec.at(known["scale"]).draws()]
    assert all(stores.cache.contains(keys))
    numbered, _ = draws_job(stores, fitted, count=5, scales=(known["scale"],))
    drawn = note_draws(monkeypatch)
    tasks.draw(numbered.id, 0, 0)
    assert drawn == [], "a draw at auto is the draw at the number"
    stores.cache.client.flushall()
    assert made(stores, CalibrationSpec(), fitted).meta["scale"] == known["scale"]
    stores.posteriors.delete(stores.posteriors.fetch(fitted))
    assert stores.posteriors.calibration(fitted) is None


def test_the_first_calibration_stays(stores: Stores, fitted: str) -> None:
    """A repeated calibration with other bits does not change the recorded scale."""
    stores.posteriors.calibrate(fitted, {"scale": 0.25, "ratio": 1.0})
    assert made(stores, CalibrationSpec(), fitted).meta["scale"] == 0.25
    assert stores.posteriors.calibration(fitted) == {"scale": 0.25, "ratio": 1.0}
    other = made(stores, CALIBRATION, fitted)
    assert other.meta["scale"] != 0.25, "one that was asked for with other numbers is its own"


def test_calibration_is_the_engines(stores: Stores, fitted: str) -> None:
    """The scale and the two spreads are those of the engine on the same data."""
    entry = made(stores, CALIBRATION, fitted)
    posterior = stores.posteriors.load(fitted)
    assert posterior is not None
    data = np.asarray(stores.datasets.values(stores.posteriors.fetch(fitted).dataset))
    found = calibrate(posterior, data, n_half_samples=4, n_draws=8, seed=1)
    assert {name: entry.meta[name] for name in found.to_dict()} == found.to_dict()
    np.testing.assert_array_equal(entry.arrays["half_sample_spread"], found.half_sample_spread)
    np.testing.assert_array_equal(entry.arrays["draw_spread"], found.draw_spread)


def test_a_calibrated_summary_is_of_draws_at_the_calibrated_scale(stores: Stores, fitted: str) -> None:
    """The summary has the calibrated scale, and contains the calibration."""
    entry = made(stores, replace(SUMMARY, scale=1.0, calibrated=True), fitted)
    scale = entry.meta["calibration"]["scale"]
    assert entry.meta["scale"] == scale
    plain = made(stores, replace(SUMMARY, scale=scale), fitted)
    np.testing.assert_array_equal(entry.arrays["spread"], plain.arrays["spread"])
    assert entry.arrays["half_sample_spread"].shape == (N,)


def test_a_range_is_the_same_however_it_is_written() -> None:
    """Order and repetition of n_neighbors change nothing."""
    assert replace(ADVICE, n_neighbors=(8, 5, 8)) == ADVICE


def test_summary_is_the_engines(stores: Stores, fitted: str) -> None:
    """Arrays to the bit, with local trust, quantiles over the points and the notes of the fit."""
    direct = glle_engine.fit(SHEET.X)
    summary = direct.summary(6, first=2, seed=5, scale=0.5)
    entry = made(stores, SUMMARY, fitted)
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


def test_trust_of_few_points_counts_fewer_neighbours(stores: Stores) -> None:
    """With fewer than twenty points, local trust uses as many neighbors as possible."""
    job = fit_job(stores, SHEET.X[:15], n_neighbors=5)
    tasks.fit(job.id)
    posterior = stores.posteriors.load(job.subject)
    assert posterior is not None
    expected = local_trustworthiness(SHEET.X[:15], posterior.embedding, 7)
    np.testing.assert_array_equal(made(stores, SUMMARY, job.subject).arrays["local_trust"], expected)


def test_draws_are_shared_with_draws_jobs(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws jobs and summaries share cached draws with the same bits."""
    job, spec = draws_job(stores, fitted, count=4, first=2, seed=5, scales=(0.5,))
    for shard in range(spec.shards):
        tasks.draw(job.id, 0, shard)
    drawn = note_draws(monkeypatch)
    shared = made(stores, SUMMARY, fitted)
    assert drawn == [6, 7]
    made(stores, replace(TRANSFORM, dataset=stored(stores, SHEET.X[:3])), fitted)
    assert drawn == [6, 7]
    stores.cache.client.flushall()
    alone = made(stores, SUMMARY, fitted)
    assert drawn == [6, 7, 2, 3, 4, 5, 6, 7]
    assert alone.meta == shared.meta, "the digest of all bits is in it"


def test_evicted_posterior_is_fitted_again(stores: Stores, fitted: str) -> None:
    """After a flush of the cache a result has the same bits, and the posterior is cached again."""
    before = {spec.kind: made(stores, spec, fitted).meta["sha256"] for spec in (SUMMARY, RECONSTRUCTIONS)}
    stores.cache.client.flushall()
    after = {spec.kind: made(stores, spec, fitted).meta["sha256"] for spec in (SUMMARY, RECONSTRUCTIONS)}
    assert after == before
    assert stores.posteriors.load(fitted) is not None


def test_known_result_is_not_made_again(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated task that finds its result only records the success."""
    made(stores, SUMMARY, fitted)
    monkeypatch.setattr(SummarySpec, "run", lambda *_: pytest.fail("made again"))
    made(stores, SUMMARY, fitted)


def test_task_of_an_old_round_does_nothing(stores: Stores, fitted: str) -> None:
    """A task of an earlier round does nothing; that of the new round makes the result."""
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


def test_training_points_get_their_own_places(stores: Stores, fitted: str) -> None:
    """The training data, transformed, are the reference embedding, at distance zero."""
    dataset = stores.posteriors.fetch(fitted).dataset
    entry = made(stores, replace(TRANSFORM, dataset=dataset, draws=0), fitted)
    posterior = stores.posteriors.load(fitted)
    assert posterior is not None
    assert set(entry.arrays) == {"embedding", "distances"}
    assert entry.arrays["embedding"].tobytes() == posterior.embedding.tobytes()
    assert not entry.arrays["distances"].any()


def test_new_points_are_the_engines_in_any_blocks(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding, distances, and over draws mean and covariance, whatever the size of a block."""
    new = SHEET.X[:40] + 0.05
    spec = replace(TRANSFORM, dataset=stored(stores, new))
    entry = made(stores, spec, fitted)
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
    assert made(stores, spec, fitted).meta == entry.meta


@pytest.mark.parametrize("variant", ["constrained", "published"])
def test_generated_data_are_the_engines(stores: Stores, variant: str) -> None:
    """Each data set is rebuilt from the weights of its draw."""
    job = fit_job(stores, variant=variant)
    tasks.fit(job.id)
    entry = made(stores, replace(RECONSTRUCTIONS, source="prior"), job.subject)
    direct = stores.posteriors.load(job.subject)
    assert direct is not None
    assert entry.arrays["data"].shape == (3, N, 3)
    for data, index in zip(entry.arrays["data"], (2, 3, 4), strict=True):
        weights = direct.weights(index, seed=5, scale=0.5, source="prior")
        np.testing.assert_array_equal(data, direct.reconstruct(SHEET.X, weights))


def test_advice_is_the_engines(stores: Stores) -> None:
    """The curves and suggestions, without arrays and without a posterior."""
    spec = replace(ADVICE, dataset=stored(stores, SHEET.X))
    entry = made(stores, spec, None)
    fields = {name: value for name, value in entry.meta.items() if name != "sha256"}
    direct = advise(SHEET.X, n_neighbors=(5, 8), max_components=4).to_dict()
    assert fields == json.loads(json.dumps(direct))
    assert entry.arrays == {}


def test_cancel_stops_between_groups(stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished draws stay cached, no result does, and the next summary continues with them."""
    monkeypatch.setattr(context, "PROGRESS_SECONDS", 0.0)
    job = analysis_job(stores, SUMMARY, fitted)
    drawn = note_draws(monkeypatch)
    noted = context.draw_and_cache  # type: ignore[attr-defined] # as it was noted

    def draw_and_cancel(*arguments: Any) -> Any:
        draws = noted(*arguments)
        stores.jobs.cancel(job.id)
        return draws

    monkeypatch.setattr(context, "draw_and_cache", draw_and_cancel)
    tasks.analyse(job.id, 0)
    assert stores.jobs.fetch(job.id).status == "cancelled"
    assert stores.cache.contains([SUMMARY.cache_key(fitted)]) == [False]
    assert drawn == [2, 3, 4, 5]
    made(stores, SUMMARY, fitted)
    assert drawn == [2, 3, 4, 5, 6, 7]


def test_refusal_of_the_engine_is_the_jobs_problem(stores: Stores, fitted: str) -> None:
    """New points of other features end the job with the engine's problem, a 422."""
    job = analysis_job(stores, replace(TRANSFORM, dataset=stored(stores, SHEET.X[:, :2])), fitted)
    tasks.analyse(job.id, 0)
    failed = stores.jobs.fetch(job.id).error
    assert failed is not None
    assert (failed.code, failed.status) == ("invalid-shape", 422)


def test_result_that_is_not_finite_is_refused() -> None:
    """NaN passes only in the array where it has a meaning."""
    with pytest.raises(ProblemError, match="data of this reconstructions are not finite"):
        context.require_finite("reconstructions", Entry({}, {"data": np.array([np.inf])}))
    with pytest.raises(ProblemError, match="spread"):
        context.require_finite("summary", Entry({}, {"spread": np.array([np.nan])}), SUMMARY.may_be_nan)
    context.require_finite("summary", Entry({}, {"relative_gaps": np.array([np.nan])}), SUMMARY.may_be_nan)


def test_deleted_posterior_takes_its_results_along(stores: Stores, fitted: str) -> None:
    """The cache is empty, and a later analysis is a 404."""
    made(stores, SUMMARY, fitted)
    made(stores, RECONSTRUCTIONS, fitted)
    job = analysis_job(stores, SUMMARY, fitted)
    stores.posteriors.delete(stores.posteriors.fetch(fitted))
    assert list(stores.cache.client.scan_iter("*")) == []
    tasks.analyse(job.id, 0)
    failed = stores.jobs.fetch(job.id).error
    assert failed is not None
    assert (failed.code, failed.status) == ("posterior-not-found", 404)
    assert list(stores.cache.client.scan_iter("*")) == []
