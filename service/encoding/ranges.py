"""Byte ranges: one `Range` of a complete representation, bound to its strong ETag by `If-Range` (RFC 9110, 14).

Several ranges in one request get the whole, as the standard allows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from service.schemas.problems import problem_response
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

ACCEPT_RANGES = {"Accept-Ranges": "bytes"}
_SINGLE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` to `stop`, half open, of `size`."""

    start: int
    stop: int
    size: int

    def partial(self, headers: Headers) -> Headers:
        """Return the headers of this range from those of the whole."""
        kept = [(name, value) for name, value in headers if name != b"content-length"]
        content_range = b"bytes %d-%d/%d" % (self.start, self.stop - 1, self.size)
        return [*kept, (b"content-length", b"%d" % (self.stop - self.start)), (b"content-range", content_range)]


def header(scope: Scope, name: bytes) -> bytes:
    """Return a request header, repeated ones joined as in Starlette; empty if it is missing."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0] if len(values) == 1 else b", ".join(values)


def requested_range(scope: Scope, headers: Headers, size: int) -> ByteRange | None:
    """Return the requested range of a response with these headers, or None for the whole.

    A Range that is malformed, has several parts, or whose If-Range is not the ETag, is ignored. One that starts beyond
    the last byte raises ``range-not-satisfiable``.
    """
    value = header(scope, b"range")
    if not value or (match := _SINGLE.fullmatch(value.strip().lower())) is None:
        return None
    named = dict(headers)
    if b"accept-ranges" not in named:
        return None
    first, last = match.groups()
    condition = header(scope, b"if-range").strip()
    is_stale = condition and condition != named.get(b"etag")
    if is_stale or not (first or last) or (first and last and int(last) < int(first)):
        return None
    start = int(first) if first else max(0, size - int(last))
    stop = min(size, int(last) + 1) if first and last else size
    if start >= stop:
        detail = f"The Range {match.string.decode()!r} starts beyond the last of {size:,} bytes."
        raise refuse("range-not-satisfiable", 416, detail, f"Ask for bytes of 0 to {size - 1}.", size=size)
    return ByteRange(start, stop, size)


def unsatisfiable(error: ProblemError) -> Response:
    """Return the 416 response, with the size."""
    headers = {"Content-Range": f"bytes */{error.problem.details['size']}", **ACCEPT_RANGES}
    return problem_response(error.problem, headers)


class RangedResponse(Response):
    """Complete response with support of ranges."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response or the requested range."""
        await send_body(scope, receive, send, self.raw_headers, bytes(self.body))


async def send_body(scope: Scope, receive: Receive, send: Send, headers: Headers, body: bytes) -> None:
    """Send a complete body with 200, its requested range with 206, or 416."""
    try:
        part = requested_range(scope, headers, len(body))
    except ProblemError as error:
        await unsatisfiable(error)(scope, receive, send)
        return
    if part is not None:
        headers, body = part.partial(headers), body[part.start : part.stop]
    await send({"type": "http.response.start", "status": 206 if part else 200, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
