"""HTTP/1.1 on one connection: uvicorn's h11 protocol, with limits on request heads and on chunks.

By default, h11 parses all received bytes without a pause, on the event loop. Here a connection parses at most
`EVENTS_PER_ITERATION` events of h11 (heads, chunks and ends of messages) in one iteration of the event loop, so that
other connections are served in between. If a response begins before a long body has arrived, the connection is closed.
httptools parses faster, but it sends chunks to clients of HTTP/1.0, accepts a missing or repeated Host, and adds
trailers to the headers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.schemas.problems import MEDIA_TYPE, plain_problem
from worker.base.problems import Problem

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

MAX_HEAD_BYTES = 64 * 2**10  # a request line and headers with more bytes together are refused
MAX_HEAD_LINES = 200  # lines of a request's head; browsers behind two proxies send some 40
MAX_SMALL_CHUNKS = 2**14  # a body may have this many chunks, plus one for each `MIN_CHUNK_BYTES` received bytes
MIN_CHUNK_BYTES = 64
EVENTS_PER_ITERATION = 32  # events that a connection parses in one iteration of the event loop, in less than 1 ms
SHORT_BODY_BYTES = 64 * 2**10  # a refused body of at most this many bytes is read, and the connection stays open
LINGER_SECONDS = 30.0  # a refused body is discarded for this long: some clients read only after sending it all


class BoundedConnection(h11.Connection):
    """An `h11.Connection` that refuses long request heads and many tiny chunks, and can be paused between two events.

    Attributes
    ----------
    events_left
        Number of events that `next_event` may still return before it returns `h11.PAUSED`. The protocol sets it anew
        in each iteration of the event loop.
    error
        The last protocol error that was raised for the client's bytes, or None.

    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.events_left = EVENTS_PER_ITERATION
        self.error: h11.RemoteProtocolError | None = None
        self._chunks, self._chunk_bytes = 0, 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """Return the next event, or `h11.PAUSED` if `events_left` is 0.

        Raises `h11.RemoteProtocolError` if the client's bytes are not HTTP, or exceed a limit.
        """
        if not self.events_left:
            return h11.PAUSED
        try:
            if self.their_state is h11.IDLE:
                self._require_short_head()
            event = super().next_event()
            if isinstance(event, h11.Request):
                self._chunks, self._chunk_bytes = 0, 0
            elif isinstance(event, h11.Data):
                self._count_chunk(event)
        except h11.RemoteProtocolError as error:
            self.error = error
            raise
        self.events_left -= event is not h11.NEED_DATA and event is not h11.PAUSED
        return event

    def _require_short_head(self) -> None:
        """Raise `h11.RemoteProtocolError` if the head in the buffer is too long; h11 limits incomplete heads only."""
        head = self.trailing_data[0]
        ends = [end for end in (head.find(b"\n\r\n"), head.find(b"\n\n")) if end >= 0]
        size = min(ends, default=len(head))
        lines = head.count(b"\n", 0, size)
        if size > MAX_HEAD_BYTES or lines > MAX_HEAD_LINES:
            raise h11.RemoteProtocolError(
                f"The request line and headers have {lines:,} lines and {size:,} bytes together, above the limit of "
                f"{MAX_HEAD_LINES} lines and {MAX_HEAD_BYTES:,} bytes",
                431,
            )

    def _count_chunk(self, data: h11.Data) -> None:
        self._chunks += data.chunk_start
        self._chunk_bytes += len(data.data)
        if self._chunks > MAX_SMALL_CHUNKS + self._chunk_bytes // MIN_CHUNK_BYTES:
            average = self._chunk_bytes / self._chunks
            raise h11.RemoteProtocolError(
                f"The body came in {self._chunks:,} chunks of {average:.3g} bytes on average", 413
            )


class _Flow(FlowControl):
    """Uvicorn's flow control, which does not resume reading while received bytes are still to be parsed (`is_held`)."""

    is_held = False

    def resume_reading(self) -> None:
        """Resume reading from the socket, unless received bytes are still to be parsed (`is_held`)."""
        if not self.is_held:
            super().resume_reading()


class _Transport:
    """Wrapper of an asyncio transport, whose `close` first discards the rest of a request body that is still arriving.

    If the socket were closed at once, the kernel would answer further bytes with a reset, and a client that is still
    sending would lose the response.
    """

    def __init__(self, transport: asyncio.Transport, protocol: HttpProtocol) -> None:
        self._transport = transport
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether the connection is closing, or only discards what still arrives (see `HttpProtocol.linger`)."""
        return self._protocol.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close the connection; if a request is still arriving, the first call starts `HttpProtocol.linger` instead."""
        if self._protocol.is_lingering or self._transport.is_closing() or not self._protocol.is_arriving:
            self._transport.close()
        else:
            self._protocol.linger(self._transport)


class HttpProtocol(H11Protocol):
    """Uvicorn's h11 protocol with limits on request heads and chunks, which parses a few events at a time."""

    flow: _Flow

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn: BoundedConnection = BoundedConnection(h11.SERVER, MAX_HEAD_BYTES)
        self.is_lingering = False
        self._lingering: asyncio.TimerHandle | None = None
        self._app = cast("ASGIApp", self.app)
        self.app = cast("Any", self._respond)

    @property
    def is_arriving(self) -> bool:
        """Whether bytes of a request may still arrive.

        This is so if its body is incomplete, and also if the request was malformed, because its end is then unknown.
        """
        return self.conn.their_state in {h11.SEND_BODY, h11.ERROR} or self.conn.error is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Set up a new connection, with `_Transport` and `_Flow` in place of the classes that uvicorn uses."""
        super().connection_made(cast("asyncio.Transport", _Transport(transport, self)))
        self.flow = _Flow(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a closed connection, and cancel the timer that `linger` has set."""
        if self._lingering is not None:
            self._lingering.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, but discard them after a call of `linger`.

        `linger` is called instead of closing a connection on which a request is still arriving. The connection then
        stays open only so that the client can finish sending and read the response.
        """
        if not self.is_lingering:
            super().data_received(data)

    def handle_events(self) -> None:
        """Parse at most `EVENTS_PER_ITERATION` received events; the rest is parsed in later event loop iterations."""
        if self.transport.is_closing():
            return
        was_held, self.flow.is_held = self.flow.is_held, False
        self.conn.events_left = EVENTS_PER_ITERATION
        super().handle_events()
        if not self.conn.events_left:
            self.flow.pause_reading()
            self.flow.is_held = True
            self.loop.call_soon(self.handle_events)
        elif was_held and len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def linger(self, transport: asyncio.Transport) -> None:
        """End the stream to the client, discard what the client still sends, and close after `LINGER_SECONDS`."""
        self.is_lingering = True
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None:  # the request was malformed, so its route must stop
            cycle.disconnected = True
            cycle.message_event.set()
        self._unset_keepalive_if_required()
        if transport.can_write_eof():
            transport.write_eof()
        transport.resume_reading()
        self._lingering = self.loop.call_later(LINGER_SECONDS, transport.close)

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed or too large request with problem+json, unless a response has begun; then close."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            problem = _problem(self.conn.error, msg)
            body = json.dumps(problem.to_dict()).encode()
            headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(body))), ("connection", "close")]
            for event in (
                h11.Response(status_code=problem.status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the app; if the response starts before a long body has arrived, close the connection."""

        async def send_closing(message: Message) -> None:
            is_start = message["type"] == "http.response.start"
            if is_start and self.conn.their_state is h11.SEND_BODY and self._has_long_rest(scope):
                message["headers"] = [*message.get("headers", ()), CLOSE_HEADER]
            await send(message)

        await self._app(scope, receive, send_closing)

    def _has_long_rest(self, scope: Scope) -> bool:
        """Return whether a request's body is long, of unknown length, or sent only after a `100 Continue`."""
        length = next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)
        return length is None or length > SHORT_BODY_BYTES or self.conn.they_are_waiting_for_100_continue


def _problem(error: h11.RemoteProtocolError | None, detail: str) -> Problem:
    """Return the problem for a request that exceeds a limit (`error`, status 431 or 413), or is not valid HTTP."""
    status = 400 if error is None else error.error_status_hint
    if status == 431:
        return Problem(
            code="head-too-long",
            status=431,
            detail=f"{error}; {MAX_HEAD_LINES} lines and {MAX_HEAD_BYTES:,} bytes are allowed.",
            remedy="Send fewer and shorter headers, and a shorter query.",
        )
    if status == 413:
        return Problem(
            code="chunks-too-small",
            status=413,
            detail=f"{error}.",
            remedy=f"Send chunks of at least {MIN_CHUNK_BYTES} bytes, or the whole body with a Content-Length.",
        )
    return plain_problem(400, f"{detail} {error or ''}".strip().rstrip(".") + ".")
