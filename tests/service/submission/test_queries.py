"""Queries: each parameter is known to its route and sent once, and `wait` means the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.service.schemas.bodies import OPERATIONS

if TYPE_CHECKING:
    import httpx

COMPUTED = {"see_draw", "see_draws", "see_summary", "see_embedding", "see_comparison", "draw_one", "summary",
            "estimate_fit", "get_embedding", "get_coordinates", "get_embedding_arrays"}  # fmt: skip


def parameters(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the query parameters of an operation by name."""
    return {item["name"]: item for item in operation.get("parameters", ()) if item["in"] == "query"}


def is_array(schema: dict[str, Any]) -> bool:
    """Return whether values of a schema may be arrays."""
    return schema.get("type") == "array" or any(map(is_array, schema.get("anyOf", ())))


def url(path: str) -> str:
    """Return a path of the template with an id of nothing."""
    values = {"id": "none", "index": "0", "format": "png", "name": "em"}
    return path.format_map(values)


@pytest.mark.parametrize("path", ["/v1/posteriors/post_1/draws/7?scales=0.1", "/v1/posteriors/post_1/draws/7?Scale=1"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_misspelt_parameter_is_named_beside_the_near_one(client: httpx.Client, method: str, path: str) -> None:
    """A draw at another scale than intended would be cached for a year."""
    answer = client.request(method, path)
    assert answer.status_code == 422
    if method == "GET":
        problem = answer.json()
        assert problem["type"] == "urn:glle:problem:unknown-parameter"
        assert problem["details"]["parameter"] in path
        assert problem["details"]["suggestion"] == "scale"
        assert problem["details"]["accepted"] == sorted(problem["details"]["accepted"])
        assert "Did you mean scale? This route takes align, dtype, points, scale," in problem["remedy"]


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=[f"{m} {p}" for m, p, _ in OPERATIONS])
def test_every_route_of_v1_refuses_what_it_does_not_document(
    client: httpx.Client, method: str, path: str, operation: dict[str, Any]
) -> None:
    """The accepted names are those of the contract; pages and probes ignore a query."""
    body = {"content": b"{}", "headers": {"content-type": "application/json"}} if "requestBody" in operation else {}
    answer = client.request(method, url(path) + "?zzz=1&yyy=2", **body)  # type: ignore[arg-type] # of httpx
    if not path.startswith("/v1/"):
        assert answer.status_code != 422
        return
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["type"] == "urn:glle:problem:unknown-parameter"
    assert problem["details"]["unknown"] == ["zzz", "yyy"]
    assert problem["details"]["accepted"] == sorted(parameters(operation))
    assert "422" in operation["responses"]


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=[f"{m} {p}" for m, p, _ in OPERATIONS])
def test_only_arrays_may_be_repeated(client: httpx.Client, method: str, path: str, operation: dict[str, Any]) -> None:
    """Otherwise the service would use one value and drop the others."""
    body = {"content": b"{}", "headers": {"content-type": "application/json"}} if "requestBody" in operation else {}
    for name, parameter in parameters(operation).items():
        answer = client.request(method, f"{url(path)}?{name}=1&{name}=2", **body)  # type: ignore[arg-type] # of httpx
        is_refused = answer.json().get("type") == "urn:glle:problem:repeated-parameter"
        assert is_refused is not is_array(parameter["schema"]), name
        if is_refused:
            assert (answer.status_code, answer.json()["details"]) == (422, {"parameter": name})


def test_a_member_of_the_body_in_the_query_is_recognised(client: httpx.Client) -> None:
    """Also misspelt; `wait` is a parameter and not a member."""
    for name in ("n_neighbors", "n_neighbours"):
        answer = client.post(f"/v1/posteriors?{name}=5", json={"dataset": "ds_none"})
        assert answer.json()["remedy"].startswith("Did you mean n_neighbors of the JSON body?")
    answer = client.post("/v1/posteriors?waits=5", json={"dataset": "ds_none"})
    assert answer.json()["details"]["suggestion"] == "wait"


def test_pages_and_probes_ignore_a_query(client: httpx.Client) -> None:
    """Links with tracking parameters, and files with a version, are the same."""
    for path in ("/", "/docs", "/openapi.json", "/livez", "/explorer/js/main.js"):
        assert client.get(path + "?utm_source=x&v=3&v=4").status_code == 200, path


@pytest.mark.parametrize("query", ["name=%C3%A9&limit=1", "name=%F3%BE%87%88"])
def test_any_text_is_a_value(client: httpx.Client, query: str) -> None:
    """No value of a query is an internal error."""
    assert client.get(f"/v1/datasets?{query}").status_code == 200


@pytest.mark.parametrize("query", ["%ff=%fe&x=1", "a=%00&b=&c", "%C3%A9=1&%C3%A9=2", "=", "%00"])
def test_any_bytes_are_refused_as_names(client: httpx.Client, query: str) -> None:
    """No name of a query is an internal error, for cached responses and lists."""
    for path in ("/v1/datasets", "/v1/posteriors/post_1/draws/0"):
        answer = client.get(f"{path}?{query}")
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:glle:problem:unknown-parameter")


def test_wait_means_the_same_everywhere() -> None:
    """Every POST, and every GET that may answer 202, takes `wait`, with one schema; the default follows one rule."""
    schemas = []
    for method, path, operation in OPERATIONS:
        wait = parameters(operation).get("wait")
        may_accept = "202" in operation["responses"] and method != "delete"
        is_followed = (method, path) == ("get", "/v1/jobs/{id}")
        assert (wait is not None) == (method == "post" or may_accept or is_followed), (method, path)
        if wait is not None:
            schema = dict(wait["schema"])
            assert schema.pop("default") == (10.0 if operation["operationId"] in COMPUTED else 0.0), path
            schemas.append((wait["description"], schema))
    assert all(schema == schemas[0] for schema in schemas)
    creating = [
        operation for method, _, operation in OPERATIONS if method == "post" and "202" in operation["responses"]
    ]
    assert all("deadline" in parameters(operation) for operation in creating)
