"""Uploads that crash their parser or exhaust its memory: each gets a response, and the API stays alive."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest

from qa.frame import repeat
from qa.inputs.hostile.bodies.bombs import parquet_footer_bomb
from service.encoding.arrow import PARQUET
from tests.conftest import until
from tests.service.uploads.readers import kill_reader
from tests.system.arrays import check, to_npy, upload
from worker.execution import process_guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.conftest import Up

MAX_GROWTH = 2**26  # growth of the API process, bytes
MAX_ANSWER = 10_000  # bytes

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc; memory is limited on Linux alone")


@pytest.fixture(scope="module")
def client(limited_up: Up) -> Iterator[httpx.Client]:
    """Return a client of the service."""
    with httpx.Client(base_url=limited_up.url, timeout=100) as http_client:
        yield http_client


def peak_memory(pid: int) -> int:
    """Return the peak memory of a process, in bytes."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])


@contextmanager
def always_alive(url: str) -> Iterator[list[int]]:
    """Poll the liveness probe in the background; yield the status codes so far."""
    answers: list[int] = []
    with (
        httpx.Client(base_url=url, timeout=100) as client,
        repeat(lambda: answers.append(client.get("/livez").status_code), seconds=0.01),
    ):
        until(lambda: answers)
        yield answers


def test_a_crash_of_a_reader_affects_only_its_upload(limited_up: Up, client: httpx.Client) -> None:
    """A reader that crashes gives a problem, the same API processes and no files; a later upload succeeds."""
    before = limited_up.apis()
    with always_alive(limited_up.url) as answers:
        killer = threading.Thread(target=kill_reader, args=(limited_up.process.pid, signal.SIGABRT))
        killer.start()
        problem = check(upload(client, b"1,2\n" * 900_000, "text/csv"), 422, "reader-crashed")
        killer.join()
        assert problem["details"]["signal"] == "SIGABRT"
    assert set(answers) == {200}
    assert limited_up.apis() == before
    assert upload(client, to_npy(np.arange(12.0).reshape(4, 3))).status_code == 201
    incoming = limited_up.log.parent / "data" / "incoming"
    assert list(incoming.iterdir()) == []


def test_a_bomb_exhausts_only_the_memory_of_its_reader(limited_up: Up, client: httpx.Client) -> None:
    """The response is short and names the remedy; the API stays small and alive."""
    upload(client, to_npy(np.arange(6.0).reshape(2, 3)))
    before = {process: peak_memory(process) for process in limited_up.apis()}
    with always_alive(limited_up.url) as answers:
        answer = upload(client, parquet_footer_bomb(1_000_000), PARQUET)
    problem = check(answer, 413, "reader-memory")
    assert "more memory" in problem["remedy"]
    assert len(answer.content) < MAX_ANSWER
    assert set(answers) == {200}
    assert limited_up.apis() == list(before)
    assert max(peak_memory(process) - before[process] for process in before) < MAX_GROWTH
