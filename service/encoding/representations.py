"""Byte ranges of responses, and JSON compressed by gzip.

A `Range` selects bytes of a complete representation, and `If-Range` binds it to the strong ETag of that representation
(RFC 9110, 14). If a request has several ranges, the answer is the whole representation, as the standard allows.

gzip saves only 3 % of float arrays at a hundred times the cost, so only JSON is compressed. A compressed body is
another representation, so its strong ETag is the plain ETag with the suffix `-gzip`. Both ETags name the same content,
and If-None-Match may have either. Of Starlette's GZipMiddleware only the responders are used, because the middleware
ignores `q=0`, keeps the ETag, and compresses streams below its minimum size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.middleware.gzip import GZipResponder, IdentityResponder
from starlette.responses import Response

from service.schemas.problems import problem_response
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Message, Receive, Scope, Send

ACCEPT_RANGES = {"Accept-Ranges": "bytes"}
_SINGLE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")

Headers = list[tuple[bytes, bytes]]
MIN_COMPRESSED_BYTES = 1024  # a shorter body is not compressed
GZIP_LEVEL = 1  # JSON numbers shrink to 48 %, with level 4 to 46 % in twice the time, with 9 to 45 % in ten times
MIN_THREAD_BYTES = 16 * 2**10  # fewer bytes are compressed on the event loop, because a thread would take longer
_SUFFIX = b'-gzip"'
_JSON = {(b"content-type", b"application/json"), (b"content-type", b"application/problem+json")}


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` to `stop` (half open) of a representation of `size` bytes."""

    start: int
    stop: int
    size: int

    def partial(self, headers: Headers) -> Headers:
        """Return the headers of the 206 response, made from the headers of the complete response."""
        kept = [(name, value) for name, value in headers if name != b"content-length"]
        content_range = b"bytes %d-%d/%d" % (self.start, self.stop - 1, self.size)
        return [*kept, (b"content-length", b"%d" % (self.stop - self.start)), (b"content-range", content_range)]


def header(scope: Scope, name: bytes) -> bytes:
    """Return the value of a request header, empty if it is missing; repeated headers are joined by commas."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0] if len(values) == 1 else b", ".join(values)


def matches_strongly(if_match: bytes, etag: bytes) -> bool:
    """Return whether If-Match lists `etag`, of uncompressed content, or the ETag of this content with gzip.

    Weak ETags never match.
    """
    return not {tag.strip() for tag in if_match.split(b",")}.isdisjoint({b"*", etag, gzip_tag(etag)})


def requested_range(scope: Scope, headers: Headers, size: int) -> ByteRange | None:
    """Return the byte range that a request asks for, or None if the complete response is to be sent.

    `headers` and `size` belong to the complete response. A Range is ignored if it is malformed, if it has several
    parts, or if If-Range is not the ETag. Raises `ProblemError` (``range-not-satisfiable``) for a Range that starts
    beyond the last byte.
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
        detail = f"The header Range: {match.string.decode()!r} starts beyond the end of the file, which has {size:,} "
        detail += "bytes."
        raise refuse("range-not-satisfiable", 416, detail, f"Ask for bytes 0 to {size - 1}.", size=size)
    return ByteRange(start, stop, size)


def unsatisfiable(error: ProblemError) -> Response:
    """Return the 416 response for the error of `requested_range`; its Content-Range has the complete size."""
    headers = {"Content-Range": f"bytes */{error.problem.details['size']}", **ACCEPT_RANGES}
    return problem_response(error.problem, headers)


class RangedResponse(Response):
    """Response whose body is in memory, with support for byte ranges."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response or the requested range."""
        await send_body(scope, receive, send, self.raw_headers, bytes(self.body))


async def send_body(scope: Scope, receive: Receive, send: Send, headers: Headers, body: bytes) -> None:
    """Send a body: complete with 200, the requested range of it with 206, or 416 for a range that it does not have."""
    try:
        byte_range = requested_range(scope, headers, len(body))
    except ProblemError as error:
        await unsatisfiable(error)(scope, receive, send)
        return
    if byte_range is not None:
        headers, body = byte_range.partial(headers), body[byte_range.start : byte_range.stop]
    await send({"type": "http.response.start", "status": 206 if byte_range else 200, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


def compress_json(scope: Scope, send: Send) -> Send:
    """Return a `send` that compresses JSON responses by gzip if the client accepts it."""
    forward = send

    async def send_compressed(message: Message) -> None:
        nonlocal forward
        if message["type"] == "http.response.start":
            if message["status"] == HTTPStatus.NOT_MODIFIED:  # without a body, though it may have a Content-Type
                _tag(message, lambda tag: gzip_tag(tag) in header(scope, b"if-none-match"))
            elif not _JSON.isdisjoint(message["headers"]):
                forward = _compressing(scope, send)
        await forward(message)

    return send_compressed


def _compressing(scope: Scope, send: Send) -> Send:
    """Return a `send` for one JSON response, which compresses a body that is not short if the client accepts gzip.

    The first pieces of a streamed body are joined, so that Starlette's responder sees a short body as a whole.
    """
    is_accepted = accepts_gzip(header(scope, b"accept-encoding"))
    responder = (
        GZipResponder(
            _no_app, MIN_COMPRESSED_BYTES, GZIP_LEVEL, thread_minimum_size=MIN_THREAD_BYTES, exclude_content_types=()
        )
        if is_accepted
        else IdentityResponder(_no_app, MIN_COMPRESSED_BYTES, exclude_content_types=())
    )
    start: bytearray | None = bytearray()

    async def send_tagged(message: Message) -> None:
        if message["type"] == "http.response.start":
            _tag(message, lambda _: (b"content-encoding", b"gzip") in message["headers"])
        await send(message)

    async def send_joined(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.body" and start is not None:
            start += message.get("body", b"")
            if message.get("more_body") and len(start) < MIN_COMPRESSED_BYTES:
                return
            message["body"], start = bytes(start), None
        await responder.send_with_compression(message)

    responder.send = send_tagged
    return send_joined


def _tag(message: Message, is_gzip: Callable[[bytes], bool]) -> None:
    """Replace the ETag of a response by the ETag for the same content compressed by gzip, if `is_gzip` returns true.

    `is_gzip` is called with the present ETag. It returns whether the body is sent compressed, or, if the response is
    304 and has no body, whether the client has the compressed body already.
    """
    headers = message["headers"]
    for index, (name, value) in enumerate(headers):
        if name == b"etag" and is_gzip(value):
            headers[index] = (name, gzip_tag(value))


async def _no_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve nothing: Starlette's responders need an app, but here they only get messages of the real app."""


def accepts_gzip(accepted: bytes) -> bool:
    """Return whether an Accept-Encoding header allows gzip, by name or by `*`, with a quality above 0."""
    accepted = accepted.lower()
    if b"gzip" not in accepted and b"*" not in accepted:
        return False
    qualities: dict[bytes, float] = {}
    for element in accepted.split(b","):
        coding, _, parameter = element.partition(b";")
        try:
            qualities[coding.strip()] = float(parameter.strip().removeprefix(b"q=") or 1)
        except ValueError:
            continue
    return qualities.get(b"gzip", qualities.get(b"*", 0)) > 0


def gzip_tag(etag: bytes) -> bytes:
    """Return the ETag for content compressed by gzip; `etag` is the ETag of the same content without compression."""
    return etag[:-1] + _SUFFIX


def matches_tag(if_none_match: bytes, etag: bytes) -> bool:
    """Return whether If-None-Match lists `etag`, of uncompressed content, or the ETag of this content with gzip."""
    tags = {tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")}
    return not tags.isdisjoint({b"*", etag, gzip_tag(etag)})
