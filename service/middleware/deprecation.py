"""Routes that will go: how one is marked, and the headers that every answer of it then has.

`Deprecation` (RFC 9745) says since when, `Sunset` (RFC 8594) from when on it may not answer any more, and `Link` what
comes instead. docs/reference/api-policy.md has how long that takes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

NOTICE = timedelta(days=180)  # at least, between the two
_KEY = "x-glle-deprecation"


def deprecated(since: datetime, sunset: datetime, successor: str | None = None) -> dict[str, Any]:
    """Return what a route's decorator is given, ``**deprecated(...)``, to mark the route.

    Parameters
    ----------
    since, sunset
        When it was deprecated, and when it may go: times with a zone, at least `NOTICE` apart.
    successor
        The path of the route to use instead.

    """
    if since.tzinfo is None or sunset.tzinfo is None:
        raise ValueError("the times need a zone")
    if sunset - since < NOTICE:
        raise ValueError(f"between deprecation and sunset are {NOTICE.days} days at least")
    links = ['</docs>; rel="deprecation"']
    if successor is not None:
        links.append(f'<{successor}>; rel="successor-version"')
    headers = {
        "Deprecation": f"@{int(since.timestamp())}",
        "Sunset": format_datetime(sunset.astimezone(UTC), usegmt=True),
        "Link": ", ".join(links),
    }
    return {"deprecated": True, "openapi_extra": {_KEY: headers}}


def is_marked(route: object) -> bool:
    """Say whether a route was marked."""
    return bool(_headers(route))


def _headers(route: object) -> dict[str, str]:
    extra: dict[str, dict[str, str]] = getattr(route, "openapi_extra", None) or {}
    return extra.get(_KEY, {})


class Deprecations:
    """Adds the headers to the answers of marked routes, errors and kept answers as well."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = [(name.lower().encode(), value.encode()) for name, value in _headers(scope.get("route")).items()]
                message["headers"] = [*message["headers"], *told]
            await send(message)

        await self._app(scope, receive, send_marked)
