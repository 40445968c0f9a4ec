"""The contract: documented, exported, valid OpenAPI 3.1 with working examples and links, one shape of errors."""

from __future__ import annotations

import copy
import json
import re
from base64 import b64encode
from dataclasses import fields
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from glle_engine import FitSpec
from openapi import client_types, contract
from service.schemas import openapi, problems
from service.schemas.openapi import EXAMPLES
from service.schemas.problems import MEDIA_TYPE
from service.schemas.resources import PosteriorIn
from tests.service.conftest import check_problem
from tests.service.routes.posteriors.conftest import result_of
from tests.service.schemas.bodies import CONTRACT, OPERATIONS, check_body, errors_of

if TYPE_CHECKING:
    from worker.stores import Stores


@pytest.fixture(scope="module")
def contract_text() -> str:
    """The contract of the routes."""
    return contract.contract_text()


def test_export_is_up_to_date(contract_text: str) -> None:
    """`make generate` writes openapi/openapi.json."""
    assert client_types.CONTRACT.read_text(encoding="utf-8") == contract_text


def test_every_route_is_documented() -> None:
    """Each operation has a summary, one tag, a description and problems, each parameter a description."""
    for _, path, operation in OPERATIONS:
        assert operation["summary"], path
        assert len(operation["tags"]) == 1
        assert len(operation["description"]) > 10
        answers = operation["responses"]
        if operation.get("parameters") or "requestBody" in operation:
            assert any(status.startswith("4") for status in answers)
        assert {"500", "503"} <= answers.keys()
        assert all(answer["description"] for answer in answers.values())
        for status, answer in answers.items():
            if int(status) >= 400:
                assert list(answer["content"]) == [MEDIA_TYPE], status
                assert answer["content"][MEDIA_TYPE]["schema"] == {"$ref": "#/components/schemas/ProblemOut"}
        for parameter in operation.get("parameters", []):
            description = parameter.get("description") or parameter["schema"].get("description")
            assert description or parameter["name"] == "id", parameter["name"]


def test_every_reference_leads_somewhere(contract_text: str) -> None:
    """Every reference resolves, and every schema is used."""
    referred = set(re.findall(r"#/components/schemas/(\w+)", contract_text))
    assert referred == set(CONTRACT["components"]["schemas"])


def test_docs_page_shows_every_route_and_loads_nothing(client: httpx.Client) -> None:
    """The page has each path, and nothing that its policy refuses; the served contract is the exported one."""
    assert client.get("/openapi.json").json() == CONTRACT
    answer = client.get("/docs")
    assert answer.status_code == 200
    for path in CONTRACT["paths"]:
        assert f"<code>{path}</code>" in answer.text
    assert re.findall(r"https?://", answer.text) == []
    assert answer.text == openapi.page(CONTRACT)
    directives = dict(directive.split(" ", 1) for directive in answer.headers["content-security-policy"].split("; "))
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        assert directives.pop(f"{tag}-src") == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    assert directives.pop("connect-src") == "'self'"
    assert directives == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    assert not re.search(r"<(img|link|iframe|base)|\ssrc=|\sstyle=|\son\w+=", answer.text)
    routes = [(path, method.upper()) for path, methods in CONTRACT["paths"].items() for method in methods]
    forms = re.findall(r'<form data-method=(\w+) data-path="(.*?)">', answer.text)
    assert sorted(forms) == sorted((method, path) for path, method in routes)
    assert escape(json.dumps(openapi.EXAMPLES["audit"])) in answer.text


def request_body(content: Any, media: str = "application/json") -> dict[str, Any]:
    """Return the body of a request and its media type."""
    return {"content": content, "headers": {"content-type": media}}


@pytest.mark.parametrize(
    ("method", "path", "arguments", "status", "code"),
    [
        ("GET", "/nowhere", {}, 404, "no-such-route"),
        ("POST", "/nowhere", request_body(b"x", "text/plain"), 404, "no-such-route"),
        ("POST", "/v1/nowhere", {"json": {"a": "x" * 70_000}}, 404, "no-such-route"),
        ("PUT", "/v1/datasets/ds_1", request_body(b"x", "text/plain"), 405, "method-not-allowed"),
        ("PUT", "/v1/datasets", {}, 405, "method-not-allowed"),
        ("GET", "/v1/datasets/ds_none", {}, 404, "dataset-not-found"),
        ("GET", "/v1/posteriors/post_none", {}, 404, "posterior-not-found"),
        ("GET", "/v1/posteriors/x/summary?scale=inf", {}, 422, "invalid-request"),
        ("GET", "/v1/posteriors/x/summary", {"headers": {"accept": "application/x-npy"}}, 406, "not-acceptable"),
        ("GET", "/v1/jobs/job_none", {}, 404, "job-not-found"),
        ("GET", "/v1/jobs?cursor=%21", {}, 422, "invalid-cursor"),
        ("GET", "/v1/jobs?status=done", {}, 422, "invalid-request"),
        ("GET", "/v1/jobs/x?wait=nan", {}, 422, "invalid-request"),
        ("GET", "/v1/posteriors/x/draws/-1", {}, 422, "invalid-request"),
        ("GET", f"/v1/posteriors/x/draws/{2**64}", {}, 422, "invalid-request"),
        ("POST", "/v1/posteriors", {"json": {"dataset": "x", "k": 3}}, 422, "invalid-request"),
        ("POST", "/v1/posteriors", {"json": {"dataset": "x", "n_neighbors": "10"}}, 422, "invalid-request"),
        ("POST", "/v1/posteriors", request_body(b"{"), 422, "invalid-request"),
        ("POST", "/v1/posteriors", request_body(b"{}", "text/plain"), 415, "unsupported-media-type"),
        ("POST", "/v1/posteriors", {"json": {"dataset": "x" * 70_000}}, 413, "body-too-large"),
        ("POST", "/v1/posteriors", request_body(b"x" * 9000 for _ in range(9)), 413, "body-too-large"),
        ("POST", "/v1/posteriors", request_body(b'{"dataset": "x", "reg": NaN}'), 422, "invalid-request"),
        ("POST", "/v1/posteriors", request_body(b'{"dataset": "x", "reg": 1e999}'), 422, "invalid-request"),
        ("POST", "/v1/datasets/synthetic", {"json": {"name": "moebius"}}, 422, "invalid-parameter"),
        ("POST", "/v1/datasets/synthetic", {"json": {"name": "s_curve", "n": 2_000_000}}, 422, "too-many-points"),
        ("POST", "/v1/datasets", request_body(b"", "text/csv"), 422, "empty-body"),
        ("POST", "/v1/datasets", request_body(b"x", "image/png"), 415, "unsupported-media-type"),
        ("GET", "/readyz", {}, 503, "no-workers"),
    ],
)
def test_every_error_is_a_problem(
    client: httpx.Client, method: str, path: str, arguments: dict[str, Any], status: int, code: str
) -> None:
    """Each is problem+json with type, title, status, detail and remedy."""
    answer = client.request(method, path, **arguments)
    assert answer.headers["content-type"] == MEDIA_TYPE
    body = answer.json()
    assert list(body) == ["type", "title", "status", "detail", "detail_parts", "remedy", "remedy_parts", "details"]
    assert (body["type"], body["status"], answer.status_code) == (f"urn:glle:problem:{code}", status, status)
    assert body["detail"].endswith(".")
    assert body["remedy"].endswith((".", "header."))


def test_every_answer_has_an_id_and_its_time(client: httpx.Client) -> None:
    """X-Request-Id is the client's if it is alphanumeric; Server-Timing is set."""
    valid = client.get("/livez", headers={"x-request-id": "abc123"})
    assert valid.headers["x-request-id"] == "abc123"
    replaced = client.get("/nowhere", headers={"x-request-id": "a b\tc"})
    assert replaced.headers["x-request-id"].isalnum()
    assert re.fullmatch(r"app;dur=\d+\.\d", replaced.headers["server-timing"])


def test_every_parameter_of_the_engine_is_a_field() -> None:
    """The fields of POST /v1/posteriors are two data sets and the engine's parameters, with their defaults."""
    others = {name: field.default for name, field in PosteriorIn.model_fields.items()}
    defaults = {name: default for name, default in others.items() if name not in {"dataset", "neighbors"}}
    assert defaults == {field.name: field.default for field in fields(FitSpec)}


def test_an_invalid_value_is_one_error_at_its_place(client: httpx.Client) -> None:
    """The alternatives of a value are in its message, and their names are no part of the place."""
    wrong: tuple[tuple[str, dict[str, Any], str, str], ...] = (
        ("/v1/posteriors", {"n_neighbors": 2.5}, "body.n_neighbors", "; or: Input should be 'auto'"),
        ("/v1/posteriors", {"reg": "x"}, "body.reg", "Input should be"),
        ("/v1/comparisons", {"methods": [{"method": "pca"}, {}]}, "body.methods.1.method", "Field required"),
        ("/v1/posteriors?wait=x", {}, "query.wait", "Input should be"),
        ("/v1/audits", {}, "body", "give one of coordinates, "),
    )
    for path, body, place, message in wrong:
        answer = client.post(path, json={"dataset": "ds_1", **body}).json()
        assert [error["at"] for error in answer["details"]["errors"]] == [place]
        assert message in answer["details"]["errors"][0]["message"]
        assert "Value error" not in answer["detail"]
        assert answer["detail"].startswith(f"{place}: ")


def test_a_job_has_the_link_of_its_result_once_there_is_one(
    client: httpx.Client, stores: Stores, drawn_posterior: str
) -> None:
    """A queued job has a link to its posterior; a job that has succeeded also has a link to its result."""
    job = client.post(f"{drawn_posterior}/draws", json={"n_draws": 4, "scales": [1, 2]})
    links = job.json()["links"]
    assert links == {"self": job.headers["location"], "posterior": drawn_posterior}
    path = result_of(stores, job)
    assert client.get(links["self"]).json()["links"] == {**links, "result": path}


BY_ID = {operation["operationId"]: operation for _, _, operation in OPERATIONS}


def test_contract_is_valid_openapi() -> None:
    """The contract is valid OpenAPI 3.1."""
    assert CONTRACT["openapi"].startswith("3.1.")
    from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: PLC0415 # half a second of each process

    assert [error.message for error in OpenAPIV31SpecValidator(CONTRACT).iter_errors()] == []


def test_operations_have_unique_short_names() -> None:
    """Operations have short unique names, which generated clients use; each example belongs to one of them."""
    assert len(BY_ID) == len(OPERATIONS)
    assert all(name.isidentifier() and len(name) <= 30 for name in BY_ID)
    assert set(EXAMPLES) <= set(BY_ID)


def test_bodies_have_an_example_that_is_valid() -> None:
    """Examples are present and match their schemas."""
    for name, operation in BY_ID.items():
        for media, body in operation.get("requestBody", {}).get("content", {}).items():
            if "json" in media or "text" in media:
                assert body["example"], (name, media)
                assert errors_of(body["schema"], body["example"]) == [], name


def test_bounds_of_integers_are_exact() -> None:
    """A seed may be 2^64 - 1 and not 2^64, its nearest float."""
    seed = CONTRACT["components"]["schemas"]["SyntheticIn"]["properties"]["seed"]
    assert (seed["minimum"], seed["maximum"]) == (0, 2**64 - 1)
    assert isinstance(seed["maximum"], int)
    assert errors_of(seed, 2**64 - 1) == []
    assert errors_of(seed, 2**64) != []


@pytest.mark.parametrize("media", ["text/csv", "application/json"])
def test_examples_of_an_upload_work(client: httpx.Client, media: str) -> None:
    """The examples are valid requests."""
    example = BY_ID["upload"]["requestBody"]["content"][media]["example"]
    content = example if isinstance(example, str) else json.dumps(example)
    assert client.post("/v1/datasets", content=content, headers={"content-type": media}).status_code == 201


def test_every_body_has_a_schema() -> None:
    """JSON is a named model or rows; all other bodies have a type."""
    contents = [operation.get("requestBody", {}).get("content", {}) for _, _, operation in OPERATIONS]
    for _, _, operation in OPERATIONS:
        contents += [answer.get("content", {}) for status, answer in operation["responses"].items() if status < "3"]
    for media, schema in ((media, body["schema"]) for content in contents for media, body in content.items()):
        is_model = "$ref" in schema or [*schema.get("anyOf", [{}])[0]] == ["$ref"]
        assert is_model if media.endswith("json") else schema["type"] in {"string", "object"}, (media, schema)


def test_forms_have_the_parameters_of_the_query() -> None:
    """A form replaces the query, except for `wait`."""
    for path in ("/v1/datasets", "/v1/datasets/preview"):
        operation = CONTRACT["paths"][path]["post"]
        names = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}
        form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
        assert set(form) == names - {"wait"} | {"file"}


def test_a_response_beyond_the_contract_is_found(client: httpx.Client) -> None:
    """The check of all tests fails for another status, another media type, and another member."""
    answer = client.get("/v1/info")
    extended = {**answer.json(), "more": 1}
    for status, body in ((203, {"json": answer.json()}), (200, {"text": "x"}), (200, {"json": extended})):
        with pytest.raises(AssertionError):
            check_body(httpx.Response(status, request=answer.request, **body))


def test_405_names_every_method_of_the_path(client: httpx.Client) -> None:
    """The methods of all routes of a path, as in the contract, and HEAD beside GET."""
    for path, methods in CONTRACT["paths"].items():
        answer = client.request("TRACE", path.replace("{id}", "x").replace("{index}", "0"))
        assert answer.status_code == 405
        allowed = set(answer.headers["allow"].split(", "))
        assert allowed >= {method.upper() for method in methods} | ({"HEAD"} if "get" in methods else set()), path
    assert client.head("/v1/audits").headers["allow"] == "POST"
    assert client.options("/v1/embeddings/emb_1").headers["allow"] == "DELETE, GET, HEAD, PATCH"


def test_docs_page_marks_deprecated_operations() -> None:
    """`deprecated: true` shows on the page; today no operation has it."""
    assert "(deprecated)" not in openapi.page(CONTRACT)
    marked = copy.deepcopy(CONTRACT)
    marked["paths"]["/v1/info"]["get"]["deprecated"] = True
    assert openapi.page(marked).count("(deprecated)") == 1


@pytest.mark.parametrize(
    ("location", "error_type", "body", "place"),
    [
        (("body", "n_neighbors", "constrained-int"), "int_type", {"n_neighbors": "x"}, "n_neighbors"),
        (("body", "dataset"), "missing", {}, "dataset"),
        (("body", "options", "k"), "int_type", {"options": {}}, "options"),
        (("body", "options", "Spec", "k"), "missing", {"options": {}}, "options k"),
        (("body", "methods", "list[Row]", 1, "method"), "missing", {"methods": [{}, {}]}, "methods 1 method"),
        (("body", "methods", 2, "method"), "missing", {"methods": [{}, {}]}, "methods 2"),
    ],
)
def test_places_of_errors_have_no_names_of_alternatives(location: Any, error_type: str, body: Any, place: str) -> None:
    """The place of an error consists of members and rows of the body, and of a member that is missing."""
    assert problems._place(location, error_type, body) == [
        "body",
        *(int(w) if w.isdigit() else w for w in place.split()),
    ]
    assert problems._place(("query", "wait", "float", 0), error_type, body) == ["query", "wait", 0]
    assert problems._place(("body", 17), "json_invalid", body) == ["body", 17]


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/v1/datasets/", "/v1/datasets"),
        ("/v1//datasets", "/v1/datasets"),
        ("/v1/posteriors/post_1/draws/7/", "/v1/posteriors/post_1/draws/7"),
        ("/docs/", "/docs"),
        ("/V1/Datasets", "/v1/datasets"),
        ("/datasets", "/v1/datasets"),
        ("/v1/dataset", "/v1/datasets"),
        ("/posterior", "/v1/posteriors"),
        ("/v1/job/job_1", "/v1/jobs/job_1"),
        ("/nowhere", ""),
    ],
)
def test_an_address_that_is_none_is_404_with_the_right_one(client: httpx.Client, path: str, right: str) -> None:
    """An unknown path is 404 with the similar path; it is no redirect, which would repeat the request's host."""
    for method in ("GET", "POST", "DELETE"):
        answer = client.request(method, path, headers={"Host": "localhost:1"})
        problem = check_problem(answer, 404, "no-such-route")
        assert problem["details"].get("suggestion", "") == right
        assert problem["remedy"].startswith(f"Use {right}. " if right else "See /docs")
        assert "location" not in answer.headers


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
def test_the_documentation_is_made_once(client: httpx.Client, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later answers have the same bytes, compressed or not, or are 304 by the ETag."""
    first = client.get(path)
    assert first.status_code == 200
    for function in ("complete", "page"):
        monkeypatch.setattr(openapi, function, None)
    plain = client.get(path, headers={"Accept-Encoding": "identity"})
    assert (plain.content, plain.headers["content-type"]) == (first.content, first.headers["content-type"])
    for tag in (first.headers["etag"], plain.headers["etag"]):
        again = client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("spelling", ["nNeighbors", "n-neighbors", "N_NEIGHBORS", "n_neighbour"])
def test_other_spellings_are_recognized(client: httpx.Client, spelling: str) -> None:
    """Names in the styles of JavaScript and of the shell lead to the ones of this API."""
    answer = client.post("/v1/posteriors", json={"dataset": "ds_1", spelling: 5})
    assert check_problem(answer, 422, "invalid-request")["remedy"].startswith("Did you mean n_neighbors? ")


@pytest.mark.parametrize(
    ("path", "id_", "right"),
    [
        ("datasets", "post_1", "posteriors"),
        ("datasets", "emb_1", "embeddings"),
        ("posteriors", "ds_1", "datasets"),
        ("embeddings", "job_1", "jobs"),
        ("jobs", "post_1", "posteriors"),
        ("jobs", "ds_1", "datasets"),
        ("datasets", "ds_1", ""),
        ("jobs", "job_1", ""),
    ],
)
def test_an_id_of_another_kind_says_so(client: httpx.Client, path: str, id_: str, right: str) -> None:
    """The remedy names the kind of the id."""
    remedy = check_problem(client.get(f"/v1/{path}/{id_}"), 404, f"{path.removesuffix('s')}-not-found")["remedy"]
    noun = {"datasets": "data set"}.get(right, right.removesuffix("s"))
    assert (f"{id_} is the id of a" in remedy and f"{noun}." in remedy) == bool(right)
