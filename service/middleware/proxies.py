"""Proxies in front of the service: traces in a request, and the client behind a trusted one."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from worker.base.settings import SettingsError

if TYPE_CHECKING:
    from starlette.types import Scope

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PREFIX = b"x-forwarded"
_HEADERS = frozenset({
    b"forwarded", b"via", b"x-real-ip", b"x-original-forwarded-for", b"x-original-host", b"x-client-ip",
    b"x-cluster-client-ip", b"client-ip", b"true-client-ip", b"cf-connecting-ip", b"fastly-client-ip", b"cdn-loop",
    b"x-envoy-external-address",
})  # fmt: skip
_CLIENT = b"x-forwarded-for"


def proxy_trace(scope: Scope) -> str | None:
    """Return the part of a request that only a proxy sends, or None.

    HTTP/1.0 counts: nginx before 1.29.7 uses it for its upstream and by default adds no header.
    """
    for name, _ in scope["headers"]:
        if name in _HEADERS or name.startswith(_PREFIX):
            return f"the header {str(name, 'latin-1')}"
    version = scope.get("http_version", "1.1")
    return None if version == "1.1" else f"HTTP/{version}"


class Proxies:
    """Trusted proxies, whose X-Forwarded-For the service believes: addresses and networks, separated by commas.

    Attributes
    ----------
    is_any
        Whether there are any.

    """

    def __init__(self, networks: str) -> None:
        try:
            self._networks: list[Network] = [
                ipaddress.ip_network(part.strip(), strict=False) for part in networks.split(",") if part.strip()
            ]
        except ValueError as error:
            remedy = "Separate addresses or networks by commas, such as 127.0.0.1,10.0.0.0/8."
            raise SettingsError(f"GLLE_TRUSTED_PROXIES: {error}. {remedy}") from error
        self.is_any = bool(self._networks)

    def trust_peer(self, scope: Scope) -> bool:
        """Return whether the peer of a request is a trusted proxy."""
        return self.trust(_peer(scope))

    def client(self, scope: Scope) -> str | None:
        """Return the client address of a request, or None if a trusted proxy does not name it.

        Each trusted proxy appends its peer to X-Forwarded-For. The client is the last address that is no trusted proxy;
        earlier addresses are unverified.
        """
        peer = _peer(scope)
        if not self.trust(peer):
            return peer
        forwarded = b",".join(value for name, value in scope["headers"] if name == _CLIENT)
        for part in reversed(str(forwarded, "latin-1").split(",")):
            if (address := _address(part)) is None:
                return None
            if not self.trust(address):
                return address
        return None

    def trust(self, host: str) -> bool:
        """Return whether an address is that of a trusted proxy."""
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
    """Return the address in one part of X-Forwarded-For, without its port, or None."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None
