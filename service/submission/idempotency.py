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
from worker.records.ids import digest, text
from worker.records.tenants import DEFAULT, tenant_key

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from worker.jobs.store import Job
    from worker.stores import Stores

# How long a key stays claimed by a request whose process died. A creation that takes longer goes on; a second request
# then creates the same content-addressed result.
CLAIM_SECONDS = 10

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Chosen by the client: a repeat with the same body gets the same answer, for a day by default.",
    ),
]
IN_USE = "Another request with this Idempotency-Key is in progress."  # documents the 409 of routes

# KEYS: name. ARGV: expected value (empty: none), new value, expiry in seconds, 'or nothing' to accept an expired key.
_SWAP = """
local is = redis.call('GET', KEYS[1]) or ''
if is ~= ARGV[1] and not (is == '' and ARGV[4] == 'or nothing') then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
"""
# KEYS: name. ARGV: expected value.
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

T = TypeVar("T")


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


def once(stores: Stores, key: str | None, request: tuple[str, Any], create: Callable[[], Job]) -> Job:
    """Return the job of an Idempotency-Key, or create it; see `remembered`."""
    return remembered(stores, key, request, create, Answers(name=lambda job: job.id, recall=stores.jobs.get))


def remembered(
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
        answer; ``redis-full`` for a new key.

    """
    if key is None:
        return create()
    name, request_digest = _name(stores, key), digest(*request)
    if stores.room.is_full and not stores.client.exists(name):  # stored answers need no room
        raise stores.room.refusal()
    claim = dump_record({"asked": request_digest, "claim": secrets.token_hex(8)})
    while not _swap(stores.client, name, "", claim, CLAIM_SECONDS):
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
        if _swap(stores.client, name, stored, claim, CLAIM_SECONDS):
            break
    try:
        answer = create()
    except BaseException:
        stores.client.eval(_RELEASE, 1, name, claim)
        raise
    record = dump_record({"asked": request_digest, "made": answers.name(answer)})
    # The claim has expired if the creation took longer.
    _swap(stores.client, name, claim, record, stores.settings.idempotency_ttl, or_nothing=True)
    return answer


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


def _swap(client: redis.Redis, name: str, expected: str, state: str, seconds: int, *, or_nothing: bool = False) -> bool:
    return bool(client.eval(_SWAP, 1, name, expected, state, seconds, "or nothing" if or_nothing else ""))
