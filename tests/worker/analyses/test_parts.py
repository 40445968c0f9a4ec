"""Analyses whose parts are made by several tasks: summaries and audits, in one process and by real workers."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rq import SimpleWorker

import glle_engine
from glle_engine import GlleError
from glle_engine.audit.audit import PAIRS_OF_STAGES, audit
from glle_engine.base import progress
from glle_engine.methods import method
from glle_engine.reliability.calibration import HALF_SAMPLES, calibrate
from glle_engine.reliability.resamples import HALVES, SEPARATE, FunctionEmbedder, resample
from tests.conftest import in_turn, until
from tests.worker.analyses.conftest import found
from tests.worker.execution.workers import SHEET, store_dataset, worker
from worker.analyses import resamples
from worker.analyses.audit import MIN_HALVES, AuditSpec
from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import Recipe
from worker.analyses.posterior_analyses import SummarySpec
from worker.analyses.registry import analysis_of
from worker.analyses.resamples import RESAMPLES_PER_PART, StoredResamples, posterior_resamples
from worker.base.problems import notes_in_http
from worker.execution import process_guard, tasks
from worker.execution.worker import TaskJob
from worker.jobs.rq_tasks import SERIALIZER
from worker.records.cache_entry import Entry
from worker.records.ids import text
from worker.records.job import QUEUES
from worker.records.sharding import PartsSharding
from worker.storage.results import result_id

if TYPE_CHECKING:
    from glle_engine.posterior.summary import Summary
    from glle_engine.reliability.calibration import Calibration
    from worker.analyses.base import AnalysisSpec
    from worker.base.settings import Settings
    from worker.jobs.store import Job
    from worker.stores import Stores

MADE = "test:made"  # list of "worker block" in the queue's Redis; the worker is the pid of its forking process
RECORDING = f"""
import os, time, redis, worker.analyses.resamples as resamples
real = resamples.resample
def resample(*arguments, **options):
    client = redis.Redis.from_url(os.environ["GLLE_REDIS_URL"])
    time.sleep(0.1)  # so that no worker makes all blocks
    placed = real(*arguments, **options)
    client.rpush("{MADE}", f"{{os.getppid()}} {{options['stream'].number}}:{{options['first']}}")
    return placed
resamples.resample = resample
"""
SUMMARY = SummarySpec(n_draws=8, first=0, seed=0, scale=1.0, source="posterior", calibrated=True)
BLOCKS = [f"{HALVES.number}:{first}" for first in range(0, HALF_SAMPLES, RESAMPLES_PER_PART)]


def shared_job(
    stores: Stores, spec: AnalysisSpec, posterior: str | None, stage: str = "resamples", per_shard: int = 1
) -> Job:
    """Create and enqueue the job of an analysis whose parts are divided into shards."""
    parts = PartsSharding(stage, tuple(part.size for part in spec.parts()), per_shard)
    subject = posterior or spec.to_dict()["dataset"]
    job, _ = stores.jobs.create(
        kind=spec.kind, claim=spec.key(subject), posterior=posterior, spec=spec.to_dict(), total=spec.total,
        parts=parts,
    )  # fmt: skip
    stores.queue.enqueue(job)
    return stores.jobs.fetch(job.id)


class HereWorker(SimpleWorker):
    """RQ's worker in this process, which records the ids of its tasks in order."""

    job_class = TaskJob

    def __init__(self, stores: Stores) -> None:
        super().__init__(list(QUEUES), connection=stores.client, serializer=SERIALIZER)
        self.tasks: list[str] = []

    def execute_job(self, job: Any, queue: Any) -> None:
        """Run a task."""
        self.tasks.append(job.id)
        super().execute_job(job, queue)


def run_all(stores: Stores, job: Job, max_jobs: int | None = None) -> list[str]:
    """Run the tasks that wait in RQ, at most `max_jobs`; return their ids without the id of the job."""
    here = HereWorker(stores)
    here.work(burst=True, max_jobs=max_jobs)
    return [name.removeprefix(job.id) for name in here.tasks]


def result(stores: Stores, job: Job) -> Entry:
    """Return the result of a job; assert that it has succeeded."""
    ended = stores.jobs.fetch(job.id)
    assert ended.status == "succeeded", ended.error
    return found(stores, analysis_of(job), job.subject)


def check_bits(entry: Entry, direct: Summary, calibration: Calibration) -> None:
    """Assert that each array of a calibrated summary, and its calibration, equal the engine's to the bit."""
    for name in ("consensus", "covariance", "spread", "stability", "eigenvalues", "relative_gaps", "agreement"):
        np.testing.assert_array_equal(entry.arrays[name], getattr(direct, name), err_msg=name)
    np.testing.assert_array_equal(entry.arrays["half_sample_spread"], calibration.half_sample_spread)
    assert entry.meta["calibration"] == {**calibration.to_dict(), "notes": notes_in_http(calibration.notes)}
    assert entry.meta["scale"] == calibration.scale


@cache
def expected() -> tuple[Summary, Calibration]:
    """Return the summary and the calibration that the engine computes from the sheet."""
    posterior = glle_engine.fit(SHEET.X)
    calibration = calibrate(posterior, SHEET.X)
    return posterior.summary(8, scale=calibration.scale), calibration


def test_parts_are_the_engines_and_counted(stores: Stores, posterior_id: str, blocks: list[tuple[str, int]]) -> None:
    """The task of a shard makes its blocks of resamples, each once; the result has the engine's bits.

    The first shard enqueues the others. The task of the analysis is the last one, and only this task ends the job. The
    progress counts the resamples in finished blocks.
    """
    job = shared_job(stores, SUMMARY, posterior_id)
    seen, names = [], list[str]()
    while (now := stores.jobs.fetch(job.id)).is_open:
        seen.append((now.status, now.stage, now.done, now.total))
        names += run_all(stores, job, 1)
    assert (names[0], names[-1]) == ("-s0", "")
    assert sorted(names[:-1]) == [f"-s{shard}" for shard in range(len(BLOCKS))]
    assert len(blocks) == len(set(blocks))
    check_bits(result(stores, job), *expected())
    total = RESAMPLES_PER_PART * len(BLOCKS)
    assert seen[0] == ("queued", "queued", 0, SUMMARY.total)
    assert seen[1:] == [("running", "resamples", done, total) for done in range(4, total + 1, RESAMPLES_PER_PART)]
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.done, ended.total) == ("succeeded", SUMMARY.total, SUMMARY.total)


def pca_audit(stores: Stores, **fields: Any) -> AuditSpec:
    """Store the sheet, and return the parameters of an audit of its PCA."""
    parameters = method("pca").spec().to_dict()
    return AuditSpec(dataset=store_dataset(stores), method="pca", parameters=parameters, seed=3, **fields)


def test_an_audit_in_parts_is_the_engines(stores: Stores, blocks: list[tuple[str, int]]) -> None:
    """The tasks of shards embed the halves, each once; the audit equals the engine's."""
    spec = pca_audit(stores, standardize="zscore")
    job = shared_job(stores, spec, None)
    assert run_all(stores, job) == ["-s0", "-s1", ""]
    assert [name for name, _ in blocks] == [SEPARATE.name] * len(blocks)
    assert (
        len(set(blocks))
        == len(blocks)
        >= MIN_HALVES // RESAMPLES_PER_PART
        == PAIRS_OF_STAGES[1] * 2 // RESAMPLES_PER_PART
    )
    direct = audit(SHEET.X, method="pca", standardize="zscore", seed=3)
    entry = result(stores, job)
    assert entry.meta["verdict"] == direct.verdict
    assert entry.meta["remains"] == direct.remains
    for name, array in direct.arrays().items():
        np.testing.assert_array_equal(entry.arrays[name], array)


def test_labels_are_added_without_new_halves(stores: Stores, blocks: list[tuple[str, int]]) -> None:
    """An audit with labels, or with another number of neighbors, reads the halves of an earlier audit."""
    labels = store_dataset(stores, (SHEET.X[:, :1] > 0).astype(float))
    spec = pca_audit(stores)
    run_all(stores, shared_job(stores, spec, None))
    made = len(blocks)
    job = shared_job(stores, replace(spec, labels=labels, score_neighbors=10), None)
    run_all(stores, job)
    assert result(stores, job).meta["groups"] is not None
    assert len(blocks) == made


class SomeFail(FunctionEmbedder):
    """Embedder whose resamples 1 and 5 fail."""

    def __call__(self, sample: Any, on_progress: Any) -> Any:
        """Return an embedding, or raise `GlleError`."""
        if sample.number in {1, 5}:
            raise GlleError(f"Number {sample.number}.", remedy="None.")
        return super().__call__(sample, on_progress)


def test_failed_resamples_keep_their_place() -> None:
    """If a resample fails, the others keep their numbers, so that pairs of halves stay pairs."""
    embedder, kept = SomeFail(lambda points: points[:, :2], SHEET.X), dict[str, Entry]()
    context: Any = SimpleNamespace(find_part=kept.get, keep_part=lambda key, entry, _: kept.update({key: entry}))
    stored = StoredResamples(("post_1",), SEPARATE, 0, lambda _: embedder)
    direct = resample(embedder, 8, stream=SEPARATE)
    for _ in range(2):
        loaded = stored.load_or_compute(context, 8, progress.silent)
        np.testing.assert_array_equal(loaded.places, direct.places)
        assert loaded.problems == direct.problems
        np.testing.assert_array_equal(stored.load_or_compute(context, 8, progress.silent, 4).places, direct.places[4:])
    assert all(np.isfinite(entry.arrays["places"]).all() for entry in kept.values())


def test_resamples_of_a_part_are_reported_while_it_is_made(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last resample of a part is not reported before the part is stored."""
    monkeypatch.setattr(tasks, "PROGRESS_SECONDS", 0.0)
    job, counts = shared_job(stores, SUMMARY, posterior_id), list[int]()
    advance = stores.jobs.advance

    def record(id_: str, shard: int, count: int) -> Job | None:
        counts.append(count)
        key = posterior_resamples(posterior_id, HALVES, 0).key(range(4 * shard, 4 * shard + 4))
        assert count < RESAMPLES_PER_PART or stores.results.contains([key]) == [True]
        return advance(id_, shard, count)

    monkeypatch.setattr(stores.jobs, "advance", record)
    tasks.draw(job.id, 0)
    assert {1, 3} < set(counts)
    assert counts[-1] == RESAMPLES_PER_PART


def test_a_killed_task_loses_no_part(
    stores: Stores, posterior_id: str, blocks: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeated task of a shard makes only the parts that the killed task has not stored; the bits are the same."""

    class KilledError(BaseException):
        """The end of the process."""

    recording: Any = vars(resamples)["resample"]

    def killing(*arguments: Any, **options: Any) -> Any:
        if len(blocks) == 2:
            raise KilledError
        return recording(*arguments, **options)

    job = shared_job(stores, SUMMARY, posterior_id, per_shard=3)
    with monkeypatch.context() as patched:
        patched.setattr(resamples, "resample", killing)
        with pytest.raises(KilledError):
            tasks.draw(job.id, 0)
    assert stores.jobs.fetch(job.id).status == "running"
    names = run_all(stores, job)
    assert (names[0], names[-1]) == ("-s0", "")
    assert len(blocks) == len(set(blocks))
    check_bits(result(stores, job), *expected())


def test_a_cancelled_job_stops_its_parts(
    stores: Stores, posterior_id: str, blocks: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation stops the running task within a part and removes the waiting tasks; there is no result."""
    monkeypatch.setattr(tasks, "PROGRESS_SECONDS", 0.0)
    job = shared_job(stores, SUMMARY, posterior_id)
    recording, calls = vars(resamples)["resample"], list[int]()

    def cancelling(*arguments: Any, **options: Any) -> Any:
        def report(*progress: Any) -> None:
            calls.append(1)
            if len(calls) == 2:
                stores.queue.withdraw(stores.jobs.cancel(job.id))
            on_progress(*progress)

        on_progress = options["on_progress"]
        return recording(*arguments, **{**options, "on_progress": report})

    monkeypatch.setattr(resamples, "resample", cancelling)
    run_all(stores, job)
    assert (len(calls), blocks) == (2, [])
    assert stores.jobs.fetch(job.id).status == "cancelled"
    assert in_turn(stores) == []


def test_a_part_that_fails_ends_the_job(
    stores: Stores, posterior_id: str, blocks: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem of a part becomes the problem of the job; the waiting tasks end without work."""

    def fail(*_: Any, **__: Any) -> Any:
        message = "a part"
        raise MemoryError(message)

    job = shared_job(stores, SUMMARY, posterior_id)
    run_all(stores, job, 1)
    with monkeypatch.context() as patched:
        patched.setattr(resamples, "resample", fail)
        run_all(stores, job, 1)
    failed = stores.jobs.fetch(job.id)
    assert failed.status == "failed"
    assert failed.error is not None
    before = len(blocks)
    run_all(stores, job)
    assert len(blocks) == before
    assert stores.jobs.fetch(job.id).error == failed.error


@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
def test_two_workers_make_the_blocks(stores: Stores, posterior_id: str, settings: Settings) -> None:
    """Both workers make blocks of one summary, each block is made once, and the result has the engine's bits."""
    with worker(settings, "first", RECORDING), worker(settings, "second", RECORDING):
        until(lambda: stores.queue.live_workers() == 2)
        job = shared_job(stores, SUMMARY, posterior_id)
        until(lambda: not stores.jobs.fetch(job.id).is_open, 100)
    makers, blocks = zip(*(text(raw).split(" ") for raw in stores.client.lrange(MADE, 0, -1)), strict=True)
    assert len(set(makers)) == 2, "one worker made all blocks"
    assert sorted(blocks) == sorted(BLOCKS)
    check_bits(result(stores, job), *expected())


def compared(stores: Stores) -> ComparisonSpec:
    """Return a comparison of two methods with audits."""
    dataset, rows = store_dataset(stores), []
    for name, options in (("pca", {}), ("isomap", {"n_neighbors": 10})):
        parameters = method(name).spec(**options).to_dict()
        recipe = Recipe(dataset=dataset, method=name, parameters=parameters)
        stores.embeddings.request(recipe, "")
        audit_of = AuditSpec(dataset=dataset, embedding=recipe.id, recipe=asdict(recipe))
        row = {"label": name, "title": name, "method": name, "parameters": parameters, "problem": None}
        rows.append({**row, "audit": audit_of.to_dict()})
    return ComparisonSpec(dataset=dataset, methods=tuple(rows), audits=True, scores=("trustworthiness",))


def test_a_comparison_in_parts_is_that_of_one_task(stores: Stores, blocks: list[tuple[str, int]]) -> None:
    """A comparison has a short audit of each candidate, then whole audits; its result is that of a single task.

    Each half is embedded once, and the whole audits are stored as results of their own.
    """
    spec = compared(stores)
    assert [part.size for part in spec.parts()] == [1, 1, 1, 1]
    assert not replace(spec, audits=False).parts()
    assert [recipe.id for recipe in spec.recipes()] == [row["audit"]["embedding"] for row in spec.methods]
    job = shared_job(stores, spec, None, "candidates")
    names = run_all(stores, job)
    assert (names[0], names[-1], len(names)) == ("-s0", "", 5)
    made = len(blocks)
    shared = result(stores, job)
    assert [row["label"] for row in shared.meta["rows"]] == ["pca", "isomap"]
    assert shared.meta["sentences"]
    for row, of_row in zip(shared.meta["rows"], spec.methods, strict=True):
        stored = stores.find_result(AuditSpec.from_dict(of_row["audit"]), spec.dataset)
        assert (stored is None) == row["is_preliminary"]
        assert stored is None or stored.meta["verdict"] == row["verdict"]
        embedded = stores.embeddings.find_entry(of_row["audit"]["embedding"])
        assert embedded is not None
        assert row["seconds"].keys() > embedded.meta["seconds"].keys()
        assert row["eigenvalues"] == embedded.meta["eigenvalues"]
    one_task, _ = stores.jobs.create(
        kind=spec.kind, claim="alone", posterior=None, spec=spec.to_dict(), total=spec.total
    )
    stores.results.delete(result_id(spec.key(spec.dataset)))
    tasks.analyze(one_task.id)
    assert result(stores, one_task).meta == shared.meta
    assert len(blocks) == made
