"""Every route with every scope, for its owner and another tenant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from service.app import ROUTERS
from service.middleware import requests
from service.middleware.access_policy import METRICS, OPEN_PATHS
from service.middleware.requests import NOT_FOUND_STEP_SECONDS, pad_not_found
from service.schemas.problems import MEDIA_TYPE
from tests.service.schemas.bodies import CONTRACT
from tests.service.tenants import BODIES, bearer, resources_of
from worker.storage.api_keys import SCOPES

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

BAD = {"Authorization": "Bearer glle_0_1"}
PATHS = CONTRACT["paths"]
# Deletions come last, so that the other requests find their resources.
OPERATIONS = sorted(
    ((method.upper(), path) for path, methods in PATHS.items() for method in methods),
    key=lambda operation: (operation[0] == "DELETE", operation[1], operation[0]),
)


def outcome(
    method: str, path: str, scope: str | None, *, is_owner: bool
) -> Literal["open", "401", "403", "404", "yes"]:
    """Return how a request on loopback should end, given its scope (None: no key) and whether it is by the owner."""
    if path in OPEN_PATHS:
        return "open"
    if scope is None:
        return "401"
    if (path == METRICS and scope != "admin") or (method != "GET" and scope == "read"):
        return "403"
    return "yes" if is_owner or "{id}" not in path else "404"


def at_once(method: str, path: str) -> dict[str, int]:
    """Return the query of a request that waits for no job."""
    names = {parameter["name"] for parameter in PATHS[path][method.lower()].get("parameters", ())}
    return {"wait": 0} if "wait" in names else {}


def seen(answer: httpx.Response, expected: str) -> str:
    """Return the outcome of a response in the words of the rule."""
    if answer.status_code in {401, 403}:
        check_refusal(answer)
        return str(answer.status_code)
    if answer.status_code == 404 and answer.request.method != "DELETE":  # the second deletion of an owner is a 404
        return "404" if answer.json()["type"].endswith("-not-found") else answer.json()["type"]
    return expected if expected in {"open", "yes"} else str(answer.status_code)


def test_every_route_keeps_the_rule(guarded_client: httpx.Client, stores: Stores) -> None:
    """Try each route without a key, with a bad key, with each scope of the owner, and with another tenant's key."""
    alice = resources_of("alice", stores)
    other = ("admin", False, bearer(stores, "bob", "admin"))
    owner = [(scope, True, bearer(stores, "alice", scope)) for scope in SCOPES]
    callers: list[tuple[str | None, bool, dict[str, str]]] = [(None, True, {}), (None, True, BAD), other, *owner, other]
    wrong = []
    for method, path in OPERATIONS:
        body: dict[str, Any] = {"json": BODIES[path]} if method in {"POST", "PATCH"} and path in BODIES else {}
        named = alice.path(path) if "{id}" in path else path.replace("{name}", "pca")
        for scope, is_owner, headers in callers:
            answer = guarded_client.request(method, named, params=at_once(method, path), headers=headers, **body)
            expected = outcome(method, path, scope, is_owner=is_owner)
            if seen(answer, expected) != expected:
                wrong.append((method, path, scope, is_owner, expected, answer.status_code))
    assert wrong == []
    for method, path in (("GET", "/nowhere"), ("PUT", "/v1/datasets"), ("GET", "/docs/")):
        check_refusal(guarded_client.request(method, path))
    assert guarded_client.head("/v1/info").status_code == 401


def test_no_route_is_outside_of_the_contract() -> None:
    """The matrix covers every route of the app except the page and its files."""
    routed = {
        (method, route.path)
        for room in ROUTERS
        for route in room.router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    hidden = {path for _, path in routed} - {path for _, path in OPERATIONS}
    assert {operation for operation in routed if operation[1] not in hidden} == set(OPERATIONS)
    assert all(path == "/" or path.startswith(("/explorer", "/docs", "/openapi")) for path in hidden), hidden


CHALLENGES = {
    "key-required": 'Bearer realm="glle"',
    "invalid-key": 'Bearer realm="glle", error="invalid_token"',
    "scope-missing": 'Bearer realm="glle", error="insufficient_scope"',
}


def check_refusal(answer: httpx.Response) -> None:
    """Check that a 401 or 403 is a problem with its challenge; that of a scope names the remedy."""
    assert answer.headers["content-type"] == MEDIA_TYPE
    problem = answer.json()
    code = problem["type"].rpartition(":")[2]
    assert answer.status_code == (403 if code == "scope-missing" else 401)
    assert answer.headers["www-authenticate"].startswith(CHALLENGES[code])
    if code == "scope-missing":
        assert problem["details"]["needed"] not in problem["details"]["scopes"]
        assert f"--scope {problem['details']['needed']}" in problem["remedy"]


def sent_after(seconds: float, status: int) -> float:
    """Return when a response is sent after this much work, by a clock that only work and sleep advance."""
    now, sent = [0.0], []

    async def send(message: Any) -> None:
        del message
        sent.append(now[0])

    async def sleep(duration: float) -> None:
        assert duration >= 0
        now[0] += duration

    async def run() -> None:
        padded = pad_not_found(send, lambda: now[0], sleep)
        now[0] += seconds
        await padded({"type": "http.response.start", "status": status, "headers": []})

    asyncio.run(run())
    return sent[0]


@given(st.floats(1e-5, 0.99 * NOT_FOUND_STEP_SECONDS))
def test_a_404_is_sent_at_the_next_step_for_any_work(work: float) -> None:
    """The time of a 404 does not reveal the owner of an id; other responses are sent at once."""
    assert sent_after(work, 404) == pytest.approx(NOT_FOUND_STEP_SECONDS)
    assert sent_after(work, 200) == work


def test_every_404_to_a_key_is_held_back(
    guarded_client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 404 for an unknown id and for an id of another tenant are delayed alike, for every kind of resource."""
    other, mine = resources_of("bob", stores), bearer(stores, "alice")
    held: list[str] = []

    def pad_and_record(send: Any) -> Any:
        async def send_counted(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 404:
                held.append("404")
            await send(message)

        return pad_not_found(send_counted)

    monkeypatch.setattr(requests, "pad_not_found", pad_and_record)
    paths = [f"/v1/datasets/{other.dataset}", f"/v1/posteriors/{other.posterior}", f"/v1/jobs/{other.job}"]
    for path in [*paths, f"/v1/embeddings/{other.embedding}", "/v1/datasets/ds_0", "/v1/jobs/none"]:
        assert guarded_client.get(path, headers=mine).status_code == 404
    assert len(held) == 6
