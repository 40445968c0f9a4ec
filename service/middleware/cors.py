"""CORS: the origins of GLLE_CORS_ORIGINS may read responses; by default none may."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.middleware.cors import CORSMiddleware

from worker.base.settings import SettingsError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_ORIGIN = re.compile(r"https?://[^/\s,*?#]+")
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
REQUEST_HEADERS = (
    "Accept", "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "If-Range",
    "Last-Event-ID", "Range", "X-Request-Id",
)  # fmt: skip
RESPONSE_HEADERS = (  # Deprecation, Sunset and Link by docs/reference/api-policy.md
    "Accept-Ranges", "Content-Range", "Deprecation", "ETag", "Glle-Notes", "Glle-Scale", "Link", "Location",
    "Retry-After", "Server-Timing", "Sunset", "X-Request-Id",
)  # fmt: skip
_PREFLIGHT_SECONDS = 3600  # browsers cap it at two hours


def allowed_origins(origins: str) -> list[str]:
    """Return the origins of GLLE_CORS_ORIGINS, or ``["*"]``; raise `SettingsError` for other text."""
    allowed = [origin.strip() for origin in origins.split(",") if origin.strip()]
    for origin in allowed:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise SettingsError(
                f"GLLE_CORS_ORIGINS: {origin!r} is no origin. Give scheme, host and port, such as"
                " https://lab.example.org or http://localhost:3000, without a path."
            )
    return allowed


def with_cors(app: ASGIApp, origins: str) -> ASGIApp:
    """Return an app that allows these origins (`allowed_origins`)."""
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
