"""Cache of immutable responses in the memory of one API process; a hit runs no route and reads no array cache.

A draw is a function of its address, so its response is stale only after its posterior was deleted. The cache therefore
checks the posterior's state (`service.submission.recent_posteriors`). A response is served to its own tenant only.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from sys import getsizeof
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from service.encoding.compression import LEAST, VARY, accepts_gzip, gzip_body, gzip_tag, matches_tag
from service.encoding.ranges import header, send_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

MAX_CACHE_BYTES = 64 * 2**20  # of the cache of a process
MAX_ANSWER_BYTES = 2**20  # of a cached body
MAX_KEY_BYTES = 256  # a longer key is replaced by its digest
# Overhead of an entry beside the objects `_cost` measures: its slot in the ordered dictionary, which grows by doubling,
# and the allocator's rounding. Measured by `tests/service/middleware/test_answer_cache.py`.
ENTRY_BYTES = 224
_GZIP_KEY = b"\n"  # suffix of the key of a compressed response; no header contains it


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A complete response with its tenant, its posterior, the posterior's state, and its route for the metrics.

    `etag` is that of the plain representation.
    """

    tenant: str
    posterior: str
    state: str
    route: object
    headers: list[tuple[bytes, bytes]]
    body: bytes
    etag: bytes
    is_compressible: bool = False
    has_ranges: bool = False


class AnswerCache:
    """LRU cache of responses, within a budget of bytes for bodies, headers, keys and containers.

    `state` returns the state of a tenant's posterior (`PosteriorRecord.state`), or None.
    """

    def __init__(self, budget: int, state: Callable[[str, str], Awaitable[str | None]]) -> None:
        self._budget = budget
        self._state = state
        self._bytes = 0
        self.hits = 0  # since the metrics last read it
        self._answers: OrderedDict[bytes, CachedAnswer] = OrderedDict()

    def keep(self, scope: Scope, posterior: str, state: str, response: Response) -> None:
        """Cache a complete response that depends on nothing but the posterior's state."""
        key, body = _key(scope), bytes(response.body)
        if len(body) > min(MAX_ANSWER_BYTES, self._budget) or key in self._answers:
            return
        headers = dict(response.raw_headers)
        is_compressible = headers.get(b"content-type") == b"application/json" and len(body) >= LEAST
        if is_compressible:
            headers[b"vary"] = b", ".join([*filter(None, [headers.get(b"vary")]), VARY])
        answer = CachedAnswer(
            scope["glle.tenant"],
            posterior,
            state,
            scope.get("route"),
            list(headers.items()),
            body,
            headers.get(b"etag", b""),
            is_compressible,
            b"accept-ranges" in headers,
        )
        self._put(key, answer)

    def _put(self, key: bytes, answer: CachedAnswer) -> None:
        if (cost := _cost(key, answer)) > self._budget:
            return
        self._answers[key] = answer
        self._bytes += cost
        while self._bytes > self._budget:
            self._bytes -= _cost(*self._answers.popitem(last=False))

    async def find(self, scope: Scope) -> CachedAnswer | None:
        """Return the cached response to a request, or None; its posterior still exists."""
        key = _key(scope)
        answer = self._answers.get(key)
        if answer is None or answer.tenant != scope["glle.tenant"]:
            return None
        if await self._state(answer.tenant, answer.posterior) != answer.state:
            self._forget(answer.posterior)
            return None
        self.hits += 1
        if key in self._answers:  # not evicted during the check
            self._answers.move_to_end(key)
        if answer.is_compressible and accepts_gzip(header(scope, b"accept-encoding")):
            return await self._compress(key, answer)
        return answer

    async def _compress(self, key: bytes, plain: CachedAnswer) -> CachedAnswer:
        """Return the compressed form of a response, and cache it."""
        key += _GZIP_KEY
        if (cached := self._answers.get(key)) is not None:
            self._answers.move_to_end(key)
            return cached
        body = await run_in_threadpool(gzip_body, plain.body)
        changed = {
            b"content-length": b"%d" % len(body),
            b"etag": gzip_tag(plain.etag),
            b"content-encoding": b"gzip",
        }
        headers = list((dict(plain.headers) | changed).items())
        answer = replace(plain, headers=headers, body=body, is_compressible=False)
        if key not in self._answers:  # cached meanwhile
            self._put(key, answer)
        return answer

    def clear(self) -> None:
        """Remove all responses."""
        self._answers.clear()
        self._bytes = 0

    def _forget(self, posterior: str) -> None:
        for key in [key for key, answer in self._answers.items() if answer.posterior == posterior]:
            self._bytes -= _cost(key, self._answers.pop(key))


async def send_answer(answer: CachedAnswer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a cached response, the requested range of it, or 304."""
    status, headers, body = 200, list(answer.headers), answer.body
    if_none_match = header(scope, b"if-none-match")
    if if_none_match and matches_tag(if_none_match, answer.etag):
        status, headers, body = 304, [(name, value) for name, value in headers if name != b"content-length"], b""
    elif answer.has_ranges:
        await send_body(scope, receive, send, headers, body)
        return
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _key(scope: Scope) -> bytes:
    """Return the cache key of a request: path, query and Accept, or their digest if they are long."""
    key: bytes = b" ".join((scope["path"].encode(), scope["query_string"], header(scope, b"accept")))
    return key if len(key) <= MAX_KEY_BYTES else hashlib.sha256(key).digest()


def _cost(key: bytes, answer: CachedAnswer) -> int:
    """Return the bytes of memory of an entry; shared objects count for each entry."""
    headers = sum(getsizeof(pair) + getsizeof(pair[0]) + getsizeof(pair[1]) for pair in answer.headers)
    parts = (answer, answer.headers, answer.body, key, answer.posterior, answer.state, answer.etag)
    return ENTRY_BYTES + headers + sum(map(getsizeof, parts))
