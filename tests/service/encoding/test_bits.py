"""An ETag identifies one content; a response never mixes two."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from service.app import create_app
from service.encoding.result import immutable_headers
from tests.service.conftest import check_problem, data_and_posterior, posterior_record, serving, upload
from worker.execution.draws import draw_entries
from worker.records.cache_entry import Entry
from worker.records.draws import DrawAddress, DrawsSpec
from worker.stores import Stores

if TYPE_CHECKING:
    from worker.jobs.store import Job

NPY = {"accept": "application/x-npy"}
JSON = {"accept": "application/json"}
COUNT = 400
SPEC = DrawsSpec(
    n=3000, p=2, n_draws=COUNT, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
    draw_seconds=0.003, shard_seconds=0.3,
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
        stores.cache.put_draws(drawn_posterior.rpartition("/")[2], draw_entries([key], [each], 0.1))
        app.state.answer_cache.clear()
        answer = client.get(path, headers=JSON)
        assert answer.status_code == 200
        contents.append((answer.headers["etag"], answer.content))
    assert contents[0] == contents[3]
    for tags_or_bodies in zip(*contents[:3], strict=True):
        assert len(set(tags_or_bodies)) == 3
    unchanged = client.get(path, headers={**JSON, "if-none-match": contents[1][0]})
    assert (unchanged.status_code, unchanged.content) == (200, contents[0][1]), "a tag of other content is no 304"


def test_the_tag_of_json_names_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of the encoder may write other bytes of JSON, but no other bytes of an array."""
    before = [immutable_headers("0" * 64, media["accept"], "float64")["ETag"] for media in (JSON, NPY)]
    monkeypatch.setattr("service.encoding.arrays.JSON_ENCODER", "orjson-0.0")
    after = [immutable_headers("0" * 64, media["accept"], "float64")["ETag"] for media in (JSON, NPY)]
    assert [tag == other for tag, other in zip(before, after, strict=True)] == [False, True]


def test_two_api_processes_agree_on_every_tag(client: httpx.Client, stores: Stores, drawn_posterior: str) -> None:
    """ETags are equal in all processes, for 304 and for ranges."""
    with_other = Stores.connect(stores.settings)
    try:
        with serving(create_app(with_other)) as other:
            for path in (f"{drawn_posterior}/draws/1", f"{drawn_posterior}/arrays?name=embedding"):
                first, second = (api.get(path, headers=NPY) for api in (client, other))
                assert (first.headers["etag"], first.content) == (second.headers["etag"], second.content)
                tag = first.headers["etag"]
                assert other.get(path, headers={**NPY, "if-none-match": tag}).status_code == 304
                answer = other.get(path, headers={**NPY, "range": "bytes=100-199", "if-range": tag})
                assert (answer.status_code, answer.content) == (206, first.content[100:200])
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
    stores.posteriors.create(replace(record, created="later"))
    key = DrawAddress(0, 1, 1.0, "posterior", "procrustes")
    other = data_and_posterior()[1].draw(1)
    stores.cache.put_draws(id_, draw_entries([key], [replace(other, embedding=other.embedding * 2)], 0.1))
    app.state.recent_posteriors.clear()  # a second has passed
    after = client.get(f"{drawn_posterior}/draws/1?wait=0", headers=NPY).raise_for_status()
    assert after.content != before.content
    assert after.headers["etag"] != before.headers["etag"]
    tag = before.headers["etag"]
    assert client.get(f"{drawn_posterior}/draws/1", headers={**NPY, "if-none-match": tag}).status_code == 200
    answer = client.get(f"{drawn_posterior}/draws/1", headers={**NPY, "range": "bytes=0-9", "if-range": tag})
    assert answer.status_code == 200, "a part of what has another tag is no part of the copy"


def store(stores: Stores, draws: np.ndarray[Any, Any], job: str, prefix: str) -> None:
    """Store all draws of the job as four shards; their digests start with `prefix`."""
    for shard in range(SPEC.shards):
        shard_slice = slice(shard * SPEC.per_shard, shard * SPEC.per_shard + SPEC.shard_size(shard))
        numbers = range(COUNT)[shard_slice]
        meta = [{"index": i, "scale": 1.0, "diagnostics": {}, "sha256": f"{prefix}{i}"} for i in numbers]
        arrays = {"embeddings": draws[shard_slice], "eigenvalues": np.zeros((len(numbers), 2))}
        key = SPEC.result_key("post_1", shard)
        assert stores.results.put(key, Entry({"draws": meta}, arrays), owners=["post_1"], job=job, tenant="default")


@pytest.fixture
def job(client: httpx.Client, stores: Stores) -> Job:
    """A draws job that has succeeded, with its result."""
    stores.posteriors.create(posterior_record(dataset=upload(client), n=SPEC.n))
    created, _ = stores.jobs.create(kind="draws", claim="c", posterior="post_1", spec=SPEC.to_dict(), total=SPEC.total)
    stores.jobs.start(created.id)
    stores.jobs.succeed(created.id)
    store(stores, DRAWS, created.id, "first ")
    return stores.jobs.fetch(created.id)


@pytest.mark.parametrize("extra", [JSON, {**NPY, "range": "bytes=1000-"}], ids=["json", "range"])
def test_a_download_whose_rest_is_deleted_is_aborted(
    client: httpx.Client, stores: Stores, job: Job, extra: dict[str, str]
) -> None:
    """The client sees an error; the next request is refused, or gets other content with another ETag."""
    path = f"/v1/jobs/{job.id}/result"
    with client.stream("GET", path, headers={"accept-encoding": "identity", **extra}) as answer:
        assert answer.status_code == (206 if "range" in extra else 200)
        pieces = answer.iter_raw(2**16)
        next(pieces)
        stores.results.delete_of(job.id, job.tenant)
        with pytest.raises(httpx.RemoteProtocolError):
            b"".join(pieces)
        tag = answer.headers["etag"]
    ranged = {**NPY, "range": "bytes=1000-", "if-range": tag}
    check_problem(client.get(path, headers=ranged), 410, "result-gone")
    store(stores, DRAWS * 2, job.id, "other ")
    whole = client.get(path, headers=ranged)
    assert whole.status_code == 200
    assert whole.headers["etag"] != tag
    assert whole.content.endswith((DRAWS * 2).tobytes())
