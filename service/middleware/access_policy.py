"""Access policy: which requests need an API key and which scope, which proxies are trusted, which origins may read."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import redis
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

from service.schemas.addresses import normal_prefix, set_prefix
from worker.base.problems import ProblemError, refuse
from worker.base.settings import SettingsError
from worker.records.ids import DEFAULT
from worker.storage.mark import LOSSES

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Scope

    from worker.base.settings import Settings
    from worker.storage import api_keys
    from worker.storage.api_keys import KeyStore
    from worker.storage.mark import RecordsMark

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_ORIGIN = re.compile(r"https?://[^/\s,*?#]+")
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
REQUEST_HEADERS = (
    "Accept", "Authorization", "Content-Type", "If-Match", "If-None-Match", "If-Range",
    "Range", "X-Request-Id",
)  # fmt: skip
RESPONSE_HEADERS = (  # docs/reference/api-policy.md promises Deprecation, Sunset and Link
    "Accept-Ranges", "Content-Range", "Deprecation", "ETag", "Glle-Notes", "Glle-Scale", "Link", "Location",
    "Retry-After", "Server-Timing", "Sunset", "X-Request-Id",
)  # fmt: skip
# A browser may cache the answer to a preflight request this long; browsers use at most two hours.
_PREFLIGHT_SECONDS = 3600
_PROXY_PREFIX = b"x-forwarded"
_PROXY_HEADERS = frozenset({
    b"forwarded", b"via", b"x-real-ip", b"x-original-forwarded-for", b"x-original-host", b"x-client-ip",
    b"x-cluster-client-ip", b"client-ip", b"true-client-ip", b"cf-connecting-ip", b"fastly-client-ip", b"cdn-loop",
    b"x-envoy-external-address",
})  # fmt: skip
_FORWARDED_FOR, _FORWARDED_PREFIX = b"x-forwarded-for", b"x-forwarded-prefix"
OPEN_PATHS = frozenset({"/", "/docs", "/openapi.json", "/livez", "/readyz"})
OPEN_FOLDER = "/explorer/"  # static files; the page's requests for data need a key
METRICS = "/metrics"  # needs the scope admin, because it shows numbers of all tenants
REPORTS = OPEN_PATHS | {METRICS}  # paths that answer while records or files are lost
_AUTHORIZATION = b"authorization"
_READ_METHODS = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({"same-origin", "none"})  # values of Sec-Fetch-Site that no foreign page sends
_PREFLIGHT = "OPTIONS"  # browsers send it without a key, and the response only lists methods


def allowed_origins(origins: str) -> list[str]:
    """Return the origins in `origins`, the setting GLLE_CORS_ORIGINS: separated by commas, `*` for all origins.

    Raises `SettingsError` for an entry that is not an origin.
    """
    allowed = [origin.strip() for origin in origins.split(",") if origin.strip()]
    for origin in allowed:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise SettingsError(
                f"GLLE_CORS_ORIGINS: {origin!r} is not an origin. Give scheme, host and port, such as"
                " https://lab.example.org or http://localhost:3000, without a path."
            )
    return allowed


def with_cors(app: ASGIApp, origins: str) -> ASGIApp:
    """Return `app` with CORS headers for `origins`, the setting GLLE_CORS_ORIGINS; `app` itself if that is empty."""
    if not (allowed := allowed_origins(origins)):
        return app
    return CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_methods=METHODS,
        allow_headers=REQUEST_HEADERS,
        expose_headers=RESPONSE_HEADERS,
        max_age=_PREFLIGHT_SECONDS,
    )


class Proxies:
    """The proxies whose X-Forwarded-* headers the service trusts.

    Parameters
    ----------
    networks
        Setting GLLE_TRUSTED_PROXIES: addresses and networks, separated by commas.

    Attributes
    ----------
    is_any
        Whether any proxy is trusted.

    """

    def __init__(self, networks: str) -> None:
        try:
            self._networks: list[Network] = [
                ipaddress.ip_network(network.strip(), strict=False)
                for network in networks.split(",")
                if network.strip()
            ]
        except ValueError as error:
            remedy = "Separate addresses or networks by commas, such as 127.0.0.1,10.0.0.0/8."
            raise SettingsError(f"GLLE_TRUSTED_PROXIES: {error}. {remedy}") from error
        self.is_any = bool(self._networks)

    def client(self, scope: Scope) -> str | None:
        """Return the IP address of the client that sent a request, or None if a trusted proxy does not name the client.

        Each trusted proxy appends the address of its peer to X-Forwarded-For. The client is the last address that does
        not belong to a trusted proxy; anybody could have written the addresses before it.
        """
        peer = _peer(scope)
        if not self.trust(peer):
            return peer
        forwarded = b",".join(value for name, value in scope["headers"] if name == _FORWARDED_FOR)
        for hop in reversed(str(forwarded, "latin-1").split(",")):
            if (address := _address(hop)) is None:
                return None
            if not self.trust(address):
                return address
        return None

    def remove_prefix(self, scope: Scope) -> None:
        """Remove GLLE_ROOT_PATH from a request's path, and store the prefix with which URLs in the response must begin.

        Uvicorn has put GLLE_ROOT_PATH before the path. The prefix, which `service.schemas.addresses` stores, is the
        X-Forwarded-Prefix of a trusted proxy, otherwise GLLE_ROOT_PATH. If several proxies send a prefix, the prefixes
        are joined, the outermost first.
        """
        root = scope.get("root_path", "")
        if root and scope["path"].startswith(root):
            scope["path"], scope["raw_path"] = scope["path"][len(root) :], scope["raw_path"][len(root) :]
            scope["root_path"] = ""  # otherwise Starlette would remove the prefix again
        if self.is_any and self.trust(_peer(scope)):
            parts = [str(value, "latin-1") for name, value in scope["headers"] if name == _FORWARDED_PREFIX]
            prefixes = [normal_prefix(prefix) for text in parts for prefix in text.split(",")]
            if parts and None not in prefixes:
                root = "".join(filter(None, prefixes))
        set_prefix(root)

    def trust(self, host: str) -> bool:
        """Return whether the address `host` belongs to a trusted proxy."""
        if not self._networks:
            return False
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def _peer(scope: Scope) -> str:
    return str((scope.get("client") or ("", 0))[0])


def _address(text: str) -> str | None:
    """Return the IP address in one entry of X-Forwarded-For, without the port; None if the entry is not an address."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def required_scope(path: str, method: str) -> api_keys.Scope | None:
    """Return the scope that a request's API key must have (read, write or admin), or None if no key is needed."""
    if path in OPEN_PATHS or path.startswith(OPEN_FOLDER) or method == _PREFLIGHT:
        return None
    if path == METRICS:
        return "admin"
    return "read" if method in _READ_METHODS else "write"


class AccessPolicy:
    """Authenticates requests by API key; while no key exists, by the host that they name and the page that sent them.

    While records or files are lost, all requests are refused, except those for the paths in `REPORTS`. The constructor
    raises `SettingsError` if other machines could connect without a key, or if a setting is malformed.

    Parameters
    ----------
    settings
        `auth` is auto, required or off; pages of the origins in `cors_origins` may use the service, `*` means all.
    keys
        The stored API keys; None if only the settings are to be checked.
    mark
        Detects a loss of records or files (see worker/storage/mark.py); None if losses are not to be detected.

    Attributes
    ----------
    is_required
        Whether requests need a key even before the first key exists.
    proxies
        The trusted proxies.

    """

    def __init__(self, settings: Settings, keys: KeyStore | None = None, mark: RecordsMark | None = None) -> None:
        host = settings.published or settings.host
        is_local = is_loopback(host)
        if settings.auth == "off" and not is_local:
            remedy = "Leave GLLE_AUTH out and make a key with `glle keys create`, or listen on 127.0.0.1."
            raise SettingsError(f"GLLE_AUTH=off would admit every client that reaches {host}. {remedy}")
        self._keys = keys
        self._mark = mark
        self.proxies = Proxies(settings.trusted_proxies)
        self._origins = frozenset(allowed_origins(settings.cors_origins))
        self.is_required = settings.auth == "required" or (settings.auth == "auto" and not is_local)
        self._is_off = settings.auth == "off"

    async def admit(self, scope: Scope) -> tuple[str, bool]:
        """Authenticate a request like `authenticate`, without blocking the event loop.

        If answers of Redis from the last second suffice, this happens at once. Otherwise a thread asks Redis.
        """
        is_whole = self._mark is None or self._mark.was_whole(is_write=scope["method"] not in _READ_METHODS)
        if is_whole and (self._is_off or self._keys is None or self._keys.is_current(_bearer_token(scope))):
            return self._authenticate(scope, self._keys)
        return await run_in_threadpool(self.authenticate, scope)

    @property
    def page_warning(self) -> str:
        """Warning that every web page in a browser on this machine can use the service; empty if none can."""
        if self.is_required or "*" not in self._origins:
            return ""
        since = "" if self._is_off else " until a key exists"
        return f"GLLE_CORS_ORIGINS=*: every web page in a browser of this machine can read, write and delete{since}."

    def is_authenticated(self, scope: Scope) -> bool:
        """Return whether `authenticate` admits the request; False if Redis cannot be asked for the API keys."""
        try:
            self.authenticate(scope)
        except (ProblemError, redis.RedisError):
            return False
        return True

    def authenticate(self, scope: Scope) -> tuple[str, bool]:
        """Return the tenant of a request, and whether a 404 may be sent at once.

        Otherwise `pad_not_found` delays a 404, so that its timing does not tell whether another tenant has the id.

        If the queue's Redis does not answer or has lost the keys, requests for the paths in `REPORTS`, which report on
        this server, are checked against the keys that were read last. All other requests raise `redis.RedisError`, or
        `ProblemError` with the loss.

        Raises `ProblemError`: ``key-required``, ``invalid-key``, ``scope-missing``, ``foreign-host``,
        ``foreign-origin``, ``record-unreadable``, or one of `worker.storage.mark.LOSSES`.
        """
        is_report = scope["path"] in REPORTS
        if self._mark is not None and not is_report:
            self._mark.require_no_recent_loss(is_write=scope["method"] not in _READ_METHODS)
        try:
            return self._authenticate(scope, self._keys)
        except (redis.RedisError, ProblemError) as error:
            is_loss = isinstance(error, redis.RedisError) or error.problem.code in LOSSES
            if self._keys is None or not is_report or not is_loss:
                raise
            return self._authenticate(scope, self._keys.last_read())

    def _authenticate(self, scope: Scope, keys: KeyStore | None) -> tuple[str, bool]:
        is_open = self._is_off or not (self.is_required or (keys is not None and keys.is_guarded()))
        token = _bearer_token(scope)
        if is_open:
            _require_own_client(scope, self._origins, any_host=self._is_off)
            if self._is_off or (trace := self._proxy_trace(scope)) is None:
                return DEFAULT, True
            if token is None:
                raise _key_required(f"The request came through a proxy (it has {trace}) and has no key.")
        if token is None:
            raise _key_required("This service needs an API key, and the request has none.")
        assert keys is not None
        key = keys.verify(token)
        path, method = scope["path"], scope["method"]
        needed = required_scope(path, method) or "read"
        if needed not in key.scopes:
            detail = f"Key {key.id} has the scope {' and '.join(key.scopes)}; {method} {path} needs {needed}."
            remedy = f"Use a key made with --scope {needed}."
            raise refuse("scope-missing", 403, detail, remedy, needed=needed, scopes=list(key.scopes))
        return key.tenant, is_open or path == METRICS

    def _proxy_trace(self, scope: Scope) -> str | None:
        """Return the evidence that a request came through a proxy, such as a header, as words for a message.

        Returns None if there is no evidence, or if a trusted proxy says that the client is on this machine. A service
        without keys calls this to admit only clients on this machine. The address and the Host of a request cannot tell
        where the client is: a proxy on this machine connects from a loopback address, too, and may send any Host.
        """
        version = scope.get("http_version", "1.1")
        # A version other than 1.1 is evidence, too: nginx before 1.29.7 forwards requests by HTTP/1.0, and adds none of
        # the headers that are looked for below.
        trace = None if version == "1.1" else f"HTTP/{version}"
        for name, _ in scope["headers"]:
            if name in _PROXY_HEADERS or name.startswith(_PROXY_PREFIX):
                trace = f"the header {str(name, 'latin-1')}"
                break
        if not self.proxies.is_any or not self.proxies.trust(_peer(scope)):
            return trace
        client = self.proxies.client(scope)
        if client is not None and is_loopback(client):
            return None
        return trace or "the address of a trusted proxy"


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or `localhost`, which only clients of this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(64)
def names_loopback(host: bytes) -> bool:
    """Return whether the value of a Host header names the loopback interface, such as localhost:8000 or [::1]."""
    name = str(host, "latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].rstrip(".")
    return is_loopback(name) or name.endswith(".localhost")


def _require_own_client(scope: Scope, origins: Collection[str], *, any_host: bool) -> None:
    """Raise `ProblemError` if a request without a key is for a foreign host, or from a web page of another origin.

    The Host must be a loopback name, unless `any_host` is true. Otherwise a web page could reach the service under the
    page's own host name (DNS rebinding), and a reverse proxy on this machine could pass on requests from anywhere under
    its public name. `origins` are the origins that CORS admits.

    A page of another origin could upload, delete and start draws: browsers send a form, a text or a GET without a
    preflight, and only hide the response. No page can set `Sec-Fetch-Site` (Fetch Metadata Request Headers, W3C). Only
    its values `same-origin` and `none` (the user entered the address) prove that the request comes from the service's
    own page; a page at another port is `same-site`, but has another origin. If a browser does not send this header, its
    `Origin` must be the origin of the request. The `origins` are allowed, too.
    """
    headers = dict(scope["headers"])
    if not any_host and b"host" in headers and not names_loopback(headers[b"host"]):
        host = str(headers[b"host"], "latin-1")
        detail = f"The request is for the host {host!r}; without keys the service answers to loopback names only."
        remedy = "Use 127.0.0.1, or make a key with `glle keys create`; with GLLE_AUTH=off any name is accepted."
        raise refuse("foreign-host", 403, detail, remedy, host=host)
    if b"sec-fetch-site" not in headers and b"origin" not in headers:
        return
    site, origin = (str(headers.get(name, b""), "latin-1").strip() for name in (b"sec-fetch-site", b"origin"))
    if site in _OWN_SITES or "*" in origins or origin in origins:
        return
    own_origin = f"{scope.get('scheme', 'http')}://{str(headers.get(b'host', b''), 'latin-1')}"
    if not site and (not origin or origin.lower() == own_origin.lower()):
        return
    page = f"the page of {origin[:100]!r}" if origin else f"a page of another origin (Sec-Fetch-Site: {site[:20]})"
    remedy = (
        "Enter the address in the browser, or use the explorer at /. For pages of that origin add it to"
        " GLLE_CORS_ORIGINS; or make a key with `glle keys create`, which pages then have to send."
    )
    detail = f"The request comes from {page}; without keys the service answers to its own pages only."
    raise refuse("foreign-origin", 403, detail, remedy, origin=origin[:100] or None, site=site[:20] or None)


def _bearer_token(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _AUTHORIZATION:
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                return str(token.strip(), "latin-1")
    return None


def _key_required(detail: str) -> ProblemError:
    remedy = "Send the header `Authorization: Bearer <key>`; make a key with `glle keys create`."
    return refuse("key-required", 401, detail, remedy)
