"""Requests for single draws: Redis streams in the cache's Redis, where no write waits for the disk.

Tenants are divided into `GROUPS` streams. Samplers read them as one consumer group, and XREADGROUP takes turns between
the streams. A request stays in its stream until it is answered, so a stream's length counts waiting and running ones.
The request of a dead sampler is claimed after `LEASE_SECONDS`, and by the sampler's successor at once. A request that
was delivered `MAX_DELIVERIES` times without an answer is refused, because it ends each sampler that draws it.

An answer goes to the channels of the API processes that sent the requests. It carries the draws themselves, if they are
small: a line of JSON, then head and data of each draw, as in `worker.storage.entry_cache`.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import redis

from worker.base.clock import now_ms
from worker.base.problems import Problem, refuse
from worker.records.cache_entry import pack_entry, parse_entry
from worker.records.draws import DrawAddress
from worker.records.ids import DEFAULT, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from worker.connections.loop_commands import LoopCommands
    from worker.records.cache_entry import Entry

DRAWN = "glle:drawn"  # beginning of the channels of the answers
GROUPS = 16  # streams
MAX_LENGTH = 10_000  # requests of a stream, some 2 MB; the oldest are dropped, and sent again by those that wait
MAX_ABANDONED = 8  # requests of a stream that are looked at together
MAX_SENT_BYTES = 2**18  # of a draw in an answer; a larger one is read from the cache
MAX_DELIVERIES = 3
LEASE_SECONDS = 30
_SAMPLERS = "samplers"  # the consumer group

Outcome = Literal["drawn", "refused", "job"]

# Removes answered entries. KEYS: the stream of each. ARGV: the group, their ids, then channels and messages to publish.
_FINISH = """
for at, stream in ipairs(KEYS) do
  redis.call('XACK', stream, ARGV[1], ARGV[1 + at])
  redis.call('XDEL', stream, ARGV[1 + at])
end
for at = #KEYS + 2, #ARGV, 2 do redis.call('PUBLISH', ARGV[at], ARGV[at + 1]) end
"""


@dataclass(frozen=True)
class DrawRequest:
    """A delivered request for one draw.

    Parameters
    ----------
    stream, id
        Of its entry.
    name
        Of the posterior, source and alignment, in messages.
    metadata
        Request id and trace of the HTTP request.
    reply
        The channel of its answer.

    """

    stream: str
    id: str
    name: str
    key: DrawAddress
    metadata: dict[str, str]
    reply: str = DRAWN


@dataclass(frozen=True)
class DrawBatch:
    """Requests for draws of one posterior, with one source and one alignment."""

    requests: list[DrawRequest]

    @property
    def name(self) -> str:
        """Name of the posterior, source and alignment."""
        return self.requests[0].name

    @property
    def posterior(self) -> str:
        """The posterior's id."""
        return self.name.split(" ")[0]

    @property
    def keys(self) -> list[DrawAddress]:
        """The draws, each once."""
        return list(dict.fromkeys(request.key for request in self.requests))

    def seconds_since_sent(self) -> float:
        """Return the seconds since the oldest request was sent, whose entry has that time of the server."""
        return max(0.0, (now_ms() - min(int(request.id.partition("-")[0]) for request in self.requests)) / 1000)

    def of(self, keys: Iterable[DrawAddress]) -> DrawBatch:
        """Return the requests for some of the draws."""
        wanted = set(keys)
        return DrawBatch([request for request in self.requests if request.key in wanted])


@dataclass(frozen=True)
class DrawAnswer:
    """What an API process gets for a request.

    Parameters
    ----------
    problem
        Of a refused draw.
    entry
        A draw, unless it is large.

    """

    outcome: Outcome
    problem: Problem | None = None
    entry: Entry | None = None


class DrawRequests:
    """The requests of an API process.

    Parameters
    ----------
    reply
        The channel of the answers.

    """

    def __init__(self, commands: LoopCommands, reply: str = DRAWN, tenant: str | None = None) -> None:
        self._commands = commands
        self._reply = reply
        self._stream = _stream(zlib.crc32((tenant or DEFAULT).encode()) % GROUPS)

    def of(self, tenant: str) -> DrawRequests:
        """Return the requests of a tenant."""
        return DrawRequests(self._commands, self._reply, tenant)

    async def send(self, name: str, metadata: Mapping[str, str]) -> str:
        """Request the draw with a `waited_name`; return the entry."""
        batch, _, draw = name.rpartition(" ")
        fields = ("name", batch, "draw", draw, "metadata", json.dumps(metadata), "reply", self._reply)
        entry: bytes = await self._commands.call("XADD", self._stream, "MAXLEN", "~", MAX_LENGTH, "*", *fields)
        return entry.decode()

    async def is_pending(self, entry: str) -> bool:
        """Return whether a request waits or is being drawn; False if it was answered, dropped or lost."""
        return bool(await self._commands.call("XRANGE", self._stream, entry, entry))


class DrawStream:
    """The streams as one sampler reads them.

    Parameters
    ----------
    client
        The cache's Redis.
    sampler
        Its name. A successor of the same name continues its requests.

    """

    def __init__(self, client: redis.Redis, sampler: str) -> None:
        self._client = client
        self._sampler = sampler
        self._has_groups = False

    def read(self, count: int, seconds: float) -> list[DrawRequest]:
        """Return the next requests, at most `count` of each stream, waiting for one for some seconds."""
        if not self._has_groups:
            self._create_groups()
        try:
            streams: Any = dict.fromkeys(STREAMS, ">")
            block = int(1000 * seconds) or None
            reply = self._client.xreadgroup(_SAMPLERS, self._sampler, streams, count=count, block=block)
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            self._has_groups = False  # the server has evicted a stream, or lost all
            return []
        return [_request(*entry) for entry in _entries(reply)]

    def claim_abandoned(self, *, own: bool) -> Iterator[DrawRequest]:
        """Claim the requests whose sampler is gone one by one; refuse those that ended too many samplers.

        Each is claimed when the one before it was drawn, so that a request that ends this sampler counts no
        delivery of the others.

        Parameters
        ----------
        own
            Those of this sampler's predecessor, instead of those beyond their lease.

        """
        if not self._has_groups:
            self._create_groups()
        for stream in STREAMS:
            pending = self._client.xpending_range(
                stream, _SAMPLERS, "-", "+", MAX_ABANDONED,
                consumername=self._sampler if own else None, idle=None if own else 1000 * LEASE_SECONDS,
            )  # fmt: skip
            for entry in pending:
                request = self._claim(stream, entry, own=own)
                if request is not None:
                    yield request

    def finish(
        self,
        batch: DrawBatch,
        outcome: Outcome,
        problem: Problem | None = None,
        entries: Mapping[DrawAddress, Entry] | None = None,
    ) -> None:
        """Remove answered requests, and publish their outcome, with the draws if they are small."""
        if not batch.requests:
            return
        streams, ids = [request.stream for request in batch.requests], [request.id for request in batch.requests]
        messages: list[str | bytes] = []
        for reply in dict.fromkeys(request.reply for request in batch.requests):
            answered = DrawBatch([request for request in batch.requests if request.reply == reply])
            messages += [reply, _message(answered, outcome, problem, entries or {})]
        self._client.eval(_FINISH, len(streams), *streams, _SAMPLERS, *ids, *messages)

    def leave(self) -> None:
        """Remove this sampler from the streams in which it has no unanswered request; others claim those."""
        for stream in STREAMS:
            if not self._client.xpending_range(stream, _SAMPLERS, "-", "+", 1, consumername=self._sampler):
                self._client.xgroup_delconsumer(stream, _SAMPLERS, self._sampler)

    def _claim(self, stream: str, entry: Mapping[str, Any], *, own: bool) -> DrawRequest | None:
        """Claim a pending entry, which counts as a delivery; refuse it after `MAX_DELIVERIES`."""
        idle = 0 if own else 1000 * LEASE_SECONDS
        claimed: Any = self._client.xclaim(stream, _SAMPLERS, self._sampler, idle, [entry["message_id"]])
        if not claimed or claimed[0][1] is None:  # answered, or claimed by another sampler, meanwhile
            return None
        request = _request(stream, *claimed[0])
        if int(entry["times_delivered"]) < MAX_DELIVERIES:
            return request
        problem = refuse(
            "draw-ends-worker",
            500,
            f"Draw {request.key.index} of {request.name.split(' ')[0]} has ended {MAX_DELIVERIES} samplers.",
            "Request it as a job (POST /v1/posteriors/{id}/draws), which has a separate process and limit of memory; "
            "the log of the worker has the cause.",
        ).problem
        self.finish(DrawBatch([request]), "refused", problem)
        return None

    def _create_groups(self) -> None:
        for stream in STREAMS:
            try:
                self._client.xgroup_create(stream, _SAMPLERS, id="0", mkstream=True)
            except redis.ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
        self._has_groups = True


@dataclass(frozen=True)
class StreamState:
    """Length of the streams, the age of the oldest request in seconds, and how many are being drawn."""

    length: int
    oldest_seconds: float
    drawing: int


def stream_state(client: redis.Redis) -> StreamState:
    """Return the state of all streams; raises `redis.RedisError`."""
    seconds, micro = client.time()
    with client.pipeline(transaction=False) as pipeline:
        for stream in STREAMS:
            pipeline.xlen(stream)
            pipeline.xrange(stream, count=1)
            pipeline.xpending(stream, _SAMPLERS)
        replies = pipeline.execute(raise_on_error=False)
    lengths, firsts, pending = replies[::3], replies[1::3], replies[2::3]  # pending: an error without a group
    for reply in (*lengths, *firsts):
        if isinstance(reply, redis.RedisError):
            raise reply
    now = 1000 * int(seconds) + int(micro) / 1000
    ages = [now - int(text(first[0][0]).partition("-")[0]) for first in firsts if first]
    drawing = sum(int(summary["pending"]) for summary in pending if isinstance(summary, dict))
    return StreamState(sum(map(int, lengths)), max(0.0, *ages, 0.0) / 1000, drawing)


def _message(
    batch: DrawBatch, outcome: Outcome, problem: Problem | None, entries: Mapping[DrawAddress, Entry]
) -> bytes:
    """Return the message of an answer, which `draw_outcomes` reads."""
    draws: list[tuple[str, int, int]] = []
    parts: list[bytes] = []
    for key in batch.keys:
        entry = entries.get(key)
        fields = pack_entry(entry) if entry is not None and entry.nbytes <= MAX_SENT_BYTES else (b"", b"")
        draws.append((_draw(key), len(fields[0]), len(fields[1])))
        parts += fields
    details = None if problem is None else problem.to_dict()
    content = {"batch": batch.name, "outcome": outcome, "problem": details, "draws": draws}
    return b"\n".join((json.dumps(content).encode(), b"".join(parts)))


def draw_outcomes(message: bytes) -> dict[str, DrawAnswer]:
    """Return the answer for each draw in a message, by `waited_name`."""
    header, _, rest = message.partition(b"\n")
    content, start = json.loads(header), 0
    problem = None if content["problem"] is None else Problem.from_dict(content["problem"])
    answers = {}
    for draw, head_size, data_size in content["draws"]:
        data = memoryview(rest)[start + head_size : start + head_size + data_size]
        entry = parse_entry(rest[start : start + head_size], data)
        start += head_size + data_size
        answers[f"{content['batch']} {draw}"] = DrawAnswer(content["outcome"], problem, entry)
    return answers


def waited_name(posterior: str, key: DrawAddress) -> str:
    """Return the name of a draw in requests and answers."""
    return f"{posterior} {key.source} {key.align} {_draw(key)}"


def _stream(group: int) -> str:
    return f"glle:draws:{group}"


STREAMS = tuple(_stream(group) for group in range(GROUPS))


def _entries(reply: Any) -> list[tuple[str, Any, Any]]:
    """Return (stream, id, fields) of the reply to XREADGROUP, in RESP2 or RESP3."""
    pairs = reply.items() if isinstance(reply, dict) else reply or ()
    found = []
    for stream, value in pairs:
        entries = value[0] if value and isinstance(value[0], list) else value
        found += [(text(stream), id_, fields) for id_, fields in entries]
    return found


def _request(stream: str, id_: Any, fields: Mapping[Any, Any]) -> DrawRequest:
    values = {text(name): text(value) for name, value in fields.items()}
    seed, index, scale = values["draw"].split(":")
    _, source, align = values["name"].split(" ")
    key = DrawAddress(int(seed), int(index), float(scale), source, align)
    return DrawRequest(stream, text(id_), values["name"], key, json.loads(values["metadata"]), values["reply"])


def next_name(waiting: Sequence[DrawRequest], *, is_oldest: bool) -> tuple[str, int]:
    """Return posterior, source and alignment of the next batch, and the number of requests for it.

    They are those of the oldest request, or those of the most requests, whose lane group is full.
    """
    counts = Counter(request.name for request in waiting)
    name = waiting[0].name if is_oldest else counts.most_common(1)[0][0]
    return name, counts[name]


def next_batch(waiting: list[DrawRequest], size: int, *, is_oldest: bool) -> DrawBatch:
    """Remove up to `size` different draws of one posterior, source and alignment from the waiting requests."""
    name, _ = next_name(waiting, is_oldest=is_oldest)
    keys: dict[DrawAddress, None] = {}
    taken: list[DrawRequest] = []
    left: list[DrawRequest] = []
    for request in waiting:
        if request.name == name and (len(keys) < size or request.key in keys):
            keys[request.key] = None
            taken.append(request)
        else:
            left.append(request)
    waiting[:] = left
    return DrawBatch(taken)


def _draw(key: DrawAddress) -> str:
    return f"{key.seed}:{key.index}:{key.scale!r}"
