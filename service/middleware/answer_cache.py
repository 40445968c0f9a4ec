"""Answers that never change, kept in the API's own memory: asked for again, they cost no route and no array cache.

A draw is a function of its address, so its answer can only become wrong by its posterior being deleted. Each answer
belongs to a posterior as it was then, and is given to that one's tenant alone, while it was seen to be the same within
the last second; a deletion through this process is seen at once.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from sys import getsizeof
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

import redis
from starlette.concurrency import run_in_threadpool

from service.encoding.compression import LEAST, VARY, accepts_gzip, gzip_tag, gzipped
from service.encoding.ranges import deliver, header
from service.middleware.authentication import tenant_of
from service.schemas.problems import answer as refused
from service.schemas.problems import redis_away
from worker.observability.tracing import TRACING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

ALIVE_SECONDS = 1.0  # a posterior deleted through another API process is answered for so much longer at most
MOST_ALIVE = 4096  # posteriors of which it is remembered that they exist
MOST_WORDS = 256  # of headers
MAX_ANSWER_BYTES = 2**20  # bytes of an answer that is worth keeping
LONGEST_KEY = 256  # bytes; a longer one is its digest
# Of an entry, beside the objects that `_cost` sizes: its place in the ordered dictionary, which grows by doubling, and
# what the allocator rounds up. Measured by `tests/service/middleware/test_answer_cache.py`.
ENTRY_BYTES = 224
_ZIPPED = b"\n"  # marks the key of a compressed answer; no header has it
_PLAIN_QUERY = re.compile(rb"[A-Za-z0-9_.~=&:,-]*")


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A whole answer: whose it is, what it belongs to, its route (for the metrics), headers as ASGI has them, body."""

    tenant: str
    posterior: str
    state: str
    route: object
    headers: list[tuple[bytes, bytes]]
    body: bytes
    etag: bytes
    compressible: bool = False
    ranged: bool = False

    def is_among(self, given: bytes) -> bool:
        """Say whether If-None-Match names it, compressed or not."""
        tags = {part.strip().removeprefix(b"W/") for part in given.split(b",")}
        plain = self.etag.replace(b'-gzip"', b'"')
        return not tags.isdisjoint({b"*", plain, gzip_tag(plain)})


class AnswerCache:
    """The answers given last, up to a number of bytes.

    Parameters
    ----------
    budget
        Bytes that all of it may take in memory: bodies, headers, keys and what holds them.
    state
        Returns the state of a posterior by its id (`PosteriorRecord.state`), None where there is none; may block.

    """

    def __init__(self, budget: int, state: Callable[[str], str | None]) -> None:
        self._budget = budget
        self._state = state
        self._bytes = 0
        self.hits = 0  # answers given since somebody asked
        self._answers: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        self._words: dict[bytes, bytes] = {}  # names and values of headers that many answers share
        self._alive: dict[str, float] = {}  # until when each posterior counts as existing

    def keep(self, scope: Scope, posterior: str, state: str, response: Response) -> None:
        """Keep the answer to a request; it is whole, and changes only with the state of the posterior."""
        key, body = _key(scope), bytes(response.body)
        if len(body) > min(MAX_ANSWER_BYTES, self._budget) or key in self._answers:
            return
        headers = {self._shared(name): self._shared(value) for name, value in response.raw_headers}
        compressible = headers.get(b"content-type") == b"application/json" and len(body) >= LEAST
        if compressible:
            headers[b"vary"] = b", ".join([*filter(None, [headers.get(b"vary")]), VARY])
        tag = headers.get(b"etag", b"")
        answer = CachedAnswer(
            tenant_of(scope),
            posterior,
            state,
            scope.get("route"),
            list(headers.items()),
            body,
            tag,
            compressible,
            b"accept-ranges" in headers,
        )
        self._put(key, answer)
        now = time.monotonic()
        if len(self._alive) > MOST_ALIVE:  # most are of posteriors that nobody asked for lately
            self._alive = {name: until for name, until in self._alive.items() if until > now}
        self._alive[posterior] = now + ALIVE_SECONDS

    def _put(self, key: bytes, answer: CachedAnswer) -> None:
        if (cost := _cost(key, answer)) > self._budget:
            return
        self._answers[key] = answer
        self._bytes += cost
        while self._bytes > self._budget:
            oldest = self._answers.popitem(last=False)
            self._bytes -= _cost(*oldest)

    def _shared(self, word: bytes) -> bytes:
        """Return the one object of a word that is likely to come again: answers differ in ETag and length."""
        if len(self._words) >= MOST_WORDS:
            self._words.clear()
        return self._words.setdefault(word, word)

    async def find(self, scope: Scope) -> CachedAnswer | None:
        """Return the answer to a request, if it is kept and its posterior still exists."""
        key = _key(scope)
        answer = self._answers.get(key)
        if answer is None or answer.tenant != tenant_of(scope):
            return None
        if self._alive.get(answer.posterior, 0.0) < time.monotonic():
            asked = time.monotonic()
            if await run_in_threadpool(self._state, answer.posterior) != answer.state:
                self._forget(answer.posterior)
                return None
            self._alive[answer.posterior] = asked + ALIVE_SECONDS
        self.hits += 1
        if key in self._answers:  # not dropped meanwhile
            self._answers.move_to_end(key)
        if answer.compressible and accepts_gzip(header(scope, b"accept-encoding")):
            return await self._zipped(key, answer)
        return answer

    async def _zipped(self, key: bytes, plain: CachedAnswer) -> CachedAnswer:
        """Return the compressed form of an answer, which is kept, too."""
        key += _ZIPPED
        if (known := self._answers.get(key)) is not None:
            self._answers.move_to_end(key)
            return known
        body = await run_in_threadpool(gzipped, plain.body)
        tag = gzip_tag(plain.etag)
        headers = {
            **dict(plain.headers),
            b"content-length": b"%d" % len(body),
            b"etag": tag,
            b"content-encoding": b"gzip",
        }
        answer = replace(plain, headers=list(headers.items()), body=body, etag=tag, compressible=False)
        if key not in self._answers and plain.posterior in self._alive:  # not made, or deleted, meanwhile
            self._put(key, answer)
        return answer

    def doubt(self) -> None:
        """Look again whether posteriors exist, before the next answer: something was deleted."""
        self._alive.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._answers.clear()
        self._alive.clear()
        self._bytes = 0

    def _forget(self, posterior: str) -> None:
        for key in [key for key, answer in self._answers.items() if answer.posterior == posterior]:
            self._bytes -= _cost(key, self._answers.pop(key))
        self._alive.pop(posterior, None)


class AnswerCacheMiddleware:
    """Gives the answers that are kept, and passes every other request on."""

    def __init__(self, app: ASGIApp, recent: AnswerCache) -> None:
        self._app = app
        self._recent = recent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        method = scope["method"] if scope["type"] == "http" else ""
        try:
            answer = await self._recent.find(scope) if method == "GET" else None
        except redis.RedisError as error:  # whether the posterior still exists nobody can tell
            await refused(redis_away(error))(scope, receive, send)
            return
        if answer is not None:
            scope["route"] = answer.route
            if TRACING.is_on:
                TRACING.answers(method, getattr(answer.route, "path", ""))
            given = header(scope, b"if-none-match")
            if given and answer.is_among(given):
                headers = [(name, value) for name, value in answer.headers if name != b"content-length"]
                await send({"type": "http.response.start", "status": 304, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
            if answer.ranged:
                await deliver(scope, receive, send, answer.headers, answer.body)
                return
            await send({"type": "http.response.start", "status": 200, "headers": list(answer.headers)})
            await send({"type": "http.response.body", "body": answer.body})
            return
        try:
            await self._app(scope, receive, send)
        finally:
            if method == "DELETE":
                self._recent.doubt()


def _key(scope: Scope) -> bytes:
    """Return the key of a request's answer: path, query and Accept, or their digest."""
    query = _ordered(scope["query_string"])
    key: bytes = b" ".join((scope["path"].encode(), query, header(scope, b"accept")))
    return key if len(key) <= LONGEST_KEY else hashlib.sha256(key).digest()


def _ordered(query: bytes) -> bytes:
    """Return a query whose parameters stand in the order of their names, encoded alike; values of one name stay."""
    if _PLAIN_QUERY.fullmatch(query):
        parameters = sorted(query.split(b"&"), key=_name)
        return b"&".join(parameters)
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)  # as the framework reads it
    return urlencode(sorted(pairs, key=lambda pair: pair[0]), safe=":,").encode()


def _name(parameter: bytes) -> bytes:
    return parameter.partition(b"=")[0]


def _cost(key: bytes, answer: CachedAnswer) -> int:
    """Return the bytes of memory that an answer takes with its key; what many share counts for each."""
    headers = sum(getsizeof(pair) + len(pair[1]) for pair in answer.headers)
    whole = getsizeof(answer) + getsizeof(answer.headers) + headers + getsizeof(answer.body)
    return (
        whole
        + getsizeof(key)
        + getsizeof(answer.posterior)
        + getsizeof(answer.state)
        + getsizeof(answer.etag)
        + ENTRY_BYTES
    )
