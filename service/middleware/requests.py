"""The middleware that every request passes: request id, errors, metrics, HEAD, authentication, limits, answer cache.

It is a single middleware, because each further one would cost two calls for each message of each request. Routes never
read an API key; they get the tenant's view of the stores (`worker.stores.Stores.for_tenant`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import redis

from service.encoding.representations import compress_json
from service.middleware import access_policy
from service.middleware.access_policy import required_scope
from service.middleware.answer_cache import AnswerCache, send_answer
from service.middleware.fair_scheduling import FairScheduler
from service.schemas.addresses import address, prefix
from service.schemas.problems import internal_error, problem_response
from worker.base.problems import ProblemError
from worker.connections.failures import redis_problem
from worker.observability.request_context import REQUEST_ID, REQUEST_MS
from worker.records.ids import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from threading import Event

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from service.middleware.access_policy import AccessPolicy
    from service.middleware.request_limits import RequestLimits

PROBE_PATHS = frozenset({"/livez", "/readyz", "/metrics"})  # probes request these every few seconds: no waits, no log
NOT_FOUND_STEP_SECONDS = 0.02
TENANT = "glle.tenant"  # key of the ASGI scope of an authenticated request
_NO_TENANT = ""  # requests for open paths and refused requests are scheduled like those of a single tenant
_STARTED = "glle.started"  # key of the ASGI scope: whether the response has started
_REALM = 'Bearer realm="glle"'
_CHALLENGES = {  # RFC 6750
    "key-required": _REALM,
    "invalid-key": _REALM + ', error="invalid_token"',
    "scope-missing": _REALM + ', error="insufficient_scope"',
}

_ADDRESSES = frozenset({b"location", b"content-location"})  # headers whose values are paths of the API

access_log = logging.getLogger("glle.access")


@dataclass(eq=False)
class RequestMiddleware:
    """ASGI middleware that authenticates, limits, answers, counts and logs every request.

    Parameters
    ----------
    on_deletion
        Called without arguments at the end of each DELETE.
    observe
        Called after each response with method, the route's path template, status, and `time.perf_counter` at the start.
    draining
        Event; while it is set, responses close their connection.
    origins
        Setting GLLE_CORS_ORIGINS: the origins whose pages may read responses, separated by commas.

    """

    app: ASGIApp
    policy: AccessPolicy
    limits: RequestLimits
    cache: AnswerCache
    on_deletion: Callable[[], object]
    observe: Callable[[str, str, int, float], None]
    draining: Event
    origins: str
    has_access_log: bool

    def __post_init__(self) -> None:
        self._resource_policy = b"cross-origin" if self.origins.strip() else b"same-origin"
        self._scheduler = FairScheduler()
        self._respond = access_policy.with_cors(self._respond_safely, self.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request: add the common headers to its response, and then count and log the response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        self.policy.proxies.remove_prefix(scope)
        request_id = _request_id(scope)
        REQUEST_ID.set(request_id.decode())  # each request runs in its own context
        REQUEST_MS.set(time.time_ns() // 1_000_000)
        status, size = 500, 0

        async def send_observed(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                scope[_STARTED] = True
                status = message["status"]
                milliseconds = (time.perf_counter() - started) * 1000
                # No route sets these headers, so they can be appended raw, which takes 1 us instead of 10.
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id),
                    (b"x-content-type-options", b"nosniff"),
                    (b"cross-origin-resource-policy", self._resource_policy),
                    (b"server-timing", b"app;dur=%.1f" % milliseconds),
                ]
                if prefix():
                    message["headers"] = [
                        (name, address(value.decode("latin-1")).encode("latin-1") if name in _ADDRESSES else value)
                        for name, value in message["headers"]
                    ]
                if self.draining.is_set():
                    message["headers"].append((b"connection", b"close"))
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._respond(scope, receive, send_observed)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")  # the template, so that the metrics have few labels
            self.observe(scope["method"], route, status, started)
            if self.has_access_log:
                _log(scope, route, status, size, time.perf_counter() - started)

    async def _respond_safely(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request; turn an unhandled exception into problem+json, and keep the connection open.

        Starlette's ServerErrorMiddleware is the outermost one, so its response would lack the request id. It also
        raises the error again, and the server then closes the connection without notice, so that the next request on
        the connection would be reset.
        """
        try:
            if scope["method"] == "HEAD":
                await _respond_to_head(self._answer, scope, send)
            else:
                await self._answer(scope, receive, send)
        except Exception as error:
            if _STARTED in scope:
                raise
            await _failure(error)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate a request, wait until its tenant may begin it, and answer it from the cache or by its route."""
        method: str = scope["method"]
        scope[TENANT] = DEFAULT
        if required_scope(scope["path"], method) is None:
            if scope["path"] not in PROBE_PATHS:  # probes do not wait
                await self._scheduler.begin(_NO_TENANT)
        else:
            try:
                scope[TENANT], is_alone = await self.policy.admit(scope)
            except ProblemError:
                await self._scheduler.begin(_NO_TENANT)
                raise
            await self._scheduler.begin(scope[TENANT])
            if not is_alone:
                send = pad_not_found(send)
        send = compress_json(scope, send)
        answer = await self.cache.find(scope) if method == "GET" else None
        if answer is not None:
            scope["route"] = answer.route
            await send_answer(answer, scope, receive, send)
            return
        try:
            await self.limits.serve(self.app, scope, receive, send, scope[TENANT])
        finally:
            if method == "DELETE":
                self.on_deletion()


def pad_not_found(
    send: Send,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Send:
    """Return a `send` that delays a 404 until the time since this call is a multiple of `NOT_FOUND_STEP_SECONDS`.

    To refuse the id of another tenant's resource, the service reads the resource's record, which takes some 100 us
    longer than to refuse an unknown id. The delay hides this difference.
    """
    started = clock()

    async def send_padded(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
            elapsed = clock() - started
            await sleep(math.ceil(elapsed / NOT_FOUND_STEP_SECONDS) * NOT_FOUND_STEP_SECONDS - elapsed)
        await send(message)

    return send_padded


async def _respond_to_head(app: ASGIApp, scope: Scope, send: Send) -> None:
    """Serve a HEAD like a GET whose client disconnects after the headers, so that a streamed body ends early."""
    answered = asyncio.Event()
    is_body_read = False

    async def receive_until_answered() -> Message:
        nonlocal is_body_read
        if not is_body_read:
            is_body_read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            scope["route"] = get_scope.get("route")  # for the metrics
            await send(message)
            await send({"type": "http.response.body", "body": b""})
            answered.set()

    # Starlette watches for a disconnect while it streams a body only if the server claims a version of the ASGI
    # specification below 2.4. Here it must watch, so that the disconnect after the headers ends the body.
    get_scope = {**scope, "method": "GET", "asgi": {**scope["asgi"], "spec_version": "2.3"}}
    await app(get_scope, receive_until_answered, send_headers)


def _failure(error: Exception) -> Response:
    """Return the error response for an exception: its problem if it has one, 503 for Redis, 500 for anything else."""
    if isinstance(error, ProblemError):
        challenge = _CHALLENGES.get(error.problem.code)
        return problem_response(error.problem, {} if challenge is None else {"WWW-Authenticate": challenge})
    return problem_response(redis_problem(error)) if isinstance(error, redis.RedisError) else internal_error(error)


def _log(scope: Scope, route: str, status: int, size: int, seconds: float) -> None:
    """Write a line of the access log: method, route, status, duration and bytes, but not the query."""
    fields = {
        "method": scope["method"],
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 2),
        "bytes": size,
    }
    is_probe = route in PROBE_PATHS and status < HTTPStatus.BAD_REQUEST
    level = logging.DEBUG if is_probe else logging.INFO
    access_log.log(level, "%s %s", scope["method"], scope["path"], extra={"fields": fields})


def _request_id(scope: Scope) -> bytes:
    """Return the client's X-Request-Id if it is alphanumeric, of at most 64 characters; otherwise a new random id."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and value.isalnum() and len(value) <= 64:
            return bytes(value)
    return secrets.token_hex(8).encode()
