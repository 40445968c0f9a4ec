"""HTTP for all arrays: ETags, ranges, HEAD and compression, and draws served from the API's memory."""

from __future__ import annotations

import gzip
import io
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import redis
from starlette.responses import Response

from service.encoding.arrays import NPY
from service.encoding.representations import accepts_gzip
from service.middleware.answer_cache import AnswerCache
from service.routes import draws
from tests.conftest import cached_draw
from tests.service.conftest import check_problem, upload
from tests.service.routes.posteriors.conftest import result_of
from worker.execution import tasks
from worker.records.draws import DrawAddress

if TYPE_CHECKING:
    import httpx
    from fastapi import FastAPI
    from starlette.types import Scope

    from worker.stores import Stores

X = np.random.default_rng(3).normal(size=(2000, 3))
PLAIN = {"accept": NPY}


@pytest.fixture
def paths(client: httpx.Client, stores: Stores, drawn_posterior: str) -> dict[str, str]:
    """Paths of four arrays: a data set, a draw, a posterior's array, the result of a draws job."""
    return {
        "data set": f"/v1/datasets/{upload(client, X)}/data",
        "draw": f"{drawn_posterior}/draws/1",
        "array": f"{drawn_posterior}/arrays?name=mean",
        "result": result_of(stores, client.post(f"{drawn_posterior}/draws", json={"n_draws": 4})),
    }


def test_a_range_is_that_part_of_the_whole(client: httpx.Client, paths: dict[str, str]) -> None:
    """206 with Content-Range and length, from the store and from memory."""
    for which, path in paths.items():
        stored = client.get(path, headers={**PLAIN, "range": "bytes=3-1200"})
        whole = client.get(path, headers=PLAIN)
        assert (whole.status_code, whole.headers["accept-ranges"]) == (200, "bytes"), which
        assert (stored.status_code, stored.content) == (206, whole.content[3:1201]), which
        size = len(whole.content)
        for text, start, stop in (
            ("0-0", 0, 1),
            ("3-1200", 3, 1201),
            ("128-", 128, size),
            ("-17", size - 17, size),
            ("100-99999999", 100, size),
        ):
            answer = client.get(path, headers={**PLAIN, "range": f"bytes={text}"})
            assert (answer.status_code, answer.content) == (206, whole.content[start:stop]), (which, text)
            assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
            assert answer.headers["etag"] == whole.headers["etag"]
        behind = client.get(path, headers={**PLAIN, "range": f"bytes={size}-"})
        assert (behind.status_code, behind.json()["type"]) == (416, "urn:glle:problem:range-not-satisfiable")
        assert behind.headers["content-range"] == f"bytes */{size}"


def test_a_range_of_another_version_is_the_whole(client: httpx.Client, paths: dict[str, str]) -> None:
    """The range is sent only if If-Range is the current strong ETag; malformed ranges get the whole, too."""
    for path in paths.values():
        whole = client.get(path, headers=PLAIN)
        range_headers, tag = {**PLAIN, "range": "bytes=0-9"}, whole.headers["etag"]
        assert client.get(path, headers={**range_headers, "if-range": tag}).status_code == 206
        for other in ('"other"', f"W/{tag}", "Wed, 21 Oct 2015 07:28:00 GMT"):
            assert client.get(path, headers={**range_headers, "if-range": other}).content == whole.content
        for odd in ("bytes=0-1,5-6", "lines=1-2", "bytes=5-2", "bytes=-", "bytes=x"):
            answer = client.get(path, headers={**PLAIN, "range": odd})
            assert (answer.status_code, answer.content) == (200, whole.content)
    # JSON has no known length, so it offers no ranges.
    answer = client.get(paths["draw"], headers={"range": "bytes=0-1", "accept": "application/json"})
    assert (answer.status_code, "accept-ranges" in answer.headers) == (200, False)


@pytest.mark.parametrize("media", [NPY, "application/json"])
def test_matching_etags_get_304(client: httpx.Client, paths: dict[str, str], media: str) -> None:
    """The ETag identifies representation and slice, and matches compressed or not."""
    for which, path in paths.items():
        tags = set()
        for encoding in ("gzip", "identity"):
            headers = {"accept": media, "accept-encoding": encoding}
            tag = client.get(path, headers=headers).headers["etag"]
            tags.add(tag)
            assert not tag.startswith("W/")
            for matching in (tag, f"W/{tag}", f'"other", {tag}', "*"):
                answer = client.get(path, headers={**headers, "if-none-match": matching})
                assert (answer.status_code, answer.content) == (304, b"")
                assert answer.headers["etag"] == (tag if matching != "*" else tag.replace("-gzip", ""))
            assert client.get(path, headers={**headers, "if-none-match": '"other"'}).status_code == 200
        assert len(tags) == (1 if media == NPY else 2)
        for tag in tags:  # either names the same content
            assert client.get(path, headers={"accept": media, "if-none-match": tag}).status_code == 304
        if which != "array":
            assert client.get(f"{path}?points=0:9", headers={"accept": media}).headers["etag"] not in tags


def test_head_is_get_without_the_body(client: httpx.Client, paths: dict[str, str]) -> None:
    """Status and headers equal those of GET, with ranges."""
    for which, path in paths.items():
        for media in (NPY, "application/json") if which == "array" else (NPY, "application/json", "text/csv"):
            for further_headers in ({}, {"range": "bytes=1-9"}, {"accept-encoding": "identity"}):
                headers = {"accept": media, **further_headers}
                get, head = client.get(path, headers=headers), client.head(path, headers=headers)
                assert (head.status_code, head.content) == (get.status_code, b"")
                assert lasting(head) == lasting(get)


def lasting(answer: httpx.Response) -> dict[str, str]:
    """Return the headers that are the same in each response."""
    changing = {"x-request-id", "server-timing", "date", "transfer-encoding"}
    return {name: value for name, value in answer.headers.items() if name not in changing}


def test_head_of_every_kind_of_route(client: httpx.Client, drawn_posterior: str) -> None:
    """HEAD works for errors, pages and lists, too; metrics count it with its route."""
    for path in (drawn_posterior, "/v1/info", "/v1/datasets", "/docs", "/nowhere", "/v1/jobs/none", "/metrics"):
        get, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
    assert 'method="HEAD",route="/v1/info",status="200"' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        (b"gzip", True), (b"br, GZIP", True), (b"gzip;q=0.5, br", True), (b"*", True), (b"gzip;q=0, *", False),
        (b"", False), (b"identity", False), (b"gzip;q=0", False), (b"br", False), (b"*;q=0", False),
        (b"gzip;q=x", False),
    ],
)  # fmt: skip
def test_gzip_needs_accept_encoding(accepted: bytes, expected: bool) -> None:  # noqa: FBT001 # a case's outcome
    """Gzip is accepted by its name or by `*`, unless the quality is 0."""
    assert accepts_gzip(accepted) is expected


def test_json_is_compressed_and_nothing_else(client: httpx.Client, paths: dict[str, str]) -> None:
    """JSON above 1 KiB, whole or streamed, and nothing else; Vary has Accept-Encoding."""
    for path in (paths["data set"], paths["draw"], paths["draw"], "/openapi.json"):
        with client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
            raw = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "gzip"
        assert "Accept-Encoding" in answer.headers["vary"]
        plain = client.get(path, headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert "Accept-Encoding" in plain.headers["vary"]
        assert gzip.decompress(raw) == plain.content
        assert len(raw) < 0.6 * len(plain.content)
    for media in (NPY, "application/zip", "application/vnd.apache.arrow.stream", "text/csv"):
        answer = client.get(paths["data set"], headers={"accept": media, "accept-encoding": "gzip"})
        assert "content-encoding" not in answer.headers
    small = f"/v1/datasets/{upload(client, X[:3])}/data"  # streamed, too
    for path in ("/livez", small):
        answer = client.get(path)
        assert (answer.status_code, "content-encoding" in answer.headers) == (200, False)


def test_a_fit_has_an_etag(client: httpx.Client, stores: Stores) -> None:
    """The result of a fit is sent again only after a change."""
    job = client.post("/v1/posteriors", json={"dataset": upload(client, X[:60])}).json()
    tasks.fit(job["id"])
    first = client.get(f"/v1/jobs/{job['id']}/result")
    again = client.get(f"/v1/jobs/{job['id']}/result", headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    check_problem(client.get(f"/v1/jobs/{job['id']}/result?points=0:3"), 422, "not-sliceable")


def test_ranges_put_together_are_the_array(client: httpx.Client, paths: dict[str, str]) -> None:
    """A resumed download equals the whole."""
    size = int(client.head(paths["result"], headers=PLAIN).headers["content-length"])
    parts = [
        client.get(paths["result"], headers={**PLAIN, "range": f"bytes={start}-{start + 998}"}).content
        for start in range(0, size, 999)
    ]
    assert np.load(io.BytesIO(b"".join(parts))).shape == (4, 150, 2)


def test_the_second_answer_is_the_first_without_the_cache(
    client: httpx.Client, stores: Stores, drawn_posterior: str
) -> None:
    """A hit has the same status, bytes and headers after the cache lost the draw."""
    for accept in ("application/x-npy", "application/json", "application/zip"):
        first = client.get(f"{drawn_posterior}/draws/1", headers={"Accept": accept}).raise_for_status()
        halved = client.get(f"{drawn_posterior}/draws/1?dtype=float32", headers={"Accept": accept}).raise_for_status()
        assert halved.content != first.content
        id_ = drawn_posterior.rpartition("/")[2]
        key = DrawAddress(0, 1, 1.0, "posterior", "procrustes")
        kept = cached_draw(stores, id_, key)
        assert kept is not None
        stores.cache.client.flushall()
        again = client.get(f"{drawn_posterior}/draws/1", headers={"Accept": accept}).raise_for_status()
        assert again.content == first.content
        assert lasting(again) == lasting(first)
        stores.cache.put_draws(id_, {key: kept})


def test_without_the_queue_server_a_cached_draw_is_503(
    client: httpx.Client, app: FastAPI, drawn_posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the queue's Redis the response is a 503 problem; the draw returns afterwards."""
    first = client.get(f"{drawn_posterior}/draws/1", headers=PLAIN).raise_for_status()

    async def away(_tenant: str, _id: str) -> str:
        raise redis.ConnectionError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(app.state.answer_cache, "_state", away)
        answer = client.get(f"{drawn_posterior}/draws/1", headers=PLAIN)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-unavailable")
        assert answer.headers["retry-after"] == "5"
    assert client.get(f"{drawn_posterior}/draws/1", headers=PLAIN).content == first.content


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_deletion_is_seen(
    client: httpx.Client, stores: Stores, drawn_posterior: str, monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool
) -> None:
    """A posterior deleted by this process is 404 at once, one deleted by another within a second."""
    assert draws.RECENT_SECONDS <= 1
    monkeypatch.setattr(draws, "RECENT_SECONDS", 0.1 if elsewhere else 60.0)
    for _ in range(2):
        client.get(f"{drawn_posterior}/draws/0", headers=PLAIN).raise_for_status()
    if elsewhere:
        stores.posteriors.delete(drawn_posterior.rpartition("/")[2])
        time.sleep(0.15)
    else:
        client.delete(drawn_posterior).raise_for_status()
    for index in (0, 99):  # cached, and not
        assert client.get(f"{drawn_posterior}/draws/{index}", headers=PLAIN).status_code == 404


def test_hits_are_counted_by_route(client: httpx.Client, drawn_posterior: str) -> None:
    """Metrics count hits by route, and the hits in memory."""
    line = 'glle_http_requests_total{method="GET",route="/v1/posteriors/{id}/draws/{index}",status="200"}'

    def count() -> float:
        lines = [text for text in client.get("/metrics").text.splitlines() if text.startswith(line)]
        return float(lines[0].rpartition(" ")[2]) if lines else 0.0

    before = count()
    for _ in range(3):
        np.frombuffer(client.get(f"{drawn_posterior}/draws/3", headers=PLAIN).raise_for_status().content, np.uint8)
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


@pytest.mark.parametrize("capacity", [0, 2, 10])
def test_the_budget_holds(capacity: int) -> None:
    """The most recent responses stay within the budget; a larger one is not cached."""
    unlimited = AnswerCache(10**6, present)
    unlimited.keep(scope_of("/10"), "post_1", "state", Response(bytes(100)))
    budget = capacity * unlimited._bytes
    memory = AnswerCache(budget, present)
    for number in range(10, 30):
        memory.keep(scope_of(f"/{number}"), "post_1", "state", Response(bytes(100)))
    kept = list(memory._answers)
    assert [key.split()[0] for key in kept] == [b"/%d" % number for number in range(30 - capacity, 30)]
    memory.keep(scope_of("/large"), "post_1", "state", Response(bytes(budget)))
    assert list(memory._answers) == kept
    memory._forget("post_1")
    assert memory._bytes == 0


def test_a_query_that_is_too_long_is_414(client: httpx.Client, drawn_posterior: str) -> None:
    """414 has the limit and the remedy; a list of the maximum length passes."""
    answer = client.get(f"{drawn_posterior}/draws/1?points=" + "1," * 20_000 + "1", headers=PLAIN)
    assert "a:b" in check_problem(answer, 414, "query-too-long")["remedy"]
    longest = "%2C".join(str(i % 150) for i in range(1000))
    assert client.get(f"{drawn_posterior}/draws/1?points={longest}", headers=PLAIN).status_code in {200, 422}
