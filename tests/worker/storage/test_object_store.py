"""The object store, on a local folder and in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.conftest import refusal
from worker.base.files import make_folder
from worker.base.problems import ProblemError
from worker.base.settings import SettingsError, rows
from worker.storage.object_store import backend
from worker.storage.object_store.backend import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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


def test_a_folder_that_another_process_removes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process removes a folder because it is empty, the next write makes the folder again."""
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
    """An S3 server with one empty object, whose first `failures` answers are errors."""

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


@pytest.mark.parametrize(("failures", "requests"), [(2, 3), (9, 1 + backend.MAX_RETRIES)])
def test_a_failed_request_is_repeated(s3: type[Answers], failures: int, requests: int) -> None:
    """A short outage of the store is not noticed; after a longer one, the problem has no credentials."""
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
    """If the parent has sent a request, a forked process raises an error instead of waiting forever."""
    program = [sys.executable, "-c", FORK, use]  # because this process has used a store
    assert subprocess.run(program, capture_output=True, check=True, text=True, timeout=60).stdout.strip() == result
    assert s3.requests == 1


@pytest.mark.parametrize(
    ("url", "result"),
    [
        ("nonsense://x", "Use file:///"),
        ("/srv/objects", "Use file:///"),
        ("file://folder", "an absolute path"),
        ("s3://key:pass@bucket", "has a password"),
        ("az://container/x", "Account must be specified"),
    ],
)
def test_an_unusable_url_is_refused_at_start(url: str, result: str) -> None:
    """The message has the remedy, and no password."""
    with pytest.raises(SettingsError, match=result) as caught:
        Bucket(url, seconds=1.0)
    assert "pass@" not in str(caught.value)


def test_the_url_is_shown_without_secrets() -> None:
    """The URL of a folder is shown as it is; password and query of other URLs are not shown."""
    (row,) = [row for row in rows() if row.name == "store_url"]
    assert row.format("file:///srv/objects") == "file:///srv/objects"
    assert row.format("s3://bucket/prefix") == "s3://bucket/prefix"
    assert "geheim" not in row.format("ftp://me:geheim@host/x?token=geheim")


@pytest.mark.parametrize(
    ("status", "cause", "remedy"),
    [
        (401, "refuses the credentials", "credentials"),
        (403, "refuses the credentials", "rights: put, get, delete and list"),
        (404, "bucket or container does not exist", "Create it"),
        (500, "status 500", "check the store"),
        (0, "cannot be reached over the network", "AWS_ENDPOINT_URL"),
    ],
)
def test_the_cause_of_a_failure_is_named(
    s3: type[Answers], monkeypatch: pytest.MonkeyPatch, status: int, cause: str, remedy: str
) -> None:
    """The problem names credentials, bucket or network, and neither the class of the error nor what the store says."""

    def answer(handler: Answers) -> None:
        handler.rfile.read(int(handler.headers.get("content-length", 0)))
        handler.send_response(status)
        handler.send_header("content-length", "6")
        handler.end_headers()
        handler.wfile.write(b"geheim")

    for method in ("GET", "PUT", "DELETE", "POST"):
        monkeypatch.setattr(s3, f"do_{method}", answer, raising=False)
    if not status:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    bucket = Bucket("s3://bucket/prefix", seconds=20.0, retries=0)
    calls: list[Callable[[], object]] = [
        lambda: bucket.write("a", [b"x"], 1),
        lambda: bucket.modification_times("data"),
    ]
    if status != 404:  # a missing object
        calls.append(lambda: bucket.read("a", 0, 1))
    for call in calls:
        problem = refusal(call)
        assert problem.code == "store-unavailable"
        assert cause in problem.detail
        assert remedy in problem.remedy
        assert "Error" not in problem.detail
        assert "geheim" not in problem.detail


def test_the_cause_of_a_failing_folder_is_named(tmp_path: Path) -> None:
    """The problem quotes the error message of the operating system."""
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "a").write_text("a file in the place of a folder")
    problem = refusal(Bucket(f"file://{tmp_path}/objects").write, "a/b", [b"x"], 1)
    assert problem.detail == "The object store failed: Not a directory."
    assert "GLLE_DATA_DIR" in problem.remedy


@pytest.mark.parametrize("url", ["file://{}/objects", "memory:"])
def test_a_write_without_a_bucket_is_no_success(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a missing object gives None and makes no folder; writing to a missing bucket is an error."""
    bucket = Bucket(url.format(tmp_path))

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such bucket")

    monkeypatch.setattr(bucket, "_connect", missing)
    assert bucket.read("a/b", 0, 1) is None
    assert not list(tmp_path.iterdir())
    assert refusal(bucket.write, "a/b", [b"x"], 1).code == "store-unavailable"
