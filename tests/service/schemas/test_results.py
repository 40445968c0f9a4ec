"""Schemas of results: each success body has one, and the real results of every kind satisfy it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.service.conftest import upload
from tests.service.routes.posteriors.conftest import SHEET, fitted, result_of
from tests.service.schemas.bodies import CONTRACT, OPERATIONS, check_body, errors_of
from worker.execution import tasks
from worker.records.draws import DrawsSpec

if TYPE_CHECKING:
    from worker.stores import Stores

BODIES = [
    pytest.param(media, body, id=f"{method} {path} {status} {media}")
    for method, path, operation in OPERATIONS
    for status, response in operation["responses"].items()
    if status.startswith("2")
    for media, body in response.get("content", {}).items()
]
REQUESTS = [
    pytest.param(media, body, id=f"{method} {path} {media}")
    for method, path, operation in OPERATIONS
    for media, body in operation.get("requestBody", {}).get("content", {}).items()
]


@pytest.fixture(autouse=True)
def _local_tasks(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tasks use the app's stores."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)


@pytest.mark.parametrize(("media", "body"), BODIES)
def test_every_success_body_has_a_schema(media: str, body: dict[str, Any]) -> None:
    """JSON is a named model, a stream has events, text is a string, all else is binary."""
    if media == "text/event-stream":
        assert body["schema"]["properties"].keys() == {"id", "event", "data"}
    elif media == "application/json":
        assert list(body["schema"]) == ["$ref"]
    elif media.startswith("text/"):
        assert body["schema"]["type"] == "string"
    else:
        assert body["schema"] == {"type": "string", "format": "binary"}


@pytest.mark.parametrize(("media", "body"), REQUESTS)
def test_every_request_body_has_a_schema(media: str, body: dict[str, Any]) -> None:
    """JSON is a named model or rows of numbers, a form has typed fields, text is a string, all else is binary."""
    schema = body["schema"]
    if media.endswith("json"):
        assert "$ref" in schema or [*schema["anyOf"][0]] == ["$ref"]
    elif media == "multipart/form-data":
        assert schema["properties"]["file"]["format"] == "binary"
        assert all({"type", "enum"} & set(field) for field in schema["properties"].values())
    else:
        assert schema["type"] == "string"
        assert media.startswith("text/") or schema["format"] == "binary"


def test_forms_have_the_parameters_of_the_query() -> None:
    """A form replaces the query, except for `wait`."""
    for path in ("/v1/datasets", "/v1/datasets/preview"):
        operation = CONTRACT["paths"][path]["post"]
        names = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}
        form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
        assert set(form) == names - {"wait"} | {"file"}


def test_a_response_beyond_the_contract_is_found(client: httpx.Client) -> None:
    """The check of all tests fails for another status, media type, member, and type."""
    answer = client.get("/v1/info")
    check_body(answer)
    for changes in (
        {"json": {**answer.json(), "more": 1}},
        {"json": {**answer.json(), "name": 1}},
        {"json": answer.json(), "status_code": 203},
        {"text": "x", "headers": {"content-type": "text/plain"}},
    ):
        with pytest.raises(AssertionError):
            check_body(httpx.Response(**{"status_code": 200, "request": answer.request, **changes}))


def check(answer: httpx.Response, name: str) -> None:
    """Check that a response has a model's members and no others; the client has compared it with its route's schema."""
    assert answer.status_code == 200, answer.text
    assert errors_of({"$ref": f"#/components/schemas/{name}"}, answer.json()) == []


def test_data_sets_and_arrays(client: httpx.Client, stores: Stores) -> None:
    """Values with and without labels, colors, coordinates; all arrays of a fit."""
    table = {"data": SHEET.tolist(), "labels": ["a", None] * (len(SHEET) // 2), "color": SHEET[:, 0].tolist()}
    labelled = client.post("/v1/datasets", json=table).json()["id"]
    sheet = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 50}).json()["id"]
    for id_ in (upload(client), labelled, sheet):
        check(client.get(f"/v1/datasets/{id_}/data"), "DatasetValuesOut")
        check(client.get(f"/v1/datasets/{id_}/data?points=1:3&dtype=float32"), "DatasetValuesOut")
    path = fitted(client)
    for name in client.get(path).json()["arrays"]:
        answer = client.get(f"{path}/arrays", params={"name": name}, headers={"accept": "application/json"})
        if answer.status_code == 200:  # the rest are internal
            check(answer, "ArrayOut")
    job = stores.posteriors.fetch(path.rpartition("/")[2]).job
    check(client.get(f"/v1/jobs/{job}/result"), "PosteriorOut")


def test_draws(client: httpx.Client, stores: Stores) -> None:
    """A single draw; draws at one scale and at several."""
    path = fitted(client)
    for body in ({"count": 2}, {"count": 2, "scales": [0.5, 1.0]}, {"count": 1, "source": "prior"}):
        job = stores.jobs.fetch(client.post(f"{path}/draws", json=body).json()["id"])
        for shard in range(DrawsSpec.from_dict(job.spec).shards):
            tasks.draw(job.id, job.round, shard)
        check(client.get(f"/v1/jobs/{job.id}/result"), "DrawsOut")
    check(client.get(f"{path}/draws/1"), "DrawOut")


def test_analyses(client: httpx.Client, stores: Stores) -> None:
    """Every kind, with and without its optional members."""
    path, dataset = fitted(client), upload(client, SHEET)
    points = {"data": SHEET[:3].tolist()}
    for kind, body, name in (
        ("transform", points, "TransformOut"),
        ("transform", {**points, "draws": 3}, "TransformOut"),
        ("reconstructions", {"count": 2}, "ReconstructionsOut"),
        ("calibration", {}, "CalibrationOut"),
    ):
        check(client.get(result_of(stores, client.post(f"{path}/{kind}", json=body))), name)
    for query in ("count=3&scale=1", "count=4&resamples=4"):
        result = result_of(stores, client.get(f"{path}/summary?{query}&wait=0"))
        check(client.get(result), "SummaryOut")
        check(client.get(f"{path}/summary?{query}"), "SummaryOut")
    advice = client.post("/v1/advice", json={"dataset": dataset, "n_neighbors": [3, 6, 8]})
    check(client.get(result_of(stores, advice)), "AdviceOut")
    body = {"dataset": dataset, "n_neighbors": 7}
    check(client.get(result_of(stores, client.post("/v1/posteriors/estimate", json=body | {}, params={"wait": 0}))),
          "EstimatedOut")  # fmt: skip
    check(client.post("/v1/posteriors/estimate", json=body), "PosteriorEstimateOut")


def test_embeddings_and_comparisons(client: httpx.Client, stores: Stores) -> None:
    """With and without scores; with a row that has a problem, and with aligned embeddings."""
    dataset = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 60}).json()["id"]
    scores: dict[str, Any] = {"scores": ["trustworthiness", "procrustes"], "truth": dataset}
    asked: list[dict[str, Any]] = [{"scores": []}, {"scores": ["trustworthiness"]}, scores]
    for more in asked:
        posted = client.post("/v1/embeddings", json={"dataset": dataset, "method": "lle", **more})
        check(client.get(result_of(stores, posted)), "CoordinatesOut")
    embedding = posted.json()["links"]["embedding"]
    check(client.get(embedding), "EmbeddingOut")
    moved = client.post(f"{embedding}/spread", json={"half_samples": 4, "labels": None})
    check(client.get(result_of(stores, moved)), "SpreadOut")
    check(client.get(f"{embedding}/coordinates"), "CoordinatesOut")
    rows = [{"method": "pca"}, {"method": "lle", "parameters": {"n_neighbors": 59}}]
    aligned: list[dict[str, Any]] = [
        {"scores": []},
        {"scores": ["trustworthiness"], "align": "first"},
        {**scores, "align": "truth"},
        {"scores": [], "spread": 4},
    ]
    for more in aligned:
        posted = client.post("/v1/comparisons", json={"dataset": dataset, "methods": rows, **more})
        check(client.get(result_of(stores, posted)), "ComparisonOut")
