"""Queries: a parameter with one value is sent once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from service.cli import main
from service.middleware.observe import LISTS

if TYPE_CHECKING:
    import httpx

CONTRACT = json.loads(main.CONTRACT.read_text(encoding="utf-8"))


def lists() -> set[str]:
    """Return the query parameters of the contract that are arrays."""

    def is_array(schema: dict[str, object]) -> bool:
        some = schema.get("anyOf", ())
        assert isinstance(some, list | tuple)
        return schema.get("type") == "array" or any(map(is_array, some))

    operations = [operation for path in CONTRACT["paths"].values() for operation in path.values()]
    parameters = [parameter for operation in operations for parameter in operation.get("parameters", ())]
    return {item["name"] for item in parameters if item["in"] == "query" and is_array(item["schema"])}


def test_only_arrays_of_the_contract_may_be_repeated() -> None:
    """The two sets are equal."""
    assert set(LISTS) == lists()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/datasets?name=a&name=b", "name"),
        ("/v1/posteriors?name=a&limit=2&name=a", "name"),
        ("/v1/jobs?status=failed&status=queued", "status"),
        ("/v1/jobs?limit=1&%6cimit=2", "limit"),
        ("/v1/posteriors/post_1/draws/0?seed=0&seed=1", "seed"),
    ],
)
def test_repeated_parameters_are_refused(client: httpx.Client, path: str, name: str) -> None:
    """Otherwise the service would use one value and drop the others."""
    answer = client.get(path)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:glle:problem:repeated-parameter")
    assert answer.json()["details"] == {"parameter": name}


@pytest.mark.parametrize("query", ["name=%C3%A9&limit=1", "%ff=%fe&x=1", "name=%F3%BE%87%88", "a=%00&b=&c"])
def test_any_bytes_are_a_query(client: httpx.Client, query: str) -> None:
    """No name or value of a query is an internal error, for cached responses and lists."""
    for path in ("/v1/datasets", "/v1/posteriors/post_1/draws/0"):
        assert client.get(f"{path}?{query}").status_code in {200, 404}
    twice = client.get(f"/v1/datasets?{query}&%C3%A9=1&%C3%A9=2")
    assert (twice.status_code, twice.json()["details"]) == (422, {"parameter": "é"})


def test_lists_are_repeated(client: httpx.Client) -> None:
    """Each value counts."""
    assert client.get("/v1/datasets?tag=a&tag=b").status_code == 200
