"""Requests for single draws: Redis streams in the cache's Redis, where no write waits for the disk.

    glle:draws            sorted set of the tenants with requests; the tenant whose turn it is has the lowest score
    glle:draws:<tenant>   stream of a tenant's requests, which exists while the tenant has requests
    glle:bell             list on which idle samplers block; each request adds an element, which wakes one sampler

Samplers read the streams as one consumer group, and serve the tenants in turn. A request stays in its stream until it
is answered, so the length of a stream is the number of waiting and running requests. If a sampler dies, its successor
claims its requests at once, and other samplers claim them after `LEASE_SECONDS`. A request that was delivered
`MAX_DELIVERIES` times without an answer is refused, because it probably crashed each sampler that drew it.

Answers are published on the channels of the API processes that sent the requests. An answer is a line of JSON; small
draws follow, as the cache has them (see `worker.storage.entry_cache`).
"""

from __future__ import annotations

import json
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import WeakValueDictionary

import redis

from glle_engine.linalg import LANES
from worker.base.clock import now_ms
from worker.base.problems import Problem, refuse
from worker.records.cache_entry import entry_parts, parse_entry
from worker.records.draws import DrawAddress
from worker.records.ids import DEFAULT, text
from worker.records.quotas import too_many_draws
from worker.records.shares import MAX_DRAWS, MAY_HOLD, UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from worker.connections.loop_commands import LoopCommands
    from worker.records.cache_entry import Entry

DRAWN = "glle:drawn"  # prefix of the names of the channels for answers
TURNS = "glle:draws"  # the sorted set of the tenants with requests, in the order of their turns
STREAM = "glle:draws:"  # prefix of the keys of the streams
BELL = "glle:bell"  # the list on which idle samplers block
MAX_RINGS = 64  # maximum length of the list `BELL`; while it is full, further requests wake no idle sampler
# A tenant with fewer waiting requests may send one more, without a count of the requests of all tenants.
ALWAYS_ACCEPTED = 100
MAX_ABANDONED = 8  # a call of `claim_abandoned` checks at most this many unanswered requests of each stream
MAX_SENT_BYTES = 2**18  # a larger draw is not part of the answer; the API process reads it from the cache
MAX_DELIVERIES = 3  # a request that this many samplers have read and not answered is refused
LEASE_SECONDS = 30  # other samplers claim a request that a sampler has held for longer than this without an answer
_SAMPLERS = "samplers"  # the consumer group
_REFUSED = "refused"

Outcome = Literal["drawn", "refused", "job"]

# Adds a request. KEYS: the tenant's stream, `TURNS`, `BELL`. ARGV: the consumer group, the tenant, the tenant's limit
# (see `may_hold`), the limit of all tenants together, then fields and values of the stream entry. Returns the id of the
# entry, or `_REFUSED`.
_SEND = f"""
{MAY_HOLD}
local stream, turns, tenant, limit = KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[3])
local held, used = redis.call('XLEN', stream), 0
if held >= {ALWAYS_ACCEPTED} or (limit > 0 and held >= limit) then
  for _, other in ipairs(redis.call('ZRANGE', turns, 0, -1)) do
    used = used + redis.call('XLEN', '{STREAM}' .. other)
  end
  if not may_hold(held, used, tonumber(ARGV[4]), limit) then return '{_REFUSED}' end
end
if redis.call('EXISTS', stream) == 0 then redis.call('XGROUP', 'CREATE', stream, ARGV[1], '0', 'MKSTREAM') end
local entry = redis.call('XADD', stream, '*', unpack(ARGV, 5))
if not redis.call('ZSCORE', turns, tenant) then
  redis.call('ZADD', turns, (redis.call('ZRANGE', turns, -1, -1, 'WITHSCORES')[2] or 0) + 1, tenant)
end
if redis.call('LLEN', KEYS[3]) < {MAX_RINGS} then redis.call('RPUSH', KEYS[3], 1) end
return entry
"""

# Returns 1 if a request waits or its draw is being made; 0 if the request was answered, or if the server has evicted
# the stream or `TURNS`. KEYS: the tenant's stream, `TURNS`. ARGV: the tenant, the id of the request's entry.
_IS_PENDING = """
return redis.call('ZSCORE', KEYS[2], ARGV[1]) and #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) or 0
"""

# Delivers new requests to a sampler, from the tenants in turn. KEYS: `TURNS`, `BELL`.
# ARGV:
#   1  the consumer group
#   2  the sampler
#   3  the maximum number of requests, of all tenants together
#   4  the least number of requests that one tenant may get in its turn: a tenant may get (3), divided by the number of
#      tenants, or this many if that is more
# Returns (stream, entries) for each tenant with new requests.
_TAKE = f"""
local tenants = redis.call('ZRANGE', KEYS[1], 0, -1)
local left, found = tonumber(ARGV[3]), {{}}
local each = math.max(tonumber(ARGV[4]), math.floor(left / math.max(1, #tenants)))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0
for _, tenant in ipairs(tenants) do
  if left <= 0 then break end
  local reply = redis.pcall(
    'XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', math.min(each, left), 'STREAMS', '{STREAM}' .. tenant, '>'
  )
  if reply and reply.err then
    redis.call('ZREM', KEYS[1], tenant)
  elseif reply then
    last = last + 1
    redis.call('ZADD', KEYS[1], last, tenant)
    left = left - #reply[1][2]
    found[#found + 1] = reply[1]
  end
end
if #found == 0 then redis.call('DEL', KEYS[2]) end
return found
"""

# Removes answered requests, and streams that are then empty; publishes the answers. KEYS: `TURNS`, then the stream of
# each request. ARGV: the consumer group, the id of each request's entry, then channels and messages in alternation.
_FINISH = f"""
for at = 2, #KEYS do
  local stream = KEYS[at]
  redis.call('XACK', stream, ARGV[1], ARGV[at])
  redis.call('XDEL', stream, ARGV[at])
  if redis.call('XLEN', stream) == 0 then
    redis.call('DEL', stream)
    redis.call('ZREM', KEYS[1], string.sub(stream, {len(STREAM) + 1}))
  end
end
for at = #KEYS + 1, #ARGV, 2 do redis.call('PUBLISH', ARGV[at], ARGV[at + 1]) end
"""


@dataclass(frozen=True)
class DrawRequest:
    """A request for one draw, as a sampler (a process that makes single draws) has read it from a Redis stream.

    Parameters
    ----------
    stream, id
        Key of the stream, and id of the request's entry in the stream.
    name
        Posterior, source and alignment, joined by spaces; equal for requests that can be drawn together.
    key
        Address of the draw: its seed, index, scale, source and alignment.
    metadata
        Mapping with the id of the HTTP request, as in `task_metadata`.
    reply
        Channel on which the answer is published.

    """

    stream: str
    id: str
    name: str
    key: DrawAddress
    metadata: dict[str, str]
    reply: str = DRAWN


@dataclass(frozen=True)
class DrawBatch:
    """Requests for draws of one posterior, with one source (``posterior`` or ``prior``) and one alignment."""

    requests: list[DrawRequest]

    @property
    def name(self) -> str:
        """Posterior, source and alignment, joined by spaces, as in `DrawRequest.name`."""
        return self.requests[0].name

    @property
    def posterior(self) -> str:
        """Id of the posterior."""
        return self.name.split(" ")[0]

    @property
    def keys(self) -> list[DrawAddress]:
        """Addresses (seed, index, scale ...) of the requested draws, each once, in the order of the requests."""
        return list(dict.fromkeys(request.key for request in self.requests))

    def seconds_since_sent(self) -> float:
        """Return the age of the oldest request in seconds: ids of stream entries begin with the time of the server."""
        return max(0.0, (now_ms() - min(int(request.id.partition("-")[0]) for request in self.requests)) / 1000)

    def select(self, keys: Iterable[DrawAddress]) -> DrawBatch:
        """Return a batch with the requests for the draws with these addresses (seed, index, scale ...)."""
        selected = set(keys)
        return DrawBatch([request for request in self.requests if request.key in selected])


@dataclass(frozen=True)
class DrawAnswer:
    """The answer to a request for a draw, as an API process receives it.

    Parameters
    ----------
    outcome
        What became of the request: ``drawn``, ``refused``, or ``job`` if a job should make the draw.
    problem
        Problem of a refused draw.
    entry
        The draw, or None if the draw is large and must be read from the cache.

    """

    outcome: Outcome
    problem: Problem | None = None
    entry: Entry | None = None


class SentDraw(list[str]):
    """Ids of the Redis stream entries by which this process has requested a draw, one for each attempt.

    The last id is an empty text while the request is being sent.
    """


class DrawRequests:
    """Sends requests for single draws from an API process to the samplers.

    Parameters
    ----------
    commands
        Sends commands to the cache's Redis.
    reply
        Channel on which this process receives answers.

    Attributes
    ----------
    sent
        Requests for the draws that HTTP requests to this process wait for, by the draw's name (`waited_name`).
    tenant
        Tenant that requests draws.
    limit
        Returns the tenant's limit on waiting requests (see `worker.records.shares.may_hold`).

    """

    def __init__(self, commands: LoopCommands, reply: str = DRAWN) -> None:
        self.sent: WeakValueDictionary[str, SentDraw] = WeakValueDictionary()
        self._commands = commands
        self._reply = reply
        self.tenant = DEFAULT
        self.limit: Callable[[], int] = lambda: UNLIMITED

    def for_tenant(self, tenant: str, limit: Callable[[], int]) -> Self:
        """Return a copy that sends requests for a tenant; `limit` returns the tenant's limit on waiting requests."""
        requests = copy(self)
        requests.tenant, requests.limit = tenant, limit
        return requests

    async def send(self, name: str, metadata: Mapping[str, str]) -> str:
        """Request the draw with this name (`waited_name`); return the id of the stream entry.

        `metadata` has the id of the HTTP request (`task_metadata`). Raises `ProblemError` (``quota-exceeded``).
        """
        batch, _, draw = name.rpartition(" ")
        fields = ("name", batch, "draw", draw, "metadata", json.dumps(metadata), "reply", self._reply)
        keys = (stream_of(self.tenant), TURNS, BELL)
        limit = self.limit()
        reply = await self._commands.call("EVAL", _SEND, 3, *keys, _SAMPLERS, self.tenant, limit, MAX_DRAWS, *fields)
        if (entry := text(reply)) == _REFUSED:
            raise too_many_draws(self.tenant, limit)
        return entry

    async def is_pending(self, entry: str) -> bool:
        """Return whether the request with this stream entry is unanswered; False also if Redis has lost the request."""
        keys = (stream_of(self.tenant), TURNS)
        return bool(await self._commands.call("EVAL", _IS_PENDING, 2, *keys, self.tenant, entry))


class DrawStream:
    """The requests for single draws, in a stream of Redis for each tenant, as one sampler reads and answers them.

    Samplers are the processes that make single draws. Each request goes to one of them.

    Parameters
    ----------
    client
        The cache's Redis.
    sampler
        Name of the sampler. A process that replaces another one has its name, and takes over its open requests.

    """

    def __init__(self, client: redis.Redis, sampler: str) -> None:
        self._client = client
        self._sampler = sampler
        self._has_all = False  # whether no request was waiting when the streams were last read

    def read(self, count: int, seconds: float) -> list[DrawRequest]:
        """Return up to `count` waiting requests; if there are none, wait up to `seconds` for a request.

        Tenants are served in turn. At most max(`LANES`, `count` / number of waiting tenants) requests of each tenant
        are returned, where `LANES` is the number of draws of a posterior that are computed together, in SIMD lanes.
        """
        requests = [] if self._has_all and seconds else self._take(count)
        if requests or not seconds:
            return requests
        has_rung = self._client.blpop([BELL], seconds) is not None
        # The next call reads the streams before it waits again: a request may have come without ringing, because the
        # server may evict the list `BELL`.
        self._has_all = False
        return self._take(count) if has_rung else []

    def _take(self, count: int) -> list[DrawRequest]:
        """Return up to `count` waiting requests, and remember for the next `read` whether any others are left."""
        reply: Any = self._client.eval(_TAKE, 2, TURNS, BELL, _SAMPLERS, self._sampler, count, LANES)
        requests = [_request(text(stream), id_, _pairs(fields)) for stream, entries in reply for id_, fields in entries]
        self._has_all = len(requests) < min(count, LANES)
        return requests

    def claim_abandoned(self, *, of_predecessor: bool) -> Iterator[DrawRequest]:
        """Claim and yield, one by one, the requests that a sampler has read, but not answered before it ended.

        Each claim counts as a delivery, and a request that was delivered `MAX_DELIVERIES` times is refused instead. A
        request is claimed only when the caller has answered the previous one: if one request crashes this sampler,
        the requests after it are not counted as delivered.

        Parameters
        ----------
        of_predecessor
            Whether to claim the requests of this sampler's predecessor, which had the same name; otherwise, requests
            that any sampler has held for more than `LEASE_SECONDS`.

        """
        for stream in _streams(self._client):
            pending: list[Any] = []
            with suppress(redis.ResponseError):  # all requests of the tenant were answered: the stream is gone
                pending = self._client.xpending_range(
                    stream, _SAMPLERS, "-", "+", MAX_ABANDONED,
                    consumername=self._sampler if of_predecessor else None,
                    idle=None if of_predecessor else 1000 * LEASE_SECONDS,
                )  # fmt: skip
            for entry in pending:
                request = self._claim(stream, entry, of_predecessor=of_predecessor)
                if request is not None:
                    yield request

    def finish(
        self,
        batch: DrawBatch,
        outcome: Outcome,
        problem: Problem | None = None,
        entries: Mapping[DrawAddress, Entry] | None = None,
    ) -> None:
        """Remove the requests of a batch from their streams, and publish the answer, which may contain the draws.

        Parameters
        ----------
        problem
            Why the requests are refused.
        entries
            The draws, by their addresses. The answer contains those of at most `MAX_SENT_BYTES`; API processes read
            larger draws from the cache.

        """
        if not batch.requests:
            return
        streams, ids = [request.stream for request in batch.requests], [request.id for request in batch.requests]
        messages: list[str | bytes] = []
        for reply in dict.fromkeys(request.reply for request in batch.requests):
            answered = DrawBatch([request for request in batch.requests if request.reply == reply])
            messages += [reply, _message(answered, outcome, problem, entries or {})]
        self._client.eval(_FINISH, 1 + len(streams), TURNS, *streams, _SAMPLERS, *ids, *messages)

    def leave(self) -> None:
        """Leave the consumer group of each stream in which this sampler has no unanswered request.

        Unanswered requests stay under the sampler's name until another sampler claims them.
        """
        for stream in _streams(self._client):
            with suppress(redis.ResponseError):  # the server has evicted the stream: there is nothing to claim
                if not self._client.xpending_range(stream, _SAMPLERS, "-", "+", 1, consumername=self._sampler):
                    self._client.xgroup_delconsumer(stream, _SAMPLERS, self._sampler)

    def _claim(self, stream: str, entry: Mapping[str, Any], *, of_predecessor: bool) -> DrawRequest | None:
        """Claim a request, which counts as one more delivery, and return it.

        Returns None if the request was answered or claimed meanwhile. After `MAX_DELIVERIES` deliveries, refuses the
        request and returns None.

        Parameters
        ----------
        entry
            An item of XPENDING's reply, for the request.
        of_predecessor
            Whether this sampler's predecessor, which has ended, had the request. Otherwise the request is only claimed
            if its sampler has had it for more than `LEASE_SECONDS`.

        """
        idle = 0 if of_predecessor else 1000 * LEASE_SECONDS
        claimed: Any = None
        with suppress(redis.ResponseError):  # the server has evicted the stream: there is nothing to claim
            claimed = self._client.xclaim(stream, _SAMPLERS, self._sampler, idle, [entry["message_id"]])
        if not claimed or claimed[0][1] is None:  # the request was answered or claimed meanwhile
            return None
        request = _request(stream, *claimed[0])
        if int(entry["times_delivered"]) < MAX_DELIVERIES:
            return request
        problem = refuse(
            "draw-ends-worker",
            500,
            f"Draw {request.key.index} of {request.name.split(' ')[0]} has crashed {MAX_DELIVERIES} sampler processes.",
            "Request several draws at once: they become a job, which has its own process and memory limit. If that "
            "fails, ask the administrator to look for the cause in the worker's log.",
        ).problem
        self.finish(DrawBatch([request]), "refused", problem)
        return None


@dataclass(frozen=True)
class StreamState:
    """The unanswered requests for single draws.

    Attributes
    ----------
    lengths
        Number of requests of each tenant.
    oldest_seconds
        Age of the oldest request of any tenant; 0 if there is none.
    drawing
        Number of requests that a sampler, a process that makes single draws, has read already.

    """

    lengths: dict[str, int]
    oldest_seconds: float
    drawing: int

    @property
    def length(self) -> int:
        """Number of unanswered requests of all tenants."""
        return sum(self.lengths.values())


def stream_state(client: redis.Redis) -> StreamState:
    """Return the state of the streams of all tenants; raises `redis.RedisError`."""
    seconds, micro = client.time()
    with client.pipeline(transaction=False) as pipeline:
        for stream in (streams := _streams(client)):
            pipeline.xlen(stream)
            pipeline.xrange(stream, count=1)
            pipeline.xpending(stream, _SAMPLERS)
        replies = pipeline.execute(raise_on_error=False)
    # An item of `pending` is an error if its stream has no consumer group.
    lengths, firsts, pending = replies[::3], replies[1::3], replies[2::3]
    for reply in (*lengths, *firsts):
        if isinstance(reply, redis.RedisError):
            raise reply
    now = 1000 * int(seconds) + int(micro) / 1000
    ages = [now - int(text(first[0][0]).partition("-")[0]) for first in firsts if first]
    drawing = sum(int(summary["pending"]) for summary in pending if isinstance(summary, dict))
    of_tenants = {stream.removeprefix(STREAM): int(length) for stream, length in zip(streams, lengths, strict=True)}
    return StreamState(of_tenants, max(0.0, *ages, 0.0) / 1000, drawing)


def _message(
    batch: DrawBatch, outcome: Outcome, problem: Problem | None, entries: Mapping[DrawAddress, Entry]
) -> bytes:
    """Encode the answer to a batch of requests as a message, which `draw_outcomes` decodes."""
    draws: list[tuple[str, int]] = []
    sent = b""
    for key in batch.keys:
        entry = entries.get(key)
        data = b"".join(entry_parts(entry)) if entry is not None and entry.nbytes <= MAX_SENT_BYTES else b""
        draws.append((_draw(key), len(data)))
        sent += data
    details = None if problem is None else problem.to_dict()
    content = {"batch": batch.name, "outcome": outcome, "problem": details, "draws": draws}
    return b"\n".join((json.dumps(content).encode(), sent))


def draw_outcomes(message: bytes) -> dict[str, DrawAnswer]:
    """Decode a message with answers to draw requests: return the answers by the name of the draw (`waited_name`)."""
    header, _, rest = message.partition(b"\n")
    content, start = json.loads(header), 0
    problem = None if content["problem"] is None else Problem.from_dict(content["problem"])
    answers = {}
    for draw, size in content["draws"]:
        entry = parse_entry(memoryview(rest)[start : start + size]) if size else None
        start += size
        answers[f"{content['batch']} {draw}"] = DrawAnswer(content["outcome"], problem, entry)
    return answers


def waited_name(posterior: str, key: DrawAddress) -> str:
    """Return the name of a draw in requests and answers, such as ``post_1 posterior procrustes 0:7:1.0``.

    The parts are the posterior's id, source, alignment, and ``seed:index:scale``.
    """
    return f"{posterior} {key.source} {key.align} {_draw(key)}"


def stream_of(tenant: str) -> str:
    """Return the key of a tenant's stream."""
    return STREAM + tenant


def _streams(client: redis.Redis) -> list[str]:
    """Return the keys of the streams of all tenants with requests."""
    return [stream_of(text(tenant)) for tenant in client.zrange(TURNS, 0, -1)]


def _pairs(flat: Sequence[Any]) -> dict[Any, Any]:
    """Return a mapping from a reply of Redis that has fields and values in alternation."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _request(stream: str, id_: Any, fields: Mapping[Any, Any]) -> DrawRequest:
    values = {text(name): text(value) for name, value in fields.items()}
    seed, index, scale = values["draw"].split(":")
    _, source, align = values["name"].split(" ")
    key = DrawAddress(int(seed), int(index), float(scale), source, align)
    return DrawRequest(stream, text(id_), values["name"], key, json.loads(values["metadata"]), values["reply"])


class RequestsInHand:
    """Requests for single draws that this process, a sampler, has read and not yet answered; `pop` returns a batch.

    Tenants take turns, and so do the posteriors of each tenant.
    """

    def __init__(self) -> None:
        # Requests by stream, then by `DrawRequest.name`; both mappings are in the order of turns.
        self._waiting: dict[str, dict[str, list[DrawRequest]]] = {}

    def __len__(self) -> int:
        return sum(len(requests) for names in self._waiting.values() for requests in names.values())

    def add(self, requests: Iterable[DrawRequest]) -> None:
        """Add requests that were read from the streams."""
        for request in requests:
            self._waiting.setdefault(request.stream, {}).setdefault(request.name, []).append(request)

    @property
    def next_size(self) -> int:
        """Number of requests in hand for the posterior whose turn is next; 0 if there are none.

        The next call of `pop` may return only some of these requests.
        """
        return len(next(iter(next(iter(self._waiting.values())).values()))) if self._waiting else 0

    def pop(self, size: int) -> DrawBatch:
        """Remove and return a batch: the requests for up to `size` different draws of one posterior.

        The draws of a batch have one source (``posterior`` or ``prior``) and one alignment. Other requests of the same
        tenant wait for the tenant's next turn.
        """
        stream = next(iter(self._waiting))
        names = self._waiting.pop(stream)
        name = next(iter(names))
        keys: dict[DrawAddress, None] = {}
        taken: list[DrawRequest] = []
        left: list[DrawRequest] = []
        for request in names.pop(name):
            if len(keys) < size or request.key in keys:
                keys[request.key] = None
                taken.append(request)
            else:
                left.append(request)
        if left:
            names[name] = left
        if names:
            self._waiting[stream] = names
        return DrawBatch(taken)


def _draw(key: DrawAddress) -> str:
    return f"{key.seed}:{key.index}:{key.scale!r}"
