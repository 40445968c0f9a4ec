"""Access policy: which requests need an API key, and which scope the key needs."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import redis

from service.middleware.proxies import Proxies, proxy_trace
from worker.base.problems import ProblemError, refuse
from worker.base.settings import Settings, SettingsError
from worker.records.tenants import DEFAULT
from worker.tenancy.api_keys import KeyStore

if TYPE_CHECKING:
    from starlette.types import Scope

    from worker.tenancy import api_keys

OPEN_PATHS = frozenset({"/", "/docs", "/openapi.json", "/livez", "/readyz"})
OPEN_FOLDER = "/explorer/"  # static files; the data they request need a key
METRICS = "/metrics"  # covers all tenants
_AUTHORIZATION = b"authorization"
_READ_METHODS = frozenset({"GET", "HEAD"})
_PREFLIGHT = "OPTIONS"  # browsers send it without a key; the response lists methods only


def required_scope(path: str, method: str) -> api_keys.Scope | None:
    """Return the scope a request needs, or None for an open path."""
    if path in OPEN_PATHS or path.startswith(OPEN_FOLDER) or method == _PREFLIGHT:
        return None
    if path == METRICS:
        return "admin"
    return "read" if method in _READ_METHODS else "write"


class AccessPolicy:
    """Authentication of requests by API key, or by origin while no key exists.

    `auth` is the setting: auto, required or off. `is_local` means that only this machine reaches the service.
    """

    def __init__(self, store: KeyStore, auth: str, proxies: Proxies, *, is_local: bool) -> None:
        self._store = store
        self._proxies = proxies
        self._is_required = auth == "required" or (auth == "auto" and not is_local)
        self._is_off = auth == "off"

    @classmethod
    def of(cls, settings: Settings, store: KeyStore | None = None) -> Self:
        """Return the policy of these settings.

        Raise `SettingsError` if other machines could connect without a key, or `trusted_proxies` is malformed.
        """
        host = settings.published or settings.host
        is_local = is_loopback(host)
        if settings.auth == "off" and not is_local:
            remedy = "Leave GLLE_AUTH out and make a key with `glle keys create`, or listen on 127.0.0.1."
            raise SettingsError(f"GLLE_AUTH=off would admit every client that reaches {host}. {remedy}")
        proxies = Proxies(settings.trusted_proxies)
        return cls(store or KeyStore.under(settings.data_dir), settings.auth, proxies, is_local=is_local)

    @property
    def is_open(self) -> bool:
        """Whether requests need no key: on loopback, until the first key is created."""
        return self._is_off or not (self._is_required or self._store.has_key_file())

    @property
    def is_shut(self) -> bool:
        """Whether requests need a key and none exists."""
        return not self.is_open and not self._store.all()

    def is_authenticated(self, scope: Scope) -> bool:
        """Return whether a request to an open path would pass on a guarded path; False if the keys cannot be read."""
        try:
            self.authenticate(scope)
        except (ProblemError, redis.RedisError):
            return False
        return True

    def authenticate(self, scope: Scope) -> str:
        """Return the tenant of a request; the default tenant if no key is needed.

        Raise ``key-required``, ``invalid-key``, ``scope-missing``, ``foreign-host`` or ``keys-unreadable``.
        """
        if self._is_off:
            return DEFAULT
        if self.is_open:
            _require_local_name(scope)
            if (trace := self._proxy_trace(scope)) is None:
                return DEFAULT
            if _AUTHORIZATION not in dict(scope["headers"]):
                raise _key_required(f"The request came through a proxy (it has {trace}) and has no key.")
        key = self._store.verify(_bearer_token(scope))
        path, method = scope["path"], scope["method"]
        needed = required_scope(path, method) or "read"
        if needed not in key.scopes:
            detail = f"Key {key.id} has the scope {' and '.join(key.scopes)}; {method} {path} needs {needed}."
            remedy = f"Use a key made with --scope {needed}."
            raise refuse("scope-missing", 403, detail, remedy, needed=needed, scopes=list(key.scopes))
        return key.tenant

    def _proxy_trace(self, scope: Scope) -> str | None:
        """Return the evidence that a request came through a proxy, or None for a client of this machine.

        A proxy on this machine connects from loopback under any host name, so neither proves a local client.
        """
        if not self._proxies.trust_peer(scope):
            return proxy_trace(scope)
        client = self._proxies.client(scope)
        if client is not None and is_loopback(client):
            return None
        return proxy_trace(scope) or "the address of a trusted proxy"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(64)
def names_loopback(host: bytes) -> bool:
    """Return whether a Host header is a loopback name of this machine."""
    name = str(host, "latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].rstrip(".")
    return is_loopback(name) or name.endswith(".localhost")


def _require_local_name(scope: Scope) -> None:
    """Refuse a request without keys for a host that is not a loopback name.

    Otherwise a web page could reach the service under its own name (DNS rebinding), and a proxy could admit everyone.
    """
    for name, value in scope["headers"]:
        if name == b"host" and not names_loopback(value):
            host = str(value, "latin-1")
            detail = f"The request is for the host {host!r}; without keys the service answers to loopback names only."
            remedy = "Use 127.0.0.1, or make a key with `glle keys create`; GLLE_AUTH=off answers to any name."
            raise refuse("foreign-host", 403, detail, remedy, host=host)


def _bearer_token(scope: Scope) -> str:
    """Return the bearer token, or raise ``key-required``."""
    for name, value in scope["headers"]:
        if name == _AUTHORIZATION:
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                return str(token.strip(), "latin-1")
    raise _key_required("This service needs an API key, and the request has none.")


def _key_required(detail: str) -> ProblemError:
    remedy = "Send the header `Authorization: Bearer <key>`; make a key with `glle keys create`."
    return refuse("key-required", 401, detail, remedy)
