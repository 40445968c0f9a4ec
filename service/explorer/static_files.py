"""The explorer's files as they are sent: read once, compressed once, each with a strong ETag.

The page asks no other host for anything, which its Content-Security-Policy makes the browser keep to.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import Response

from service.encoding.compression import accepts_gzip
from service.responses.conditional import is_not_modified

if TYPE_CHECKING:
    from fastapi import Request

FOLDER = Path(__file__).parent
INDEX = "index.html"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# The plotting library writes the code of its WebGL commands at run time, which is what 'unsafe-eval' is for. Without it
# the page falls back to its own two-dimensional drawing. Scripts still come from here alone, and none stands inline.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; img-src 'self' blob: data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_LOOK_AGAIN = "no-cache"  # kept, but asked for each time: 304
_YEAR = "public, max-age=31536000, immutable"  # the version is part of the name


@dataclass(frozen=True)
class PageFile:
    """A file of the page.

    Parameters
    ----------
    body
        As it is.
    packed
        Compressed by gzip.
    headers
        Type, ETag and how long it may be kept.

    """

    body: bytes
    packed: bytes
    headers: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> PageFile:
        """Read a file, and compress it."""
        body = path.read_bytes()
        return cls(
            body,
            gzip.compress(body, 9, mtime=0),
            {
                "Content-Type": MEDIA[path.suffix],
                "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
                "Cache-Control": _YEAR if path.parent.name == "vendor" else _LOOK_AGAIN,
                "Vary": "Accept, Accept-Encoding",
                "Content-Security-Policy": POLICY,
                "Referrer-Policy": "no-referrer",
            },
        )

    def response(self, request: Request) -> Response:
        """Return the file, compressed for who accepts it; 304 to who has it."""
        if is_not_modified(request, self.headers):
            return Response(status_code=304, headers=self.headers)
        if accepts_gzip(request.headers.get("accept-encoding", "").encode()):
            return Response(self.packed, headers={**self.headers, "Content-Encoding": "gzip"})
        return Response(self.body, headers=self.headers)


@cache
def files() -> dict[str, PageFile]:
    """Return every file of the page by its path below the folder."""
    found = sorted(path for path in FOLDER.rglob("*") if path.suffix in MEDIA)
    return {path.relative_to(FOLDER).as_posix(): PageFile.read(path) for path in found}
