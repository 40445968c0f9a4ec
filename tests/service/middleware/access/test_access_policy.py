"""Access policy: authentication of requests and the scope of each key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import pytest
import redis

from service.cli import main
from service.middleware.access_policy import METRICS, OPEN_PATHS, AccessPolicy, is_loopback
from service.schemas.problems import MEDIA_TYPE
from tests.service.tenants import bearer, served
from worker.base.settings import Settings, SettingsError
from worker.storage import api_keys
from worker.storage.records import RecordStore

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.storage.api_keys import Scope
    from worker.stores import Stores

CONTRACT = json.loads(main.CONTRACT.read_text(encoding="utf-8"))
OPERATIONS = [(method, path) for path, methods in CONTRACT["paths"].items() for method in methods]


def filled(path: str) -> str:
    """Return a path with its parameters filled in."""
    return path.replace("{id}", "x").replace("{index}", "0")


def test_every_route_except_open_ones_needs_a_key(guarded: httpx.Client) -> None:
    """401 with WWW-Authenticate and problem+json, for every method and unknown routes."""
    operations = [(method, path) for method, path in OPERATIONS if path not in OPEN_PATHS]
    assert len(operations) > 20
    unknown = [("get", "/nowhere"), ("put", "/v1/datasets"), ("get", "/docs/"), ("head", "/v1/info")]
    for method, path in [*operations, *unknown]:
        answer = guarded.request(method, filled(path))
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == 'Bearer realm="glle"'
        assert answer.headers["content-type"] == MEDIA_TYPE
        assert method == "head" or answer.json()["type"] == "urn:glle:problem:key-required"


def test_probes_and_the_documentation_are_open(guarded: httpx.Client) -> None:
    """Open paths reveal no data; /readyz is 503 for lack of workers, not of a key."""
    statuses = {path: guarded.get(path).status_code for path in OPEN_PATHS}
    assert statuses == {"/": 200, "/docs": 200, "/openapi.json": 200, "/livez": 200, "/readyz": 503}


def test_an_invalid_key_differs_from_a_missing_one(guarded: httpx.Client, stores: Stores) -> None:
    """The challenge reports an invalid token; another scheme counts as a missing key."""
    good = bearer(stores, "alice")["Authorization"]
    for wrong in (good[:-1], "Bearer x", "Bearer glle_0_1", "bearer ü"):
        answer = guarded.get("/v1/info", headers={b"Authorization": wrong.encode("latin-1")})
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:glle:problem:invalid-key")
        assert answer.headers["www-authenticate"] == 'Bearer realm="glle", error="invalid_token"'
    basic = guarded.get("/v1/info", headers={"Authorization": "Basic eDp5"})
    assert basic.json()["type"] == "urn:glle:problem:key-required"
    assert guarded.get("/v1/info", headers={"Authorization": good.replace("Bearer", "bearer")}).status_code == 200


@pytest.mark.parametrize("scope", api_keys.SCOPES)
def test_scopes_limit_methods(guarded: httpx.Client, stores: Stores, scope: Scope) -> None:
    """Read allows GET, write all other methods; a missing scope is 403."""
    headers = bearer(stores, "alice", scope)
    for method, path in OPERATIONS:
        if path in OPEN_PATHS | {METRICS}:
            continue
        answer = guarded.request(method, filled(path), headers=headers)
        if method != "get" and scope == "read":
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:glle:problem:scope-missing")
            assert answer.json()["details"] == {"needed": "write", "scopes": ["read"]}
            assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
            assert "--scope write" in answer.json()["remedy"]
        else:
            assert answer.status_code not in {401, 403}, (method, path)


def test_metrics_need_the_scope_admin(stores: Stores, client: httpx.Client) -> None:
    """They cover all tenants; until a key exists, a client of this machine may read them."""
    assert client.get("/metrics").status_code == 200
    for settings in ({"published": "192.0.2.1"}, {"auth": "required"}, {}):
        with served(stores, **settings) as keyed:
            write = bearer(stores, "alice", "write")
            assert keyed.get("/metrics").status_code == 401
            refused = keyed.get("/metrics", headers=write)
            assert (refused.status_code, refused.json()["details"]["needed"]) == (403, "admin")
            assert keyed.get("/metrics", headers=bearer(stores, "alice", "admin")).status_code == 200


def test_a_revoked_key_is_refused_by_a_running_api(
    guarded: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API and the command are two processes with one server."""
    monkeypatch.setattr(api_keys, "LOOK_SECONDS", 0.0)
    headers = bearer(stores, "alice")
    assert guarded.get("/v1/info", headers=headers).status_code == 200
    (key,) = stores.keys.all()
    stores.keys.revoke(key.id)
    assert guarded.get("/v1/info", headers=headers).status_code == 401


def test_on_loopback_the_first_key_enables_authentication(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without keys every request is the default tenant's; revoking the last key keeps authentication on."""
    monkeypatch.setattr(api_keys, "LOOK_SECONDS", 0.0)
    with served(stores) as client:
        id_ = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 20}).json()["id"]
        headers = bearer(stores, "default")
        assert client.get(f"/v1/datasets/{id_}").status_code == 401
        assert client.get(f"/v1/datasets/{id_}", headers=headers).json()["id"] == id_
        stores.keys.revoke(stores.keys.all()[0].id)
        assert client.get(f"/v1/datasets/{id_}").status_code == 401


@pytest.mark.parametrize(
    "name", ["evil.example", "192.0.2.1:8000", "localhost.evil.example", "127.0.0.1.evil.example", "x@y"]
)
def test_without_keys_only_loopback_names_are_accepted(client: httpx.Client, stores: Stores, name: str) -> None:
    """Neither DNS rebinding nor a proxy gains access; with a key any name works."""
    answer = client.get("/v1/datasets", headers={"Host": name})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:glle:problem:foreign-host")
    assert answer.json()["details"] == {"host": name}
    assert client.get("/livez", headers={"Host": name}).status_code == 200
    with served(stores, auth="off") as open_to_all:
        assert open_to_all.get("/v1/datasets", headers={"Host": name}).status_code == 200
    with served(stores, auth="required") as guarded:
        assert guarded.get("/v1/datasets", headers={"Host": name, **bearer(stores, "alice")}).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["127.0.0.1", "127.0.0.1:8000", "localhost:80", "LOCALHOST", "localhost.", "glle.localhost", "[::1]", "[::1]:8000"],
)
def test_loopback_names_in_all_spellings(client: httpx.Client, name: str) -> None:
    """With or without a port, for IPv4 and IPv6, and for subdomains of localhost."""
    assert client.get("/v1/datasets", headers={"Host": name}).status_code == 200


def test_off_ignores_keys(stores: Stores) -> None:
    """GLLE_AUTH=off ignores keys, which is why it needs loopback."""
    headers = bearer(stores, "alice")
    with served(stores, auth="off") as client:
        assert client.get("/v1/datasets").status_code == client.get("/v1/datasets", headers=headers).status_code == 200


def test_unreadable_keys_refuse_guarded_requests(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is 503, and a damaged key is no access; open paths stay open."""
    headers = bearer(stores, "alice")
    monkeypatch.setattr(api_keys, "LOOK_SECONDS", 0.0)
    with served(stores) as client:
        assert client.get("/v1/usage", headers=headers).json()["tenant"] == "alice"

        def fail(*_: object) -> None:
            raise redis.ConnectionError

        with monkeypatch.context() as patch:
            patch.setattr(RecordStore, "get", fail)
            answer = client.get("/v1/usage", headers=headers)
            assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
            assert client.get("/livez").status_code == 200
            answer = client.get("/readyz", headers=headers)
            assert "checks" in answer.json()["details"]
        assert client.get("/v1/usage", headers=headers).status_code == 200
        stores.client.set(f"glle:key:{stores.keys.all()[0].id}", "{")
        answer = client.get("/v1/info", headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (500, "urn:glle:problem:record-unreadable")


@pytest.mark.parametrize(
    ("auth", "host", "published", "is_open"),
    [
        ("auto", "127.0.0.1", "", True),
        ("auto", "localhost", "", True),
        ("auto", "::1", "", True),
        ("auto", "0.0.0.0", "", False),  # noqa: S104 # what is not bound here is refused
        ("auto", "::", "", False),
        ("auto", "10.0.0.7", "", False),
        ("auto", "glle.example", "", False),
        ("auto", "0.0.0.0", "127.0.0.1", True),  # noqa: S104 # in a container that is published on loopback
        ("auto", "127.0.0.1", "0.0.0.0", False),  # noqa: S104 # behind an engine that publishes it
        ("required", "127.0.0.1", "", False),
        ("off", "127.0.0.1", "", True),
        ("off", "0.0.0.0", "127.0.0.1", True),  # noqa: S104 # off needs no key
    ],
)
def test_the_address_decides_whether_a_key_is_needed(
    auth: Literal["auto", "required", "off"], host: str, published: str, *, is_open: bool
) -> None:
    """Until a key exists, only a service on loopback is open."""
    assert AccessPolicy(Settings(auth=auth, host=host, published=published)).is_open == is_open


@pytest.mark.parametrize(("host", "published"), [("0.0.0.0", ""), ("127.0.0.1", "192.0.2.1"), ("::", "")])  # noqa: S104 # nothing is bound
def test_an_open_service_on_a_public_address_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, host: str, published: str
) -> None:
    """GLLE_AUTH=off is refused with the remedy before anything listens."""
    with pytest.raises(SettingsError, match="glle keys create"):
        AccessPolicy(Settings(auth="off", host=host, published=published))
    for name, value in {"AUTH": "off", "PUBLISHED": published, "DATA_DIR": str(tmp_path / "data")}.items():
        monkeypatch.setenv(f"GLLE_{name}", value)
    assert main.main(["up", "--host", host, "--port", "0"]) == 2
    assert "GLLE_AUTH=off would admit every client" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_addresses_in_all_spellings(host: str) -> None:
    """Every 127 address, ::1, and the name."""
    assert is_loopback(host)


def test_the_contract_documents_each_refusal() -> None:
    """Guarded operations document the bearer scheme, 401, 403 and 429; open ones need nothing."""
    assert CONTRACT["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for method, path in OPERATIONS:
        operation = CONTRACT["paths"][path][method]
        if path in OPEN_PATHS:
            assert operation["security"] == []
        else:
            keyed: dict[str, list[str]] = {"bearer": []}
            assert operation["security"] == [keyed]
            assert {"401", "403", "429"} <= set(operation["responses"])
