"""Slow clients: a timeout for each request's head, and limits on connections.

Only a steady stream of bytes keeps one of the limited connections open; no thread waits for any of them.
"""

from __future__ import annotations

import json
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.middleware.access_policy import Proxies
from service.schemas.problems import MEDIA_TYPE, plain_problem, problem_response
from worker.base.problems import Problem

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGIApplication

    from worker.base.settings import Settings

PROBE_PATHS = frozenset({"/livez", "/readyz"})
# Connections beyond the limits that may still carry a probe, and their timeout in seconds. Without them an orchestrator
# would kill a process that is only busy.
MAX_PROBES, MAX_ADDRESS_PROBES, PROBE_SECONDS = 100, 10, 2.0
PATIENCE_SECONDS = 30.0  # for a request's head, for the first byte of its body, and for an idle connection
MAX_CONNECTIONS = 1000  # of a process
MAX_ADDRESS_CONNECTIONS = 800  # of one address in a process, unless it is a trusted proxy
HEAD_BYTES = 64 * 2**10  # of a head or of trailers; the parser itself has no limit

_VERSIONS = frozenset({"1.0", "1.1"})  # the parser also accepts 0.9 and 2.0, whose heads differ


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 protocol of uvicorn with limits on heads and connections, and problem+json for bad requests.

    Beyond the limits a connection serves one probe and closes. A head has a timeout and a maximum size. Trailers after
    a chunked body are ignored, so that no header arrives after the checks.
    """

    proxies: ClassVar[Proxies]
    held: ClassVar[Counter[str]]  # connections by address
    probing: ClassVar[Counter[str]]  # connections beyond the limits, by address
    _timeout: asyncio.TimerHandle | None = None
    _address = ""
    _seconds = 0.0
    _excess: Problem | None = None
    _head_bytes = 0  # received since the last complete head, at most
    _trailer_bytes = 0
    _is_in_head = True
    _is_in_body = False
    _is_continued = False  # whether the head that is parsed is of a request in progress

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's signature
        """Start the timeout of the first head; beyond the limits accept a probe or refuse."""
        super().connection_made(transport)
        self._address, self._seconds = str((self.client or ("", 0))[0]), PATIENCE_SECONDS
        self.held[self._address] += 1
        self._excess = self._connection_problem()
        if self._excess is not None:
            self.probing[self._address] += 1
            if self.probing[self._address] > MAX_ADDRESS_PROBES or self.probing.total() > MAX_PROBES:
                self._refuse(self._excess)
                return
            self.app = _probes_only(self.app, self._excess)
            self._seconds = min(self._seconds, PROBE_SECONDS)
        self._start_timeout()

    def _connection_problem(self) -> Problem | None:
        """Return the problem of a connection beyond the limits, or None."""
        if len(self.connections) > MAX_CONNECTIONS:
            detail, more = f"There are {MAX_CONNECTIONS:,} connections already.", "start more API processes"
        elif self.held[self._address] > MAX_ADDRESS_CONNECTIONS and not self.proxies.trust(self._address):
            detail = f"There are {MAX_ADDRESS_CONNECTIONS:,} connections of {self._address} already."
            more = "name the proxy of many clients in GLLE_TRUSTED_PROXIES"
        else:
            return None
        remedy = f"Try again in some seconds; close unused connections, or {more}."
        return Problem(code="too-many-connections", status=503, detail=detail, remedy=remedy)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the timeout of a head runs from its first byte, or from the end of the last response."""
        self._unset_keepalive_if_required()
        was_in_body = self._is_in_body
        self._head_bytes += len(data)
        try:
            self._parse(data)
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received; the service speaks HTTP/1.1 and HTTP/1.0.")
        if self.transport.is_closing():
            return
        if self._is_in_head and self._head_bytes > HEAD_BYTES:
            self._refuse(plain_problem(431, f"The head of the request has more than {HEAD_BYTES:,} bytes."))
        elif self._is_answering():
            self._cancel_timeout()
        elif was_in_body and not (self._is_in_body or self._is_in_head):  # of a request that was answered before
            self._cancel_timeout()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self._timeout is None:
            self._start_timeout()

    def _parse(self, data: bytes) -> None:
        """Parse bytes; an offer of another protocol, such as HTTP/2, is declined (RFC 9110, section 7.8).

        The parser stops at the end of such a head and takes the body for the other protocol. A new parser continues,
        after a head with the same framing.
        """
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as offer:
            framing = [header for header in self.headers if header[0] in {b"content-length", b"transfer-encoding"}]
            self.parser, self._is_continued = HttpRequestParser(self), True
            self.parser.feed_data(
                b"POST / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % header for header in framing) + b"\r\n"
            )
            self._parse(data[offer.args[0] :])

    def on_message_begin(self) -> None:
        """Begin a head."""
        if not self._is_continued:
            super().on_message_begin()
            self._is_in_head, self._trailer_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; ignore a trailer."""
        if self._is_in_head:
            super().on_header(name, value)
            return
        self._trailer_bytes += len(name) + len(value)
        if self._trailer_bytes > HEAD_BYTES:
            raise ValueError("The trailers are too long.")

    def on_headers_complete(self) -> None:
        """Begin the request, unless it lacks the one Host that HTTP/1.1 requires (RFC 9112, section 3.2)."""
        if self._is_continued:
            self._is_continued = False
            return
        if (version := self.parser.get_http_version()) not in _VERSIONS:
            raise ValueError(version)
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts < 1 and version == "1.1"):
            raise ValueError("A request must have one Host header.")
        self._is_in_head, self._is_in_body, self._head_bytes = False, True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the body, unless another parser continues."""
        if not self.parser.should_upgrade():
            self._is_in_body = False
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout and count the connection as closed."""
        self._cancel_timeout()
        _decrement(self.held, self._address)
        if self._excess is not None:
            _decrement(self.probing, self._address)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP."""
        self._refuse(plain_problem(400, msg))

    def _is_answering(self) -> bool:
        """Return whether a request is in progress."""
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr] # uvicorn's type

    def _start_timeout(self) -> None:
        self._timeout = self.loop.call_later(self._seconds, self._on_timeout)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _on_timeout(self) -> None:
        """Close a connection without a complete head, with the reason."""
        self._timeout = None
        if self.transport.is_closing():
            return
        detail = f"No complete request head arrived in {self._seconds:g} s."
        remedy = "Send the head of a request at once."
        self._refuse(Problem(code="request-timeout", status=408, detail=detail, remedy=remedy))

    def _refuse(self, problem: Problem) -> None:
        """Send a problem if no response has started, and close."""
        if not self._is_answering() or not self.cycle.response_started:
            body = json.dumps(problem.to_dict()).encode()
            headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close"}
            if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
                headers["retry-after"] = "5"
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
            self.transport.write(STATUS_LINE[problem.status] + lines + b"\r\n" + body)
        if self.cycle is not None:
            self.cycle.disconnected = True  # a response in progress ends here
            self.cycle.message_event.set()
        self.transport.close()


def limited_protocol(settings: Settings) -> type[LimitedProtocol]:
    """Return a protocol class with these settings; uvicorn instantiates it for each connection without arguments."""
    proxies = Proxies(settings.trusted_proxies)
    members = {"proxies": proxies, "held": Counter(), "probing": Counter()}
    return type("LimitedProtocol", (LimitedProtocol,), members)


def _probes_only(app: ASGIApplication, problem: Problem) -> ASGIApplication:
    """Return an app that serves probes and refuses other requests; each response closes its connection."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        async def send_last(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        is_probe = scope["type"] == "http" and scope["path"] in PROBE_PATHS
        served: Any = app if is_probe else problem_response(problem)
        await served(scope, receive, send_last)

    return serve


def _decrement(counts: Counter[str], name: str) -> None:
    """Decrement a count, and remove it at zero so that the addresses stay bounded."""
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]
