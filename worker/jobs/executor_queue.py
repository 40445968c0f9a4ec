"""What executors wait for: requests for single draws, and short tasks.

A request for a draw is not a job. Requests of one posterior, source and alignment are in one list, so that an executor
takes a whole lane group of them, whatever client, seed or scale they have:

    <queue>:asked                       tenants that wait; each takes its turn
    <queue>:asked:<tenant>              posteriors that wait; each takes its turn
    <queue>:asked:<tenant>:<posterior>  draws that wait

A request has no lease. The API process that sent it waits for a message of its end, and sends it again if none comes;
the draw is in the cache by then, or it is made again with the same bits.

A short task is in the lines of `worker.jobs.priority_scripts`. An executor holds a lease on each task that it has
begun. Its tasks return to their lines when it dies, or when the lease ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from worker.base.clock import now_iso, now_ms
from worker.base.numerics import numbers_for
from worker.base.versions import queue_name, short_queue
from worker.jobs import priority_scripts
from worker.jobs.rq_types import script_keys
from worker.observability.live_workers import begun_key
from worker.observability.request_context import task_metadata
from worker.records.draws import DrawKey
from worker.records.ids import text
from worker.records.tenants import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import redis

    from worker.base.problems import Problem
    from worker.storage.posteriors import PosteriorRecord

DRAWN = "glle:drawn"  # the channel of the ends of requests
REQUEST_SECONDS = 30  # after the last request of a posterior, if no executor takes them, they are dropped
ENDED_SECONDS = 60  # the record of an ended task stays so long
LEASE_BEATS = 4  # heartbeats without renewal, after which an executor counts as dead

# Adds a request. KEYS: tenants, posteriors of the tenant, draws of the posterior. ARGV: tenant, posterior, request, 1
# if it is sent again. The first request of a posterior adds the posterior, the first posterior adds the tenant.
_ASK = f"""
if ARGV[4] == '1' then
  if not redis.call('LPOS', KEYS[3], ARGV[3]) then redis.call('RPUSH', KEYS[3], ARGV[3]) end
  if not redis.call('LPOS', KEYS[2], ARGV[2]) then redis.call('RPUSH', KEYS[2], ARGV[2]) end
  if not redis.call('LPOS', KEYS[1], ARGV[1]) then redis.call('RPUSH', KEYS[1], ARGV[1]) end
  redis.call('EXPIRE', KEYS[3], {REQUEST_SECONDS})
  return
end
local waiting = redis.call('RPUSH', KEYS[3], ARGV[3])
redis.call('EXPIRE', KEYS[3], {REQUEST_SECONDS})
if waiting > 1 then return end
if redis.call('RPUSH', KEYS[2], ARGV[2]) == 1 then redis.call('RPUSH', KEYS[1], ARGV[1]) end
"""

# Takes requests of a tenant's next posterior; both go last if they have more. KEYS: tenants. ARGV: maximum, the tenant,
# if it was taken already. Returns the posterior and its requests, or nothing.
_TAKE = """
local tenant = ARGV[2] or redis.call('LPOP', KEYS[1])
if not tenant then return nil end
local posteriors = KEYS[1] .. ':' .. tenant
local posterior = redis.call('LPOP', posteriors)
if not posterior then return nil end
local draws = posteriors .. ':' .. posterior
local requests = redis.call('LPOP', draws, ARGV[1]) or {}
local has_more = #requests == tonumber(ARGV[1]) and redis.call('EXISTS', draws) == 1
if has_more then redis.call('RPUSH', posteriors, posterior) end
if redis.call('EXISTS', posteriors) == 1 then redis.call('RPUSH', KEYS[1], tenant) end
return {posterior, requests}
"""

Outcome = Literal["drawn", "refused", "job"]


@dataclass(frozen=True)
class DrawBatch:
    """Requests for draws of one posterior, with one source and one alignment.

    Parameters
    ----------
    name
        Of the posterior, source and alignment, in messages and keys.
    posterior, arrays_id
        The posterior's id, and the name of its arrays (`PosteriorRecord.arrays_id`).
    keys
        The draws, each once.
    metadata
        Request id and trace of the first request.

    """

    name: str
    posterior: str
    arrays_id: str
    keys: list[DrawKey]
    metadata: dict[str, str]


@dataclass(frozen=True)
class ShortTask:
    """A short task that an executor has begun.

    Parameters
    ----------
    name, arguments
        Of its handler.
    metadata
        Request id and trace of the request that enqueued it.
    enqueued
        Time, in ISO format.
    attempts
        Number of its begins.

    """

    id: str
    name: str
    arguments: list[Any]
    metadata: dict[str, str]
    enqueued: str
    attempts: int


class DrawRequests:
    """The requests of an API process."""

    def __init__(self, client: redis.Redis, tenant: str | None = None) -> None:
        self._client = client
        self._tenant = tenant or DEFAULT
        self._ask = client.register_script(_ASK)

    def of(self, tenant: str) -> DrawRequests:
        """Return the requests of a tenant."""
        return DrawRequests(self._client, tenant)

    def send(self, record: PosteriorRecord, key: DrawKey, *, again: bool = False) -> None:
        """Request a draw; `again` if an earlier request for it may be lost."""
        tenants = _asked(short_queue(queue_name(numbers_for(record.numbers))))
        posteriors, name = f"{tenants}:{self._tenant}", batch_name(record, key)
        request = json.dumps([key.seed, key.index, key.scale, task_metadata()])
        self._ask(keys=[tenants, posteriors, f"{posteriors}:{name}"], args=[self._tenant, name, request, int(again)])


class ExecutorQueue:
    """The queue of one executor.

    Parameters
    ----------
    client
        The queue's Redis.
    queue
        The queue of its worker.
    executor
        Its name.
    heartbeat
        Seconds between two renewals of a lease.

    """

    def __init__(self, client: redis.Redis, *, queue: str, executor: str, heartbeat: int = 5) -> None:
        self._client = client
        self._executor = executor
        self._lease_ms = 1000 * LEASE_BEATS * heartbeat
        self._queue = short_queue(queue)
        self._tenants = _asked(self._queue)
        self._keys = [*script_keys(self._queue), begun_key(self._queue)]
        self._take = client.register_script(_TAKE)
        self._begin = client.register_script(priority_scripts.BEGIN)
        self._end = client.register_script(priority_scripts.END)
        self._return = client.register_script(priority_scripts.RETURN)
        self._passed = 0  # lane groups since the last task
        self._is_busy = False  # whether the last work were requests

    def wait(self, lanes: int, seconds: int) -> DrawBatch | ShortTask | None:
        """Return the next requests or the next task, waiting for one; None after some seconds.

        Requests go first. After `MOST_PASSED` lane groups a task that waits is next.
        """
        lists = [self._tenants, self._keys[0]]
        if self._passed >= priority_scripts.MOST_PASSED:
            lists.reverse()
        elif self._is_busy and (batch := self.batch(lanes)) is not None:  # one command under load, not two
            self._passed += 1
            return batch
        self._is_busy = False
        popped = self._client.blpop(lists, timeout=seconds)
        if popped is None:
            return None
        source, value = map(text, popped)
        if source == self._tenants:
            self._passed += 1
            self._is_busy = True
            return self.batch(lanes, value)
        self._passed = 0
        return self._task(value)

    def batch(self, lanes: int, *tenant: str) -> DrawBatch | None:
        """Return at most `lanes` requests that wait, of the next tenant or of one that was taken already, or None."""
        raw = self._take(keys=[self._tenants], args=[lanes, *tenant])
        if raw is None or not raw[1]:
            return None
        name = text(raw[0])
        posterior, arrays_id, source, align = name.split(" ")
        requests = [json.loads(request) for request in raw[1]]
        keys = {DrawKey(seed, index, scale, source, align): None for seed, index, scale, _ in requests}
        return DrawBatch(name, posterior, arrays_id, list(keys), requests[0][3])

    def publish(
        self, batch: DrawBatch, keys: Sequence[DrawKey], outcome: Outcome, problem: Problem | None = None
    ) -> None:
        """Tell the requests for some draws of a batch their outcome."""
        details = None if problem is None else problem.to_dict()
        message = {"batch": batch.name, "draws": [_draw(key) for key in keys], "outcome": outcome, "problem": details}
        self._client.publish(DRAWN, json.dumps(message))

    def end(self, task: ShortTask) -> None:
        """End a task."""
        self._end(keys=[self._keys[2]], args=[task.id, self._executor, ENDED_SECONDS])

    def renew(self, task: str) -> None:
        """Renew the lease of a task."""
        expiry = now_ms() + self._lease_ms
        self._client.zadd(self._keys[2], {f"{task}:{self._executor}": expiry}, xx=True)

    def give_back(self) -> None:
        """Return the tasks of this executor, which has died, and have lost requests sent again."""
        self._return(keys=self._keys, args=[self._executor, now_ms()])
        self._client.publish(DRAWN, "")

    def _task(self, id_: str) -> ShortTask | None:
        raw = self._begin(keys=self._keys, args=[id_, self._executor, now_ms() + self._lease_ms])
        if raw is None:
            return None
        name, arguments, metadata = json.loads(raw[0])
        return ShortTask(id_, name, arguments, metadata, text(raw[1]), int(raw[2]))


def return_expired(client: redis.Redis, queue: str) -> None:
    """Return the short tasks of a queue's workers whose leases have ended, because their machines are gone."""
    short = short_queue(queue)
    keys = [*script_keys(short), begun_key(short)]
    client.register_script(priority_scripts.RETURN)(keys=keys, args=["", now_ms()])


def draw_outcomes(message: str) -> dict[str, Mapping[str, Any]]:
    """Return the outcome of each draw in a message, by `waited_name`; an empty message has none."""
    if not message:
        return {}
    content = json.loads(message)
    return {f"{content['batch']} {draw}": content for draw in content["draws"]}


def waited_name(record: PosteriorRecord, key: DrawKey) -> str:
    """Return the name of a draw in messages."""
    return f"{batch_name(record, key)} {_draw(key)}"


def batch_name(record: PosteriorRecord, key: DrawKey) -> str:
    """Return the name of the posterior, source and alignment of a draw."""
    return f"{record.id} {record.arrays_id} {key.source} {key.align}"


def short_fields(name: str, arguments: list[Any]) -> dict[str, Any]:
    """Return the record of a short task."""
    task = json.dumps([name, arguments, task_metadata()])
    return {"task": task, "status": "queued", "enqueued_at": now_iso(), "attempts": 0}


def _asked(queue: str) -> str:
    return f"{script_keys(queue)[0]}:asked"


def _draw(key: DrawKey) -> str:
    return f"{key.seed}:{key.index}:{key.scale!r}"
