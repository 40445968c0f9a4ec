"""A service on loopback without keys behind common proxies."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from service.middleware.access_policy import AccessPolicy
from service.middleware.proxies import Proxies
from tests.service.conftest import register_worker
from tests.service.tenants import bearer, served
from worker.base.settings import Settings, SettingsError
from worker.observability.live_workers import withdraw

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

CLIENT = "203.0.113.9"
OWN = "127.0.0.1:8000"

# What each sends to its upstream on http://127.0.0.1:8000 for GET http://glle.example/..., with one line of
# configuration (proxy_pass, ProxyPass, reverse_proxy, a router with a service).
HEADERS = {
    "nginx, headers as its manual advises": {"Host": OWN, "X-Real-IP": CLIENT},
    "nginx, with the usual proxy_params": {
        "Host": OWN, "X-Real-IP": CLIENT, "X-Forwarded-For": CLIENT, "X-Forwarded-Proto": "https",
    },
    "Apache httpd": {
        "Host": OWN, "X-Forwarded-For": CLIENT, "X-Forwarded-Host": "glle.example",
        "X-Forwarded-Server": "glle.example",
    },
    "Apache httpd, ProxyAddHeaders Off, ProxyVia On": {"Host": OWN, "Via": "1.1 glle.example"},
    "Caddy, header_up Host": {
        "Host": OWN, "X-Forwarded-For": CLIENT, "X-Forwarded-Proto": "https", "X-Forwarded-Host": "glle.example",
        "Via": "1.1 Caddy",
    },
    "Traefik, passHostHeader false": {
        "Host": OWN, "X-Forwarded-For": CLIENT, "X-Forwarded-Host": "glle.example", "X-Forwarded-Port": "443",
        "X-Forwarded-Proto": "https", "X-Forwarded-Server": "traefik", "X-Real-Ip": CLIENT,
    },
    "one that follows RFC 7239": {"Host": OWN, "Forwarded": f"for={CLIENT};proto=https"},
}  # fmt: skip
# These pass the public name on.
NAMED = {
    "Caddy": {
        "Host": "glle.example", "X-Forwarded-For": CLIENT, "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "glle.example", "Via": "1.1 Caddy",
    },
    "Traefik": {
        "Host": "glle.example", "X-Forwarded-For": CLIENT, "X-Forwarded-Host": "glle.example",
        "X-Forwarded-Port": "443", "X-Forwarded-Proto": "https", "X-Forwarded-Server": "traefik", "X-Real-Ip": CLIENT,
    },
    "HAProxy": {"Host": "glle.example"},
}  # fmt: skip
PATHS = ("/v1/datasets", "/v1/info", "/metrics")


def raw(client: httpx.Client, request: bytes) -> bytes:
    """Send bytes and return the whole response."""
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=30) as sock:
        sock.sendall(request)
        response = b""
        while piece := sock.recv(2**16):
            response += piece
    return response


@pytest.mark.parametrize("proxy", HEADERS)
def test_a_request_through_a_proxy_needs_a_key(client: httpx.Client, stores: Stores, proxy: str) -> None:
    """Even if the proxy passes a loopback name on; a client of the machine needs no key."""
    for path in PATHS:
        assert client.get(path).status_code == 200
        answer = client.get(path, headers=HEADERS[proxy])
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:glle:problem:key-required")
        assert "proxy" in answer.json()["detail"]
        assert answer.headers["www-authenticate"] == 'Bearer realm="glle"'
    assert client.get("/livez", headers=HEADERS[proxy]).status_code == 200
    with served(stores) as keyed:
        admin = bearer(stores, "alice", "admin")
        assert all(keyed.get(path, headers=HEADERS[proxy] | admin).status_code == 200 for path in PATHS)


@pytest.mark.parametrize("proxy", NAMED)
def test_a_request_for_a_public_name_is_refused(client: httpx.Client, proxy: str) -> None:
    """Whatever other headers the request has."""
    for path in PATHS:
        answer = client.get(path, headers=NAMED[proxy])
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:glle:problem:foreign-host")


def test_nginx_without_a_header_is_known_by_its_version_of_http(client: httpx.Client) -> None:
    """HTTP/1.0 is a trace: nginx before 1.29.7 uses it by default."""
    for path in PATHS:
        head = f"GET {path} HTTP/1.0\r\nHost: {OWN}\r\nConnection: close\r\nUser-Agent: Mozilla/5.0\r\n\r\n"
        response = raw(client, head.encode())
        assert b" 401 " in response.partition(b"\r\n")[0]
        assert b"HTTP/1.0" in response.partition(b"\r\n\r\n")[2]


def test_off_accepts_requests_through_proxies(stores: Stores) -> None:
    """Behind a proxy, too, as the setting documents."""
    with served(stores, auth="off") as client:
        assert client.get("/v1/datasets", headers=HEADERS["Apache httpd"]).status_code == 200


def test_readiness_without_a_key_is_the_status_alone(client: httpx.Client, stores: Stores) -> None:
    """Memory, workers and paths need a key or a client of this machine."""
    register_worker(stores)
    proxied = HEADERS["Apache httpd"]
    assert set(client.get("/readyz").json()) == {"status", "workers", "queue_length", "checks"}
    assert client.get("/readyz", headers=proxied).json() == {"status": "ok"}
    with served(stores, auth="required") as keyed:
        assert keyed.get("/readyz").json() == {"status": "ok"}
        assert keyed.get("/readyz", headers={"Authorization": "Bearer glle_x_y"}).json() == {"status": "ok"}
        read = bearer(stores, "alice", "read")
        assert keyed.get("/readyz", headers=read).json()["workers"] == 1
        withdraw(stores.client, "one")
        refused = keyed.get("/readyz")
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:glle:problem:not-ready")
        assert refused.json()["details"] == {}
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
    """The last address that is no trusted proxy; other claims are ignored."""
    assert Proxies("10.0.0.0/8, 192.168.0.1").client(scope(peer, *result)) == client


def test_a_trusted_loopback_proxy_requires_a_key(stores: Stores) -> None:
    """The setting covers a proxy without traces."""
    with served(stores, trusted_proxies="127.0.0.1") as client:
        answer = client.get("/v1/info")
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:glle:problem:key-required")
        assert client.get("/v1/info", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 401


def test_a_client_of_this_machine_may_come_through_a_trusted_proxy() -> None:
    """A client beyond a trusted proxy needs a key; its own claims are ignored."""
    door = AccessPolicy(Settings(trusted_proxies="172.17.0.2"))
    assert door.is_authenticated(scope("172.17.0.2", "127.0.0.1"))
    assert not door.is_authenticated(scope("172.17.0.2", "127.0.0.1, 192.0.2.1"))
    assert not door.is_authenticated(scope("172.17.0.3", "127.0.0.1"))


@pytest.mark.parametrize("networks", ["proxy.example", "10.0.0.1/99", "10.0.0.1 10.0.0.2"])
def test_a_proxy_is_named_by_its_address(networks: str) -> None:
    """A name could resolve to another address."""
    with pytest.raises(SettingsError, match="GLLE_TRUSTED_PROXIES"):
        AccessPolicy(Settings(trusted_proxies=networks))
