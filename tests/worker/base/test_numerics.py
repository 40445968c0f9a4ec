"""Separation of numerics kinds: an id never has two contents."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from glle_engine import NUMBERS, FitSpec
from tests.worker.execution.test_tasks import SHEET, draws_job, fit_job
from worker.analyses.posterior_analyses import CalibrationSpec
from worker.base import numerics
from worker.base.numerics import adopt, is_of_this_version, kind_of, numbers_for, numbers_of
from worker.base.versions import numbers_of_queue, queue_name, versioned
from worker.execution import tasks
from worker.execution.draws import store_draws
from worker.execution.forking_worker import GlleWorker
from worker.jobs import queue, recovery
from worker.jobs.rq_types import NAME, SERIALIZER, SafeJob, SafeQueue
from worker.observability.live_workers import workers_by_numbers
from worker.operations.health import other_queues, queue_states
from worker.records.draws import DrawKey
from worker.records.ids import posterior_id
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine import Posterior
    from worker.jobs.store import Job
    from worker.stores import Stores

KIND = "0123456789abcdef"
OTHER = numbers_of(KIND)
KEY = DrawKey(0, 0, 1.0, "posterior", "none")


@pytest.fixture(autouse=True)
def _here(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the tasks use the test's stores; restore the pinned kind afterwards."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    yield
    adopt("")


def alive(stores: Stores, numbers: str, name: str = "one") -> GlleWorker:
    """Register a live worker of a kind, as a worker process does."""
    adopt(kind_of(numbers))
    worker = GlleWorker(
        [queue_name(numbers)],
        name=name,
        connection=stores.client,
        serializer=SERIALIZER,
        job_class=SafeJob,
        queue_class=SafeQueue,
    )
    worker.register_birth()
    adopt("")
    return worker


def job_of(stores: Stores, numbers: str) -> Job:
    """Create and enqueue the job of a fit of a kind."""
    dataset, _ = stores.datasets.add(Table(values=SHEET.X, source={"kind": "test"}))
    spec = FitSpec().to_dict()
    id_ = posterior_id(dataset.id, spec, numbers)
    request = {"dataset": dataset.id, "spec": spec}
    job, _ = stores.jobs.create(kind="fit", claim=id_, posterior=id_, spec=request, total=1, numbers=numbers)
    stores.queue.enqueue(job)
    return job


def silent(job: Job, seconds: float) -> Job:
    """Return the job as if its record had not changed for some seconds."""
    return replace(job, touched=job.touched - int(1000 * seconds) - 1)


def waiting(stores: Stores, numbers: str) -> list[str]:
    """Return the waiting tasks of the queue of a kind."""
    ids = SafeQueue(queue_name(numbers), connection=stores.client, serializer=SERIALIZER).get_job_ids()
    return list(ids)


@pytest.mark.parametrize("kind", ["", KIND, "f" * 16, "00"])
def test_a_queue_names_the_numbers_of_its_workers(kind: str) -> None:
    """The name is parsed to the numbers; the pinned kind keeps its former queue."""
    numbers = numbers_of(kind)
    assert numbers_of_queue(queue_name(numbers)) == numbers
    assert (kind_of(numbers), is_of_this_version(numbers), numbers_for(numbers)) == (kind, True, numbers)
    assert (queue_name(numbers) == NAME) == (not kind)


@pytest.mark.parametrize("name", ["glle-other", "glle-1-9.9.9", f"glle-7-{OTHER}", "glle-", "other"])
def test_queues_of_other_versions_are_not_ours(name: str) -> None:
    """Queues of other numbers, formats or programs are not parsed."""
    assert numbers_of_queue(name) is None


def test_old_records_are_of_the_pinned_kind(stores: Stores) -> None:
    """Their numbers have no kind, and their draws keep their keys."""
    job = fit_job(stores)
    assert (job.numbers, job.queue) == (NUMBERS, NAME)
    tasks.fit(job.id)
    record = stores.posteriors.fetch(job.subject)
    assert record.arrays_id.startswith(f"{record.id}:")
    assert replace(record, provenance={}).arrays_id == record.id
    assert replace(record, provenance={}).numbers == "0.1.0"


def test_new_work_has_the_pinned_kind_if_possible(stores: Stores) -> None:
    """Without a live pinned worker it has the first live kind in order."""
    assert stores.queue.numbers_for_new() == NUMBERS
    alive(stores, numbers_of("ffff"), "last")
    alive(stores, OTHER)
    assert stores.queue.numbers_for_new() == OTHER
    assert sorted(workers_by_numbers(stores.client, stores.settings)) == [OTHER, numbers_of("ffff")]
    alive(stores, NUMBERS, "pinned")
    assert stores.queue.numbers_for_new() == NUMBERS
    assert {state.numbers for state in queue_states(stores)} == {NUMBERS, OTHER, numbers_of("ffff")}
    assert other_queues(stores) == []


def test_a_live_worker_is_remembered_for_a_moment(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is read again after that, and a missing worker is looked for each time."""
    clock, live = [0.0], [0]
    looks: list[float] = []

    def live_workers(_: object) -> int:
        looks.append(clock[0])
        return live[0]

    monkeypatch.setattr(queue, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(type(stores.queue), "live_workers", live_workers)
    for live[0], clock[0] in ((0, 100.0), (1, 100.1), (1, 100.2), (1, 101.0), (0, 101.2)):
        assert stores.queue.numbers_for_new() == NUMBERS
    assert looks == [100.0, 100.1, 101.2]


def test_a_worker_only_has_work_of_its_kind(stores: Stores) -> None:
    """Each job waits in the queue of its kind; a worker of another kind refuses it."""
    mine, theirs = job_of(stores, NUMBERS), job_of(stores, OTHER)
    assert mine.subject != theirs.subject
    assert (waiting(stores, NUMBERS), waiting(stores, OTHER)) == ([mine.id], [theirs.id])
    tasks.fit(theirs.id)
    refused = stores.jobs.fetch(theirs.id).error
    assert refused is not None
    assert (refused.code, refused.details) == ("other-numbers", {"numbers": OTHER, "own": NUMBERS})


def test_results_carry_the_kind(stores: Stores) -> None:
    """Posterior, draws and calibration record the kind of their worker."""
    adopt(KIND)
    fit = job_of(stores, OTHER)
    tasks.fit(fit.id)
    record = stores.posteriors.fetch(fit.subject)
    assert (record.numbers, record.provenance["numbers"]) == (OTHER, OTHER)
    job, spec = draws_job(stores, record.id, count=2)
    stores.client.hset(f"glle:job:{job.id}", "numbers", OTHER)
    for shard in range(spec.shards):
        tasks.draw(job.id, 0, shard)
    (head,) = stores.draws.heads(record.arrays_id, [spec.key(0)])
    assert head is not None
    assert head["numbers"] == OTHER
    assert CalibrationSpec(engine=OTHER).cache_key(record.id) != CalibrationSpec().cache_key(record.id)
    adopt("")
    again, spec = draws_job(stores, record.id, count=3)
    tasks.draw(again.id, 0, 0)
    ended = stores.jobs.fetch(again.id)
    assert ended.error is not None
    assert ended.error.code == "other-numbers", "the pinned kind draws nothing from it"


def test_a_lost_task_returns_to_the_queue_of_its_kind(stores: Stores) -> None:
    """A sweep by the API or by a worker of any kind enqueues it."""
    job = job_of(stores, OTHER)
    stores.client.delete(f"rq:queue:{queue_name(OTHER)}", f"rq:job:{job.id}")
    stores.recovery.repair(silent(stores.jobs.fetch(job.id), recovery.STALE_SECONDS))
    assert (waiting(stores, OTHER), waiting(stores, NUMBERS)) == ([job.id], [])


@pytest.mark.parametrize(("live", "status"), [((), "queued"), ((OTHER,), "queued"), ((NUMBERS, OTHER), "queued"),
                                              ((NUMBERS,), "failed")])  # fmt: skip
def test_work_of_a_kind_without_workers(stores: Stores, live: tuple[str, ...], status: str) -> None:
    """It waits; if only other kinds are live, it fails after a minute with the remedy."""
    for numbers in live:
        alive(stores, numbers, numbers.replace("+", "-"))
    job = job_of(stores, OTHER)
    assert stores.recovery.repair(silent(job, recovery.STALE_SECONDS)).status == "queued"
    ended = stores.recovery.repair(silent(stores.jobs.fetch(job.id), recovery.ABANDONED_SECONDS))
    assert ended.status == status
    if status == "failed":
        assert ended.error is not None
        assert (ended.error.code, ended.error.status) == ("no-worker-of-kind", 503)
        assert ended.error.details == {"numbers": OTHER, "live": [NUMBERS]}
        assert "numba" in ended.error.remedy
        assert waiting(stores, OTHER) == []


def test_a_dead_worker_of_another_kind_is_recovered(stores: Stores) -> None:
    """Its task is enqueued again in the queue of its kind."""
    job = job_of(stores, OTHER)
    worker = alive(stores, OTHER, "dead")
    task = SafeJob.fetch(job.id, connection=stores.client, serializer=SERIALIZER)
    worker.queues[0].remove(task)
    worker.prepare_execution(task)
    worker.prepare_job_execution(task)
    stores.recovery.requeue_tasks_of("dead")
    assert (waiting(stores, OTHER), waiting(stores, NUMBERS)) == ([job.id], [])


@pytest.fixture
def other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make later fits return other bits."""
    original = glle_engine.fit

    def fit(*args: Any, **more: Any) -> Posterior:
        posterior = original(*args, **more)
        embedding = posterior.embedding.copy()
        embedding[0, 0] = np.nextafter(embedding[0, 0], np.inf)
        return replace(posterior, embedding=embedding)

    monkeypatch.setattr(glle_engine, "fit", fit)


@pytest.fixture
def fitted(stores: Stores) -> str:
    """Fit a posterior and return its id."""
    job = fit_job(stores)
    tasks.fit(job.id)
    return job.subject


def test_a_fit_with_other_bits_is_refused_under_the_old_id(
    stores: Stores, fitted: str, request: pytest.FixtureRequest
) -> None:
    """Drawing from an evicted posterior with a new digest fails with the remedy and caches nothing."""
    request.getfixturevalue("other_bits")
    stores.cache.client.flushall()
    job, _ = draws_job(stores, fitted, count=1)
    tasks.draw(job.id, 0, 0)
    error = stores.jobs.fetch(job.id).error
    assert error is not None
    assert (error.code, error.status) == ("other-bits", 409)
    assert f"DELETE /v1/posteriors/{fitted}" in error.remedy
    assert stores.posteriors.load(fitted) is None
    again = fit_job(stores)
    tasks.fit(again.id)
    error = stores.jobs.fetch(again.id).error
    assert error is not None
    assert error.code == "other-bits"


def test_draws_of_a_fit_with_other_bits_have_other_keys(
    stores: Stores, fitted: str, request: pytest.FixtureRequest
) -> None:
    """After a deletion and a new fit of the same id, old draws and arrays are not used."""
    job, spec = draws_job(stores, fitted, count=1)
    tasks.draw(job.id, 0, 0)
    before = stores.posteriors.fetch(fitted)
    key = spec.key(0)
    assert stores.draws.contains(before.arrays_id, [key]) == [True]
    request.getfixturevalue("other_bits")
    stores.posteriors.delete(before)
    is_cached = stores.draws.contains(before.arrays_id, [key])
    again = fit_job(stores)
    tasks.fit(again.id)
    after = stores.posteriors.fetch(fitted)
    assert is_cached == [False]
    assert key.group_key(after.arrays_id) != key.group_key(before.arrays_id)
    assert stores.posteriors.load(fitted, before.arrays_sha256) is None
    assert stores.posteriors.load(fitted, after.arrays_sha256) is not None


def test_arrays_of_another_digest_count_as_evicted(stores: Stores, fitted: str) -> None:
    """Arrays of a concurrent fit with other bits are never read for the recorded fit."""
    record = stores.posteriors.fetch(fitted)
    other_record = replace(record, provenance={**record.provenance, "arrays_sha256": "0" * 64})
    assert stores.posteriors.arrays(record) is not None
    assert stores.posteriors.entry_sha256(record) is not None
    assert stores.posteriors.arrays(other_record) is None
    assert stores.posteriors.entry_sha256(other_record) is None
    assert stores.posteriors.load(fitted, "0" * 64) is None
    assert stores.posteriors.load(fitted, record.arrays_sha256) is not None


def test_a_task_draws_from_no_arrays_of_another_digest(stores: Stores, fitted: str) -> None:
    """It fits again, as after an eviction, and caches the recorded arrays."""
    record, posterior = stores.posteriors.fetch(fitted), stores.posteriors.load(fitted)
    key = versioned(f"posterior:{fitted}")
    entry = stores.cache.get(key)
    assert posterior is not None
    assert entry is not None
    others = {name: array + 1 if array.dtype.kind == "f" else array for name, array in entry.arrays.items()}
    stores.cache.put(key, {**entry.meta, "arrays_sha256": "0" * 64}, others)
    job, spec = draws_job(stores, fitted, count=1)
    tasks.draw(job.id, 0, 0)
    draw = stores.draws.get(record.arrays_id, spec.key(0))
    assert draw is not None
    assert draw.arrays["embedding"].tobytes() == posterior.draw(0).embedding.tobytes()
    assert stores.posteriors.load(fitted, record.arrays_sha256) is not None


@pytest.mark.parametrize("change", ["embedding", "eigenvalues", "diagnostics"])
def test_the_digest_of_a_draw_covers_all_its_results(stores: Stores, fitted: str, change: str) -> None:
    """It covers eigenvalues and diagnostics, but not the seconds."""
    posterior = stores.posteriors.load(fitted)
    assert posterior is not None
    draw = posterior.draw(0, align="none")
    other: Any = {
        "embedding": draw.embedding * -1,
        "eigenvalues": np.nextafter(draw.eigenvalues, 1),
        "diagnostics": {**draw.diagnostics, "steps": 99},
    }[change]

    def digest(new_draw: Any, seconds: float) -> str:
        store_draws(stores.draws, fitted, [KEY], [new_draw], seconds)
        (head,) = stores.draws.heads(fitted, [KEY])
        assert head is not None
        return str(head["sha256"])

    assert digest(draw, 0.1) == digest(draw, 0.2)
    assert digest(replace(draw, **{change: other}), 0.1) != digest(draw, 0.1)


def test_a_process_is_of_the_pinned_kind_until_it_is_measured() -> None:
    """After the measurement it has the measured kind."""
    assert numerics.own_numbers() == NUMBERS
    assert adopt(KIND) == OTHER == numerics.own_numbers()
