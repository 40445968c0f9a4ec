"""The object store: entries behind the cache, on a local folder and on a store without files."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError, rows
from worker.operations.store_sweep import sweep
from worker.records.cache_entry import Entry
from worker.storage.object_store import backend, store
from worker.storage.object_store.backend import Bucket
from worker.storage.object_store.index import created_at
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from worker.storage.object_store.store import ObjectStore

LARGE = {"x": np.random.default_rng(0).normal(size=(300_000, 2)), "small": np.arange(3)}
KEY = "result:post_a:summary:1"


@pytest.fixture(params=["file", "memory"])
def here(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path, stores: Stores) -> Iterator[Stores]:
    """Stores with an object store and a cache of which half is 2 MB; the cache is empty."""
    url = f"file://{tmp_path}/objects" if request.param == "file" else f"memory://{tmp_path.name}"
    made = Stores.connect(replace(settings, store_url=url, cache_bytes=4 * 2**20))
    yield made
    made.close()


@pytest.fixture
def objects(here: Stores) -> ObjectStore:
    """The object store of `here`."""
    assert here.cache.objects is not None
    return here.cache.objects


def same(entry: Entry | None, arrays: dict[str, Any]) -> bool:
    """Say whether an entry has these arrays, to the bit."""
    return entry is not None and {name: np.asarray(one).tobytes() for name, one in entry.arrays.items()} == {
        name: one.tobytes() for name, one in arrays.items()
    }


def rewritten(objects: ObjectStore, path: str, change: Callable[[bytes], bytes]) -> None:
    """Change what is stored at a path."""
    raw = objects.bucket.read(path, 0, 2**30)
    assert raw is not None
    objects.bucket.remove(path)
    objects.bucket.write(path, [change(raw)], len(raw))


def test_what_is_too_large_for_the_cache_is_stored(here: Stores, objects: ObjectStore) -> None:
    """It is put, got, looked at in parts, described and deleted as any other; nothing of it is left."""
    here.cache.put(KEY, {"a": 1}, LARGE)
    assert here.cache.client.exists(KEY) == 0
    entry, view = here.cache.get(KEY), here.cache.view(KEY)
    assert same(entry, LARGE)
    assert same(view, LARGE)
    assert view is not None
    np.testing.assert_array_equal(np.asarray(view.arrays["x"][7:9]), LARGE["x"][7:9])
    assert here.cache.head(KEY) == {"a": 1}
    assert here.cache.contains([KEY, "result:post_a:none"]) == [True, False]
    assert objects.index.sums()[0] == 1
    here.cache.delete(KEY)
    assert here.cache.get(KEY) is None
    assert here.cache.heads([KEY]) == [None]
    assert objects.index.sums() == (0, 0, 0)
    assert objects.bucket.paths() == []
    assert list(here.cache.client.scan_iter("*")) == []


def test_without_a_store_the_refusal_names_it(stores: Stores) -> None:
    """As a remedy."""
    with pytest.raises(ProblemError) as caught:
        stores.cache.check_size(2**40, "It")
    assert caught.value.problem.code == "cache-too-small"
    assert "GLLE_STORE_URL" in caught.value.problem.remedy


def test_small_entries_of_a_large_job_go_past_the_cache(here: Stores, objects: ObjectStore) -> None:
    """Their heads alone are in the cache; when those are evicted the store has them."""
    entries = {f"draw:post_a:{i}": Entry({"i": i}, {"x": np.full(50_000, float(i))}) for i in range(30)}
    here.cache.put_many(entries, here.cache.tier_by_size(12_000_000))
    keys = list(entries)
    assert here.cache.client.exists(*keys) == 0
    assert [head and head["i"] for head in here.cache.heads(keys)] == list(range(30))
    here.cache.client.flushall()
    assert [head and head["i"] for head in here.cache.heads([*keys, "draw:post_a:99"])] == [*range(30), None]
    for found in (here.cache.get_many(keys), here.cache.views(keys)):
        assert all(same(one, entry.arrays) for one, entry in zip(found, entries.values(), strict=True))
    here.cache.forget("post_a")
    assert objects.bucket.paths() == []
    assert here.cache.tier_by_size(100) == "cache"


@pytest.mark.parametrize("is_evicted", [True, False])
def test_what_is_forgotten_of_a_subject_is_gone_from_both(
    here: Stores, objects: ObjectStore, *, is_evicted: bool
) -> None:
    """Whether or not the cache knows its names; another subject's entries stay."""
    for subject in ("post_a", "post_b"):
        here.cache.create_index(subject)
        here.cache.put(f"draw:{subject}:1", {"a": 1}, LARGE)
        here.cache.put(f"draw:{subject}:2", {"a": 2}, {"x": np.arange(3.0)})
        assert here.cache.head(f"draw:{subject}:1") == {"a": 1}
    if is_evicted:
        here.cache.client.flushall()
    here.cache.forget("post_a")
    assert [path.partition("/")[0] for path in objects.bucket.paths()] == ["post_b"]
    assert not [key for key in here.cache.client.scan_iter("*") if b"post_a" in key]
    assert same(here.cache.get("draw:post_b:1"), LARGE)


def test_what_is_kept_in_both_comes_back_into_the_cache(here: Stores) -> None:
    """After it was evicted, one read puts it there again."""
    arrays = {"x": np.arange(5.0)}
    here.cache.put("posterior:post_a", {"head": 1}, arrays, "both")
    here.cache.client.flushall()
    assert same(here.cache.get("posterior:post_a"), arrays)
    assert here.cache.client.exists("posterior:post_a") == 1


@pytest.mark.parametrize("change", [lambda raw: raw[:-9], lambda raw: raw[:500_000] + b"\0" + raw[500_001:]])
def test_a_torn_object_counts_as_evicted(here: Stores, objects: ObjectStore, change: Callable[[bytes], bytes]) -> None:
    """Cut off or changed, it is not there, is forgotten, and can be put again."""
    here.cache.put(KEY, {}, LARGE)
    (stored,) = objects.find([KEY])
    assert stored is not None
    rewritten(objects, stored.path, change)
    assert here.cache.get(KEY) is None
    assert here.cache.contains([KEY]) == [False]
    assert objects.bucket.paths() == []
    here.cache.put(KEY, {}, LARGE)
    assert same(here.cache.get(KEY), LARGE)


@pytest.mark.parametrize("change", [lambda raw: raw[:-300_000], lambda raw: raw[:-9] + b"123456789"])
def test_an_object_that_is_torn_later_on_breaks_a_view_off(
    here: Stores, objects: ObjectStore, change: Callable[[bytes], bytes]
) -> None:
    """Its first rows are read; the others are a problem, and from then on it is not there."""
    here.cache.put(KEY, {}, LARGE)
    (stored,) = objects.find([KEY])
    assert stored is not None
    rewritten(objects, stored.path, change)
    view = here.cache.view(KEY)
    assert view is not None
    np.testing.assert_array_equal(np.asarray(view.arrays["x"][:9]), LARGE["x"][:9])
    with pytest.raises(ProblemError, match="during its read"):
        np.asarray(view.arrays["x"][-9:])
    assert here.cache.contains([KEY]) == [False]


def test_an_object_that_vanished_counts_as_evicted(here: Stores, objects: ObjectStore) -> None:
    """Whoever asks: for all, for a part, for the head."""
    for ask in (here.cache.get, here.cache.view, here.cache.head):
        here.cache.put(KEY, {}, LARGE)
        (stored,) = objects.find([KEY])
        assert stored is not None
        objects.bucket.remove(stored.path)
        here.cache.client.flushall()
        assert ask(KEY) is None
        assert here.cache.contains([KEY]) == [False]


def test_put_again_leaves_one_object(here: Stores, objects: ObjectStore) -> None:
    """The one before is removed, and what is read is the last."""
    for value in (1.0, 2.0):
        here.cache.put(KEY, {"value": value}, {"x": np.full(300_000, value)})
    assert len(objects.bucket.paths()) == 1
    entry = here.cache.get(KEY)
    assert entry is not None
    assert entry.meta["value"] == entry.arrays["x"][-1] == 2.0


def test_what_has_expired_is_not_there_and_is_swept(
    here: Stores, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that the cache keeps things, too."""
    here.cache.put(KEY, {}, LARGE)
    later = SimpleNamespace(time=lambda: time.time() + here.settings.cache_ttl + 1)
    for module in ("storage.object_store.index", "operations.store_sweep"):
        monkeypatch.setattr(f"worker.{module}.time", later)
    here.cache.client.flushall()
    assert here.cache.get(KEY) is None
    assert objects.index.overdue() == 1
    monkeypatch.setattr("worker.operations.store_sweep._exists", lambda *_: True)
    result = sweep(here, objects, orphans=False)
    assert (result.expired, result.condemned) == (1, 1)
    assert objects.bucket.paths() == []
    assert objects.index.overdue() == 0


def test_a_sweep_removes_what_is_nobodys(here: Stores, objects: ObjectStore) -> None:
    """Of a posterior that is no more; objects that nobody names only if that is wanted, and neither while young."""
    here.cache.put(KEY, {}, LARGE)
    (stored,) = objects.find([KEY])
    assert stored is not None
    orphan = f"post_b/0-{int(time.time()) - 100:x}-0"
    objects.bucket.write(orphan, [b"x"], 1)
    objects.bucket.write("post_b/else", [b"x"], 1)
    assert created_at("post_b/else") is None
    young = sweep(here, objects, orphans=True)
    assert (young.deserted, young.orphans) == (0, 0)
    result = sweep(here, objects, orphans=False, age=-1)
    assert (result.deserted, result.condemned, result.orphans) == (1, 1, 1)
    assert sorted(objects.bucket.paths()) == [orphan, "post_b/else"]
    assert sweep(here, objects, orphans=True, age=-1).orphans == 1
    assert objects.bucket.paths() == ["post_b/else"], "what is not ours is left alone"


def test_a_store_that_fails_is_told_and_loses_nothing(
    here: Stores, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are 503, a deletion is kept in mind, what the cache has goes on; then it is as before."""
    here.cache.put(KEY, {}, LARGE)
    here.cache.put("posterior:post_a", {}, {"x": np.arange(5.0)}, "both")
    there = objects.bucket._connect

    def away() -> Any:
        raise PermissionError("secret")

    monkeypatch.setattr(objects.bucket, "_connect", away)
    monkeypatch.setattr(backend, "REST_SECONDS", 0.0)
    monkeypatch.setattr(store, "WAITS", (0.0,))
    for ask in (here.cache.get, lambda key: here.cache.put(key, {}, LARGE)):
        with pytest.raises(ProblemError) as caught:
            ask(KEY)
        assert (caught.value.problem.code, caught.value.problem.status) == ("store-unavailable", 503)
        assert "secret" not in caught.value.problem.detail
    assert here.cache.get("posterior:post_a") is not None
    here.cache.put("posterior:post_b", {}, {"x": np.arange(5.0)}, "both")
    here.cache.delete("posterior:post_a")
    assert here.cache.get("posterior:post_a") is None
    assert objects.index.sums()[2] == 1
    monkeypatch.setattr(objects.bucket, "_connect", there)
    assert same(here.cache.get(KEY), LARGE)
    sweep(here, objects, orphans=False)
    assert objects.index.sums()[2] == 0
    assert len(objects.bucket.paths()) == 1


def test_a_write_is_tried_again(here: Stores, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was away for a moment costs the moment, not the job."""
    there = objects.bucket._connect
    failing = iter([True, True])

    def sometimes() -> Any:
        if next(failing, False):
            raise OSError
        return there()

    monkeypatch.setattr(objects.bucket, "_connect", sometimes)
    monkeypatch.setattr(backend, "REST_SECONDS", 0.0)
    monkeypatch.setattr(store, "WAITS", (0.0, 0.0))
    here.cache.put(KEY, {}, LARGE)
    assert same(here.cache.get(KEY), LARGE)


def test_what_another_version_indexed_is_not_there_and_not_swept(here: Stores, objects: ObjectStore) -> None:
    """Its objects are read by it alone, and are nobody's orphans."""
    here.cache.put(KEY, {}, LARGE)
    (stored,) = objects.find([KEY])
    assert stored is not None
    other = stored.to_json().replace('"layout": 1', '"layout": 2')
    here.client.hset("glle:stored:post_a", KEY, other)
    here.cache.client.flushall()
    assert here.cache.get(KEY) is None
    assert sweep(here, objects, orphans=True, age=-1).orphans == 0
    assert objects.bucket.paths() == [stored.path]


def test_a_store_that_hangs_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """And then not asked again for a while."""
    hanging = Bucket("memory://hanging", seconds=0.05)
    monkeypatch.setattr(hanging, "_call", lambda *_, **__: time.sleep(1.0))
    for why in ("TimeoutError", "a moment ago"):
        started = time.monotonic()
        with pytest.raises(ProblemError, match=why):
            hanging.read("x", 0, 1)
        assert time.monotonic() - started < 0.9


def test_the_store_has_an_end(settings: Settings, tmp_path: Path, stores: Stores) -> None:
    """What would not fit is refused with the remedy, before and while it is written."""
    made = Stores.connect(replace(settings, store_url=f"file://{tmp_path}/o", cache_bytes=4 * 2**20, store_bytes=2**22))
    with pytest.raises(ProblemError, match="of 4,194,304 allowed") as caught:
        made.cache.check_size(2**23, "It")
    assert "GLLE_STORE_BYTES" in caught.value.problem.remedy
    with pytest.raises(ProblemError, match="of 4,194,304 allowed"):
        made.cache.put(KEY, {}, {"x": np.zeros(2**20)})
    made.cache.check_size(2**22, "It")
    made.close()


@pytest.mark.parametrize(
    ("url", "result"),
    [
        ("nonsense://x", "no fsspec URL"),
        ("s3://key:pass@bucket", "has a password"),
        ("smb://host/x", "docs/how-to/storage.md"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_at_the_start(url: str, result: str) -> None:
    """With what to do, and without the password."""
    with pytest.raises(SettingsError, match=result) as caught:
        Bucket(url, seconds=1.0)
    assert "pass@" not in str(caught.value)


def test_the_url_is_shown_without_secrets() -> None:
    """A folder as it is; of anything else no password, key or query."""
    (row,) = [row for row in rows() if row.name == "store_url"]
    assert row.shown("file:///srv/objects") == "file:///srv/objects"
    assert row.shown("s3://bucket/prefix") == "s3://bucket/prefix"
    assert "geheim" not in row.shown("ftp://me:geheim@host/x?token=geheim")


def test_posteriors_are_kept_when_reading_costs_less_than_fitting(objects: ObjectStore) -> None:
    """By the rule, or as the setting says."""
    assert [objects.worth_keeping(seconds, 50_000_000) for seconds in (0.5, 2.0)] == [False, True]
    for rule, expected in (("always", True), ("never", False)):
        objects._rule = rule  # type: ignore[assignment] # of the two
        assert objects.worth_keeping(0.0, 1) is expected
