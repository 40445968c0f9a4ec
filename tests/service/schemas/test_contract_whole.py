"""The contract for other tools: valid OpenAPI 3.1, with working ids, examples and links."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from service.schemas.openapi import EXAMPLES
from tests.service.schemas.bodies import CONTRACT, OPERATIONS

if TYPE_CHECKING:
    import httpx

BY_ID = {operation["operationId"]: operation for _, _, operation in OPERATIONS}


def validator(schema: dict[str, Any]) -> OAS31Validator:
    """Return a validator with the contract's models."""
    registry = Registry[Any]().with_resource("urn:contract", DRAFT202012.create_resource(CONTRACT))
    text = json.dumps(schema).replace("#/components", "urn:contract#/components")
    return OAS31Validator(json.loads(text), registry=registry)


def test_contract_is_valid_openapi() -> None:
    """Version 3.1 without findings."""
    assert CONTRACT["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(CONTRACT).iter_errors()] == []


def test_operations_have_unique_short_names() -> None:
    """Short names for the methods of generated clients."""
    assert len(BY_ID) == len(OPERATIONS)
    assert all(name.isidentifier() and len(name) <= 30 for name in BY_ID)


@pytest.mark.parametrize(
    ("media", "body"),
    [
        pytest.param(media, body, id=f"{name} {media}")
        for name, operation in BY_ID.items()
        for media, body in operation.get("requestBody", {}).get("content", {}).items()
        if "json" in media or "text" in media
    ],
)
def test_bodies_have_an_example_that_is_valid(media: str, body: dict[str, Any]) -> None:
    """Examples are present and match their schemas."""
    assert body["example"], media
    assert list(validator(body["schema"]).iter_errors(body["example"])) == []


def test_bounds_of_integers_are_exact() -> None:
    """A seed may be 2^64 - 1 and not 2^64, its nearest float."""
    seed = CONTRACT["components"]["schemas"]["SyntheticIn"]["properties"]["seed"]
    assert (seed["minimum"], seed["maximum"]) == (0, 2**64 - 1)
    assert isinstance(seed["maximum"], int)
    assert list(validator(seed).iter_errors(2**64 - 1)) == []
    assert list(validator(seed).iter_errors(2**64)) != []


def test_links_lead_to_operations() -> None:
    """Each link leads to an operation that takes its values, and each is used."""
    links = CONTRACT["components"]["links"]
    for link in links.values():
        target = BY_ID[link["operationId"]]
        assert set(link.get("parameters", {})) <= {parameter["name"] for parameter in target.get("parameters", [])}
        assert ("requestBody" in link) <= ("requestBody" in target)
    used_links = {
        name
        for _, _, operation in OPERATIONS
        for response in operation["responses"].values()
        for name in response.get("links", {})
    }
    assert used_links == set(links)


def test_examples_are_for_existing_operations() -> None:
    """No example belongs to a removed operation."""
    assert set(EXAMPLES) <= set(BY_ID)


@pytest.mark.parametrize("media", ["text/csv", "application/json"])
def test_examples_of_an_upload_work(client: httpx.Client, media: str) -> None:
    """The examples are valid requests."""
    example = BY_ID["upload"]["requestBody"]["content"][media]["example"]
    content = example if isinstance(example, str) else json.dumps(example)
    assert client.post("/v1/datasets", content=content, headers={"content-type": media}).status_code == 201


@pytest.mark.parametrize("path", sorted(CONTRACT["paths"]))
def test_405_names_every_method_of_the_path(client: httpx.Client, path: str) -> None:
    """The methods of all routes of a path, as in the contract."""
    answer = client.request("TRACE", path.replace("{id}", "x").replace("{index}", "0"))
    assert answer.status_code == 405
    allowed = {method.strip() for method in answer.headers["allow"].split(",")}
    assert {method.upper() for method in CONTRACT["paths"][path]} <= allowed
