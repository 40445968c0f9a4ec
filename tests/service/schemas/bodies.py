"""Validation of real responses against the contract: every success body has a schema, and no undocumented member."""

from __future__ import annotations

import copy
import json
from functools import cache, lru_cache
from typing import Any

import httpx
from openapi_schema_validator import OAS31Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from starlette.routing import compile_path

from service.cli import main

CONTRACT: dict[str, Any] = json.loads(main.CONTRACT.read_text(encoding="utf-8"))
MOST_BYTES = 300_000  # of JSON that is validated; a validator reads 1 MB a second
_TEMPLATES = [(path, compile_path(path)[0]) for path in CONTRACT["paths"]]


@cache
def _closed() -> Registry[Any]:
    """Return the contract with models that allow their documented members only."""
    contract = copy.deepcopy(CONTRACT)
    for schema in contract["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    registry: Registry[Any] = Registry[Any]().with_resource("urn:contract", DRAFT202012.create_resource(contract))
    return registry


@cache
def _validator(schema: str) -> OAS31Validator:
    return OAS31Validator(json.loads(schema.replace("#/components", "urn:contract#/components")), registry=_closed())


def errors_of(schema: dict[str, Any], body: Any) -> list[str]:
    """Return how a body differs from a schema of the contract; models are closed."""
    return _errors(json.dumps(schema), json.dumps(body))


@lru_cache(10_000)  # many tests get the same answers
def _errors(schema: str, body: str) -> list[str]:
    return [error.message[:500] for error in _validator(schema).iter_errors(json.loads(body))]


def operation_of(method: str, path: str) -> dict[str, Any] | None:
    """Return the operation of a request, or None if the contract has none."""
    matching = (CONTRACT["paths"][template] for template, pattern in _TEMPLATES if pattern.fullmatch(path))
    return next((methods[method.lower()] for methods in matching if method.lower() in methods), None)


class CheckedClient(httpx.Client):
    """Client that compares each response with the contract, except for those that a test reads in pieces."""

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        """Send a request, and check its response."""
        response = super().send(request, stream=stream, **options)
        if not stream:
            check_body(response)
        return response


def check_body(response: httpx.Response) -> None:
    """Fail for a success whose status, media type or JSON the contract does not have."""
    method, path = response.request.method, response.request.url.path
    operation = None if method == "HEAD" else operation_of(method, path)
    if operation is None or not response.is_success:
        return
    documented = operation["responses"].get(str(response.status_code))
    assert documented is not None, f"{method} {path} answered {response.status_code}, which is not documented."
    media = response.headers.get("content-type", "").partition(";")[0]
    if not media:
        assert response.status_code == 204
        return
    assert media in documented["content"], f"{method} {path} answered {media}, which is not documented."
    if media != "application/json":
        return
    if len(response.content) < MOST_BYTES:
        errors = errors_of(documented["content"][media]["schema"], response.json())
        assert errors == [], f"{method} {path}: {errors}"
