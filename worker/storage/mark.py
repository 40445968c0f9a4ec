"""Mark beside the files: it shows when the records or the files of a service are lost.

Records are in the queue's Redis and their files in the object store, so either half may be lost without the other. Each
half therefore says what the other half must have:

    data/mark/records.json   in the store: the id of the service; the number of changes of its records, and the numbers
                             of records, at some time; and whether API keys existed
    glle:service             in Redis, a hash: the id of the service; `marked` once the store has the mark; and
                             `changes`, how often records of any kind have changed, which only grows
                             (`worker.storage.records`)

If Redis has another id, or fewer changes than the mark, records are lost: the server was replaced, was emptied, or
returned to an earlier state. If Redis has `marked` and `changes`, and the store has no mark, the files are lost. A
comparison takes one round trip to Redis, and the mark is read at most every `READ_SECONDS`. Nothing is listed.

API processes write the mark. A failover of Redis may lose the last moments (docs/how-to/storage.md), so the mark has a
number of changes that is at least `SETTLED_SECONDS` old; the first mark has 1. All kinds of records are compared;
messages give numbers for `KINDS` only.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import redis

from worker.base.clock import now_iso
from worker.base.problems import ProblemError, refuse
from worker.base.versions import dump_record, load_record
from worker.records.ids import text
from worker.storage.object_store.files import FOLDER
from worker.storage.records import CHANGES, KEYS, SERVICE, USAGE_OF_ALL

if TYPE_CHECKING:
    from worker.storage.object_store.backend import Bucket

MARK_FOLDER = f"{FOLDER}/mark/"  # beside the files, so that both are lost together
PATH = f"{MARK_FOLDER}records.json"
KINDS = ("datasets", "posteriors", "embeddings", "results", KEYS)  # counters that messages show
MAX_BYTES = 4096  # a larger file is not a mark
READ_SECONDS = 10.0
RENEW_SECONDS = 10  # pause between two checks of an API process whether records have changed
SETTLED_SECONDS = 60.0
_ACCEPT = "To go on with what is left, run `glle doctor --accept-loss`."


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What the store knows of the records.

    Parameters
    ----------
    service
        Random id of the service.
    changes
        Number of changes of records until `at`.
    records
        Numbers of records at the time `at`, by counter.
    has_keys
        Whether API keys existed, revoked ones included.
    at
        Time to which the numbers refer, ISO.

    """

    service: str
    changes: int
    records: dict[str, int]
    has_keys: bool
    at: str


@dataclass(frozen=True, kw_only=True)
class _RedisState:
    """What Redis knows: the id of the service, whether the store has its mark, and the records as in `Mark`."""

    service: str | None
    is_marked: bool
    changes: int
    records: dict[str, int]
    has_keys: bool


class RecordsMark:
    """The mark of a service, compared with its records.

    Parameters
    ----------
    client
        The queue's Redis.
    bucket
        The store of the files.

    """

    def __init__(self, client: redis.Redis, bucket: Bucket) -> None:
        self._client = client
        self._bucket = bucket
        self._mark: Mark | None = None
        self._read_again = 0.0  # monotonic time of the next reading of the mark
        self._reading: tuple[float, _RedisState] | None = None  # monotonic time, and the state at that time

    def find_loss(self) -> ProblemError | None:
        """Return ``records-lost`` or ``files-lost``, or None if records and files belong together.

        Raises
        ------
        ProblemError
            ``store-unavailable``, if the mark has never been read. If the store fails later, the mark that was read
            last is used.
        redis.RedisError

        """
        if _compare(self._read_mark(), self._read_redis()) is None:
            return None
        state = self._read_redis()
        self._read_again = 0.0  # another process may have written the mark and Redis in between
        return _compare(self._read_mark(), state)

    def require_no_loss(self) -> None:
        """Raise the problem that `find_loss` returns, if any."""
        if (loss := self.find_loss()) is not None:
            raise loss

    def start_refusal(self) -> str:
        """Return why a process must not start, or an empty text; servers that do not answer are left to /readyz."""
        loss = None
        with suppress(ProblemError, redis.RedisError):
            loss = self.find_loss()
        return "" if loss is None else f"It does not start. {loss.problem.detail} {loss.problem.remedy}"

    def renew(self) -> None:
        """Write the mark after the first record, after the first key, and for changes that are old enough.

        A mark that shows a loss is not changed. Raises ``store-unavailable``, ``storage-full`` and `redis.RedisError`.
        """
        if self.find_loss() is not None:
            return
        mark, state = self._read_mark(), self._read_redis()
        if mark is None:
            if state.changes:
                self._client.hsetnx(SERVICE, "id", secrets.token_hex(16))
                state = self._read_redis()
                assert state.service is not None
                self._write(replace(_mark_of(state, state.service), changes=1))  # further changes may not be old enough
        elif (settled := self._find_settled(state)) is not None and settled.changes > mark.changes:
            self._write(replace(_mark_of(settled, mark.service), has_keys=mark.has_keys or state.has_keys))
        elif state.has_keys and not mark.has_keys:
            self._write(replace(mark, has_keys=True))

    def accept_loss(self) -> None:
        """Take the records and files that are left as the whole service, under a new id; raises as `renew`."""
        self._write(_mark_of(self._read_redis(), secrets.token_hex(16)))

    def _write(self, mark: Mark) -> None:
        raw = dump_record(asdict(mark)).encode()
        self._bucket.write(PATH, [raw], len(raw))
        self._client.hset(SERVICE, mapping={"id": mark.service, "marked": 1})
        self._mark, self._read_again = mark, time.monotonic() + READ_SECONDS

    def _read_mark(self) -> Mark | None:
        if (now := time.monotonic()) < self._read_again:
            return self._mark
        try:
            raw = self._bucket.read(PATH, 0, MAX_BYTES)
        except ProblemError:
            if self._mark is None:
                raise
            return self._mark
        self._mark = None if raw is None else load_record("The mark beside the files", raw, lambda it: Mark(**it))
        self._read_again = now + READ_SECONDS
        return self._mark

    def _read_redis(self) -> _RedisState:
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(SERVICE)
            pipeline.hgetall(USAGE_OF_ALL)
            replies = pipeline.execute()
        service, usage = ({text(name): text(value) for name, value in reply.items()} for reply in replies)
        return _RedisState(
            service=service.get("id"),
            is_marked="marked" in service,
            changes=int(service.get(CHANGES, 0)),
            records={kind: count for kind in KINDS if (count := int(usage.get(kind, 0)))},
            has_keys=KEYS in usage,  # the counter exists from the first key on
        )

    def _find_settled(self, state: _RedisState) -> _RedisState | None:
        """Return the former reading of the counters if it is old enough, and keep the present one for the next call."""
        now = time.monotonic()
        if self._reading is None:
            self._reading = now, state
            return None
        since, former = self._reading
        if now - since < SETTLED_SECONDS:
            return None
        self._reading = now, state
        return former


def _mark_of(state: _RedisState, service: str) -> Mark:
    return Mark(service=service, changes=state.changes, records=state.records, has_keys=state.has_keys, at=now_iso())


def _compare(mark: Mark | None, state: _RedisState) -> ProblemError | None:
    """Return the loss that a mark and the state of Redis show, or None."""
    facts: dict[str, Any] = {"records": state.records, "changes": state.changes}
    if mark is None:
        if not (state.is_marked and state.changes):
            return None
        return refuse(
            "files-lost",
            503,
            f"The queue's Redis has records ({_list_records(state.records)}), and the folder or bucket of their files "
            "has no mark of them: it is another one, or was emptied.",
            "Set GLLE_DATA_DIR and GLLE_STORE_URL to the folder or bucket of the files, as on the other machines of the"
            f" service, or restore a backup. {_ACCEPT}",
            **facts,
        )
    if state.service == mark.service and state.changes >= mark.changes and (state.has_keys or not mark.has_keys):
        return None
    other = " of another service" if state.service not in {None, mark.service} else ""
    return refuse(
        "records-lost",
        503,
        f"At {mark.at} the service of these files had records ({_list_records(mark.records)}) after {mark.changes:,} "
        f"changes; the queue's Redis now has records{other} ({_list_records(state.records)}) after {state.changes:,}. "
        "It is another server, was emptied, or has lost what it had written.",
        "Bring back the server of these files: set GLLE_REDIS_URL to it, or for `glle up` put back the folder queue of "
        "the data folder. If the server is the right one, check its line `user default` and restart it from its "
        f"append-only file, or restore a backup (docs/how-to/storage.md). {_ACCEPT}",
        marked=mark.records,
        marked_changes=mark.changes,
        at=mark.at,
        **facts,
    )


def _list_records(records: dict[str, int]) -> str:
    """Return numbers of records as text, such as ``datasets: 2, keys: 1``."""
    return ", ".join(f"{kind}: {count:,}" for kind, count in records.items()) or "none"
