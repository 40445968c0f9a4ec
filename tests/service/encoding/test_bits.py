"""An ETag identifies one content; a response never mixes two."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
import redis
from worker.storage.array_cache import DrawCache

from glle_engine import NUMBERS
from service.app import create_app
from tests.conftest import evict
from tests.service.conftest import data_and_posterior, serving
from worker.execution.draws import store_draws
from worker.records.cache_entry import Entry
from worker.records.draws import LANE_GROUP, DrawAddress, DrawsSpec
from worker.storage.posteriors import ARRAYS, PosteriorStore
from worker.stores import Stores

if TYPE_CHECKING:
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


def test_an_etag_covers_the_whole_response(
    client: httpx.Client, stores: Stores, app: Any, drawn_posterior: str
) -> None:
    """Equal embeddings with other eigenvalues or diagnostics have another JSON and another ETag."""
    key, path = DrawAddress(0, 9, 1.0, "posterior", "none"), f"{drawn_posterior}/draws/9?align=none"
    draw, contents = data_and_posterior()[1].draw(9, align="none"), []
    eigenvalues = replace(draw, eigenvalues=np.nextafter(draw.eigenvalues, 1))
    solver = replace(draw, diagnostics={**draw.diagnostics, "solver": "lu-repinned"})
    for each in (draw, eigenvalues, solver, draw):
        arrays_id = stores.posteriors.arrays_id(drawn_posterior.rpartition("/")[2])
        store_draws(stores.draws, arrays_id, [([key], [each], 0.1)])
        app.state.answer_cache.clear()
        answer = client.get(path, headers=JSON)
        assert answer.status_code == 200
        contents.append((answer.headers["etag"], answer.content))
    assert contents[0] == contents[3]
    for tags_or_bodies in zip(*contents[:3], strict=True):
        assert len(set(tags_or_bodies)) == 3
    unchanged = client.get(path, headers={**JSON, "if-none-match": contents[1][0]})
    assert (unchanged.status_code, unchanged.content) == (200, contents[0][1]), "a tag of other content is no 304"


def test_two_api_processes_agree_on_every_tag(client: httpx.Client, stores: Stores, drawn_posterior: str) -> None:
    """ETags are equal in all processes, for 304 and for ranges."""
    with_other = Stores.connect(stores.settings)
    try:
        with serving(create_app(with_other)) as other:
            for path in (f"{drawn_posterior}/draws/1", f"{drawn_posterior}/arrays?name=embedding"):
                own, others = (api.get(path, headers=NPY) for api in (client, other))
                assert (own.headers["etag"], own.content) == (others.headers["etag"], others.content)
                tag = own.headers["etag"]
                assert other.get(path, headers={**NPY, "if-none-match": tag}).status_code == 304
                part = other.get(path, headers={**NPY, "range": "bytes=100-199", "if-range": tag})
                assert (part.status_code, part.content) == (206, own.content[100:200])
    finally:
        with_other.close()


def test_the_memory_of_an_api_process_follows_the_posterior(
    client: httpx.Client, stores: Stores, app: Any, drawn_posterior: str
) -> None:
    """After a deletion and a fit with other bits in other processes, cached responses are dropped."""
    id_ = drawn_posterior.rpartition("/")[2]
    before = client.get(f"{drawn_posterior}/draws/1", headers=NPY).raise_for_status()
    record = stores.posteriors.fetch(id_)
    stores.posteriors.delete(record.id)
    stores.posteriors.create(replace(record, provenance={"numbers": NUMBERS, ARRAYS: "1" * 64}, created="later"))
    key = DrawAddress(0, 1, 1.0, "posterior", "procrustes")
    other = data_and_posterior()[1].draw(1)
    store_draws(
        stores.draws,
        stores.posteriors.arrays_id(id_),
        [([key], [replace(other, embedding=other.embedding * 2)], 0.1)],
    )
    app.state.recent_posteriors.clear()  # a second has passed
    # The record in memory is the old one, whose draws no worker makes; so it is read again.
    after = client.get(f"{drawn_posterior}/draws/1?wait=0", headers=NPY).raise_for_status()
    assert after.content != before.content
    assert after.headers["etag"] != before.headers["etag"]
    tag = before.headers["etag"]
    assert client.get(f"{drawn_posterior}/draws/1", headers={**NPY, "if-none-match": tag}).status_code == 200
    part = client.get(f"{drawn_posterior}/draws/1", headers={**NPY, "range": "bytes=0-9", "if-range": tag})
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


def test_an_unreachable_cache_fails_before_the_response_starts(
    client: httpx.Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first read precedes the response; later failures abort it."""

    def away(*_: Any) -> Any:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(DrawCache, "get_many", away)
    assert client.get(f"/v1/jobs/{job.id}/result", headers=NPY).status_code == 503


@pytest.mark.parametrize("extra", [JSON, {**NPY, "range": "bytes=1000-"}], ids=["json", "range"])
@pytest.mark.parametrize("is_back", [False, True])
def test_a_download_whose_rest_is_lost_or_has_other_bits_is_aborted(
    client: httpx.Client, stores: Stores, job: Job, extra: dict[str, str], *, is_back: bool
) -> None:
    """The client sees an error; the next request computes the draws again, or gets other content with another ETag."""
    path = f"/v1/jobs/{job.id}/result"
    with client.stream("GET", path, headers={"accept-encoding": "identity", **extra}) as answer:
        assert answer.status_code == (206 if "range" in extra else 200)
        pieces = answer.iter_raw(2**16)
        next(pieces)
        evict(stores, f"{LANE_GROUP}:")
        if is_back:
            store(stores, DRAWS * 2, "other ")
        with pytest.raises(httpx.RemoteProtocolError):
            b"".join(pieces)
        tag = answer.headers["etag"]
    whole = client.get(path, headers={**NPY, "range": "bytes=1000-", "if-range": tag})
    if not is_back:
        assert (whole.status_code, stores.jobs.fetch(job.id).round) == (202, 1)
        return
    assert whole.status_code == 200
    assert whole.headers["etag"] != tag
    assert whole.content.endswith((DRAWS * 2).tobytes())


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
    client: httpx.Client, drawn_posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evicted during the lookup of the digest, cached again for the read."""
    path = f"{drawn_posterior}/arrays?name=embedding"
    before = client.get(path, headers=NPY).raise_for_status()
    monkeypatch.setattr(PosteriorStore, "entry_sha256", lambda *_: None)
    after = client.get(path, headers=NPY).raise_for_status()
    assert (after.headers["etag"], after.content) == (before.headers["etag"], before.content)
