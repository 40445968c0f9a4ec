"""Slow clients: a timeout for each request's head, a minimum speed for its body, and limits on connections.

Only a steady stream of bytes keeps one of the limited connections open; no thread waits for any of them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import h11
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.middleware.proxies import Proxies
from service.schemas.problems import MEDIA_TYPE, plain_problem, problem_response
from worker.base.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn._types import ASGIApplication

    from worker.base.settings import Settings

PROBE_PATHS = frozenset({"/livez", "/readyz"})
# Connections beyond the limits that may still carry a probe, and their timeout in seconds. Without them an orchestrator
# would kill a process that is only busy.
MAX_PROBES, MAX_ADDRESS_PROBES, PROBE_SECONDS = 100, 10, 2.0


class SlowBodyMiddleware:
    """Response 408 to a body that arrives too slowly.

    After `size` bytes the deadline is ``seconds + size / speed``, in seconds and bytes per second; speed 0 disables it.
    """

    def __init__(self, app: ASGIApp, seconds: float, speed: int) -> None:
        self._app = app
        self._seconds = seconds
        self._speed = speed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not self._speed or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        started, size, has_more = time.monotonic(), 0, True

        async def receive_in_time() -> Message:
            nonlocal size, has_more
            if not has_more:
                return await receive()
            remaining = self._seconds + size / self._speed - (time.monotonic() - started)
            try:
                async with asyncio.timeout(max(0.0, remaining)):
                    message = await receive()
            except TimeoutError:
                # Frameworks pass an HTTPException through wherever they read the body. Later bytes are no request.
                detail = f"{size:,} bytes of the body arrived, more slowly than {self._speed:,} bytes a second"
                raise HTTPException(408, detail, {"Connection": "close"}) from None
            size += len(message.get("body", b""))
            has_more = message.get("more_body", False)
            return message

        await self._app(scope, receive_in_time, send)


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 protocol of uvicorn with a timeout for each head, connection limits and problem+json for bad requests.

    Beyond the limits a connection serves one probe and closes.
    """

    settings: ClassVar[Settings]
    proxies: ClassVar[Proxies]
    held: ClassVar[Counter[str]]  # connections by address
    probing: ClassVar[Counter[str]]  # connections beyond the limits, by address
    _timeout: asyncio.TimerHandle | None = None
    _address = ""
    _seconds = 0.0
    _excess: Problem | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's signature
        """Start the timeout of the first head; beyond the limits accept a probe or refuse."""
        super().connection_made(transport)
        self._address, self._seconds = str((self.client or ("", 0))[0]), self.settings.patience
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
        limit, address_limit = self.settings.max_connections, self.settings.max_address
        if limit and len(self.connections) > limit:
            detail, setting = f"There are {limit:,} connections already.", "GLLE_MAX_CONNECTIONS"
        elif address_limit and self.held[self._address] > address_limit and not self.proxies.trust(self._address):
            detail = f"There are {address_limit:,} connections of {self._address} already."
            setting = "GLLE_MAX_ADDRESS, or name the proxy of many clients in GLLE_TRUSTED_PROXIES"
        else:
            return None
        remedy = f"Try again in some seconds; close unused connections, or raise {setting}."
        return Problem(code="too-many-connections", status=503, detail=detail, remedy=remedy)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the timeout of a head runs from its first byte."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            if self._timeout is None:
                self._start_timeout()
        else:
            self._cancel_timeout()

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
        remedy = "Send the head of a request at once, or raise GLLE_PATIENCE."
        self._refuse(Problem(code="request-timeout", status=408, detail=detail, remedy=remedy))

    def _refuse(self, problem: Problem) -> None:
        """Send a problem if no response has started, and close."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = json.dumps(problem.to_dict()).encode()
            retry: list[Any] = [("Retry-After", "5")] if problem.status == 503 else []
            headers = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(body))), ("Connection", "close")]
            head = h11.Response(status_code=problem.status, headers=[*headers, *retry])
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def limited_protocol(settings: Settings) -> type[LimitedProtocol]:
    """Return a protocol class with these settings; uvicorn instantiates it for each connection without arguments."""
    proxies = Proxies(settings.trusted_proxies)
    members = {"settings": settings, "proxies": proxies, "held": Counter(), "probing": Counter()}
    return type("LimitedProtocol", (LimitedProtocol,), members)


def _probes_only(app: ASGIApplication, problem: Problem) -> ASGIApplication:
    """Return an app that serves probes and refuses other requests; each response closes its connection."""

    async def limited(scope: Any, receive: Any, send: Any) -> None:
        async def send_last(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        is_probe = scope["type"] == "http" and scope["path"] in PROBE_PATHS
        served: Any = app if is_probe else problem_response(problem)
        await served(scope, receive, send_last)

    return limited


def _decrement(counts: Counter[str], name: str) -> None:
    """Decrement a count, and remove it at zero so that the addresses stay bounded."""
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]


def _has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    return any(name in {b"content-length", b"transfer-encoding"} and value != b"0" for name, value in scope["headers"])
