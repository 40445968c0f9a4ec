"""Authentication: set the tenant of each request, count it against the rate limit, and pad 404 responses.

Routes never read a key; they get the tenant's view of the stores (`worker.stores.Stores.of`). The middleware precedes
every source of responses, the answer cache included.
"""

from __future__ import annotations

import asyncio
import math
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import redis

from service.middleware.access_policy import METRICS, required_scope
from service.schemas.problems import problem_response, redis_problem
from worker.base.problems import ProblemError
from worker.connections.event_loop import on_loop
from worker.records.ids import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from service.middleware.access_policy import AccessPolicy
    from service.middleware.rate_limit import RateLimiter

NOT_FOUND_STEP_SECONDS = 0.02
_TENANT = "glle.tenant"  # key of the ASGI scope
_REALM = 'Bearer realm="glle"'
_CHALLENGES = {  # RFC 6750
    "key-required": _REALM,
    "invalid-key": _REALM + ', error="invalid_token"',
    "scope-missing": _REALM + ', error="insufficient_scope"',
}


class AuthenticationMiddleware:
    """Authentication and rate limit of every request that is not for an open path."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy, rate_limiter: RateLimiter) -> None:
        self._app = app
        self._policy = policy
        self._rate_limiter = rate_limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            scope[_TENANT] = DEFAULT
            if required_scope(scope["path"], scope["method"]) is not None:
                try:
                    scope[_TENANT], is_alone = await on_loop(self._admit, scope)
                    await self._rate_limiter.count(scope[_TENANT])
                    if not is_alone:
                        send = pad_not_found(send)
                except ProblemError as error:
                    challenge = _CHALLENGES.get(error.problem.code)
                    headers = {} if challenge is None else {"WWW-Authenticate": challenge}
                    await problem_response(error.problem, headers)(scope, receive, send)
                    return
                except redis.RedisError as error:
                    await problem_response(redis_problem(error))(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> tuple[str, bool]:
        """Return the tenant of a request, and whether no other tenant can exist whose ids the answer could reveal."""
        tenant = self._policy.authenticate(scope)
        # The metrics are no tenant's, and need no server for their keys.
        return tenant, scope["path"] == METRICS or self._policy.is_open


def tenant_of(scope: Scope) -> str:
    """Return the tenant of an authenticated request."""
    tenant: str = scope[_TENANT]
    return tenant


def pad_not_found(
    send: Send,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Send:
    """Return a `send` that delays a 404 until a whole multiple of `NOT_FOUND_STEP_SECONDS`.

    The service reads another tenant's record before it refuses it, which takes some 100 us. The delay hides whether the
    id is unknown or another tenant's.
    """
    started = clock()

    async def send_padded(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
            elapsed = clock() - started
            await sleep(math.ceil(elapsed / NOT_FOUND_STEP_SECONDS) * NOT_FOUND_STEP_SECONDS - elapsed)
        await send(message)

    return send_padded
