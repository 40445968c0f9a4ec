"""Uploads, and the problems of refused ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx


def upload(client: httpx.Client, body: bytes, kind: str = "application/x-npy") -> httpx.Response:
    """Upload a body."""
    return client.post("/v1/datasets", content=body, headers={"content-type": kind})


def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Assert that a response is this problem, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == "urn:glle:problem:" + code
    assert len(problem["remedy"]) > 10
    return problem
