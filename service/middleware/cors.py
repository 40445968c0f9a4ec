"""Pages of other origins: none may read the answers unless GLLE_CORS_ORIGINS names them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.middleware.cors import CORSMiddleware

from worker.base.settings import SettingsError

if TYPE_CHECKING:
    from fastapi import FastAPI

_ORIGIN = re.compile(r"https?://[^/\s,*?#]+")
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
SENT = (
    "Accept", "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "If-Range",
    "Last-Event-ID", "Range", "X-Request-Id",
)  # fmt: skip
EXPOSED = (
    "Accept-Ranges", "Content-Range", "Deprecation", "ETag", "Glle-Scale", "Link", "Location", "Retry-After",
    "Server-Timing", "Sunset", "X-Request-Id",
)  # fmt: skip
_REMEMBERED_SECONDS = 3600  # of a preflight; a browser keeps it two hours at most


def install(app: FastAPI, origins: str) -> None:
    """Let pages of these origins (commas between them, or a star) use the API; of none when it is empty.

    Raises
    ------
    SettingsError
        For what is no origin.

    """
    allowed = [origin.strip() for origin in origins.split(",") if origin.strip()]
    for origin in allowed:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise SettingsError(
                f"GLLE_CORS_ORIGINS: {origin!r} is no origin. Give scheme, host and port, such as"
                " https://lab.example.org or http://localhost:3000, without a path."
            )
    if allowed:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=allowed,
            allow_methods=METHODS,
            allow_headers=SENT,
            expose_headers=EXPOSED,
            max_age=_REMEMBERED_SECONDS,
        )
