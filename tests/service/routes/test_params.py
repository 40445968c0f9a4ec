"""Queries: known parameters, and those that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.service.conftest import check_problem
from tests.service.schemas.bodies import OPERATIONS

if TYPE_CHECKING:
    import httpx


COMPUTED = {"draw_one", "weights", "summary", "get_embedding", "get_coordinates", "get_embedding_arrays"}


def parameters(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the query parameters of an operation by name."""
    return {item["name"]: item for item in operation.get("parameters", ()) if item["in"] == "query"}


def is_array(schema: dict[str, Any]) -> bool:
    """Return whether values of a schema may be arrays."""
    return schema.get("type") == "array" or any(map(is_array, schema.get("anyOf", ())))


def url(path: str) -> str:
    """Return a path of the template with an id of nothing."""
    return path.format_map({"id": "none", "index": "0", "name": "em"})


def send(client: httpx.Client, method: str, path: str, operation: dict[str, Any], query: str) -> httpx.Response:
    """Send a request of an operation with a query."""
    body = {"content": b"{}", "headers": {"content-type": "application/json"}} if "requestBody" in operation else {}
    return client.request(method, f"{url(path)}?{query}", **body)  # type: ignore[arg-type] # of httpx


def test_a_misspelt_parameter_is_named_beside_the_near_one(client: httpx.Client) -> None:
    """A draw at another scale than intended would be cached for a year."""
    for name in ("scales", "Scale"):
        path = f"/v1/posteriors/post_1/draws/7?{name}=0.1"
        assert client.head(path).status_code == 422
        problem = check_problem(client.get(path), 422, "unknown-parameter")
        assert (problem["details"]["parameter"], problem["details"]["suggestion"]) == (name, "scale")
        assert problem["remedy"].startswith("Did you mean scale? This route takes align, dtype, points, scale,")


def test_every_route_of_v1_refuses_what_it_does_not_document(client: httpx.Client) -> None:
    """The accepted names are those of the contract; pages and probes ignore a query."""
    for method, path, operation in OPERATIONS:
        answer = send(client, method, path, operation, "zzz=1&yyy=2")
        if not path.startswith("/v1/"):
            assert answer.status_code != 422
            continue
        details = check_problem(answer, 422, "unknown-parameter")["details"]
        accepted = sorted(parameters(operation))
        assert (details["unknown"], details["accepted"], details["suggestion"]) == (["zzz", "yyy"], accepted, None)
        takes = f"This route takes {', '.join(accepted)}." if accepted else "This route takes no query parameters."
        assert answer.json()["remedy"] == takes
        assert "422" in operation["responses"]
    for path in ("/", "/docs", "/explorer/js/main.js"):
        assert client.get(path + "?utm_source=x&v=3&v=4").status_code == 200, path


def test_only_arrays_may_be_repeated(client: httpx.Client) -> None:
    """A repeated parameter that takes one value is refused, because all values but one would be dropped."""
    for method, path, operation in OPERATIONS:
        for name, parameter in parameters(operation).items():
            answer = send(client, method, path, operation, f"{name}=1&{name}=2")
            is_refused = answer.json().get("type") == "urn:glle:problem:repeated-parameter"
            assert is_refused is not is_array(parameter["schema"]), (method, path, name)
            if is_refused:
                assert (answer.status_code, answer.json()["details"]) == (422, {"parameter": name})
                lists = sorted(each for each, item in parameters(operation).items() if is_array(item["schema"]))
                only = f" Only {', '.join(lists)} may be repeated." if lists else ""
                assert answer.json()["remedy"] == f"Send it once.{only}"


def test_a_member_of_the_body_in_the_query_is_recognized(client: httpx.Client) -> None:
    """A query parameter that is a member of the body, also misspelled, gets a hint; `wait` is a parameter."""
    for name in ("n_neighbors", "n_neighbours"):
        answer = client.post(f"/v1/posteriors?{name}=5", json={"dataset": "ds_none"})
        assert answer.json()["remedy"].startswith("Did you mean n_neighbors of the JSON body?")
    answer = client.post("/v1/posteriors?waits=5", json={"dataset": "ds_none"})
    assert answer.json()["details"]["suggestion"] == "wait"


def test_any_text_is_a_value_and_no_name(client: httpx.Client) -> None:
    """No text of a query is an internal error, for cached responses and lists."""
    for query in ("name=%C3%A9&limit=1", "name=%F3%BE%87%88"):
        assert client.get(f"/v1/datasets?{query}").status_code == 200
    for query in ("%ff=%fe&x=1", "a=%00&b=&c", "%C3%A9=1&%C3%A9=2", "=", "%00"):
        for path in ("/v1/datasets", "/v1/posteriors/post_1/draws/0"):
            check_problem(client.get(f"{path}?{query}"), 422, "unknown-parameter")


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
