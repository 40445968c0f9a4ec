"""Bodies that do not change while a process runs: each is compressed once, and has a strong ETag.

Starlette's StaticFiles is not used: its ETags depend on the modification time, and it neither compresses nor sets a
Content-Security-Policy.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fastapi import Response

from service.encoding.representations import accepts_gzip
from service.encoding.result import is_not_modified

if TYPE_CHECKING:
    from fastapi import Request

REVALIDATE = "no-cache"


@dataclass(frozen=True)
class StaticBody:
    """A response body that does not change, both plain and compressed by gzip, with its headers."""

    body: bytes
    compressed: bytes
    headers: dict[str, str]

    @classmethod
    def of(cls, body: bytes, headers: dict[str, str]) -> Self:
        """Compress a body, and return it with ETag, Vary and, unless `headers` has one, Cache-Control."""
        added = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"', "Vary": "Accept, Accept-Encoding"}
        return cls(body, gzip.compress(body, 9, mtime=0), {"Cache-Control": REVALIDATE, **headers, **added})

    def response(self, request: Request) -> Response:
        """Return the response with the body, compressed if the client accepts it, or 304 if the client has it."""
        if is_not_modified(request, self.headers):
            return Response(status_code=304, headers=self.headers)
        if accepts_gzip(request.headers.get("accept-encoding", "").encode()):
            return Response(self.compressed, headers={**self.headers, "Content-Encoding": "gzip"})
        return Response(self.body, headers=self.headers)
