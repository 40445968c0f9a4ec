"""An ETag identifies one content; a response never mixes two."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from glle_engine import NUMBERS
from service.app import create_app
from service.encoding.aborted import ResponseAbortedError
from service.encoding.selection import Selection
from service.responses.draws import _DrawReader
from tests.conftest import evict, until
from tests.service.conftest import fitted, serving
from worker.execution.draws import store_draws
from worker.records.cache_entry import Entry
from worker.records.draws import LANE_GROUP, DrawAddress, DrawsSpec
from worker.storage.posteriors import ARRAYS, PosteriorStore
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from glle_engine import Draw
    from worker.jobs.store import Job

NPY = {"accept": "application/x-npy"}
JSON = {"accept": "application/json"}
OTHER = "0123456789abcdef"
COUNT = 400
SPEC = DrawsSpec(
    n=3000, p=2, count=COUNT, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
    draw_seconds=1e-6 * 3000, shard_seconds=9.0,
)  # fmt: skip
DRAWS = np.random.default_rng(0).normal(size=(COUNT, 3000, 2))


def same_draw(draw: Draw) -> Draw:
    """Return the draw."""
    return draw


def with_other_eigenvalues(draw: Draw) -> Draw:
    """Return a draw that differs in the last bit of its eigenvalues only."""
    return replace(draw, eigenvalues=np.nextafter(draw.eigenvalues, 1))


def with_other_diagnostics(draw: Draw) -> Draw:
    """Return a draw of another solver."""
    return replace(draw, diagnostics={**draw.diagnostics, "solver": "lu-repinned"})


@pytest.mark.parametrize("change", [with_other_eigenvalues, with_other_diagnostics])
@pytest.mark.parametrize("align", ["none", "procrustes"])
def test_an_etag_covers_the_whole_response(
    client: httpx.Client, stores: Stores, app: Any, drawn: str, align: str, change: Callable[[Draw], Draw]
) -> None:
    """Equal embeddings with other eigenvalues or diagnostics have another JSON and another ETag."""
    key = DrawAddress(0, 9, 1.0, "posterior", align)
    contents = []
    for created in (same_draw, change, same_draw):
        draw = created(fitted()[1].draw(9, align=align))  # type: ignore[arg-type] # one of the two
        arrays_id = stores.posteriors.arrays_id(drawn.rpartition("/")[2])
        store_draws(stores.draws, arrays_id, [([key], [draw], 0.1)])
        app.state.answer_cache.clear()
        answer = client.get(f"{drawn}/draws/9?align={align}", headers=JSON)
        assert answer.status_code == 200
        contents.append((answer.headers["etag"], answer.content))
    assert contents[0] == contents[2]
    assert contents[0][0] != contents[1][0]
    assert contents[0][1] != contents[1][1]
    unchanged = client.get(f"{drawn}/draws/9?align={align}", headers={**JSON, "if-none-match": contents[1][0]})
    assert (unchanged.status_code, unchanged.content) == (200, contents[0][1]), "a tag of other content is no 304"


def test_two_api_processes_agree_on_every_tag(client: httpx.Client, stores: Stores, drawn: str) -> None:
    """ETags are equal in all processes, for 304 and for ranges."""
    with_other = Stores.connect(stores.settings)
    try:
        with serving(create_app(with_other)) as other:
            for path in (f"{drawn}/draws/1", f"{drawn}/arrays?name=embedding"):
                own, others = (api.get(path, headers=NPY) for api in (client, other))
                assert (own.headers["etag"], own.content) == (others.headers["etag"], others.content)
                tag = own.headers["etag"]
                assert other.get(path, headers={**NPY, "if-none-match": tag}).status_code == 304
                part = other.get(path, headers={**NPY, "range": "bytes=100-199", "if-range": tag})
                assert (part.status_code, part.content) == (206, own.content[100:200])
    finally:
        with_other.close()


def test_the_memory_of_an_api_process_follows_the_posterior(
    client: httpx.Client, stores: Stores, app: Any, drawn: str
) -> None:
    """After a deletion and a fit with other bits in other processes, cached responses are dropped."""
    id_ = drawn.rpartition("/")[2]
    before = client.get(f"{drawn}/draws/1", headers=NPY).raise_for_status()
    record = stores.posteriors.fetch(id_)
    stores.posteriors.delete(record.id)
    stores.posteriors.record(replace(record, provenance={"numbers": NUMBERS, ARRAYS: "1" * 64}, created="later"))
    key = DrawAddress(0, 1, 1.0, "posterior", "procrustes")
    other = fitted()[1].draw(1)
    store_draws(
        stores.draws,
        stores.posteriors.arrays_id(id_),
        [([key], [replace(other, embedding=other.embedding * 2)], 0.1)],
    )
    app.state.recent_posteriors.clear()  # a second has passed
    # The record in memory is the old one, whose draws no worker makes; so it is read again.
    after = client.get(f"{drawn}/draws/1?wait=0", headers=NPY).raise_for_status()
    assert after.content != before.content
    assert after.headers["etag"] != before.headers["etag"]
    tag = before.headers["etag"]
    assert client.get(f"{drawn}/draws/1", headers={**NPY, "if-none-match": tag}).status_code == 200
    part = client.get(f"{drawn}/draws/1", headers={**NPY, "range": "bytes=0-9", "if-range": tag})
    assert part.status_code == 200, "a part of what has another tag is no part of the copy"


def store(stores: Stores, draws: np.ndarray[Any, Any], prefix: str) -> None:
    """Cache all draws of the job; their digests start with `prefix`."""
    for position, embedding in enumerate(draws):
        arrays = {"embedding": embedding, "eigenvalues": np.zeros(2)}
        meta = {"index": position, "scale": 1.0, "diagnostics": {}, "sha256": f"{prefix}{position}"}
        stores.draws.put("post_1", {SPEC.key(position): Entry(meta, arrays)})


@pytest.fixture
def job(stores: Stores) -> Job:
    """A draws job that has succeeded, with its cached result."""
    created, _ = stores.jobs.create(kind="draws", claim="c", posterior="post_1", spec=SPEC.to_dict(), total=SPEC.total)
    stores.jobs.start(created.id)
    stores.jobs.succeed(created.id)
    store(stores, DRAWS, "first ")
    return stores.jobs.fetch(created.id)


def recomputed(stores: Stores, job: Job, draws: np.ndarray[Any, Any], prefix: str) -> threading.Thread:
    """Compute the evicted result again as soon as it is needed, as a worker does."""

    def make() -> None:
        until(lambda: stores.jobs.fetch(job.id).round > 0)
        stores.jobs.start(job.id)
        store(stores, draws, prefix)
        stores.jobs.succeed(job.id)

    thread = threading.Thread(target=make)
    thread.start()
    return thread


@pytest.mark.parametrize("extra", [{}, {"range": "bytes=1000-"}])
@pytest.mark.parametrize("media", ["application/x-npy", "application/json"])
def test_a_download_whose_rest_has_other_bits_is_aborted(
    client: httpx.Client, stores: Stores, job: Job, media: str, extra: dict[str, str]
) -> None:
    """The client sees an error; the next request gets the new content with another ETag."""
    path, headers = f"/v1/jobs/{job.id}/result", {"accept": media, "accept-encoding": "identity", **extra}
    response = b""
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == (206 if extra and media == NPY["accept"] else 200)
        pieces = answer.iter_raw(2**16)
        response += next(pieces)
        evict(stores, f"{LANE_GROUP}:")
        again = recomputed(stores, job, DRAWS * 2, "other ")
        with pytest.raises(httpx.RemoteProtocolError):
            response += b"".join(pieces)
        tag = answer.headers["etag"]
    again.join()
    assert response
    whole = client.get(path, headers={**NPY, "range": "bytes=1000-", "if-range": tag})
    assert whole.status_code == 200
    assert whole.headers["etag"] != tag
    assert whole.content.endswith((DRAWS * 2).tobytes())


def test_a_download_whose_rest_has_the_same_bits_goes_on(client: httpx.Client, stores: Stores, job: Job) -> None:
    """Evicted and computed again with the same bits."""
    with client.stream("GET", f"/v1/jobs/{job.id}/result", headers=NPY) as answer:
        pieces = answer.iter_raw(2**16)
        response = next(pieces)
        evict(stores, f"{LANE_GROUP}:")
        again = recomputed(stores, job, DRAWS, "first ")
        response += b"".join(pieces)
    again.join()
    assert response.endswith(DRAWS.tobytes())


@pytest.mark.parametrize("start", [0, 3])
def test_each_draw_is_compared_with_its_announced_digest(stores: Stores, job: Job, start: int) -> None:
    """From the start or from a range, one draw with other bits aborts."""
    assert job.status == "succeeded"
    keys = [SPEC.key(position) for position in range(8)]
    result = _DrawReader(stores.draws, "post_1", keys, Selection.of(None, 3000, "points"), 2**19, lambda: None)
    assert result.sha256() is not None
    arrays = {"embedding": DRAWS[5] * 2, "eigenvalues": np.zeros(2)}
    stores.draws.put("post_1", {SPEC.key(5): Entry({"sha256": "other 5"}, arrays)})
    sent: list[np.ndarray[Any, Any]] = []
    with pytest.raises(ResponseAbortedError, match="Draw 5"):
        sent.extend(result.embeddings(start))
    assert np.array(sent).tobytes() == DRAWS[start : start + len(sent)].tobytes()
    assert len(sent) == 5 - start


def test_info_names_the_numbers(client: httpx.Client, stores: Stores) -> None:
    """The numerics version of a deployment with other bits has its fingerprint, and so have its ids."""
    assert client.get("/v1/info").json()["numbers"] == NUMBERS
    dataset = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 30}).json()["id"]
    pinned = client.post("/v1/posteriors", json={"dataset": dataset}).json()["posterior"]
    with_other = Stores.connect(replace(stores.settings, allow_other_bits=OTHER))
    with closing(with_other), serving(create_app(with_other)) as other:
        assert other.get("/v1/info").json()["numbers"] == f"{NUMBERS}+{OTHER}"
        job = other.post("/v1/posteriors", json={"dataset": dataset}).json()
        assert job["posterior"] != pinned
        assert stores.jobs.fetch(job["id"]).numbers == f"{NUMBERS}+{OTHER}"


def test_arrays_cached_during_a_lookup_have_their_tag(
    client: httpx.Client, drawn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evicted during the lookup of the digest, cached again for the read."""
    path = f"{drawn}/arrays?name=embedding"
    before = client.get(path, headers=NPY).raise_for_status()
    monkeypatch.setattr(PosteriorStore, "entry_sha256", lambda *_: None)
    after = client.get(path, headers=NPY).raise_for_status()
    assert (after.headers["etag"], after.content) == (before.headers["etag"], before.content)
