"""Ids that no record can have, on every route with one in its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from service.schemas.openapi import EXAMPLES
from service.schemas.problems import MEDIA_TYPE
from tests.service.schemas.bodies import OPERATIONS

if TYPE_CHECKING:
    import httpx

ROUTES = [(method, path, operation["operationId"]) for method, path, operation in OPERATIONS if "{id}" in path]
PREFIXES = {"datasets": "ds_", "posteriors": "post_", "jobs": "job_", "embeddings": "emb_"}
IDS = {
    "250 letters": "{}" + 250 * "a",
    "5,000 letters": "{}" + 5000 * "a",
    "no prefix": 250 * "a",
    "a prefix alone": "{}",
    "not ASCII": "{}%C3%A4" + 120 * "%C3%A4",
    "a zero": "{}a%00b",
    "a path": "{}..%2F..%2Fkeys",
}


@pytest.mark.parametrize("id_", IDS.values(), ids=IDS)
@pytest.mark.parametrize(("method", "path", "operation"), ROUTES, ids=[f"{m}-{p}" for m, p, _ in ROUTES])
def test_an_invalid_id_is_not_found(client: httpx.Client, method: str, path: str, operation: str, id_: str) -> None:
    """The response is that of an unknown id, whatever the id is."""
    url = path.replace("{id}", id_.format(PREFIXES[path.split("/")[2]]))
    url = url.replace("{index}", "0").replace("{format}", "png")
    body: dict[str, Any] = {"json": EXAMPLES.get(operation, {})} if method in {"post", "patch"} else {}
    answer = client.request(method, url, **body)
    assert answer.status_code in {404, 422}, answer.text[:200]
    assert answer.headers["content-type"] == MEDIA_TYPE


@pytest.mark.parametrize("operation", ["fit", "estimate_fit", "advice", "embed", "compare"])
def test_an_invalid_id_in_a_body_is_not_found(client: httpx.Client, operation: str) -> None:
    """Data sets that a body names are checked as those of a path."""
    path = next(path for _, path, each in OPERATIONS if each["operationId"] == operation)
    body = {"method": "pca", **EXAMPLES[operation], "dataset": "ds_" + 250 * "a"}
    body = body if operation == "embed" else {name: value for name, value in body.items() if name != "method"}
    assert client.post(path, json=body).status_code == 404
