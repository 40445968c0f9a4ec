"""Proxies in front of the service: signs of one in a request, and the client behind one that is trusted."""

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


def sign_of_proxy(scope: Scope) -> str | None:
    """Return the part of a request that only a proxy sends, or None.

    HTTP/1.0 is one: nginx before 1.29.7 speaks it to its upstream and adds no header unless it is configured to.
    """
    for name, _ in scope["headers"]:
        if name in _HEADERS or name.startswith(_PREFIX):
            return f"the header {str(name, 'latin-1')}"
    return "HTTP/1.0" if scope.get("http_version") == "1.0" else None


class Proxies:
    """The proxies whose X-Forwarded-For is believed.

    Parameters
    ----------
    networks
        Addresses and networks, commas between; empty: none.

    Raises
    ------
    SettingsError
        When one is neither.

    """

    def __init__(self, networks: str) -> None:
        try:
            self._networks: list[Network] = [
                ipaddress.ip_network(part.strip(), strict=False) for part in networks.split(",") if part.strip()
            ]
        except ValueError as error:
            remedy = "Write addresses or networks with commas between, such as 127.0.0.1,10.0.0.0/8."
            raise SettingsError(f"GLLE_TRUSTED_PROXIES: {error}. {remedy}") from error

    def trust_peer(self, scope: Scope) -> bool:
        """Say whether the peer of a request is a trusted proxy."""
        return self.trust(_peer(scope))

    def client(self, scope: Scope) -> str | None:
        """Return the address that a request comes from, or None where a trusted proxy does not name it.

        A trusted peer names its own peer last in X-Forwarded-For, and so on: the client is the last address in it that
        is no trusted proxy. What stands before that is the client's own word.
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
        """Say whether an address is a trusted proxy's."""
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
    """Return the address in a part of X-Forwarded-For, which may have a port, or None."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None
