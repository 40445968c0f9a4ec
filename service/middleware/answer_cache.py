"""Cache of immutable responses in the memory of one API process; a hit calls no route and reads no array.

A draw is a function of its address (seed, index, scale, ...), so its response becomes stale only if its posterior is
deleted. Before each hit the cache therefore checks that the posterior is unchanged (`RecentPosteriors` in
`service.routes.draws`). A response is served only to the tenant that requested it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.encoding.representations import header, matches_tag, send_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

MAX_CACHE_BYTES = 64 * 2**20  # size of the cache in each process
MAX_ANSWER_BYTES = 2**20  # largest body in the cache
MAX_KEY_BYTES = 256  # a longer key is replaced by its digest
ENTRY_BYTES = 2**11  # an entry counts as this many bytes besides its body, for headers, key and containers


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A complete response, valid for one tenant until a posterior is deleted or fitted again.

    `posterior` is the posterior's id, and `state` its `PosteriorRecord.state`, a text that changes when the posterior
    is fitted again. `route` is kept for the metrics. `size` is roughly the memory of the entry in bytes.
    """

    tenant: str
    posterior: str
    state: str
    route: object
    headers: list[tuple[bytes, bytes]]
    body: bytes
    size: int


class AnswerCache:
    """LRU cache of responses, whose entries take at most `budget` bytes together.

    `state` is called with a tenant and the id of a posterior. It returns a text that changes when the posterior is
    deleted and fitted again (`PosteriorRecord.state`), or None if the posterior does not exist.
    """

    def __init__(self, budget: int, state: Callable[[str, str], Awaitable[str | None]]) -> None:
        self._budget = budget
        self._state = state
        self._bytes = 0
        self.hits = 0  # responses found in the cache since the metrics last read this number
        self._answers: OrderedDict[bytes, CachedAnswer] = OrderedDict()

    def keep(self, scope: Scope, posterior: str, state: str, response: Response) -> None:
        """Cache a complete response for later equal requests; it must depend only on the request and on the posterior.

        `posterior` is the posterior's id. `state` is its `PosteriorRecord.state`, a text that changes when the
        posterior is deleted and fitted again; the cached response is not used any more then.
        """
        key, body = _key(scope), bytes(response.body)
        size = ENTRY_BYTES + len(body)
        if len(body) > MAX_ANSWER_BYTES or size > self._budget or key in self._answers:
            return
        headers = list(response.raw_headers)
        route = scope.get("route")
        self._answers[key] = CachedAnswer(scope["glle.tenant"], posterior, state, route, headers, body, size)
        self._bytes += size
        while self._bytes > self._budget:
            self._bytes -= self._answers.popitem(last=False)[1].size

    async def find(self, scope: Scope) -> CachedAnswer | None:
        """Return the cached response to a request, or None if there is none or its posterior has changed."""
        key = _key(scope)
        answer = self._answers.get(key)
        if answer is None or answer.tenant != scope["glle.tenant"]:
            return None
        if await self._state(answer.tenant, answer.posterior) != answer.state:
            self._forget(answer.posterior)
            return None
        self.hits += 1
        if key in self._answers:  # it may have been evicted while the state was read
            self._answers.move_to_end(key)
        return answer

    def clear(self) -> None:
        """Remove all responses."""
        self._answers.clear()
        self._bytes = 0

    def _forget(self, posterior: str) -> None:
        for key in [key for key, answer in self._answers.items() if answer.posterior == posterior]:
            self._bytes -= self._answers.pop(key).size


async def send_answer(answer: CachedAnswer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a cached response: the whole body, the requested byte range, or 304 if the client has the response."""
    if_none_match = header(scope, b"if-none-match")
    if not if_none_match or not matches_tag(if_none_match, dict(answer.headers)[b"etag"]):
        await send_body(scope, receive, send, answer.headers, answer.body)
        return
    headers = [(name, value) for name, value in answer.headers if name != b"content-length"]
    await send({"type": "http.response.start", "status": 304, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _key(scope: Scope) -> bytes:
    """Return the key of a request in the cache: path, query and Accept, or their digest if they are long."""
    key: bytes = b" ".join((scope["path"].encode(), scope["query_string"], header(scope, b"accept")))
    return key if len(key) <= MAX_KEY_BYTES else hashlib.sha256(key).digest()
