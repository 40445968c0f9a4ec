"""Schema and numerics versions: records of other versions are read or refused, never misread or changed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import NUMBERS, FitSpec
from service.submission.idempotency import once
from worker.analyses.embedding import Recipe
from worker.analyses.posterior_analyses import CalibrationSpec
from worker.base import versions
from worker.base.problems import ProblemError
from worker.base.versions import SCHEMA
from worker.execution import tasks
from worker.jobs import recovery
from worker.jobs.rq_types import NAME, SERIALIZER, SafeQueue
from worker.jobs.store import job_key
from worker.records.cache_entry import Entry
from worker.records.draws import DrawKey
from worker.records.ids import digest, posterior_id
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.jobs.store import Job
    from worker.stores import Stores

DATA = "ds_0123456789abcdef0123456789abcdef"
KEY = {
    "id": "abc", "tenant": "alice", "name": "", "scopes": ["read"], "created": "2025-01-01", "expires": None,
    "secrets": [],
}  # fmt: skip

# Records of schema 1, which have no format field.
FIRST: dict[str, dict[str, Any]] = {
    "posterior": {
        "id": "post_1", "dataset": DATA, "n": 3, "d": 2, "spec": {}, "diagnostics": {}, "eigenvalues": [],
        "seconds": 0.1, "arrays": {}, "nbytes": 0, "provenance": {"engine": "0.1.0"}, "job": "job_1", "created": "now",
    },
    "calibration": {"scale": 0.5},
    "embedding": {
        "recipe": {"dataset": DATA, "method": "isomap", "parameters": {}, "labels": None, "engine": "0.1.0"},
        "job": "job_1", "tenant": "default",
    },
    "dataset": {
        "id": DATA, "sha256": "", "n": 3, "d": 2, "dtype": "float64", "nbytes": 48, "names": None, "has_labels": False,
        "has_coordinates": False, "source": {}, "created": "now",
    },
    "idempotency": {"asked": digest("POST", {}), "made": "job_1"},
    "job": {
        "id": "job_1", "kind": "fit", "status": "succeeded", "done": "1", "total": "1", "stage": "done",
        "created": "now", "spec": "{}", "round": "0", "touched": "0",
    },
}  # fmt: skip


def put(stores: Stores, kind: str, raw: str) -> None:
    """Write a record as another version does."""
    if kind == "job":
        fields = json.loads(raw) if raw.startswith("{") else {"id": "job_1", "status": raw}
        stores.client.hset(job_key("job_1"), mapping=fields)
    elif kind == "dataset":
        folder = Path(stores.settings.data_dir, "datasets")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{DATA}.json").write_text(raw)
    elif kind == "keys":
        Path(stores.settings.data_dir, "keys.json").write_text(raw)
    else:
        stores.client.set(NAMES[kind], raw)


NAMES = {
    "posterior": "glle:posterior:post_1",
    "calibration": "glle:calibration:post_1",
    "embedding": "glle:embedding:emb_1",
    "idempotency": f"glle:idempotency:{digest('word')}",
}


def stored_record(stores: Stores, kind: str) -> Any:
    """Return the stored record as bytes."""
    if kind == "job":
        return stores.client.hgetall(job_key("job_1"))
    if kind == "dataset":
        return (Path(stores.settings.data_dir, "datasets") / f"{DATA}.json").read_bytes()
    if kind == "keys":
        return Path(stores.settings.data_dir, "keys.json").read_bytes()
    return stores.client.get(NAMES[kind])


def _never() -> Job:
    raise AssertionError


READERS: dict[str, tuple[Callable[[Stores], Any], ...]] = {
    "posterior": (
        lambda stores: stores.posteriors.fetch("post_1").n,
        lambda stores: stores.posteriors.rename("post_1", {"name": "mine"}),
    ),
    "calibration": (
        lambda stores: stores.posteriors.calibration("post_1"),
        lambda stores: stores.posteriors.calibrate("post_1", {"scale": 9.0}),
    ),
    "embedding": (lambda stores: stores.embeddings.fetch("emb_1").recipe.method,),
    "dataset": (
        lambda stores: stores.datasets.get(DATA),
        lambda stores: list(stores.datasets.newest()),
        lambda stores: stores.datasets.rename(DATA, {"name": "mine"}),
        lambda stores: stores.datasets.delete(DATA),
    ),
    "idempotency": (lambda stores: once(stores, "word", ("POST", {}), _never),),
    "job": (
        lambda stores: stores.jobs.fetch("job_1").kind,
        lambda stores: stores.jobs.cancel("job_1"),
    ),
    "keys": (
        lambda stores: stores.keys.all(),
        lambda stores: stores.keys.verify("glle_abc_x"),
        lambda stores: stores.keys.create("alice", ("read",), "", None),
    ),
}


@pytest.mark.parametrize("kind", FIRST)
def test_records_without_a_version_are_read(stores: Stores, kind: str) -> None:
    """Records without a version have version 1."""
    put(stores, "job", json.dumps(FIRST["job"]))
    put(stores, kind, json.dumps(FIRST[kind]))
    assert READERS[kind][0](stores) is not None


@pytest.mark.parametrize("kind", READERS)
def test_newer_records_are_refused_and_left_unchanged(stores: Stores, kind: str) -> None:
    """Reading, changing and deleting are refused with the remedy; no byte changes."""
    put(stores, "job", json.dumps(FIRST["job"]))
    put(stores, kind, json.dumps({**FIRST.get(kind, {"keys": [KEY]}), "format": SCHEMA + 1, "what": "is new"}))
    before = stored_record(stores, kind)
    for reader in READERS[kind]:
        with pytest.raises(ProblemError) as refused:
            reader(stores)
        problem = refused.value.problem
        assert (problem.code, problem.status) == ("written-by-newer-version", 503)
        assert "docs/how-to/upgrades.md" in problem.remedy
    assert stored_record(stores, kind) == before


@pytest.mark.parametrize("raw", ["{", "[]", '{"format": 0}', '{"format": true}', '{"format": "x"}', '{"a": 1}'])
@pytest.mark.parametrize("kind", ["posterior", "embedding", "dataset"])
def test_damaged_records_are_refused(stores: Stores, kind: str, raw: str) -> None:
    """A damaged record gives a problem, not an internal error."""
    put(stores, kind, raw)
    with pytest.raises(ProblemError) as refused:
        READERS[kind][0](stores)
    assert (refused.value.problem.code, refused.value.problem.status) == ("record-unreadable", 500)


@pytest.mark.parametrize("fields", [{"kind": "divination"}, {"status": "asleep"}, {"done": "some"}, {"spec": "{"}])
def test_a_job_that_cannot_be_read_is_refused(stores: Stores, fields: dict[str, str]) -> None:
    """An unknown kind, status or number is refused."""
    put(stores, "job", json.dumps({**FIRST["job"], **fields}))
    with pytest.raises(ProblemError) as refused:
        stores.jobs.get("job_1")
    assert refused.value.problem.code == "record-unreadable"


@pytest.mark.parametrize("kind", READERS)
def test_an_older_schema_is_read_until_it_is_dropped(
    stores: Stores, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next version reads schema 1 until `OLDEST_SCHEMA` excludes it; then it refuses it unchanged."""
    put(stores, "job", json.dumps(FIRST["job"]))
    put(stores, kind, json.dumps(FIRST.get(kind, [KEY])))
    monkeypatch.setattr(versions, "SCHEMA", 3)
    assert READERS[kind][0](stores) is not None
    monkeypatch.setattr(versions, "OLDEST_SCHEMA", 2)
    stores.keys._seen = None
    before = stored_record(stores, kind)
    for reader in READERS[kind]:
        stores.keys._look_again = 0.0
        with pytest.raises(ProblemError) as refused:
            reader(stores)
        problem = refused.value.problem
        assert (problem.code, problem.status) == ("written-by-older-version", 503)
        assert "has schema 1" in problem.detail
        assert "reads schemas 2 to 3" in problem.detail
    assert stored_record(stores, kind) == before


def test_a_changed_record_gets_the_present_schema(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed posterior of schema 1 gets the present schema, which the earlier version refuses."""
    put(stores, "posterior", json.dumps(FIRST["posterior"]))
    stores.posteriors.rename("post_1", {"name": "mine"})
    assert json.loads(stored_record(stores, "posterior"))["format"] == SCHEMA
    assert stores.posteriors.fetch("post_1").name == "mine"
    monkeypatch.setattr(versions, "SCHEMA", 1)
    with pytest.raises(ProblemError) as refused:
        stores.posteriors.fetch("post_1")
    assert refused.value.problem.code == "written-by-newer-version"


def test_the_key_file_gets_the_present_schema(stores: Stores) -> None:
    """The list of schema 1 is read, and becomes an object with the schema at the next change."""
    put(stores, "keys", json.dumps([KEY]))
    assert [key.tenant for key in stores.keys.all()] == ["alice"]
    stores.keys.create("bob", ("read",), "", None)
    assert json.loads(Path(stores.settings.data_dir, "keys.json").read_text())["format"] == SCHEMA
    assert [key.tenant for key in stores.keys.all()] == ["alice", "bob"]


def test_two_versions_of_cache_entries_live_side_by_side(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """No version finds, overwrites or deletes the entries of the other."""
    key = DrawKey(0, 0, 1.0, "posterior", "none")
    stores.draws.put("post_1", {key: Entry({}, {"a": np.zeros(2)})})
    monkeypatch.setattr(versions, "SCHEMA", SCHEMA + 1)
    assert stores.draws.get("post_1", key) is None
    assert CalibrationSpec().cache_key("post_1").startswith(f"v{SCHEMA + 1}:result:post_1:")
    stores.draws.put("post_1", {key: Entry({}, {"a": np.ones(2)})})
    monkeypatch.setattr(versions, "SCHEMA", SCHEMA)
    entry = stores.draws.get("post_1", key)
    assert entry is not None
    np.testing.assert_array_equal(entry.arrays["a"], np.zeros(2))


def test_a_deletion_removes_the_cache_entries_of_all_versions(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both versions share the index of a subject."""
    stores.cache.create_index("post_1")
    with monkeypatch.context() as earlier:
        earlier.setattr(versions, "SCHEMA", 1)
        stores.cache.put(CalibrationSpec().cache_key("post_1"), {}, {})
    stores.draws.put("post_1", {DrawKey(0, 0, 1.0, "posterior", "none"): Entry({}, {"a": np.zeros(2)})})
    assert stores.cache.client.dbsize() == 3
    stores.cache.forget("post_1")
    assert stores.cache.client.dbsize() == 0


def test_an_upgrade_keeps_the_counters(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both versions add to the same totals."""
    for schema in (1, SCHEMA):
        monkeypatch.setattr(versions, "SCHEMA", schema)
        stores.counts.add("events", "upgrade")
        stores.counts.flush()
        stores.jobs.create(kind="fit", claim=f"c{schema}", posterior="post_1", spec={}, total=1)
    assert stores.counts.read()[0]["events", "upgrade"] == 2
    assert stores.jobs.transition_counts()["fit", "queued"] == 2


def test_ids_are_stable_across_versions(tmp_path: Path, stores: Stores) -> None:
    """Existing deployments find their records by these ids; a change needs a migration."""
    X = np.arange(12.0).reshape(4, 3)
    beside: dict[str, Any] = {"labels": np.array(["x", "y", "x", "z"]), "color": np.arange(4.0)}
    dataset, _ = stores.datasets.add(Table(values=X, names=["a", "b", "c"], source={"kind": "test"}, **beside))
    assert dataset.id == "ds_26831868551925ad32832b765d585aa9"
    alices, _ = stores.datasets.of("alice", 0).add(Table(values=X, source={"kind": "test"}))
    assert alices.id == "ds_dda17b6d8f274f125e9017203b77453f"
    posterior = posterior_id(DATA, FitSpec().to_dict(), "0.1.0")
    assert posterior == "post_d19429aa4f35251c4b5c749820cfb50f"
    recipe = Recipe(dataset=DATA, method="isomap", parameters={"n_neighbors": 10}, engine="0.1.0")
    assert recipe.id == "emb_e926747954f9e26662c37c825e11ffc3"
    assert recipe.cache_key == f"v{SCHEMA}:result:{DATA}:coordinates:{recipe.id}"
    draw = DrawKey(7, 6, 0.5, "posterior", "none")
    assert draw.cache_key(posterior) == f"v{SCHEMA}:draw:{posterior}:7:6:0.5:posterior:none"
    assert draw.group_key(posterior) == f"v{SCHEMA}:lanes:{posterior}:7:1:0.5:posterior:none"
    calibration = CalibrationSpec(engine="0.1.0").cache_key(posterior)
    assert calibration == f"v{SCHEMA}:result:{posterior}:calibration:c69b4c188ce36b3846f3735f3165c866"


def test_queue_names_contain_schema_and_numerics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another schema or other numerics has another queue."""
    names = []
    for schema in (1, 2):
        monkeypatch.setattr(versions, "SCHEMA", schema)
        names += [versions.queue_name("0.1.0"), versions.queue_name("0.2.0")]
    assert names == ["glle", "glle-1-0.2.0", "glle-2-0.1.0", "glle-2-0.2.0"]


def test_a_job_of_other_numbers_is_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker refuses it, so that an id never has two results."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    stores.client.hset(job_key(job.id), "numbers", "9.9.9")
    tasks.fit(job.id)
    ended = stores.jobs.fetch(job.id)
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.error.status) == ("failed", "other-numbers", 409)


def test_a_posterior_of_other_numbers_is_not_drawn_from(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evicted one is neither fitted again nor summarized under its id."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    put(stores, "posterior", json.dumps({**FIRST["posterior"], "provenance": {"numbers": "9.9.9"}}))
    job, _ = stores.jobs.create(
        kind="calibration", claim="c", posterior="post_1", spec=CalibrationSpec().to_dict(), total=1
    )
    tasks.analyse(job.id, 0)
    ended = stores.jobs.fetch(job.id)
    assert ended.error is not None
    assert ended.error.code == "other-numbers"
    assert "Posterior post_1" in ended.error.detail


def test_an_analysis_of_other_numbers_is_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evicted embedding of earlier numbers is not computed again after an upgrade."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    spec = CalibrationSpec(engine="9.9.9")
    job, _ = stores.jobs.create(kind="calibration", claim="c", posterior="post_1", spec=spec.to_dict(), total=1)
    tasks.analyse(job.id, 0)
    ended = stores.jobs.fetch(job.id)
    assert ended.error is not None
    assert ended.error.details == {"numbers": "9.9.9", "own": NUMBERS}


def test_a_result_of_other_numbers_is_not_recomputed(stores: Stores) -> None:
    """A succeeded job with an evicted result stays unchanged if its bits are not available."""
    put(stores, "job", json.dumps({**FIRST["job"], "numbers": "9.9.9"}))
    with pytest.raises(ProblemError) as refused:
        stores.jobs.reopen(stores.jobs.fetch("job_1"))
    assert refused.value.problem.code == "other-numbers"
    assert stores.jobs.fetch("job_1").status == "succeeded"


def job_of_another_version(stores: Stores, name: str, **fields: str) -> Job:
    """Return a silent job whose task waits in the queue of another version."""
    spec = {"dataset": DATA, "spec": {}}
    job, _ = stores.jobs.create(kind="fit", claim=f"claim {name}", posterior="post_1", spec=spec, total=1)
    stores.client.hset(job_key(job.id), items=["queue", "glle-other", *sum(fields.items(), ())])
    other = SafeQueue("glle-other", connection=stores.client, serializer=SERIALIZER)
    other.enqueue_call("worker.execution.tasks.fit", args=[job.id], job_id=job.id)
    return silent(stores, job.id, recovery.STALE_SECONDS)


def silent(stores: Stores, id_: str, seconds: float) -> Job:
    """Return the job as if its record had not changed for some seconds."""
    job = stores.jobs.fetch(id_)
    return replace(job, touched=job.touched - int(1000 * seconds) - 1)


def waiting(stores: Stores) -> tuple[int, int]:
    """Return the numbers of waiting tasks in this version's queue and in the other's."""
    return stores.queue.length(), int(stores.client.llen("rq:queue:glle-other"))


def test_a_job_of_another_queue_is_left_to_its_workers(stores: Stores) -> None:
    """It stays in its queue while one of its workers is live."""
    job = job_of_another_version(stores, "left")
    stores.client.sadd("rq:workers:glle-other", "rq:worker:theirs")
    stores.client.hset("rq:worker:theirs", "last_heartbeat", datetime.now(UTC).isoformat())
    assert stores.recovery.repair(job).queue == "glle-other"
    assert waiting(stores) == (0, 1)


def test_a_job_whose_workers_are_gone_is_taken_over(stores: Stores) -> None:
    """With equal numbers its task moves once, and its former queue is empty."""
    job = job_of_another_version(stores, "moved")
    stores.client.zadd("rq:wip:glle-other", {f"{job.id}:x": 1})
    assert [stores.recovery.repair(job).queue for _ in range(2)] == [NAME] * 2
    assert waiting(stores) == (1, 0)
    assert not stores.client.exists("rq:wip:glle-other")
    assert stores.jobs.fetch(job.id).status == "queued"


def test_a_job_of_other_numbers_without_workers_fails(stores: Stores) -> None:
    """It fails after a minute with the remedy."""
    job = job_of_another_version(stores, "abandoned", numbers="9.9.9")
    assert stores.recovery.repair(job).status == "queued"
    assert waiting(stores) == (0, 1)
    ended = stores.recovery.repair(silent(stores, job.id, recovery.ABANDONED_SECONDS))
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "other-numbers")
    assert waiting(stores) == (0, 0)
