"""Parts of answers whose every byte is known: one `Range`, bound to the strong ETag by `If-Range` (RFC 9110, 14).

Of several ranges at once the whole is sent, as the standard allows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from service.schemas.problems import answer
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

OFFERED = {"Accept-Ranges": "bytes"}
_ONE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` to `stop`, half open, of `size`."""

    start: int
    stop: int
    size: int

    @property
    def told(self) -> bytes:
        """The value of Content-Range."""
        return b"bytes %d-%d/%d" % (self.start, self.stop - 1, self.size)

    def partial(self, headers: Headers) -> Headers:
        """Return the headers of the whole as those of this part."""
        kept = [(name, value) for name, value in headers if name != b"content-length"]
        return [*kept, (b"content-length", b"%d" % (self.stop - self.start)), (b"content-range", self.told)]


def header(scope: Scope, wanted: bytes) -> bytes:
    """Return a request's header as Starlette joins it when it comes more than once; empty when there is none."""
    found = [value for name, value in scope["headers"] if name == wanted]
    return found[0] if len(found) == 1 else b", ".join(found)


def requested_range(scope: Scope, headers: Headers, size: int) -> ByteRange | None:
    """Return the part that a request wants of an answer with these headers; None: the whole.

    A Range that is malformed, has several parts, or whose If-Range is not the ETag, is not heeded.

    Raises
    ------
    ProblemError
        ``range-not-satisfiable``: it begins behind the last byte.

    """
    given = header(scope, b"range")
    if not given or (matched := _ONE.fullmatch(given.strip().lower())) is None:
        return None
    known = dict(headers)
    if b"accept-ranges" not in known:
        return None
    first, last = matched.groups()
    condition = header(scope, b"if-range").strip()
    if (
        (condition and condition != known.get(b"etag"))
        or not (first or last)
        or (first and last and int(last) < int(first))
    ):
        return None
    start = int(first) if first else max(0, size - int(last))
    stop = min(size, int(last) + 1) if first and last else size
    if start >= stop:
        detail = f"The Range {matched.string.decode()!r} lies behind the last of {size:,} bytes."
        raise refuse("range-not-satisfiable", 416, detail, f"Ask for bytes of 0 to {size - 1}.", size=size)
    return ByteRange(start, stop, size)


def unsatisfiable(error: ProblemError) -> Response:
    """Return the answer to a Range that nothing lies in, with the size."""
    return answer(error.problem, {"Content-Range": f"bytes */{error.problem.details['size']}", **OFFERED})


class RangedResponse(Response):
    """An answer that is there in one piece, of which a part may be asked for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, or the part that is asked for."""
        await deliver(scope, receive, send, self.raw_headers, bytes(self.body))


async def deliver(scope: Scope, receive: Receive, send: Send, headers: Headers, body: bytes) -> None:
    """Send a whole body with 200, the part that is asked for with 206, or 416."""
    try:
        span = requested_range(scope, headers, len(body))
    except ProblemError as error:
        await unsatisfiable(error)(scope, receive, send)
        return
    if span is not None:
        headers, body = span.partial(headers), body[span.start : span.stop]
    await send({"type": "http.response.start", "status": 206 if span else 200, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
