"""Spread of embeddings over HTTP: refits to halves of the data; tasks run in the test process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine.methods import method as method_of
from glle_engine.reliability.movement import movement
from glle_engine.reliability.refits import MethodEmbedder
from glle_engine.reliability.resamples import resample, stream_of
from tests.conftest import in_turn, stored_files
from tests.service.conftest import check_problem
from tests.service.routes.embeddings.conftest import SHEET, N, embed
from tests.service.routes.posteriors.conftest import NPZ, npz, result_of
from worker.analyses.resamples import PART, spread_of
from worker.execution.worker import batch_parts
from worker.records.job import INTERACTIVE

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

HALVES = 10


def embedding_link(client: httpx.Client, stores: Stores, sheet: str, name: str, **parameters: object) -> str:
    """Return the link of an embedding."""
    answer = embed(client, sheet, name, parameters=parameters, scores=[])
    result_of(stores, answer)
    return str(answer.json()["links"]["embedding"])


def spread(client: httpx.Client, stores: Stores, link: str, **body: object) -> dict[str, Any]:
    """Return the result of a spread as JSON."""
    answer = client.post(f"{link}/spread", json={"n_resamples": HALVES, **body})
    assert answer.status_code in {200, 202}, answer.text
    result: dict[str, Any] = client.get(result_of(stores, answer)).json()
    return result


def test_a_spread_is_that_of_the_engine(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """Figures, notes and arrays are the engine's; the formats agree; the job links to the embedding."""
    link = embedding_link(client, stores, sheet, "isomap", n_neighbors=8)
    assert client.get(link).json()["links"]["spread"] == f"{link}/spread"
    answer = client.post(f"{link}/spread", json={"n_resamples": HALVES, "seed": 3})
    job = answer.json()
    assert (job["kind"], job["dataset"], job["links"]["embedding"]) == ("spread", sheet, link)
    assert "recipe" not in job["request"]
    place = result_of(stores, answer)
    body = client.get(place).json()
    isomap = method_of("isomap")
    spec = isomap.spec(n_neighbors=8)
    again = MethodEmbedder(SHEET.X, isomap, spec)
    direct = movement(again, isomap.embed(SHEET.X, spec).Y, resample(again, HALVES, seed=3))
    assert body["figures"].pop("classes") == direct.figures["classes"]
    assert body["figures"] == pytest.approx({k: v for k, v in direct.figures.items() if k != "classes"}, rel=1e-6)
    stated = body["reliability"]
    assert (stated["level"], stated["reason"]) == (direct.reliability.level, direct.reliability.reason)
    assert stated["ceiling"] == pytest.approx(direct.reliability.ceiling, rel=1e-6)
    assert [note["code"] for note in body["notes"]] == [note.code for note in direct.notes]
    assert body["notes"][0]["code"] == "movement-unreliable"
    arrays = npz(client.get(place, headers=NPZ))
    assert set(arrays) == set(body["arrays"])
    for name, array in arrays.items():
        np.testing.assert_allclose(array, getattr(direct, name), rtol=1e-6, atol=1e-9)
    header, *rows = client.get(place, headers={"accept": "text/csv"}).text.splitlines()
    assert {"point", "movement", "consensus_1", "covariance_1_2", "classes"} <= set(header.split(","))
    assert len(rows) == N
    assert client.post(f"{link}/spread", json={"n_resamples": HALVES, "seed": 3}).status_code == 200


def test_refits_are_cached_in_parts(
    client: httpx.Client, stores: Stores, sheet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer request makes, and its estimate counts, only the missing half-samples; samples of .632 are others."""
    link = embedding_link(client, stores, sheet, "pca")
    whole = spread_of(stores.embeddings.fetch(link.rpartition("/")[2]).recipe, n_resamples=PART + 4)
    assert whole.missing(stores.results.contains) == {"n_resamples": PART + 4, "n_refits": 0}
    spread(client, stores, link, n_resamples=PART)
    assert whole.missing(stores.results.contains) == {"n_resamples": 4, "n_refits": 0}
    made: list[int] = []

    def resample_and_record(embed: Any, count: int, *, first: int, **options: Any) -> Any:
        made.extend(range(first, first + count))
        return resample(embed, count, first=first, **options)

    monkeypatch.setattr("worker.analyses.resamples.resample", resample_and_record)
    longer = spread(client, stores, link, n_resamples=PART + 4)
    larger = spread(client, stores, link, n_resamples=PART, share=0.632)
    assert made == [*range(PART, PART + 4), *range(PART)]
    pca = method_of("pca")
    again, reference = MethodEmbedder(SHEET.X, pca, pca.spec()), pca.embed(SHEET.X, pca.spec()).Y
    for found, resamples in (
        (longer, resample(again, PART + 4)),
        (larger, resample(again, PART, stream=stream_of(0.632))),
    ):
        direct = movement(again, reference, resamples)
        assert found["arrays"]["movement"]["data"] == pytest.approx(direct.movement.tolist(), rel=1e-6)
    assert (longer["figures"]["n_refits"], larger["figures"]["share"]) == (0, 0.632)


def test_seeds_and_labels(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """A method with a seed is refitted with others; labels are the classes, one class has no margin."""
    link = embedding_link(client, stores, sheet, "alle", order="random")
    classes = (np.asarray(SHEET.X)[:, 0] > 0).astype(float)[:, None]
    labels = client.post("/v1/datasets", json={"data": classes.tolist()}).json()["id"]
    body = spread(client, stores, link, n_refits=3, labels=labels)
    assert (body["figures"]["n_refits"], body["figures"]["classes"], body["labels"]) == (3, "labels", labels)
    assert body["figures"]["seed_share"] > 0
    assert body["arrays"]["classes"]["data"] == classes[:, 0].tolist()
    one = client.post("/v1/datasets", json={"data": (0 * classes + 1).tolist()}).json()["id"]
    alone = spread(client, stores, link, n_refits=0, labels=one)
    assert "margin" not in alone["arrays"]
    assert alone["figures"]["separated"] is None


def test_labels_of_the_data_are_the_default(client: httpx.Client, stores: Stores) -> None:
    """A data set with labels has its classes, unless they are too many."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((120, 3))
    for count, expected in ((3, "labels"), (120, "clusters")):
        text = "a,b,c,kind\n" + "\n".join(f"{a},{b},{c},k{i % count}" for i, (a, b, c) in enumerate(rows + count))
        answer = client.post("/v1/datasets?labels=kind", content=text, headers={"content-type": "text/csv"})
        link = embedding_link(client, stores, answer.json()["id"], "pca")
        assert spread(client, stores, link)["figures"]["classes"] == expected
    check_problem(client.post(f"{link}/spread", json={"labels": answer.json()["id"]}), 422, "invalid-parameter")


def test_refits_go_with_their_embedding(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """A deletion removes refits and spreads, and their files; the next spread is the same."""
    link = embedding_link(client, stores, sheet, "pca")
    before, files = stores.datasets.usage()["stored_bytes"], len(stored_files(stores)) - 1  # without the embedding's
    first = spread(client, stores, link)
    assert len(stores.results.ids_in(f"of:{link.rpartition('/')[2]}")) > 1
    assert stores.datasets.usage()["stored_bytes"] > before
    assert client.delete(link).status_code == 204
    assert stores.results.usage()["results"] == 0
    assert len(stored_files(stores)) == files
    check_problem(client.post(f"{link}/spread", json={}), 404, "embedding-not-found")
    assert spread(client, stores, embedding_link(client, stores, sheet, "pca"))["figures"] == first["figures"]


def test_refusals(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """Impossible spreads are refused before any work, with the remedy."""
    link = embedding_link(client, stores, sheet, "lle", n_neighbors=N // 2)
    problem = check_problem(client.post(f"{link}/spread", json={"n_neighbors": N}), 422, "invalid-parameter")
    assert str(N - 2) in problem["remedy"]
    problem = check_problem(client.post(f"{link}/spread", json={"share": 0.6}), 422, "invalid-parameter")
    assert problem["remedy"] == "Use share=0.5 or share=0.632."
    for body in ({"n_resamples": 3}, {"n_resamples": 4.5}, {"n_refits": -1}, {"halves": 4}, {"share": 0.9}):
        assert client.post(f"{link}/spread", json=body).status_code == 422
    check_problem(client.post(f"{link}/spread", json={"labels": "ds_0"}), 404, "dataset-not-found")
    large = embedding_link(client, stores, sheet, "lle", n_neighbors=N - 5)
    check_problem(client.post(f"{large}/spread", json={}), 422, "invalid-parameter")


def test_refits_are_parts_of_all_workers(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """Those of a comparison, and of a spread that is a batch; it begins as an interactive task."""
    link = embedding_link(client, stores, sheet, "symmetric-sne", perplexity=10, max_iter=20)
    answer = client.post(f"{link}/spread?wait=0", json={"n_resamples": 400, "n_refits": 0})
    assert answer.status_code == 202, answer.text
    job = stores.jobs.fetch(answer.json()["id"])
    assert (job.parts, job.queue, job.id in in_turn(stores)) == (None, INTERACTIVE, True)
    parts = batch_parts(job)
    assert parts is not None
    assert (parts.stage, parts.total, set(parts.sizes), parts.shards) == ("refits", 400, {PART}, 100)
    row = {"method": "symmetric-sne", "parameters": {"perplexity": 10, "max_iter": 20}}
    compared = {"dataset": sheet, "methods": [row, {"method": "pca"}], "n_resamples": 400}
    answer = client.post("/v1/comparisons?wait=0", json=compared)
    job = stores.jobs.fetch(answer.json()["id"])
    assert job.parts is not None
    assert job.parts.total == 2 * (1 + 400)
    answer = client.post("/v1/comparisons?wait=0", json={**compared, "n_resamples": None})
    assert stores.jobs.fetch(answer.json()["id"]).parts is None


def test_a_comparison_with_spread(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """Rows have the figures of their spread; a method that cannot be halved has a note; without spread none appears."""
    methods = [
        {"method": "pca"},
        {"method": "lle", "parameters": {"n_neighbors": 8}},
        {"method": "lle", "label": "wide", "parameters": {"n_neighbors": N - 5}},
    ]
    body = {"dataset": sheet, "methods": methods, "scores": [], "n_resamples": HALVES}
    result = client.get(result_of(stores, client.post("/v1/comparisons", json=body))).json()
    assert result["n_resamples"] == HALVES
    pca, lle, wide = result["rows"]
    link = embedding_link(client, stores, sheet, "pca")
    assert spread(client, stores, link, n_refits=0)["figures"] == pca["spread"]
    assert lle["spread"]["n_resamples"] == HALVES
    assert lle["spread"]["pairs_kept"] < pca["spread"]["pairs_kept"]
    assert wide["spread"] is None
    assert "no-spread" in {note["code"] for note in wide["notes"]}
    assert wide["problem"] is None
    plain = {name: value for name, value in body.items() if name != "n_resamples"}
    answer = client.post("/v1/comparisons", json=plain)
    assert "n_resamples" not in answer.json()["request"]
    assert all("spread" not in row for row in client.get(result_of(stores, answer)).json()["rows"])
