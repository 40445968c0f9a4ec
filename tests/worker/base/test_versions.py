"""Schema and numerics versions: records of another one are refused, never misread or changed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import NUMBERS, FitSpec
from glle_engine.tables.table import Table
from tests.conftest import cached_draw, refusal
from worker.analyses.embedding import Recipe
from worker.analyses.posterior_analyses import CalibrationSpec
from worker.base import versions
from worker.base.versions import SCHEMA, versioned_key
from worker.execution import tasks
from worker.jobs.store import job_key
from worker.records import draws
from worker.records.cache_entry import Entry
from worker.records.draws import DrawAddress
from worker.records.job import BATCH
from worker.storage.posteriors import ARRAYS, posterior_id
from worker.storage.results import result_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.stores import Stores

DATA = "ds_0123456789abcdef0123456789abcdef"
RESULT = result_id("post_1:summary:1")
KEY = {
    "id": "abc", "tenant": "alice", "name": "", "scopes": ["read"], "created": "2025-01-01", "expires": None,
    "secrets": [],
}  # fmt: skip

RECORDS: dict[str, dict[str, Any]] = {
    "posterior": {
        "id": "post_1", "dataset": DATA, "n": 3, "d": 2, "spec": {}, "diagnostics": {}, "eigenvalues": [],
        "seconds": 0.1, "arrays": {}, "nbytes": 0,
        "draw_cost": {"seconds": 0.01, "each_seconds": 0.003, "bytes": 4e7},
        "provenance": {"numbers": NUMBERS, ARRAYS: "0" * 64}, "job": "job_1", "created": "now",
        "file": {"path": "data/0/entry", "size": 1, "sha256": "0" * 64},
    },
    "embedding": {
        "recipe": {"dataset": DATA, "method": "isomap", "parameters": {}, "labels": None, "engine": "0.1.0"},
        "claim": "", "created": "now", "tenant": "default",
    },
    "dataset": {
        "id": DATA, "sha256": "", "n": 3, "d": 2, "dtype": "float64", "nbytes": 48, "names": None, "has_labels": False,
        "has_coordinates": False, "source": {}, "created": "now",
    },
    "result": {
        "key": "post_1:summary:1", "owners": ["post_1"], "job": "job_1", "created": "now", "tenant": "default",
        "file": {"path": "data/0/entry", "size": 1, "sha256": "0" * 64},
    },
    "job": {
        "id": "job_1", "kind": "fit", "status": "succeeded", "done": "1", "total": "1", "stage": "done",
        "created": "now", "spec": "{}", "touched": "0", "tenant": "default", "queue": BATCH,
    },
    "key": KEY,
}  # fmt: skip


def put(stores: Stores, kind: str, raw: str) -> None:
    """Write a record of one kind as JSON."""
    if kind == "job":
        fields = json.loads(raw) if raw.startswith("{") else {"id": "job_1", "status": raw}
        stores.client.hset(job_key("job_1"), mapping=fields)
    else:
        stores.client.set(NAMES[kind], raw)


NAMES = {
    "dataset": f"glle:dataset:{DATA}",
    "posterior": "glle:posterior:post_1",
    "key": "glle:key:abc",
    "embedding": "glle:embedding:emb_1",
    "result": f"glle:result:{RESULT}",
}


def stored_record(stores: Stores, kind: str) -> Any:
    """Return the stored record as bytes."""
    if kind == "job":
        return stores.client.hgetall(job_key("job_1"))
    return stores.client.get(NAMES[kind])


READERS: dict[str, tuple[Callable[[Stores], Any], ...]] = {
    "posterior": (
        lambda stores: stores.posteriors.fetch("post_1").n,
        lambda stores: stores.posteriors.rename("post_1", {"name": "mine"}),
        lambda stores: stores.posteriors.calibration("post_1"),
        lambda stores: stores.posteriors.calibrate("post_1", {"scale": 9.0}),
    ),
    "embedding": (
        lambda stores: stores.embeddings.fetch("emb_1").recipe.method,
        lambda stores: stores.embeddings.delete("emb_1"),
    ),
    "result": (
        lambda stores: stores.results.fetch(RESULT).file,
        lambda stores: stores.results.find("post_1:summary:1"),
        lambda stores: stores.results.delete(RESULT),
    ),
    "dataset": (
        lambda stores: stores.datasets.get(DATA),
        lambda stores: stores.datasets.rename(DATA, {"name": "mine"}),
        lambda stores: stores.datasets.delete(DATA),
    ),
    "job": (
        lambda stores: stores.jobs.fetch("job_1").kind,
        lambda stores: stores.jobs.cancel("job_1"),
    ),
    "key": (
        lambda stores: stores.keys.all(),
        lambda stores: stores.keys.verify("glle_abc_x"),
        lambda stores: stores.keys.revoke("abc"),
    ),
}


def put_with_schema(stores: Stores, kind: str, schema: int) -> None:
    """Write the record of a job with the schema of this version, then a record of one kind with a given schema."""
    put(stores, "job", json.dumps({**RECORDS["job"], "format": SCHEMA}))
    put(stores, kind, json.dumps({**RECORDS[kind], "format": schema}))


def test_the_changelog_says_which_schema_this_version_has() -> None:
    """Before an upgrade, the changelog tells whether stored data can be read."""
    changelog = (Path(__file__).parents[3] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"`SCHEMA` (\d+)", changelog)[:1] == [str(SCHEMA)], "the newest entry is the first"


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
@pytest.mark.parametrize("kind", READERS)
def test_records_of_another_schema_are_refused_and_left_unchanged(stores: Stores, kind: str, schema: int) -> None:
    """Reading, changing and deleting are refused with the remedy; no byte changes."""
    put_with_schema(stores, kind, schema)
    before = stored_record(stores, kind)
    for reader in READERS[kind]:
        problem = refusal(reader, stores)
        assert (problem.code, problem.status) == ("other-schema", 503)
        assert f"has schema {schema}" in problem.detail
        assert "docs/how-to/storage.md" in problem.remedy
    assert stored_record(stores, kind) == before
    put_with_schema(stores, kind, SCHEMA)
    assert READERS[kind][0](stores) is not None, "the record is complete, so that the refusals have one reason"


@pytest.mark.parametrize("raw", ["{", "[]", '{"format": true}', '{"a": 1}', f'{{"format": {SCHEMA}, "a": 1}}'])
@pytest.mark.parametrize("kind", ["posterior", "embedding", "result", "dataset", "key"])
def test_damaged_records_are_refused(stores: Stores, kind: str, raw: str) -> None:
    """A damaged record gives a problem, not an internal error."""
    put(stores, kind, raw)
    problem = refusal(READERS[kind][0], stores)
    assert (problem.code, problem.status) == ("record-unreadable", 500)


@pytest.mark.parametrize("fields", [{"kind": "divination"}, {"status": "asleep"}, {"done": "some"}, {"spec": "{"}])
def test_a_job_that_cannot_be_read_is_refused(stores: Stores, fields: dict[str, str]) -> None:
    """An unknown kind, status or number is refused."""
    put(stores, "job", json.dumps({**RECORDS["job"], "format": SCHEMA, **fields}))
    assert refusal(stores.jobs.get, "job_1").code == "record-unreadable"


def test_cache_entries_of_another_schema_are_not_read(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached draws and results of another schema are neither found nor overwritten."""
    key = DrawAddress(0, 0, 1.0, "posterior", "none")
    stores.cache.put_draws("post_1", {key: Entry({}, {"a": np.zeros(2)})})
    stores.cache.put_partial("audit", Entry({}, {"a": np.zeros(2)}))
    with monkeypatch.context() as patch:
        patch.setattr(versions, "SCHEMA", SCHEMA + 1)
        patch.setattr(draws, "_GROUPS", versioned_key("lanes:"))  # computed once, by a process of that schema
        assert cached_draw(stores, "post_1", key) is None
        assert stores.cache.find_partial("audit") is None
        stores.cache.put_draws("post_1", {key: Entry({}, {"a": np.ones(2)})})
        stores.cache.put_partial("audit", Entry({}, {"a": np.ones(2)}))
    for entry in (cached_draw(stores, "post_1", key), stores.cache.find_partial("audit")):
        assert entry is not None
        np.testing.assert_array_equal(entry.arrays["a"], np.zeros(2))


def test_ids_are_stable(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing deployments find their records by these ids; a change needs a migration."""
    X = np.arange(12.0).reshape(4, 3)
    beside: dict[str, Any] = {"labels": np.array(["x", "y", "x", "z"]), "colors": np.arange(4.0)}
    dataset, _ = stores.datasets.add(Table(values=X, names=["a", "b", "c"], source={"kind": "test"}, **beside))
    assert dataset.id == "ds_a3c22e1e3f31b703f10051316f63c3ff"
    alices, _ = stores.datasets.for_tenant("alice").add(Table(values=X, source={"kind": "test"}))
    assert alices.id == "ds_4bc7e227beb05a6476cd24d7e1492450"
    monkeypatch.setattr("glle_engine.NUMBERS", "0.1.0")
    posterior = posterior_id(DATA, FitSpec(n_neighbors=10).to_dict())
    assert posterior == "post_ca143e21739a56b5ce379f4fd05df6c7"
    recipe = Recipe(dataset=DATA, method="isomap", parameters={"n_neighbors": 10}, engine="0.1.0")
    assert recipe.id == "emb_e926747954f9e26662c37c825e11ffc3"
    draw = DrawAddress(7, 6, 0.5, "posterior", "none")
    assert draw.group_key("post_1") == f"v{SCHEMA}:lanes:{NUMBERS}:post_1:7:1:0.5:posterior:none"
    calibration = CalibrationSpec(engine="0.1.0").key("post_1")
    assert calibration == "post_1:calibration:6490407ec02a4fa1cd17f91ce456ab05"
    assert result_id(calibration) == "res_901f0b3c21533baecf58c85514dffa91"


def test_a_posterior_of_other_numbers_is_not_drawn_from(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade a worker refuses an old posterior, so that no id of a draw or result has two contents."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    record = {**RECORDS["posterior"], "format": SCHEMA, "provenance": {"numbers": "9.9.9", ARRAYS: "0" * 64}}
    put(stores, "posterior", json.dumps(record))
    spec = CalibrationSpec().to_dict()
    job, _ = stores.jobs.create(kind="calibration", claim="c", posterior="post_1", spec=spec, total=1)
    tasks.analyze(job.id)
    ended = stores.jobs.fetch(job.id)
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.error.status) == ("failed", "other-numbers", 409)
    assert ended.error.details == {"numbers": "9.9.9", "own": NUMBERS}
