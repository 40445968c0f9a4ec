"""Validation of real responses against the contract: every success body has a schema, and no undocumented member."""

from __future__ import annotations

import copy
import json
from functools import cache, lru_cache
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any

import httpx
from jsonschema import validators  # type: ignore[import-untyped] # has no types
from openapi_schema_validator import OAS31Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from starlette.routing import compile_path

from openapi import client_types

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTRACT: dict[str, Any] = json.loads(client_types.CONTRACT.read_text(encoding="utf-8"))
OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    (method, path, operation) for path, methods in CONTRACT["paths"].items() for method, operation in methods.items()
]
MAX_BYTES = 300_000  # of JSON that is validated; a validator reads 1 MB a second
LONG = 20  # items
_TEMPLATES = [(path, compile_path(path)[0]) for path in CONTRACT["paths"]]


@cache
def _closed_contract() -> Registry[Any]:
    """Return the contract with models that allow their documented members only."""
    contract = copy.deepcopy(CONTRACT)
    for schema in contract["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    registry: Registry[Any] = Registry[Any]().with_resource("urn:contract", DRAFT202012.create_resource(contract))
    return registry


def _representatives(items: list[Any]) -> list[Any]:
    """Return the extreme numbers of each type of a list, or of each column of its rows; else all items.

    A schema of numbers or of rows of them distinguishes types, bounds and lengths, so that these items stand for all.
    """
    rows = items if all(type(item) is list for item in items) else [[item] for item in items]
    alike: dict[tuple[object, ...], list[Any]] = {}
    for row in rows:
        if not all(type(value) in {int, float, NoneType} for value in row):
            return items
        alike.setdefault(tuple(map(_kind, row)), []).append(row)
    chosen = [same[0] for same in alike.values()]
    for kinds, same in alike.items():
        for column in (column for column, kind in enumerate(kinds) if kind is not NoneType):
            chosen += [min(same, key=itemgetter(column)), max(same, key=itemgetter(column))]
    return chosen if rows is items else [value for (value,) in chosen]


def _kind(value: float | None) -> object:
    """Return the type of a JSON number or null; an integer may be written as a float."""
    return (float, value.is_integer()) if isinstance(value, float) else type(value)


def _items(validator: Any, items: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Validate items; of long lists of numbers those that stand for all, because each takes some microseconds."""
    if isinstance(instance, list) and len(instance) > LONG and "prefixItems" not in schema:
        instance = _representatives(instance)
    yield from OAS31Validator.VALIDATORS["items"](validator, items, instance, schema) or ()


_Validator = validators.extend(OAS31Validator, {"items": _items})


@cache
def _validator(schema: str) -> Any:
    return _Validator(
        json.loads(schema.replace("#/components", "urn:contract#/components")), registry=_closed_contract()
    )


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
    if len(response.content) < MAX_BYTES:
        errors = errors_of(documented["content"][media]["schema"], response.json())
        assert errors == [], f"{method} {path}: {errors}"
