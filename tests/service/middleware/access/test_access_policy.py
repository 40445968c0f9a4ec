"""Access policy: authentication of requests, the scope of each key, and proxies."""

from __future__ import annotations

import shutil
import socket
from typing import TYPE_CHECKING, Any, Literal

import pytest
import redis

from service.cli import main
from service.middleware.access_policy import OPEN_PATHS, AccessPolicy, Proxies
from tests.conftest import until
from tests.service.conftest import check_problem, register_worker
from tests.service.schemas.bodies import CONTRACT, OPERATIONS
from tests.service.tenants import bearer, serve_stores
from worker.base.settings import Settings, SettingsError
from worker.observability.live_workers import withdraw
from worker.storage import api_keys
from worker.storage.records import RecordStore

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.stores import Stores

ALL = "0.0.0.0"  # noqa: S104 # nothing is bound


def test_probes_and_the_documentation_are_open(guarded_client: httpx.Client) -> None:
    """Open paths reveal no data; /readyz is 503 for lack of workers, not of a key."""
    statuses = {path: guarded_client.get(path).status_code for path in OPEN_PATHS}
    assert statuses == {"/": 200, "/docs": 200, "/openapi.json": 200, "/livez": 200, "/readyz": 503}


def test_a_service_whose_records_are_lost_does_not_become_keyless(stores: Stores) -> None:
    """Requests without a key are refused before and after the loss; after the loss is accepted, they are admitted."""
    stores.keys.create("alice", ("read",), "", None)
    stores.mark.renew()
    with serve_stores(stores) as client:
        check_problem(client.get("/v1/datasets"), 401, "key-required")
    stores.client.flushall()
    with serve_stores(stores) as restarted:
        check_problem(restarted.get("/v1/datasets"), 503, "records-lost")
        check_problem(restarted.post("/v1/datasets/synthetic", json={"name": "s_curve"}), 503, "records-lost")
        assert restarted.get("/livez").status_code == 200
        stores.mark.accept_loss()
        until(lambda: restarted.get("/v1/datasets").status_code == 200)


def test_lost_keys_are_no_invalid_keys(stores: Stores) -> None:
    """While the records are lost, keys get 503 with Retry-After, and a running process still answers scrapes."""
    key, admin, unknown = (
        bearer(stores, "alice"),
        bearer(stores, "alice", "admin"),
        {"Authorization": "Bearer glle_0_1"},
    )
    stores.mark.renew()
    with serve_stores(stores) as client:
        for header in (key, admin):
            assert client.get("/v1/datasets", headers=header).status_code == 200
        check_problem(client.get("/v1/datasets", headers=unknown), 401, "invalid-key")
        kept = {name: stores.client.dump(name) for name in stores.client.scan_iter()}
        stores.client.flushall()
        for header in (key, unknown):
            body = {"name": "s_curve", "n": 60}
            answer = client.post("/v1/datasets/synthetic", json=body, headers=header)
            check_problem(answer, 503, "records-lost")
            assert answer.headers["retry-after"]
            check_problem(client.get("/v1/datasets", headers=header), 503, "records-lost")
        assert 'glle_data_lost{reason="records-lost"} 1.0' in client.get("/metrics", headers=admin).text
        assert client.get("/metrics", headers=key).status_code == 403
        check_problem(client.get("/readyz", headers=unknown), 503, "not-ready")
        assert "records" in client.get("/readyz", headers=admin).json()["details"]["failed"]
        assert stores.datasets.usage() == {}
        for name, value in kept.items():
            stores.client.restore(name, 0, value or b"")
        until(lambda: client.get("/v1/datasets", headers=key).status_code == 200)
        check_problem(client.get("/v1/datasets", headers=unknown), 401, "invalid-key")
        assert 'glle_data_lost{reason="records-lost"} 0.0' in client.get("/metrics", headers=admin).text


@pytest.mark.parametrize("auth", ["auto", "off"])
def test_nothing_is_uploaded_beside_lost_files(stores: Stores, auth: str) -> None:
    """The next upload after the folder was emptied is 503, with keys or without authentication."""
    with serve_stores(stores, auth=auth) as client:
        key = bearer(stores, "default") if auth == "auto" else {}
        body = {"name": "s_curve", "n": 60}
        assert client.post("/v1/datasets/synthetic", json=body, headers=key).status_code == 201
        stores.mark.renew()
        shutil.rmtree(stores.files.bucket.local_path(""))
        for path in ("/v1/datasets/synthetic", "/v1/posteriors"):
            answer = client.post(path, json=body, headers=key)
            check_problem(answer, 503, "files-lost")
            assert answer.headers["retry-after"]
        assert not stores.files.bucket.local_path("").exists()
        assert client.get("/readyz").status_code == 503


def test_a_keyless_service_refuses_when_its_records_vanish(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running process that has found no key before refuses requests, too, once its records are lost."""
    monkeypatch.setattr(api_keys, "KEY_CHECK_SECONDS", 0.0)
    with serve_stores(stores) as client:
        assert client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 60}).status_code == 201
        stores.mark.renew()
        assert client.get("/v1/datasets").status_code == 200
        stores.client.flushall()
        check_problem(client.get("/v1/datasets"), 503, "records-lost")


def test_an_invalid_key_differs_from_a_missing_one(guarded_client: httpx.Client, stores: Stores) -> None:
    """The challenge reports an invalid token; another scheme counts as a missing key."""
    good = bearer(stores, "alice")["Authorization"]
    for wrong in (good[:-1], "Bearer x", "Bearer glle_0_1", "bearer ü"):
        answer = guarded_client.get("/v1/info", headers={b"Authorization": wrong.encode("latin-1")})
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:glle:problem:invalid-key")
        assert answer.headers["www-authenticate"] == 'Bearer realm="glle", error="invalid_token"'
    basic = guarded_client.get("/v1/info", headers={"Authorization": "Basic eDp5"})
    assert basic.json()["type"] == "urn:glle:problem:key-required"
    lower = {"Authorization": good.replace("Bearer", "bearer")}
    assert guarded_client.get("/v1/info", headers=lower).status_code == 200


def test_metrics_need_the_scope_admin(stores: Stores, client: httpx.Client) -> None:
    """Metrics cover all tenants; until a key exists, a client of this machine may read them."""
    assert client.get("/metrics").status_code == 200
    for published in ("192.0.2.1", ""):
        with serve_stores(stores, published=published) as keyed:
            write = bearer(stores, "alice", "write")
            assert keyed.get("/metrics").status_code == 401
            refused = keyed.get("/metrics", headers=write)
            assert (refused.status_code, refused.json()["details"]["needed"]) == (403, "admin")
            assert keyed.get("/metrics", headers=bearer(stores, "alice", "admin")).status_code == 200


def test_without_keys_only_loopback_names_are_accepted(client: httpx.Client, stores: Stores) -> None:
    """Loopback names are accepted in any spelling, other names are refused; with a key any name is accepted."""
    loopback_names = "127.0.0.1, 127.0.0.1:8000, localhost:80, LOCALHOST, localhost., glle.localhost, [::1], [::1]:8000"
    for name in loopback_names.split(", "):
        assert client.get("/v1/datasets", headers={"Host": name}).status_code == 200, name
    foreign = "evil.example, 192.0.2.1:8000, localhost.evil.example, 127.0.0.1.evil.example, x@y"
    with serve_stores(stores, auth="off") as off:
        for name in foreign.split(", "):
            answer = client.get("/v1/datasets", headers={"Host": name})
            assert check_problem(answer, 403, "foreign-host")["details"] == {"host": name}
            assert client.get("/livez", headers={"Host": name}).status_code == 200
            assert off.get("/v1/datasets", headers={"Host": name}).status_code == 200
    with serve_stores(stores, auth="required") as guarded:
        key = bearer(stores, "alice")
        assert guarded.get("/v1/datasets", headers={"Host": "evil.example", **key}).status_code == 200


def test_unreadable_keys_refuse_guarded_requests(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is 503, and a damaged key is no access; open paths stay open."""
    headers = bearer(stores, "alice")
    monkeypatch.setattr(api_keys, "KEY_CHECK_SECONDS", 0.0)
    with serve_stores(stores) as client:
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
        check_problem(client.get("/v1/info", headers=headers), 500, "record-unreadable")


@pytest.mark.parametrize(
    ("auth", "host", "published", "is_open"),
    [
        *[("auto", host, "", True) for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1")],
        *[("auto", host, "", False) for host in (ALL, "::", "10.0.0.7", "glle.example")],  # not bound
        ("auto", ALL, "127.0.0.1", True),  # in a container that is published on loopback
        ("auto", "127.0.0.1", ALL, False),  # behind an engine that publishes it
        ("required", "127.0.0.1", "", False),
        ("off", "127.0.0.1", "", True),
        ("off", ALL, "127.0.0.1", True),  # off needs no key
    ],
)
def test_the_address_decides_whether_a_key_is_needed(
    auth: Literal["auto", "required", "off"], host: str, published: str, *, is_open: bool
) -> None:
    """Until a key exists, only a service on loopback is open."""
    assert AccessPolicy(Settings(auth=auth, host=host, published=published)).is_required != is_open


@pytest.mark.parametrize(("host", "published"), [(ALL, ""), ("127.0.0.1", "192.0.2.1"), ("::", "")])
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


def test_the_contract_documents_each_refusal() -> None:
    """Guarded operations document the bearer scheme, 401, 403 and 429; open ones need nothing."""
    assert CONTRACT["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for _, path, operation in OPERATIONS:
        if path in OPEN_PATHS:
            assert operation["security"] == []
        else:
            keyed: dict[str, list[str]] = {"bearer": []}
            assert operation["security"] == [keyed]
            assert {"401", "403", "429"} <= set(operation["responses"])


def test_off_ignores_keys_and_accepts_proxies(stores: Stores) -> None:
    """GLLE_AUTH=off ignores keys, which is why it needs loopback."""
    with serve_stores(stores, auth="off") as client:
        for headers in ({}, bearer(stores, "alice"), {"X-Forwarded-For": "203.0.113.9"}):
            assert client.get("/v1/datasets", headers=headers).status_code == 200


PATHS = ("/v1/datasets", "/v1/info", "/metrics")


# Any header of a proxy is a trace: nginx, Apache httpd, Caddy, Traefik, and what follows RFC 7239, send some of these
# to their upstream on http://127.0.0.1:8000.
TRACES = {
    "X-Real-IP": "203.0.113.9",
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "glle.example",
    "X-Forwarded-Server": "glle.example",
    "X-Forwarded-Port": "443",
    "Via": "1.1 glle.example",
    "Forwarded": "for=203.0.113.9;proto=https",
}


def test_a_request_through_a_proxy_needs_a_key(client: httpx.Client, stores: Stores) -> None:
    """A request with a header of a proxy needs a key, even if its host is a loopback name."""
    for path in PATHS:
        assert client.get(path).status_code == 200
    for name, value in TRACES.items():
        headers = {"Host": "127.0.0.1:8000", name: value}
        for path in PATHS:
            answer = client.get(path, headers=headers)
            assert "proxy" in check_problem(answer, 401, "key-required")["detail"]
            assert answer.headers["www-authenticate"] == 'Bearer realm="glle"'
            check_problem(client.get(path, headers={**headers, "Host": "glle.example"}), 403, "foreign-host")
        assert client.get("/livez", headers=headers).status_code == 200
    with serve_stores(stores) as keyed:
        admin = bearer(stores, "alice", "admin")
        assert all(keyed.get(path, headers=TRACES | admin).status_code == 200 for path in PATHS)


def test_nginx_without_a_header_is_known_by_its_version_of_http(client: httpx.Client) -> None:
    """HTTP/1.0 counts as a proxy: nginx before 1.29.7 uses this version by default, and adds no header."""
    for path in PATHS:
        head = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\nUser-Agent: Mozilla/5.0\r\n\r\n"
        with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=30) as sock:
            sock.sendall(head.encode())
            response = sock.makefile("rb").read()
        assert b" 401 " in response.partition(b"\r\n")[0]
        assert b"HTTP/1.0" in response.partition(b"\r\n\r\n")[2]


def test_readiness_without_a_key_is_the_status_alone(client: httpx.Client, stores: Stores) -> None:
    """Memory, workers and paths need a key or a client of this machine."""
    register_worker(stores)
    assert set(client.get("/readyz").json()) == {"status", "workers", "queue_length", "checks"}
    assert client.get("/readyz", headers=TRACES).json() == {"status": "ok"}
    with serve_stores(stores, auth="required") as keyed:
        assert keyed.get("/readyz").json() == {"status": "ok"}
        assert keyed.get("/readyz", headers={"Authorization": "Bearer glle_x_y"}).json() == {"status": "ok"}
        read = bearer(stores, "alice", "read")
        assert keyed.get("/readyz", headers=read).json()["workers"] == 1
        withdraw(stores.client, "one")
        refused = keyed.get("/readyz")
        assert check_problem(refused, 503, "not-ready")["details"] == {}
        assert keyed.get("/readyz", headers=read).json()["type"] == "urn:glle:problem:no-workers"


def scope(peer: str, *forwarded: str) -> dict[str, Any]:
    """Return a request of a peer with these X-Forwarded-For headers."""
    headers = [(b"host", b"127.0.0.1"), *((b"x-forwarded-for", value.encode()) for value in forwarded)]
    return {"type": "http", "method": "GET", "path": "/v1/info", "client": (peer, 1), "headers": headers}


@pytest.mark.parametrize(
    ("peer", "result", "client"),
    [
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["127.0.0.1, 192.0.2.1"], "192.0.2.1"),  # the first is the client's own word
        ("10.0.0.1", ["127.0.0.1", "192.0.2.1, 10.2.3.4"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1:4711"], "192.0.2.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["10.0.0.2"], None),
        ("10.0.0.1", ["unknown"], None),
        ("10.0.0.1", ["127.0.0.1, _hidden"], None),
        ("10.0.0.1", [], None),
        ("192.0.2.7", ["127.0.0.1"], "192.0.2.7"),
        ("::1", ["127.0.0.1"], "::1"),
        ("", ["127.0.0.1"], ""),
    ],
)
def test_a_trusted_proxy_names_the_client(peer: str, result: list[str], client: str | None) -> None:
    """The client is the last address that is no trusted proxy; addresses before it are ignored."""
    assert Proxies("10.0.0.0/8, 192.168.0.1").client(scope(peer, *result)) == client


def test_a_client_of_this_machine_may_come_through_a_trusted_proxy() -> None:
    """A local client behind a trusted proxy needs no key, any other client behind it does."""
    door = AccessPolicy(Settings(trusted_proxies="172.17.0.2"))
    assert door.is_authenticated(scope("172.17.0.2", "127.0.0.1"))
    assert not door.is_authenticated(scope("172.17.0.2", "127.0.0.1, 192.0.2.1"))
    assert not door.is_authenticated(scope("172.17.0.3", "127.0.0.1"))
    for forwarded in ((), ("127.0.0.1",)):  # the setting covers a proxy of this machine without traces
        assert not AccessPolicy(Settings(trusted_proxies="127.0.0.1")).is_authenticated(scope("127.0.0.1", *forwarded))


@pytest.mark.parametrize("networks", ["proxy.example", "10.0.0.1/99", "10.0.0.1 10.0.0.2"])
def test_a_proxy_is_named_by_its_address(networks: str) -> None:
    """A host name in place of an address is refused, because the name could resolve to another address."""
    with pytest.raises(SettingsError, match="GLLE_TRUSTED_PROXIES"):
        AccessPolicy(Settings(trusted_proxies=networks))
