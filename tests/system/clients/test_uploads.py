"""Bodies that crash what reads them, or take all memory: the API answers each, and everything else meanwhile."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest

from qa.inputs.hostile.bodies.bombs import ABORTING_PARQUET, arrow_schema_bomb, npz_labels_bomb, parquet_footer_bomb
from service.encoding.arrow import ARROW, PARQUET
from tests.conftest import until
from tests.system.clients.test_errors import check, npy, upload
from tests.system.conftest import ended, running
from worker.execution import process_guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.conftest import Up

MEMORY = 2**27  # bytes of a reader
MOST_GROWTH = 2**26  # bytes of the API
MOST_ANSWER = 10_000  # bytes

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc; memory is limited on Linux alone")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service whose readers have little memory."""
    folder = tmp_path_factory.mktemp("uploads")
    with running(folder, GLLE_READER_BYTES=str(MEMORY), GLLE_WORKERS="1") as started:
        yield started


@pytest.fixture(scope="module")
def asked(small: Up) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=small.url, timeout=100) as made:
        yield made


def api(up: Up) -> int:
    """Return the process of the API."""
    (found,) = up.children(" serve ")
    return found


def most_memory(pid: int) -> int:
    """Return the bytes of memory that a process had at most."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])


@contextmanager
def always_alive(url: str) -> Iterator[list[int]]:
    """Ask whether the API lives, all the while; yield the answers so far."""
    answers: list[int] = []
    over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=100) as client:
            while not over.wait(0.01):
                answers.append(client.get("/livez").status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        until(lambda: answers)
        yield answers
    finally:
        over.set()
        thread.join()


def test_a_body_that_ends_its_reader_ends_nothing_else(small: Up, asked: httpx.Client) -> None:
    """Forty-eight bytes of Parquet, nine times: nine problems, one API process, and a good upload afterwards."""
    before = api(small)
    with always_alive(small.url) as answers:
        for _ in range(9):
            problem = check(upload(asked, ABORTING_PARQUET, PARQUET), 422, "reader-crashed")
            assert problem["details"]["signal"] == "SIGABRT"
    assert set(answers) == {200}
    assert api(small) == before
    assert upload(asked, npy(np.arange(12.0).reshape(4, 3))).status_code == 201
    incoming = small.log.parent / "data" / "incoming"
    assert list(incoming.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "bomb"),
    [
        (ARROW, arrow_schema_bomb(10, 6, 2**20)),
        (PARQUET, parquet_footer_bomb(200_000)),
        ("application/zip", npz_labels_bomb(40_000)),
    ],
    ids=["schema", "footer", "labels"],
)
def test_a_bomb_takes_the_memory_of_its_reader_alone(small: Up, asked: httpx.Client, kind: str, bomb: bytes) -> None:
    """The answer is short and names the remedy; the API neither grows nor stops to answer."""
    upload(asked, npy(np.arange(6.0).reshape(2, 3)))
    process = api(small)
    before = most_memory(process)
    with always_alive(small.url) as answers:
        answer = upload(asked, bomb, kind)
    problem = check(answer, 413, "reader-memory")
    assert "GLLE_READER_BYTES" in problem["remedy"]
    assert len(answer.content) < MOST_ANSWER
    assert set(answers) == {200}
    assert api(small) == process
    assert most_memory(process) - before < MOST_GROWTH


def test_values_at_the_end_of_the_range_are_no_lost_workers(small: Up, asked: httpx.Client) -> None:
    """Numbers whose differences no float64 holds end their job at once, with a result or a problem of the request."""
    values = np.random.default_rng(0).choice([-1.7e308, 1.7e308, 1.0], size=(40, 3))
    dataset = upload(asked, npy(values)).json()["id"]
    job = asked.post("/v1/posteriors", json={"dataset": dataset}).json()
    over = ended(asked, job["id"])
    assert over["status"] == "succeeded" or over["error"]["status"] == 422, over["error"]
