"""Data sets, posteriors, jobs and methods over HTTP without workers, so that jobs stay queued."""

from __future__ import annotations

import io
from copy import copy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from openapi_schema_validator import OAS31Validator

from glle_engine import NUMBERS, FitSpec
from glle_engine import methods as registry
from glle_engine.metrics.registry import SCORES
from service.app import create_app
from service.encoding.media_types import ARROW
from service.routes.methods import catalog, embedding_method
from service.schemas.analyses import EmbeddingIn
from service.schemas.openapi import EXAMPLES
from service.schemas.problems import MEDIA_TYPE
from service.schemas.resources import PosteriorIn
from service.submission.planning import Plan
from tests.conftest import stored_files
from tests.service.conftest import X, check_problem, serving, upload
from tests.service.schemas.bodies import OPERATIONS
from worker.base.problems import Problem
from worker.execution import tasks
from worker.stores import Stores

if TYPE_CHECKING:
    import httpx


def test_upload_is_created_once_and_reads_back(client: httpx.Client) -> None:
    """An upload is 201, and its repetition 200 with the same id; npz and JSON return the values."""
    headers = {"content-type": "text/csv"}
    body = "x,y,kind\n1.5,2,a\n3,4,b\n5,6,a\n"
    first = client.post("/v1/datasets?labels=kind", content=body, headers=headers)
    again = client.post("/v1/datasets?labels=kind", content=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first.headers["location"] == first.json()["links"]["self"]
    payload = client.get(first.headers["location"]).json()
    assert (payload["n"], payload["n_features"], payload["names"], payload["has_labels"]) == (3, 2, ["x", "y"], True)
    data = payload["links"]["data"]
    values = [[1.5, 2], [3, 4], [5, 6]]
    as_json = client.get(data).json()
    assert (as_json["data"], as_json["names"], as_json["labels"]) == (values, ["x", "y"], ["a", "b", "a"])
    with np.load(io.BytesIO(client.get(data, headers={"accept": "application/zip"}).content)) as npz:
        assert npz["data"].tolist() == values
        assert npz["labels"].tolist() == ["a", "b", "a"]


def test_float32_that_overflows_is_refused(client: httpx.Client) -> None:
    """A data set beyond float32 is refused in every format, not sent as infinities."""
    id_ = upload(client, X * 1e300)
    for media in ("application/json", "application/x-npy", "application/zip", "text/csv", ARROW):
        check_problem(
            client.get(f"/v1/datasets/{id_}/data?dtype=float32", headers={"accept": media}), 422, "float32-overflow"
        )


def test_bodies_beyond_their_limits_are_refused(client: httpx.Client, stores: Stores) -> None:
    """A chunked body ends at its limit, JSON at a smaller one."""
    small = Stores.connect(replace(stores.settings, max_body=2**20))
    with serving(create_app(small)) as other:
        body = (b"1,2\n" * 2**14 for _ in range(17))
        check_problem(
            other.post("/v1/datasets", content=body, headers={"content-type": "text/csv"}), 413, "body-too-large"
        )
    small.close()
    big = b"[" + b"[1,2]," * 10**6 + b"[1,2]]"
    answer = client.post("/v1/datasets", content=big, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["details"]) == (413, {"allowed": 4 * 2**20})


def test_failed_fit_is_reported_everywhere(client: httpx.Client, stores: Stores) -> None:
    """The job is 200 with the problem inside; posterior, result and draws return the problem itself."""
    job = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()
    problem = Problem(code="disconnected-graph", status=422, detail="Two.", remedy="k = 12.", details={"k": 12})
    stores.jobs.fail(job["id"], problem)
    payload = client.get(job["links"]["self"])
    assert (payload.json()["status"], payload.json()["error"]) == ("failed", problem.to_dict())
    posterior = job["links"]["posterior"]
    for answer in (
        client.get(posterior),
        client.get(payload.json()["links"]["self"] + "/result"),
        client.get(posterior + "/draws/3"),
        client.post(posterior + "/draws", json={"n_draws": 2}),
    ):
        assert (answer.status_code, answer.json()) == (422, problem.to_dict())


def test_a_deletion_cancels_the_fit_of_a_new_posterior(
    client: httpx.Client, stores: Stores, drawn_posterior: str
) -> None:
    """A second request for a posterior that was deleted meanwhile fits it again, and a deletion cancels that."""
    record = stores.posteriors.fetch(drawn_posterior.rpartition("/")[2])
    assert client.delete(drawn_posterior).status_code == 204
    job = client.post("/v1/posteriors", json={"dataset": record.dataset, "n_neighbors": 10}).json()
    assert client.delete(f"/v1/datasets/{record.dataset}").status_code == 204
    tasks.fit(job["id"])
    assert client.get(job["links"]["self"]).json()["error"]["type"] == "urn:glle:problem:dataset-not-found"
    assert stored_files(stores) == []


def test_info_has_limits_and_defaults(client: httpx.Client, stores: Stores) -> None:
    """The limits are the settings; the defaults are those of the engine."""
    payload = client.get("/v1/info").json()
    assert payload["limits"]["max_body"] == stores.settings.max_body
    assert payload["posterior_defaults"]["n_neighbors"] == "auto"
    assert payload["numbers"] == NUMBERS
    assert "swiss_roll" in payload["manifolds"]


def test_list_and_each(client: httpx.Client) -> None:
    """The list and each method have equal descriptions; a filter selects methods with embeddings."""
    items = client.get("/v1/methods").json()["items"]
    assert [item["name"] for item in items] == ["em", "direct", *registry.METHODS]
    for item in items:
        assert client.get(item["links"]["self"]).json() == item
    posteriors, embeddings = (
        client.get(f"/v1/methods?makes={makes}").json()["items"] for makes in ("posterior", "embedding")
    )
    assert posteriors + embeddings == items
    for item in posteriors:
        assert [variant["name"] for variant in item["variants"]] == ["constrained", "published"]
        assert any("arXiv:2104.01525" in citation for citation in item["citations"])
    assert client.get("/v1/methods/TSNE").json() == client.get("/v1/methods/t-sne").json()
    answer = client.get("/v1/methods/izomap")
    assert (answer.status_code, answer.json()["details"]) == (404, {"methods": list(catalog())})
    assert answer.json()["remedy"].startswith("Did you mean isomap?")


@pytest.mark.parametrize("name", ["em", "direct"])
def test_schema_is_that_of_the_request(name: str) -> None:
    """The schema has the engine's defaults and a constant method, and lacks parameters without a meaning."""
    schema = catalog()[name].parameters
    defaults = {member: payload["default"] for member, payload in schema["properties"].items() if "default" in payload}
    assert schema["properties"]["method"]["const"] == name
    assert schema["required"] == ["dataset", "method"]
    assert schema["additionalProperties"] is False
    engine = asdict(FitSpec())
    assert defaults == {member: engine.get(member) for member in defaults}  # given neighbors are data, with None
    unused = {"em": {"mean"}, "direct": {"covariance", "max_iter", "tol"}}[name]
    assert set(PosteriorIn.model_fields) - set(schema["properties"]) == unused
    parameters = {member: value for member, value in defaults.items() if member != "method"}
    spec = PosteriorIn(dataset="ds_x", method=name, **parameters).fit_spec()
    assert spec == FitSpec(method=name)  # type: ignore[arg-type] # of the registry


@pytest.mark.parametrize("name", registry.METHODS)
def test_schema_of_an_embedding_has_the_parameters_of_its_method(name: str) -> None:
    """The schema's defaults are a valid request that means the method's defaults; required labels have no default."""
    schema, method = catalog()[name].parameters, registry.method(name)
    parameters_schema = schema["properties"]["parameters"]
    parameters = {member: payload["default"] for member, payload in parameters_schema["properties"].items()}
    request: dict[str, Any] = {
        "dataset": "ds_x",
        "method": name,
        "parameters": parameters,
        **({"labels": "ds_y"} if method.labels else {}),
    }
    checks = OAS31Validator(schema)
    assert list(checks.iter_errors(request)) == []
    assert list(checks.iter_errors({**request, "parameters": {"nope": 1}})) != []
    assert list(checks.iter_errors({**request, "labels": None})) != [] or not method.labels
    assert ("default" in schema["properties"]["labels"]) != method.labels
    parsed = EmbeddingIn(**request)
    assert Plan.from_method(parsed.method, parsed.parameters).spec == method.spec()


def test_a_missing_extra_is_listed(client: httpx.Client) -> None:
    """A method without its library has the extra to install."""
    changed = copy(registry.method("pca"))
    vars(changed).update(libraries=("no_such_library",), extra="tsne")
    method = embedding_method(changed)
    assert (method.available, method.missing_extra) == (False, "tsne")
    assert client.get("/v1/methods/lle").json()["available"]


def test_scores_are_listed(client: httpx.Client) -> None:
    """Each score has its needs and its better direction."""
    items = client.get("/v1/scores").json()["items"]
    assert [item["name"] for item in items] == list(SCORES)
    assert {item["needs"] for item in items} <= {"nothing", "labels", "truth"}
    assert {item["better"] for item in items} <= {"higher", "lower"}


PREFIXES = {"datasets": "ds_", "posteriors": "post_", "jobs": "job_", "embeddings": "emb_"}
IDS = {
    "5,000 letters": "{}" + 5000 * "a",
    "no prefix": 250 * "a",
    "a prefix alone": "{}",
    "not ASCII": "{}%C3%A4" + 120 * "%C3%A4",
    "a zero": "{}a%00b",
    "a path": "{}..%2F..%2Fkeys",
}


@pytest.mark.parametrize("id_", IDS.values(), ids=IDS)
def test_an_invalid_id_is_not_found(client: httpx.Client, id_: str) -> None:
    """Whatever an id is, the response is that of an unknown id."""
    for method, path, operation in OPERATIONS:
        if "{id}" not in path:
            continue
        url = path.replace("{id}", id_.format(PREFIXES[path.split("/")[2]]))
        url = url.replace("{index}", "0")
        example: Any = EXAMPLES.get(operation["operationId"], {})
        answer = client.request(method, url, json=example if method in {"post", "patch"} else None)
        assert answer.status_code in {404, 422}, (method, path, answer.text[:200])
        assert answer.headers["content-type"] == MEDIA_TYPE
