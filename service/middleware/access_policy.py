"""The door: whether a request needs a key, and whether the one it has is good for what it asks."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from service.middleware.proxies import Proxies, sign_of_proxy
from worker.base.problems import ProblemError, refuse
from worker.base.settings import Settings, SettingsError
from worker.records.tenants import DEFAULT
from worker.tenancy.api_keys import KeyStore

if TYPE_CHECKING:
    from starlette.types import Scope

    from worker.tenancy import api_keys

OPEN_PATHS = frozenset({"/", "/docs", "/openapi.json", "/livez", "/readyz"})  # what a probe or a newcomer needs
OPEN_FOLDER = "/explorer/"  # the page is the same for everyone; what it asks for needs a key
METRICS = "/metrics"  # of all tenants together
_AUTHORIZATION = b"authorization"
_READING = frozenset({"GET", "HEAD"})
_PREFLIGHT = "OPTIONS"  # a browser's comes without a key, and is told nothing but methods


class AccessPolicy:
    """Lets requests in.

    Parameters
    ----------
    store
        The keys.
    auth
        The setting: auto, required or off.
    proxies
        Those that are trusted.
    loopback
        Whether only this machine reaches the service.

    """

    def __init__(self, store: KeyStore, auth: str, proxies: Proxies, *, loopback: bool) -> None:
        self._store = store
        self._proxies = proxies
        self._required = auth == "required" or (auth == "auto" and not loopback)
        self._off = auth == "off"

    @classmethod
    def of(cls, settings: Settings, store: KeyStore | None = None) -> Self:
        """Return the door of a service with these settings.

        Raises
        ------
        SettingsError
            When it would let everyone in from other machines, or `trusted_proxies` cannot be read.

        """
        reached = settings.published or settings.host
        loopback = is_loopback(reached)
        if settings.auth == "off" and not loopback:
            remedy = "Leave GLLE_AUTH out and make a key with `glle keys create`, or listen on 127.0.0.1."
            raise SettingsError(f"GLLE_AUTH=off would let in everyone who reaches {reached}. {remedy}")
        proxies = Proxies(settings.trusted_proxies)
        return cls(store or KeyStore.under(settings.data_dir), settings.auth, proxies, loopback=loopback)

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for: on loopback, until the first is made."""
        return self._off or not (self._required or self._store.any_was_made())

    @property
    def is_shut(self) -> bool:
        """Whether nobody gets in, for there is no key."""
        return not self.is_open and not self._store.all()

    def is_free(self, scope: Scope) -> bool:
        """Say whether a request tells nothing of anyone's data."""
        path: str = scope["path"]
        return path in OPEN_PATHS or path.startswith(OPEN_FOLDER) or scope["method"] == _PREFLIGHT

    def is_authenticated(self, scope: Scope) -> bool:
        """Say whether a request to an open path would be admitted anywhere else."""
        try:
            self.admit(scope)
        except ProblemError:
            return False
        return True

    def admit(self, scope: Scope) -> str:
        """Return the tenant that asks, the default one where no key is needed.

        Raises
        ------
        ProblemError
            ``key-required``, ``invalid-key``, ``scope-missing``, ``foreign-host``, ``keys-unreadable``.

        """
        path, method = scope["path"], scope["method"]
        if self._off:
            return DEFAULT
        if self.is_open:
            _require_own_name(scope)
            if (sign := self._comes_through(scope)) is None:
                return DEFAULT
            if _AUTHORIZATION not in dict(scope["headers"]):
                raise _key_required(f"The request came through a proxy (it has {sign}) and has no key.")
        key = self._store.verify(_bearer(scope))
        needed: api_keys.Scope = "admin" if path == METRICS else "read" if method in _READING else "write"
        if needed not in key.scopes:
            detail = f"Key {key.id} may {' and '.join(key.scopes)}; {method} {path} needs the scope {needed}."
            remedy = f"Use a key made with --scope {needed}."
            raise refuse("scope-missing", 403, detail, remedy, needed=needed, scopes=list(key.scopes))
        return key.tenant

    def _comes_through(self, scope: Scope) -> str | None:
        """Return the sign that a request comes from beyond a proxy, None for a client of this machine.

        A proxy on this machine is no client of it, and its own name for the service proves nothing.
        """
        if not self._proxies.trust_peer(scope):
            return sign_of_proxy(scope)
        client = self._proxies.client(scope)
        if client is not None and is_loopback(client):
            return None
        return sign_of_proxy(scope) or "the address of a trusted proxy"


def is_loopback(host: str) -> bool:
    """Say whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(64)
def names_loopback(host: bytes) -> bool:
    """Say whether a Host header names this machine by a name that only it has."""
    name = str(host, "latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].rstrip(".")
    return is_loopback(name) or name.endswith(".localhost")


def _require_own_name(scope: Scope) -> None:
    """Refuse a request for another name, where no key tells who asks.

    A page of a browser on this machine can have its own name lead here, and would then be let in (DNS rebinding); a
    proxy that passes the name on would let in everyone.
    """
    for name, value in scope["headers"]:
        if name == b"host" and not names_loopback(value):
            host = str(value, "latin-1")
            detail = f"The request is for the host {host!r}; without keys only names of this machine are answered."
            remedy = "Ask 127.0.0.1, or make a key with `glle keys create`; GLLE_AUTH=off answers to any name."
            raise refuse("foreign-host", 403, detail, remedy, host=host)


def _bearer(scope: Scope) -> str:
    """Return what the bearer says, or raise ``key-required``."""
    for name, value in scope["headers"]:
        if name == _AUTHORIZATION:
            scheme, _, spoken = value.partition(b" ")
            if scheme.lower() == b"bearer":
                return str(spoken.strip(), "latin-1")
    raise _key_required("This service asks for a key, and the request has none.")


def _key_required(detail: str) -> ProblemError:
    remedy = "Send the header `Authorization: Bearer <key>`; keys are made with `glle keys create`."
    return refuse("key-required", 401, detail, remedy)
