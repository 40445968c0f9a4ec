"""Analysis specifications, and their tasks run in this process."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

import glle_engine
from glle_engine.metrics.ranks import local_trustworthiness
from tests.worker.analyses.conftest import analysis_job, run_analysis
from tests.worker.execution.workers import SHEET, store_dataset
from worker.analyses import posterior_analyses, registry
from worker.analyses.audit import MIN_HALVES, AuditSpec, groups_of
from worker.analyses.comparison import ComparisonSpec, align
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.posterior_analyses import (
    CalibrationSpec,
    ReconstructionsSpec,
    SummarySpec,
    TransformSpec,
)
from worker.analyses.registry import analysis_of
from worker.analyses.resamples import RESAMPLES_PER_PART
from worker.base.problems import ProblemError
from worker.execution import context, tasks
from worker.execution import draws as drawing
from worker.jobs.store import Kind
from worker.records.cache_entry import Entry
from worker.storage.results import result_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glle_engine import Draw, Posterior
    from worker.analyses.base import AnalysisSpec
    from worker.records.draws import DrawAddress
    from worker.stores import Stores

STREAM: dict[str, Any] = {"first": 2, "seed": 5, "scale": 0.5, "source": "posterior"}
SUMMARY = SummarySpec(n_draws=6, **STREAM)
TRANSFORM = TransformSpec(dataset="ds_1", n_draws=4, **STREAM)
RECONSTRUCTIONS = ReconstructionsSpec(n_draws=3, **STREAM)
CALIBRATION = CalibrationSpec(n_resamples=4, n_draws=8, seed=1)
EMBEDDING = EmbeddingSpec(dataset="ds_1", method="pca", parameters={"n_components": 2}, scores=("trustworthiness",))
COMPARISON = ComparisonSpec(
    dataset="ds_1",
    methods=({"label": "a", "title": "A", "method": "pca", "parameters": {"n_components": 2}, "problem": None},),
    scores=("trustworthiness",),
)
AUDIT = AuditSpec(dataset="ds_1", coordinates="ds_2")
SPECS = [SUMMARY, TRANSFORM, RECONSTRUCTIONS, CALIBRATION, EMBEDDING, COMPARISON, AUDIT]
OF_DATA = {"embedding", "comparison", "audit"}  # the other analyses need a posterior


def record_draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the index of each new draw."""
    indices: list[int] = []

    def draw_and_record(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
        indices.extend(key.index for key in keys)
        return drawing.make_draws(posterior, keys)

    monkeypatch.setattr(context, "make_draws", draw_and_record)
    return indices


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_specification_survives_json(stores: Stores, spec: AnalysisSpec) -> None:
    """The record of a job gives back an equal analysis, with the same key."""
    job = analysis_job(stores, spec, None if spec.kind in OF_DATA else "post_1")
    assert analysis_of(job) == spec
    assert analysis_of(job).key(job.subject) == spec.key(job.subject)
    assert (job.total, job.subject) == (spec.total, "ds_1" if spec.kind in OF_DATA else "post_1")


def test_every_kind_of_job_has_a_task() -> None:
    """The kinds of jobs are fits, draws and the registered analyses."""
    assert {"fit", "draws", *registry._BY_KIND} == set(get_args(Kind))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_the_key_of_a_result_covers_every_field(spec: AnalysisSpec) -> None:
    """The key of a result also covers the engine's version and the subject."""
    other: dict[str, Any] = {
        "first": 3, "seed": 6, "scale": 0.25, "source": "prior", "n_draws": 7, "dataset": "ds_2",
        "n_neighbors": (5, 9), "n_components": 3, "max_components": 5, "reg": 1e-2, "engine": "0.0.0",
        "calibrated": True, "n_resamples": 6, "method": "lle", "parameters": {"n_components": 1}, "labels": "ds_2",
        "truth": "ds_2", "scores": ("residual-variance",), "standardize": "variance", "metric": "cosine",
        "methods": COMPARISON.methods * 2, "align": "first", "coordinates": "ds_3", "embedding": "emb_1",
        "recipe": asdict(EMBEDDING.recipe), "blocks": "who", "score_neighbors": 5, "audits": True,
    }  # fmt: skip
    keys = {replace(spec, **{name: other[name]}).key("a") for name in spec.to_dict()}
    assert len(keys | {spec.key("a"), spec.key("b")}) == len(spec.to_dict()) + 2


def test_the_first_calibration_stays(stores: Stores, posterior_id: str) -> None:
    """A repeated calibration with other bits does not change the recorded scale."""
    stores.posteriors.calibrate(posterior_id, {"scale": 0.25, "ratio": 1.0})
    assert run_analysis(stores, CalibrationSpec(), posterior_id).meta["scale"] == 0.25
    assert stores.posteriors.calibration(posterior_id) == {"scale": 0.25, "ratio": 1.0}
    other = run_analysis(stores, CALIBRATION, posterior_id)
    assert other.meta["scale"] != 0.25, "an explicit calibration with other parameters is separate"


def test_summary_is_the_engines(stores: Stores, posterior_id: str) -> None:
    """Arrays equal the engine's to the bit; trust, quantiles and the notes of the fit are those of the engine."""
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
    assert (entry.meta["n_draws"], entry.meta["first"], entry.meta["scale"]) == (6, 2, 0.5)


def test_a_stored_result_is_not_computed_again(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second job with an equal request makes no draw, even without the cache.

    The result has one record, which is about the posterior. If it is deleted, the next job makes the same bits.
    """
    indices = record_draws(monkeypatch)
    first = run_analysis(stores, SUMMARY, posterior_id)
    stores.cache.client.flushall()
    assert run_analysis(stores, SUMMARY, posterior_id).meta == first.meta
    assert indices == [2, 3, 4, 5, 6, 7]
    (id_,) = stores.results.ids_in(f"of:{posterior_id}")
    stores.results.delete(id_)
    assert run_analysis(stores, SUMMARY, posterior_id).meta == first.meta, "it contains the digest of all bits"


def test_new_points_are_the_engines_in_any_blocks(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions, distances, means and covariances are the engine's, and do not depend on the size of the blocks."""
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
    stores.results.delete(result_id(spec.key(posterior_id)))
    monkeypatch.setattr(posterior_analyses, "EXTENSION_WORK", 0)
    assert run_analysis(stores, spec, posterior_id).meta == entry.meta


def test_cancel_stops_between_groups(stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled analysis stops after the lane group in progress, and stores nothing."""
    monkeypatch.setattr(context, "PROGRESS_SECONDS", 0.0)
    job = analysis_job(stores, SUMMARY, posterior_id)
    indices = record_draws(monkeypatch)
    recording_draw = vars(context)["make_draws"]

    def draw_and_cancel(*arguments: Any) -> Any:
        draws = recording_draw(*arguments)
        stores.jobs.cancel(job.id)
        return draws

    monkeypatch.setattr(context, "make_draws", draw_and_cancel)
    tasks.analyze(job.id)
    assert stores.jobs.fetch(job.id).status == "cancelled"
    assert not stores.has_result(SUMMARY, posterior_id)
    assert indices == [2, 3, 4, 5]


def test_result_that_is_not_finite_is_refused() -> None:
    """NaN is accepted only in the array in which it has a meaning."""
    with pytest.raises(ProblemError, match="array 'data' of the result \\(reconstructions\\) has NaN or infinite"):
        context.require_finite("reconstructions", Entry({}, {"data": np.array([np.inf])}))
    with pytest.raises(ProblemError, match="spread"):
        context.require_finite("summary", Entry({}, {"spread": np.array([np.nan])}), SUMMARY.may_be_nan)
    context.require_finite("summary", Entry({}, {"relative_gaps": np.array([np.nan])}), SUMMARY.may_be_nan)


CALIBRATED = SummarySpec(n_draws=8, first=0, seed=0, scale=1.0, source="posterior", calibrated=True)


def test_more_resamples_use_those_that_exist(stores: Stores, posterior_id: str, blocks: list[tuple[str, int]]) -> None:
    """Each block of resamples is made once: a request for more resamples or for other draws reads the stored blocks."""
    run_analysis(stores, CalibrationSpec(n_resamples=8, n_draws=8), posterior_id)
    assert blocks == [("half-samples", 0), ("half-samples", 4)]
    run_analysis(stores, CALIBRATED, posterior_id)
    assert blocks == [("half-samples", first) for first in range(0, 20, RESAMPLES_PER_PART)]
    run_analysis(stores, replace(CALIBRATED, n_draws=4, seed=1), posterior_id)
    assert len(blocks) == 5


@pytest.mark.parametrize(
    ("labels", "column", "expected"),
    [
        (["b", "a"], [1.0, 2.0], ["b", "a"]),
        ([3, 4], [1.0, 2.0], [3, 4]),
        (None, [1.0, 2.0], [1, 2]),
        (None, [1.5, 2.0], ["1.5", "2.0"]),
    ],
)
def test_groups_are_texts_or_integers(labels: Any, column: Any, expected: list[Any]) -> None:
    """The groups of points are the labels of a data set or, without labels, its first column."""
    extras = {} if labels is None else {"labels": np.array(labels)}
    context: Any = SimpleNamespace(extras=lambda _: extras, values=lambda _: np.array([column, [7.0, 8.0]]).T)
    assert groups_of(context, "ds_1").tolist() == expected


def test_an_audit_by_a_method_has_halves() -> None:
    """An audit by a method is divided into parts that embed halves; an audit of coordinates alone has no parts."""
    assert AUDIT.parts() == []
    for spec in (replace(AUDIT, method="pca"), replace(AUDIT, coordinates=None, method="pca")):
        assert sum(part.size for part in spec.parts()) == MIN_HALVES


def test_an_aligned_embedding_is_the_nearest_similar_one() -> None:
    """A turned, scaled and moved copy of the target becomes the target; equal points are moved to its mean."""
    target = np.random.default_rng(0).standard_normal((30, 2))
    turned = 3 * target @ np.array([[0.6, -0.8], [0.8, 0.6]]) + 5
    np.testing.assert_allclose(align(turned, target), target, atol=1e-12)
    np.testing.assert_allclose(align(np.ones((30, 2)), target), np.tile(target.mean(axis=0), (30, 1)), atol=1e-12)
