"""Every route with every scope, for its owner and another tenant; the page is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute

from service.app import ROUTERS
from tests.docs.authorisation import OPERATIONS, PAGE, at_once, outcome, page
from tests.service.tenants import BODIES, bearer, resources_of
from worker.storage.api_keys import SCOPES

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

BAD = {"Authorization": "Bearer glle_0_1"}


def seen(answer: httpx.Response, expected: str) -> str:
    """Return the outcome of a response in the words of the rule."""
    if answer.status_code in {401, 403}:
        return str(answer.status_code)
    if answer.status_code == 404 and expected == "404":
        return "404" if answer.json()["type"].endswith("-not-found") else answer.json()["type"]
    return expected if expected in {"open", "yes"} else str(answer.status_code)


def test_every_route_keeps_the_rule(guarded: httpx.Client, stores: Stores) -> None:
    """Without a key, with a bad one, and with each scope, for the owner and another tenant."""
    alice = resources_of("alice", stores)
    keys = {tenant: {scope: bearer(stores, tenant, scope) for scope in SCOPES} for tenant in ("bob", "alice")}
    callers: list[tuple[str | None, bool, dict[str, str]]] = [(None, True, {}), (None, True, BAD)]
    callers += [(scope, tenant == "alice", keys[tenant][scope]) for tenant in keys for scope in SCOPES]
    wrong = []
    for method, path in OPERATIONS:
        more: dict[str, Any] = {"json": BODIES[path]} if method in {"POST", "PATCH"} and path in BODIES else {}
        named = alice.path(path) if "{id}" in path else path.replace("{name}", "pca")
        for scope, own, headers in callers:
            answer = guarded.request(method, named, params=at_once(method, path), headers=headers, **more)
            expected = outcome(method, path, scope, own=own)
            if seen(answer, expected) != expected:
                wrong.append((method, path, scope, own, expected, answer.status_code))
    assert wrong == []


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


def test_the_page_is_what_the_rule_says() -> None:
    """`python -m tests.docs.authorisation` writes the page."""
    assert PAGE.read_text(encoding="utf-8") == page()
