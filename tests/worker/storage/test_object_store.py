"""The object store behind the cache, on a local folder and in memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from worker.operations.sweep import sweep
from worker.storage.object_store.results import path_of

from tests.conftest import refusal
from worker.base.files import PREFIX, make_folder
from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError, rows
from worker.storage.object_store import backend
from worker.storage.object_store.backend import Bucket
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from worker.storage.object_store.results import ResultStore

    from worker.records.cache_entry import Entry

KEY = "result:post_a:summary:1"
PATH = path_of("post_a", KEY)
LARGE = {"x": np.random.default_rng(0).normal(size=(300_000, 2)), "small": np.arange(3)}


# Prints 0 if the fork reads the empty object, 2 if it is refused.
FORK = """
import os, signal, sys
from worker.storage.object_store.backend import Bucket
bucket = Bucket("s3://bucket", seconds=5.0)
if sys.argv[1] == "used":
    bucket.read("a", 0, 9)
if (child := os.fork()) == 0:
    signal.alarm(30)
    try:
        os._exit(0 if bucket.read("a", 0, 9) == b"" else 1)
    except RuntimeError:
        os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture
def objects(tiered_stores: Stores) -> ResultStore:
    """Return the object store of `tiered_stores`."""
    assert tiered_stores.cache.objects is not None
    return tiered_stores.cache.objects


def same(entry: Entry | None, arrays: dict[str, Any]) -> bool:
    """Return whether an entry has these arrays, to the bit."""
    return entry is not None and {name: np.asarray(array).tobytes() for name, array in entry.arrays.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }


def test_a_value_too_large_for_the_cache_is_stored(tiered_stores: Stores, objects: ResultStore) -> None:
    """It is written, read, described and deleted like a cached value; a second write removes the former object."""
    tiered_stores.cache.put(KEY, {"a": 0}, {"x": np.zeros(300_000)})
    tiered_stores.cache.put(KEY, {"a": 1}, LARGE)
    assert tiered_stores.cache.client.exists(KEY) == 0
    assert same(tiered_stores.cache.get(KEY), LARGE)
    assert tiered_stores.cache.head(KEY) == {"a": 1}
    assert tiered_stores.cache.contains([KEY, "result:post_a:none"]) == [True, False]
    assert objects.index.sums()[0] == len(objects.bucket.modification_times()) == 1
    tiered_stores.cache.delete(KEY)
    assert tiered_stores.cache.get(KEY) is None
    assert tiered_stores.cache.heads([KEY]) == [None]
    assert objects.index.sums() == (0, 0)
    assert list(objects.bucket.modification_times()) == []
    assert list(tiered_stores.cache.client.scan_iter("*")) == []


def test_without_a_store_the_remedy_names_it(stores: Stores) -> None:
    """A value that would evict the rest is refused before and during the write, and writes nothing."""
    huge = {"x": np.zeros(stores.cache.budget // 16 + 1)}
    for call in (lambda: stores.cache.check_size(2**40, "It"), lambda: stores.cache.put("huge", {}, huge)):
        problem = refusal(call)
        assert problem.code == "cache-too-small"
        assert {"GLLE_STORE_URL", "GLLE_CACHE_BYTES"} <= set(re.findall(r"GLLE_\w+", problem.remedy))
    assert stores.cache.contains(["huge"]) == [False]


@pytest.mark.parametrize("is_evicted", [True, False])
def test_forgetting_a_subject_deletes_from_cache_and_store(
    tiered_stores: Stores, objects: ResultStore, *, is_evicted: bool
) -> None:
    """It works with and without the cache's index, on unfinished entries, too; entries of another subject stay."""
    for subject in ("post_a", "post_ab"):
        tiered_stores.cache.put(f"draw:{subject}:1", {"a": 1}, LARGE)
        tiered_stores.cache.put(f"draw:{subject}:2", {"a": 2}, {"x": np.arange(3.0)})
        assert tiered_stores.cache.head(f"draw:{subject}:1") == {"a": 1}
    if is_evicted:
        tiered_stores.cache.client.flushall()
    tiered_stores.cache.client.hset("result:post_a:x:tmp:0", "0", "killed")
    tiered_stores.cache.put("v2:summary:post_a:1", {}, {})
    tiered_stores.cache.forget("post_a")
    assert list(objects.bucket.modification_times()) == [path_of("post_ab", "draw:post_ab:1")]
    assert not [key for key in tiered_stores.cache.client.scan_iter("*") if b"post_a:" in key]
    assert same(tiered_stores.cache.get("draw:post_ab:1"), LARGE)
    assert tiered_stores.cache.head("draw:post_ab:2") == (None if is_evicted else {"a": 2})


def test_a_read_restores_an_evicted_entry_of_both_tiers(tiered_stores: Stores) -> None:
    """One read after an eviction caches the entry again."""
    arrays = {"x": np.arange(5.0)}
    tiered_stores.cache.put("posterior:post_a", {"head": 1}, arrays, seconds=1e6)
    tiered_stores.cache.client.flushall()
    assert same(tiered_stores.cache.get("posterior:post_a"), arrays)
    assert tiered_stores.cache.client.exists("posterior:post_a") == 1


@pytest.mark.parametrize(
    "change", [lambda raw: raw[:-9], lambda raw: raw[:9], lambda raw: raw[:500_000] + b"\0" + raw[500_001:], None]
)
def test_a_torn_object_counts_as_evicted(
    tiered_stores: Stores, objects: ResultStore, change: Callable[[bytes], bytes] | None
) -> None:
    """A cut, changed or missing object is removed from the index, and can be written again."""
    tiered_stores.cache.put(KEY, {}, LARGE)
    if change is None:
        objects.bucket.remove(PATH)
        tiered_stores.cache.client.flushall()
        assert tiered_stores.cache.head(KEY) is None
    else:
        raw = objects.bucket.read(PATH, 0, 2**30)
        assert raw is not None
        objects.bucket.write(PATH, [change(raw)], len(change(raw)))
        assert tiered_stores.cache.get(KEY) is None
    assert tiered_stores.cache.contains([KEY]) == [False]
    assert list(objects.bucket.modification_times()) == []
    tiered_stores.cache.put(KEY, {}, LARGE)
    assert same(tiered_stores.cache.get(KEY), LARGE)


def test_expired_objects_are_unreadable_and_swept(
    tiered_stores: Stores, objects: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects expire after the cache's time to live."""
    tiered_stores.cache.put(KEY, {}, LARGE)
    later = SimpleNamespace(time=lambda: time.time() + tiered_stores.settings.cache_ttl + 1)
    for module in ("storage.object_store.results", "operations.sweep"):
        monkeypatch.setattr(f"worker.{module}.time", later)
    tiered_stores.cache.client.flushall()
    assert tiered_stores.cache.get(KEY) is None
    assert objects.index.unswept_seconds() > tiered_stores.settings.cache_ttl
    monkeypatch.setattr(tiered_stores.posteriors, "exists", lambda _: True)
    result = sweep(tiered_stores, objects)
    assert (result.expired, result.unreferenced) == (1, 0)
    assert list(objects.bucket.modification_times()) == []
    assert objects.index.sums() == (0, 0)
    assert objects.index.unswept_seconds() < 60


def test_a_sweep_removes_abandoned_objects(tiered_stores: Stores, objects: ResultStore) -> None:
    """Objects of a deleted posterior and objects without an entry are removed; young and foreign objects stay."""
    tiered_stores.cache.put(KEY, {}, LARGE)
    for path in (path_of("post_b", "orphan"), f"cache/post_a/{PREFIX}of a killed writer", "post_b/else"):
        objects.bucket.write(path, [b"x"], 1)
    young = sweep(tiered_stores, objects)
    assert (young.expired, young.unreferenced) == (0, 0)
    assert same(tiered_stores.cache.get(KEY), LARGE)
    result = sweep(tiered_stores, objects, age=-1)
    assert (result.expired, result.unreferenced) == (0, 3)
    assert list(objects.bucket.modification_times()) == ["post_b/else"], "foreign objects stay"
    assert objects.index.sums() == (0, 0)


def test_an_unavailable_store_is_reported_and_loses_nothing(
    tiered_stores: Stores, objects: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are 503, cached entries are served, deletions take effect; later a sweep removes what is left."""
    tiered_stores.cache.put(KEY, {}, LARGE)
    tiered_stores.cache.put("posterior:post_a", {}, {"x": np.arange(5.0)}, seconds=1e6)
    connect = objects.bucket._connect

    def away() -> Any:
        raise PermissionError("secret")

    monkeypatch.setattr(objects.bucket, "_connect", away)
    for ask in (tiered_stores.cache.get, lambda key: tiered_stores.cache.put(key, {}, LARGE)):
        problem = refusal(ask, KEY)
        assert (problem.code, problem.status) == ("store-unavailable", 503)
        assert "secret" not in problem.detail
    assert tiered_stores.cache.get("posterior:post_a") is not None
    tiered_stores.cache.put("posterior:post_b", {}, {"x": np.arange(5.0)}, seconds=1e6)
    tiered_stores.cache.delete("posterior:post_a")
    assert tiered_stores.cache.get("posterior:post_a") is None
    assert objects.index.sums()[0] == 1
    monkeypatch.setattr(objects.bucket, "_connect", connect)
    assert same(tiered_stores.cache.get(KEY), LARGE)
    assert len(objects.bucket.modification_times()) == 2
    monkeypatch.setattr(tiered_stores.posteriors, "exists", lambda _: True)
    assert sweep(tiered_stores, objects, age=-1).unreferenced == 1
    assert list(objects.bucket.modification_times()) == [PATH]


def test_a_folder_that_another_process_removes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal of the last object of a folder also removes the folder, perhaps before the next one is written."""
    removed: list[Path] = []

    def make_and_lose(folder: Path) -> None:
        make_folder(folder)
        if folder.name == "a" and not removed:
            removed.append(folder)
            folder.rmdir()

    monkeypatch.setattr(backend, "make_folder", make_and_lose)
    bucket = Bucket(f"file://{tmp_path}/objects")
    bucket.write("a/b", [b"x"], 1)
    assert (bucket.read("a/b", 0, 1), len(removed)) == (b"x", 1)


class Answers(BaseHTTPRequestHandler):
    """An S3 server whose first answers are failures; it has one empty object."""

    failures = requests = 0

    def do_GET(self) -> None:  # http.server's name
        """Answer a read."""
        type(self).requests += 1
        self.send_response(503 if self.requests <= self.failures else 416 if "range" in self.headers else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:  # http.server's name
        """Answer a request for the size."""
        self.send_response(200)
        for name, value in (("content-length", "0"), ("last-modified", "Mon, 23 Nov 2026 00:00:00 GMT"), ("etag", "x")):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Answers]]:
    """Serve S3 on a local port, with the environment variables of its clients."""
    handler = type("Handler", (Answers,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        for name, value in (("ACCESS_KEY_ID", "me"), ("SECRET_ACCESS_KEY", "geheim"), ("REGION", "us-east-1")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield handler
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("failures", "requests"), [(2, 3), (9, 1 + backend.RETRIES)])
def test_a_failed_request_is_repeated(s3: type[Answers], failures: int, requests: int) -> None:
    """A short outage of a store is not noticed; a longer one is a problem without credentials."""
    s3.failures = failures
    bucket = Bucket("s3://bucket/prefix", seconds=20.0)
    if failures < requests:
        assert bucket.read("a", 0, 9) == b"", "the range begins at the end"
    else:
        with pytest.raises(ProblemError) as caught:
            bucket.read("a", 0, 9)
        assert (caught.value.problem.code, caught.value.problem.status) == ("store-unavailable", 503)
        assert "geheim" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    assert s3.requests == requests


def test_a_hanging_store_times_out(s3: type[Answers], monkeypatch: pytest.MonkeyPatch) -> None:
    """A request ends after its time limit."""
    over = threading.Event()
    monkeypatch.setattr(s3, "do_GET", lambda _: over.wait())
    with pytest.raises(ProblemError, match="failed"):
        Bucket("s3://bucket", seconds=0.05).read("x", 0, 1)
    over.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
@pytest.mark.parametrize(("use", "result"), [("constructed", "0"), ("used", "2")])
def test_a_fork_uses_a_store_that_its_parent_did_not_use(s3: type[Answers], use: str, result: str) -> None:
    """Where the parent sent a request, the fork would wait forever; it raises an error instead."""
    program = [sys.executable, "-c", FORK, use]  # because this process has used a store
    assert subprocess.run(program, capture_output=True, check=True, text=True, timeout=60).stdout.strip() == result
    assert s3.requests == 1


def test_the_size_of_the_store_is_limited(settings: Settings, tmp_path: Path, stores: Stores) -> None:
    """A value beyond the limit is refused with the remedy, before and during the write."""
    connected = Stores.connect(
        replace(settings, store_url=f"file://{tmp_path}/o", cache_bytes=4 * 2**20, store_bytes=2**22)
    )
    with pytest.raises(ProblemError, match="of 4,194,304 allowed") as caught:
        connected.cache.check_size(2**23, "It")
    assert "GLLE_STORE_BYTES" in caught.value.problem.remedy
    with pytest.raises(ProblemError, match="of 4,194,304 allowed"):
        connected.cache.put(KEY, {}, {"x": np.zeros(2**20)})
    connected.cache.check_size(2**22, "It")
    connected.close()


@pytest.mark.parametrize(
    ("url", "result"),
    [
        ("nonsense://x", "use file:///"),
        ("/srv/objects", "use file:///"),
        ("file://folder", "an absolute path"),
        ("s3://key:pass@bucket", "has a password"),
        ("az://container/x", "Account must be specified. See docs/how-to/storage.md"),
    ],
)
def test_an_unusable_url_is_refused_at_start(url: str, result: str) -> None:
    """The message has the remedy and no password."""
    with pytest.raises(SettingsError, match=result) as caught:
        Bucket(url, seconds=1.0)
    assert "pass@" not in str(caught.value)


def test_the_url_is_shown_without_secrets() -> None:
    """A folder is shown unchanged; of other URLs, password, key and query are hidden."""
    (row,) = [row for row in rows() if row.name == "store_url"]
    assert row.format("file:///srv/objects") == "file:///srv/objects"
    assert row.format("s3://bucket/prefix") == "s3://bucket/prefix"
    assert "geheim" not in row.format("ftp://me:geheim@host/x?token=geheim")


def test_posteriors_are_stored_if_a_read_costs_less_than_a_fit(objects: ResultStore) -> None:
    """A read starts after a moment, and takes longer for more bytes."""
    assert [objects.worth_keeping(seconds, 50_000_000) for seconds in (0.5, 2.0)] == [False, True]


def test_a_write_without_a_bucket_is_no_success(objects: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing object to read is None; a missing place to write is a failure."""

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such bucket")

    monkeypatch.setattr(objects.bucket, "_connect", missing)
    assert objects.bucket.read("a/b", 0, 1) is None
    assert refusal(objects.bucket.write, "a/b", [b"x"], 1).code == "store-unavailable"
