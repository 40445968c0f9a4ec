"""How long a request may take to come: whoever sends a byte at a time holds a connection, and not for long.

A connection has a time for each request's head, a body a time for its begin and a least speed from then on. So it takes
a steady stream of bytes to hold one of the connections that there may be; no thread waits for any of them.
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
from service.schemas.problems import MEDIA_TYPE, answer, plain
from worker.base.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn._types import ASGIApplication

    from worker.base.settings import Settings

PROBED = frozenset({"/livez", "/readyz"})
# Connections beyond the limits that may still bring a probe, for so long each: so an orchestrator does not kill a
# process that is only busy.
PROBES, PROBES_OF_ADDRESS, PROBE_SECONDS = 100, 10, 2.0


class SlowBodyMiddleware:
    """Answers 408 where a body comes more slowly than is allowed.

    Parameters
    ----------
    seconds
        Until it must have begun; each stall may take as long, as far as the speed of the whole allows.
    speed
        Least bytes a second; 0: any.

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
        started, came, more = time.monotonic(), 0, True

        async def receive_in_time() -> Message:
            nonlocal came, more
            if not more:
                return await receive()
            left = self._seconds + came / self._speed - (time.monotonic() - started)
            try:
                async with asyncio.timeout(max(0.0, left)):
                    message = await receive()
            except TimeoutError:
                raise self._too_slow(came) from None
            came += len(message.get("body", b""))
            more = message.get("more_body", False)
            return message

        await self._app(scope, receive_in_time, send)

    def _too_slow(self, came: int) -> HTTPException:
        """Return what the framework lets through, wherever it reads the body, and answers with a problem."""
        detail = f"{came:,} bytes of the body came, more slowly than {self._speed:,} bytes a second"
        return HTTPException(408, detail, {"Connection": "close"})  # what comes after it is no request


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a time for each head; what is no HTTP is answered by a problem, too.

    Connections beyond the limits are answered on the paths of probes alone, and closed.
    """

    settings: ClassVar[Settings]
    proxies: ClassVar[Proxies]
    held: ClassVar[Counter[str]]  # connections by address
    probing: ClassVar[Counter[str]]  # those beyond the limits
    _late: asyncio.TimerHandle | None = None
    _address = ""
    _seconds = 0.0
    _beyond: Problem | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for the first head; beyond the limits for a probe's, or turn away what is too many."""
        super().connection_made(transport)
        self._address, self._seconds = str((self.client or ("", 0))[0]), self.settings.patience
        self.held[self._address] += 1
        self._beyond = self._too_many()
        if self._beyond is not None:
            self.probing[self._address] += 1
            if self.probing[self._address] > PROBES_OF_ADDRESS or self.probing.total() > PROBES:
                self._refuse(self._beyond)
                return
            self.app = _for_probes(self.app, self._beyond)
            self._seconds = min(self._seconds, PROBE_SECONDS)
        self._wait()

    def _too_many(self) -> Problem | None:
        """Return the problem of a connection beyond the limits, or None."""
        most, of_address = self.settings.max_connections, self.settings.max_address
        if most and len(self.connections) > most:
            detail, setting = f"There are {most:,} connections already.", "GLLE_MAX_CONNECTIONS"
        elif of_address and self.held[self._address] > of_address and not self.proxies.trust(self._address):
            detail = f"There are {of_address:,} connections of {self._address} already."
            setting = "GLLE_MAX_ADDRESS, or name the proxy of many clients in GLLE_TRUSTED_PROXIES"
        else:
            return None
        remedy = f"Try again in some seconds; close connections that are not used, or raise {setting}."
        return Problem(code="too-many-connections", status=503, detail=detail, remedy=remedy)

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that has begun is waited for from its first one on."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            if self._late is None:
                self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop_waiting()
        _less(self.held, self._address)
        if self._beyond is not None:
            _less(self.probing, self._address)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(plain(400, msg))

    def _wait(self) -> None:
        self._late = self.loop.call_later(self._seconds, self._on_late)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _on_late(self) -> None:
        """Close a connection whose request has not come; where some of it came, say why."""
        self._late = None
        if self.transport.is_closing():
            return
        detail = f"No whole request came in {self._seconds:g} s."
        remedy = "Send the head of a request at once, or raise GLLE_PATIENCE."
        self._refuse(Problem(code="request-timeout", status=408, detail=detail, remedy=remedy))

    def _refuse(self, problem: Problem) -> None:
        """Answer, where that is still to be done, and close."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = json.dumps(problem.to_dict()).encode()
            retry: list[Any] = [("Retry-After", "5")] if problem.status == 503 else []
            headers = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(body))), ("Connection", "close")]
            head = h11.Response(status_code=problem.status, headers=[*headers, *retry])
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def limited_protocol(settings: Settings) -> type[LimitedProtocol]:
    """Return the protocol with these settings: the server makes one a connection, and gives it none."""
    proxies = Proxies(settings.trusted_proxies)
    return type(
        "LimitedProtocol",
        (LimitedProtocol,),
        {"settings": settings, "proxies": proxies, "held": Counter(), "probing": Counter()},
    )


def _for_probes(app: ASGIApplication, problem: Problem) -> ASGIApplication:
    """Return an app that answers probes, and everything else with a problem; each answer ends its connection."""

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        async def send_last(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        served: Any = app if scope["type"] == "http" and scope["path"] in PROBED else answer(problem)
        await served(scope, receive, send_last)

    return guarded


def _less(counts: Counter[str], name: str) -> None:
    """Take one from a count; a name without any is forgotten."""
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]


def _has_body(scope: Scope) -> bool:
    """Say whether a request announces a body."""
    return any(name in {b"content-length", b"transfer-encoding"} and value != b"0" for name, value in scope["headers"])
