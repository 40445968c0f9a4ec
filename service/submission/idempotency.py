"""Idempotency-Key: the same key and body is the same answer, another body is refused.

What is asked for is named by its content already, so a replay shares the job or finds the result; the key adds that a
job that failed or was cancelled is told again, not done again, and that a reused key is noticed. Of two requests at
once with one key, one creates; the other is told to come back.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from fastapi import Header

from worker.base.problems import ProblemError, refuse
from worker.base.versions import read, written
from worker.records.ids import digest, text
from worker.records.tenants import DEFAULT, own

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from worker.jobs.store import Job
    from worker.stores import Stores

# For which a key is held by a request whose process died: its client waits as long. A creation that takes longer goes
# on; who asks meanwhile creates the same, named by its content.
CLAIM_SECONDS = 10

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A client's word: a repeat with the same key and body gets the same answer, by default for a day.",
    ),
]
IN_USE = "A request with this Idempotency-Key is being worked on."  # a 409, for the documentation of routes

# KEYS: name. ARGV: what is expected there (empty: nothing), what to put there, seconds it is kept.
_SWAP = """
local is = redis.call('GET', KEYS[1]) or ''
if is ~= ARGV[1] and not (is == '' and ARGV[4] == 'or nothing') then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
"""
# KEYS: name. ARGV: what is expected there.
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

T = TypeVar("T")


@dataclass(frozen=True)
class Answers(Generic[T]):
    """How answers of one kind are remembered: by a name that leads to them.

    Parameters
    ----------
    name
        Returns the name of an answer.
    recall
        Returns the answer of a name, as it is now; None when it is gone, and is to be created again.

    """

    name: Callable[[T], str]
    recall: Callable[[str], T | None]


def once(stores: Stores, key: str | None, request: tuple[str, Any], create: Callable[[], Job]) -> Job:
    """Return the job that was created under `key`, or create it now; see `remembered`."""
    return remembered(stores, key, request, create, Answers(name=lambda job: job.id, recall=stores.jobs.get))


def remembered(
    stores: Stores, key: str | None, request: tuple[str, Any], create: Callable[[], T], answers: Answers[T]
) -> T:
    """Return what was created under `key`, or create it now; without a key, create it.

    Parameters
    ----------
    request
        The route and the body, JSON-able: what must be the same.

    Raises
    ------
    ProblemError
        ``idempotency-key-reused`` when it is not; ``idempotency-key-in-use`` while another request creates it;
        ``redis-full`` for a new key. What `create` raises frees the key.

    """
    if key is None:
        return create()
    name, asked = _name(stores, key), digest(*request)
    if stores.room.is_full and not stores.client.exists(name):  # what is remembered is answered
        raise stores.room.refusal()
    claim = written("idempotency", {"asked": asked, "claim": secrets.token_hex(8)})
    while not _swap(stores.client, name, "", claim, CLAIM_SECONDS):
        known = text(stores.client.get(name) or "")
        if not known:  # freed just now
            continue
        state = read("idempotency", f"What is known of the Idempotency-Key {key!r}", known, dict)
        if state["asked"] != asked:
            raise _reused(key)
        if "made" not in state:
            raise _in_use(key)
        if (answer := answers.recall(state["made"])) is not None:
            return answer
        if _swap(stores.client, name, known, claim, CLAIM_SECONDS):
            break
    try:
        made = create()
    except BaseException:
        stores.client.eval(_RELEASE, 1, name, claim)
        raise
    remembering = written("idempotency", {"asked": asked, "made": answers.name(made)})
    # Nothing: it took longer than the claim.
    _swap(stores.client, name, claim, remembering, stores.settings.idempotency_ttl, or_nothing=True)
    return made


def content_digest(file: IO[bytes]) -> str:
    """Return the digest of a file that stands at its beginning, and rewind it."""
    found = hashlib.sha256()
    while piece := file.read(2**20):
        found.update(piece)
    file.seek(0)
    return found.hexdigest()


def _name(stores: Stores, key: str) -> str:
    """Return where what is known of a key is kept: a tenant's keys are its own."""
    return own(f"glle:idempotency:{digest(key)}", stores.tenant or DEFAULT)


def _swap(client: redis.Redis, name: str, expected: str, state: str, seconds: int, *, or_nothing: bool = False) -> bool:
    return bool(client.eval(_SWAP, 1, name, expected, state, seconds, "or nothing" if or_nothing else ""))


def _reused(key: str) -> ProblemError:
    detail = f"The Idempotency-Key {key!r} was used with another request."
    return refuse("idempotency-key-reused", 422, detail, "Choose a new key for a new request.")


def _in_use(key: str) -> ProblemError:
    return refuse(
        "idempotency-key-in-use",
        409,
        f"Another request with the Idempotency-Key {key!r} is being worked on.",
        "Send it again in a moment (see Retry-After): it then gets the answer of the first.",
    )
