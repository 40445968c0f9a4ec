"""The contract of the guarded routes: which need a key, and how they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.middleware.access_policy import METRICS, OPEN_PATHS
from service.schemas.problems import documented

if TYPE_CHECKING:
    from typing import Any

_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key from `glle keys create`. Scopes: read (GET), write (all but metrics), admin. None is needed "
    "on loopback until the first is made. What another tenant has is not found.",
}


def document_keys(contract: dict[str, Any]) -> None:
    """Put the bearer scheme, and 401, 403 and 429, into a contract."""
    contract["components"]["securitySchemes"] = {"bearer": _SCHEME}
    for path, methods in contract["paths"].items():
        for method, operation in methods.items():
            if path in OPEN_PATHS:
                operation["security"] = []
                continue
            needed = "admin" if path == METRICS else "read" if method == "get" else "write"
            operation["security"] = [{"bearer": []}]
            told = documented(
                _401="No key, or none that is good: see WWW-Authenticate.",
                _403=f"The key lacks the scope: {needed}. Or, without keys, the host is not this machine's name.",
                _429="A quota of the tenant is used up: see Retry-After.",
            )
            more = {str(status): told[status] for status in (401, 403, 429)}
            operation["responses"] = dict(sorted((operation["responses"] | more).items()))
