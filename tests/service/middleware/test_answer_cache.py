"""Draws served from the API's memory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import redis
from starlette.responses import Response

from service.middleware.answer_cache import AnswerCache
from service.submission import recent_posteriors
from tests.conftest import evict
from worker.records.draws import LANE_GROUP, DrawAddress

if TYPE_CHECKING:
    import httpx
    from fastapi import FastAPI
    from starlette.types import Scope

    from worker.stores import Stores

NPY = {"Accept": "application/x-npy"}


def test_the_second_answer_is_the_first_without_the_cache(client: httpx.Client, stores: Stores, drawn: str) -> None:
    """A hit has the same status, bytes and headers after the array cache lost the draw."""
    for accept in ("application/x-npy", "application/json", "application/zip"):
        first = client.get(f"{drawn}/draws/1", headers={"Accept": accept}).raise_for_status()
        halved = client.get(f"{drawn}/draws/1?dtype=float32", headers={"Accept": accept}).raise_for_status()
        assert halved.content != first.content
        path = stores.posteriors.arrays_id(drawn.rpartition("/")[2])
        key = DrawAddress(0, 1, 1.0, "posterior", "procrustes")
        kept = stores.draws.get(path, key)
        assert kept is not None
        evict(stores, f"{LANE_GROUP}:")
        again = client.get(f"{drawn}/draws/1", headers={"Accept": accept}).raise_for_status()
        assert again.content == first.content
        changing = {"x-request-id", "server-timing", "date"}
        assert {name: value for name, value in again.headers.items() if name not in changing} == {
            name: value for name, value in first.headers.items() if name not in changing
        }
        stores.draws.put(path, {key: kept})


def test_without_the_queue_server_a_cached_draw_is_503(
    client: httpx.Client, app: FastAPI, drawn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the queue's Redis the response is a 503 problem; the draw returns afterwards."""
    first = client.get(f"{drawn}/draws/1", headers=NPY).raise_for_status()

    async def away(_tenant: str, _id: str) -> str:
        raise redis.ConnectionError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(app.state.answer_cache, "_state", away)
        answer = client.get(f"{drawn}/draws/1", headers=NPY)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-unavailable")
        assert answer.headers["retry-after"] == "5"
    assert client.get(f"{drawn}/draws/1", headers=NPY).content == first.content


def test_a_matching_etag_gets_304(client: httpx.Client, drawn: str) -> None:
    """A strong or weak ETag, a list, and `*` are matched; another ETag gets the bytes."""
    first = client.get(f"{drawn}/draws/2", headers=NPY).raise_for_status()
    tag = first.headers["etag"]
    for if_none_match in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = client.get(f"{drawn}/draws/2", headers={**NPY, "If-None-Match": if_none_match})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == tag
    assert client.get(f"{drawn}/draws/2", headers={**NPY, "If-None-Match": '"other"'}).content == first.content


def test_a_deletion_is_seen_at_once(client: httpx.Client, drawn: str) -> None:
    """A posterior deleted by this process is 404 at once."""
    for _ in range(2):
        client.get(f"{drawn}/draws/0", headers=NPY).raise_for_status()
    client.delete(drawn).raise_for_status()
    for index in (0, 99):  # cached, and not
        assert client.get(f"{drawn}/draws/{index}", headers=NPY).status_code == 404


def test_a_deletion_elsewhere_is_seen_within_a_second(client: httpx.Client, stores: Stores, drawn: str) -> None:
    """A deletion by another process is noticed within a second."""
    client.get(f"{drawn}/draws/0", headers=NPY).raise_for_status()
    stores.posteriors.delete(drawn.rpartition("/")[2])
    time.sleep(recent_posteriors.RECENT_SECONDS + 0.05)
    for index in (0, 99):
        assert client.get(f"{drawn}/draws/{index}", headers=NPY).status_code == 404


def test_hits_are_counted_by_route(client: httpx.Client, drawn: str) -> None:
    """Metrics count hits by route, and the hits in memory."""
    line = 'glle_http_requests_total{method="GET",route="/v1/posteriors/{id}/draws/{index}",status="200"}'

    def count() -> float:
        lines = [text for text in client.get("/metrics").text.splitlines() if text.startswith(line)]
        return float(lines[0].rpartition(" ")[2]) if lines else 0.0

    before = count()
    for _ in range(3):
        np.frombuffer(client.get(f"{drawn}/draws/3", headers=NPY).raise_for_status().content, np.uint8)
    deadline = time.monotonic() + 5  # the last is counted once its last byte is on its way
    while count() < before + 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert count() == before + 3
    assert 'glle_cache_reads_total{result="hit",where="memory"} 2.0' in client.get("/metrics").text


async def present(_tenant: str, _id: str) -> str:
    """Return the state of every posterior."""
    return "state"


def scope_of(path: str) -> Scope:
    """Return the scope of a GET."""
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    return {**scope, "glle.tenant": "default"}


@pytest.mark.parametrize("most", [0, 2, 10])
def test_the_budget_holds(most: int) -> None:
    """The most recent responses stay within the budget; a larger one is not cached."""
    unlimited = AnswerCache(10**6, present)
    unlimited.keep(scope_of("/10"), "post_1", "state", Response(bytes(100)))
    budget = most * unlimited._bytes
    memory = AnswerCache(budget, present)
    for number in range(10, 30):
        memory.keep(scope_of(f"/{number}"), "post_1", "state", Response(bytes(100)))
    kept = list(memory._answers)
    assert [key.split()[0] for key in kept] == [b"/%d" % number for number in range(30 - most, 30)]
    memory.keep(scope_of("/large"), "post_1", "state", Response(bytes(budget)))
    assert list(memory._answers) == kept
    memory._forget("post_1")
    assert memory._bytes == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_the_budget_is_of_resident_memory() -> None:
    """Resident memory is within a tenth of the budget for small bodies, long queries and large bodies."""
    command = [sys.executable, "-m", "tests.service.middleware.answer_cache_memory", "144,0", "144,12000", "100000,20"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        full, churned = map(float, line.split())
        assert 0.8 < full < 1.1
        assert 0.8 < churned < 1.1


def test_a_query_that_is_too_long_is_414(client: httpx.Client, drawn: str) -> None:
    """414 has the limit and the remedy; a list of the maximum length passes."""
    answer = client.get(f"{drawn}/draws/1?points=" + "1," * 20_000 + "1", headers=NPY)
    assert (answer.status_code, answer.json()["type"]) == (414, "urn:glle:problem:query-too-long")
    assert "a:b" in answer.json()["remedy"]
    longest = "%2C".join(str(i % 150) for i in range(1000))
    assert client.get(f"{drawn}/draws/1?points={longest}", headers=NPY).status_code in {200, 422}
