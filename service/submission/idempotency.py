"""Idempotency-Key: the same key and body have the same answer, and another body is refused.

Results are content-addressed, so that a replay shares the job or the result even without a key. With a key, a failed
or cancelled job is reported again and not run again. Of two concurrent requests with one key, the second gets 409.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from fastapi import Header

from worker.base.problems import refuse
from worker.base.versions import dump_record, load_record
from worker.records.ids import DEFAULT, digest, tenant_key, text
from worker.records.quotas import MAX_IDEMPOTENCY_KEYS, too_many_idempotency_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.jobs.store import Job
    from worker.storage.datasets import Dataset
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

# How long a key stays claimed by a request whose process died. A creation that takes longer goes on; a second request
# then creates the same content-addressed result.
CLAIM_SECONDS = 10
ANSWER_SECONDS = 86400  # an answer is kept so long, but no longer than the record of an ended job

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Chosen by the client: a repeat with the same body gets the same answer, for a day at most.",
    ),
]
IN_USE = "Another request with this Idempotency-Key is in progress."  # documents the 409 of routes

# KEYS: name, names of the tenant by expiry. ARGV: expected value (empty: none), new value, expiry in seconds, 'or
# nothing' to accept an expired key, most names. Returns 1, or 0 for another value, or for a name too many minus the
# seconds until one expires. With 'or nothing' a name is always stored, because its request was accepted.
_SWAP = """
local is = redis.call('GET', KEYS[1]) or ''
if is ~= ARGV[1] and not (is == '' and ARGV[4] == 'or nothing') then return 0 end
local now, seconds = tonumber(redis.call('TIME')[1]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if is == '' and ARGV[4] == '' and redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
    return now - tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
end
redis.call('SET', KEYS[1], ARGV[2], 'EX', seconds)
redis.call('ZADD', KEYS[2], now + seconds, KEYS[1])
if redis.call('TTL', KEYS[2]) < seconds then redis.call('EXPIRE', KEYS[2], seconds) end
return 1
"""
# KEYS: name, names of the tenant by expiry. ARGV: expected value.
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
    redis.call('ZREM', KEYS[2], KEYS[1])
end
"""

T = TypeVar("T")
R = TypeVar("R", "Dataset", "PosteriorRecord")


@dataclass(frozen=True)
class Answers(Generic[T]):
    """Conversion between answers of one kind and their stored names.

    Parameters
    ----------
    name
        Returns the name of an answer.
    recall
        Returns the current answer of a name, or None if it must be created again.

    """

    name: Callable[[T], str]
    recall: Callable[[str], T | None]


def creations(get: Callable[[str], R | None]) -> Answers[tuple[R, bool]]:
    """Return the stored form of a record and whether it is new: its id, and the word `known` if it existed before."""

    def recall(name: str) -> tuple[R, bool] | None:
        id_, _, existed = name.partition(" ")
        record = get(id_)
        return None if record is None else (record, not existed)

    return Answers(name=lambda answer: answer[0].id if answer[1] else f"{answer[0].id} known", recall=recall)


def create_job_once(stores: Stores, key: str | None, request: tuple[str, Any], create: Callable[[], Job]) -> Job:
    """Return the job of an Idempotency-Key, or create it; see `recall_or_create`."""
    return recall_or_create(stores, key, request, create, Answers(name=lambda job: job.id, recall=stores.jobs.get))


def recall_or_create(
    stores: Stores, key: str | None, request: tuple[str, Any], create: Callable[[], T], answers: Answers[T]
) -> T:
    """Return the answer of an Idempotency-Key, or create it; an exception of `create` releases the key.

    Parameters
    ----------
    request
        Route and JSON-able body, which must be equal in a repeat.

    Raises
    ------
    ProblemError
        ``idempotency-key-reused`` for another request; ``idempotency-key-in-use`` while another request creates the
        answer; ``redis-full`` for a new key, and ``quota-exceeded`` for one beyond the tenant's keys.

    """
    if key is None:
        return create()
    name, request_digest = _name(stores, key), digest(*request)
    if stores.room.is_full and not stores.client.exists(name):  # stored answers need no room
        raise stores.room.refusal()
    claim = dump_record({"asked": request_digest, "claim": secrets.token_hex(8)})
    while not _swap(stores, name, "", claim, CLAIM_SECONDS):
        stored = text(stores.client.get(name) or "")
        if not stored:  # released just now
            continue
        state = load_record(f"The record of the Idempotency-Key {key!r}", stored, dict)
        if state["asked"] != request_digest:
            detail = f"The Idempotency-Key {key!r} was used with another request."
            raise refuse("idempotency-key-reused", 422, detail, "Choose a new key for a new request.")
        if "made" not in state:
            raise refuse(
                "idempotency-key-in-use",
                409,
                f"Another request with the Idempotency-Key {key!r} is in progress.",
                "Send the request again in a moment (see Retry-After) to get the answer of the first.",
            )
        if (answer := answers.recall(state["made"])) is not None:
            return answer
        if _swap(stores, name, stored, claim, CLAIM_SECONDS):
            break
    try:
        answer = create()
    except BaseException:
        stores.client.eval(_RELEASE, 2, name, _names(stores), claim)
        raise
    record = dump_record({"asked": request_digest, "made": answers.name(answer)})
    # The claim has expired if the creation took longer.
    seconds = min(ANSWER_SECONDS, stores.settings.job_ttl)
    _swap(stores, name, claim, record, seconds, or_nothing=True)
    return answer


def kept_keys(stores: Stores) -> tuple[int, float]:
    """Return the number of the tenant's keys, and the seconds until all have expired."""
    seconds, _ = stores.client.time()
    names = _names(stores)
    return int(stores.client.zcount(names, f"({seconds}", "+inf")), float(max(0, stores.client.ttl(names)))


def content_digest(file: IO[bytes]) -> str:
    """Return the SHA-256 of a file from its current position, and rewind it."""
    sha256 = hashlib.sha256()
    while piece := file.read(2**20):
        sha256.update(piece)
    file.seek(0)
    return sha256.hexdigest()


def _name(stores: Stores, key: str) -> str:
    """Return the Redis key of an Idempotency-Key, within its tenant."""
    return tenant_key(f"glle:idempotency:{digest(key)}", stores.tenant or DEFAULT)


def _names(stores: Stores) -> str:
    """Return the Redis key of the index of a tenant's names."""
    return tenant_key("glle:idempotency-names", stores.tenant or DEFAULT)


def _swap(stores: Stores, name: str, expected: str, state: str, seconds: int, *, or_nothing: bool = False) -> bool:
    """Replace the state of a name; return whether it was the expected one. Raise ``quota-exceeded`` for a new name."""
    arguments = (expected, state, seconds, "or nothing" if or_nothing else "", MAX_IDEMPOTENCY_KEYS)
    result = int(stores.client.eval(_SWAP, 2, name, _names(stores), *arguments))
    if result < 0:
        raise too_many_idempotency_keys(stores.tenant or DEFAULT, MAX_IDEMPOTENCY_KEYS, -result)
    return result == 1
