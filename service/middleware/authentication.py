"""Who asks. A route never looks at a key: it is given the stores as the tenant sees them (`worker.stores.Stores.of`).

The check stands before everything that answers, also before answers that are kept at hand (`service.middleware.answer_cache`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis

from service.middleware.padding import padded
from service.schemas.problems import answer, redis_away
from worker.base.problems import ProblemError
from worker.records.tenants import DEFAULT

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from service.middleware.access_policy import AccessPolicy
    from service.middleware.rate_limit import RateLimiter

_TENANT = "glle.tenant"  # where a request's scope says who asks
_REALM = 'Bearer realm="glle"'
_CHALLENGES = {  # RFC 6750
    "key-required": _REALM,
    "invalid-key": _REALM + ', error="invalid_token"',
    "scope-missing": _REALM + ', error="insufficient_scope"',
}


class AuthenticationMiddleware:
    """Tells everything behind it who asks, and refuses whoever may not, or asks too often."""

    def __init__(self, app: ASGIApp, door: AccessPolicy, rate: RateLimiter) -> None:
        self._app = app
        self._door = door
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            scope[_TENANT] = DEFAULT
            if not self._door.is_free(scope):
                try:
                    scope[_TENANT] = tenant = self._door.admit(scope)
                    await self._rate.count(tenant)
                    if not self._door.is_open:  # there may be other tenants
                        send = padded(send)
                except ProblemError as error:
                    challenge = _CHALLENGES.get(error.problem.code)
                    headers = {} if challenge is None else {"WWW-Authenticate": challenge}
                    await answer(error.problem, headers)(scope, receive, send)
                    return
                except redis.RedisError as error:
                    await answer(redis_away(error))(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def tenant_of(scope: Scope) -> str:
    """Return the tenant of a request that was let in."""
    tenant: str = scope[_TENANT]
    return tenant
