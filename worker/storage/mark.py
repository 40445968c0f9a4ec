"""The mark: a small file beside the stored files, by which processes notice that records or files are lost.

Records are in the queue's Redis and their files in the object store, so the records may be lost without the files, or
the files without the records. Redis and the store therefore each say what the other one must have:

    data/mark/records.json   in the store: the id of the service; the number of changes of its records, and the numbers
                             of records, at some time; whether API keys existed; and the schema
    glle:service             in Redis, a hash: the id of the service; `marked` once the store has the mark; and, written
                             with each change of a record (`worker.storage.records`), `changes`, how often records of
                             any kind have changed, which only grows, and `schema`

`RecordsMark.find_loss` compares the two. Its outcome is None, or one of `LOSSES`:

    records-lost   Redis has another id or fewer changes than the mark: the server was replaced, was emptied, or went
                   back to an earlier state. Or Redis is empty, and the store has files but no mark
    files-lost     Redis has `marked` and `changes`, and the store has no mark
    other-schema   the mark or the records were written by a version with another schema
    mark-damaged   the mark cannot be read

`find_loss` is called at every start, by `/readyz`, `/metrics`, the commands and the sweep, and for each request that
may write; a request that only reads uses an outcome of the last second. A comparison takes one round trip to Redis. The
mark is read at most every `MARK_READ_SECONDS`, but anew for each request that may write. Files are looked for only if
Redis does not know the service.

The mark is written before the first file and the first record. API processes renew the mark, and write it once more
when they stop. A failover of Redis may lose the changes of the last moments (docs/how-to/storage.md), and this must not
count as a loss. The mark of a running service therefore lags behind: it has the number of changes that Redis had
`CHANGE_SETTLING_SECONDS` to `CHANGE_SETTLING_SECONDS` + `RENEW_SECONDS` ago. The first change of a new service is an
exception: the next renewal already writes a mark with 1 change, so that an emptied Redis is noticed from then on.
Records of all kinds are compared; messages give numbers for `KINDS` only.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pydantic.dataclasses
import redis

from worker.base.clock import now_iso
from worker.base.problems import ProblemError, refuse
from worker.base.versions import SCHEMA, dump_record, load_record, other_schema
from worker.records.ids import text
from worker.records.stored_file import STORED
from worker.storage.object_store.files import FOLDER
from worker.storage.records import CHANGES, KEYS, SCHEMA_OF_RECORDS, SERVICE, USAGE_OF_ALL

if TYPE_CHECKING:
    from worker.storage.object_store.backend import Bucket

LOSSES = ("records-lost", "files-lost", "other-schema", "mark-damaged")  # codes of the errors of `find_loss`
MARK_FOLDER = f"{FOLDER}/mark/"  # in the folder of the files, so that mark and files are lost together
PATH = f"{MARK_FOLDER}records.json"
KINDS = ("datasets", "posteriors", "embeddings", "results", KEYS)  # counters of records that messages show
MAX_MARK_BYTES = 4096  # a larger file is not a mark
# A request that only reads accepts the outcome of a check for losses that is at most this old.
MAX_CHECK_AGE_SECONDS = 1.0
MARK_READ_SECONDS = 10.0  # the mark is read again from the store when it was read longer ago than this
RENEW_SECONDS = 10  # each API process checks this often whether records have changed, to write the mark again
# A change is written to the mark when it is this old, as a failover of Redis should no longer lose it.
CHANGE_SETTLING_SECONDS = 30.0
MAX_LAST_WRITES = 3  # a stopping process writes the mark at most this often if other processes go on changing records
_ACCEPT = "To go on with what is left, run `glle doctor --accept-loss`."


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class Mark:
    """Content of the mark, a file beside the stored files: which records Redis had at some time, to notice losses.

    Parameters
    ----------
    service
        Random id of the service.
    changes
        Number of changes of records up to the time `at`.
    records
        Number of records at the time `at`, by kind (`KINDS`).
    has_keys
        Whether API keys were ever created, even if all are revoked.
    at
        Time at which the numbers were read, ISO.

    """

    service: str
    changes: int
    records: dict[str, int]
    has_keys: bool
    at: str

    @property
    def is_blank(self) -> bool:
        """Whether the mark says nothing about records, because it was written before the first record and API key."""
        return not (self.changes or self.has_keys)


@dataclass(frozen=True, kw_only=True)
class _RedisState:
    """What Redis says now, to be compared with the mark, the file that says what Redis had earlier (`Mark`).

    Parameters
    ----------
    service
        Id of the service, or None if Redis has none.
    is_marked
        Whether the mark was written.
    changes, records, has_keys
        The same as in `Mark`.
    schema
        Version of the schema of the records; 0 if Redis has none.

    """

    service: str | None
    is_marked: bool
    changes: int
    schema: int
    records: dict[str, int]
    has_keys: bool


class RecordsMark:
    """Finds losses of records and files, by comparing Redis with the mark; also writes the mark.

    The mark is a small file beside the stored files, which says what records Redis had.

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
        # The mark as this process has last read or written it; None if it was not read yet, or the store has none.
        self._mark: Mark | None = None
        # Monotonic times of the last reading of the mark, and of the last failed attempt; at first long ago.
        self._read_at = self._failed_at = -MARK_READ_SECONDS
        self._has_read = False
        # States of Redis that are not in the mark yet, with their monotonic times. They are written to the mark when
        # they are `CHANGE_SETTLING_SECONDS` old, because a failover of Redis then no longer loses them.
        self._settling: deque[tuple[float, _RedisState]] = deque()
        self._state: _RedisState | None = None  # state of Redis at the last check
        # Loss that `require_no_recent_loss` found at its last check, or None; and the monotonic time of this check, at
        # first so long ago that the first request makes a check.
        self._loss: ProblemError | None = None
        self._checked_at = -MAX_CHECK_AGE_SECONDS

    def find_loss(self, max_age: float = MARK_READ_SECONDS) -> ProblemError | None:
        """Compare Redis with the mark, the file beside the stored files that says what records Redis had.

        Return an error whose code is one of `LOSSES`, or None if neither records nor files are lost.

        Parameters
        ----------
        max_age
            The mark is read again from the store if it was read longer ago than this, in seconds.

        Raises
        ------
        ProblemError
            ``store-unavailable``, if the store fails and this process has never read the mark. If the store fails
            later, the mark is used as it was read last.
        redis.RedisError

        """
        if (loss := self._compare(max_age)) is not None:
            # Compare again: another process may have changed Redis and mark after one of them was read here.
            loss = self._compare(0.0)
        return loss

    def require_no_loss(self) -> None:
        """Raise `ProblemError`, whose code is one of `LOSSES`, if records or files are lost (`find_loss`)."""
        if (loss := self.find_loss()) is not None:
            raise loss

    def was_whole(self, *, is_write: bool) -> bool:
        """Return whether the last check for losses found none, and is recent enough for this request; never raises.

        If so, `require_no_recent_loss` does nothing. `is_write` says whether the request may write: then no earlier
        check is enough.
        """
        return not is_write and self._loss is None and time.monotonic() < self._checked_at + MAX_CHECK_AGE_SECONDS

    def require_no_recent_loss(self, *, is_write: bool) -> None:
        """Raise `ProblemError` for an HTTP request if records or files are lost.

        A check for losses compares the mark, a file beside the stored files, with the records in Redis (`find_loss`).
        If the service is new, this method also writes the mark.

        Parameters
        ----------
        is_write
            Whether the request may write. If so, a new check is made for this request, which reads the mark again, so
            that nothing is written after a loss or before the mark exists. Errors of Redis and of the store are raised.
            If not, a check of the last second is enough; while another thread makes a check, the check before is used.
            Errors of servers are then ignored: the request fails later if it needs these servers.

        """
        if is_write or time.monotonic() >= self._checked_at + MAX_CHECK_AGE_SECONDS:
            self._checked_at = time.monotonic()
            with nullcontext() if is_write else suppress(redis.RedisError, ProblemError):
                self._loss = self.find_loss(0.0 if is_write else MARK_READ_SECONDS)
                if self._loss is None:
                    self._write_first()
        if self._loss is not None:
            raise ProblemError(self._loss.problem)

    def start_refusal(self) -> str:
        """Return why this process must not start, because records or files are lost; or an empty text if it may start.

        If the service is new, also write the mark, by which losses are noticed later. If a server does not answer, the
        process may start, because /readyz reports this.
        """
        loss = None
        with suppress(ProblemError, redis.RedisError):
            loss = self.find_loss(0.0)
            if loss is None:
                self._write_first()
        return "" if loss is None else f"It does not start. {loss.problem.detail} {loss.problem.remedy}"

    def renew(self, *, is_last: bool = False) -> None:
        """Write the mark, by which losses are noticed, again if records have changed.

        A change is left out until it is `CHANGE_SETTLING_SECONDS` old, because a failover of Redis may lose it, except
        for the first record and the first API key. After a loss, nothing is written. Raises `ProblemError`
        (``store-unavailable``, ``storage-full``) and `redis.RedisError`.

        Parameters
        ----------
        is_last
            Whether the process stops; the mark then has all changes so far.

        """
        if self.find_loss(0.0) is not None:
            return
        self._write_first()
        for _ in range(MAX_LAST_WRITES if is_last else 1):
            mark, state = self._mark, self._read_redis()
            if mark is None:  # the mark was removed meanwhile
                return
            new = _mark_of(state, mark.service) if is_last else self._find_settled(mark, state)
            new = replace(new, has_keys=mark.has_keys or state.has_keys)
            if (new.changes, new.has_keys) == (mark.changes, mark.has_keys):
                return
            self._write(new)

    def accept_loss(self) -> None:
        """Accept a loss: write a new mark, with a new id of the service, for the records and files that are left.

        Raises `ProblemError`: ``other-schema``, because this version cannot read records of another schema;
        ``store-unavailable``; ``storage-full``. Raises `redis.RedisError`.
        """
        if (loss := self.find_loss(0.0)) is not None and loss.problem.code == "other-schema":
            raise loss
        self._write(_mark_of(self._read_redis(), secrets.token_hex(16)))

    def _write_first(self) -> None:
        """Write the mark, the file by which losses are noticed, unless the store has the mark of this service.

        Call this only if `find_loss` returned None.
        """
        mark, state = self._mark, self._state
        if mark is not None and state is not None and mark.service == state.service:
            if not state.is_marked:  # the process that wrote the mark was killed before it set this field in Redis
                self._client.hset(SERVICE, "marked", 1)
            return
        self._client.hsetnx(SERVICE, "id", secrets.token_hex(16))
        state = self._read_redis()
        assert state.service is not None
        self._write(_first_mark(state, state.service))

    def _write(self, mark: Mark) -> None:
        raw = dump_record(asdict(mark)).encode()
        self._bucket.write(PATH, [raw], len(raw))
        self._client.hset(SERVICE, mapping={"id": mark.service, "marked": 1})
        self._mark, self._read_at, self._has_read = mark, time.monotonic(), True
        self._loss = None

    def _compare(self, max_age: float) -> ProblemError | None:
        """Compare the mark, a file that says what records Redis had, with Redis and the store.

        Return the error that describes a loss of records or files, or None.
        The mark is read again if it was read more than `max_age` seconds ago.
        """
        try:
            mark = self._read_mark(max_age)
        except ProblemError as error:
            if error.problem.code == "record-unreadable":
                return self._damaged(self._read_redis())
            if error.problem.code == "other-schema":
                return error
            raise
        self._state = state = self._read_redis()
        if state.changes and state.schema != SCHEMA:
            return other_schema("The queue's Redis", state.schema or "4 or earlier")
        is_known = mark is not None and mark.service == state.service
        if mark is None or mark.is_blank:
            return None if is_known else self._find_loss_without_mark(state)
        is_whole = is_known and state.changes >= mark.changes and (state.has_keys or not mark.has_keys)
        return None if is_whole else _records_lost(mark, state)

    def _find_loss_without_mark(self, state: _RedisState) -> ProblemError | None:
        """Return the error for a loss, or None, if the store has no mark: no file that says what records Redis had.

        If Redis (`state`) has records and says that a mark was written, the files are lost, and the mark with them. If
        Redis is empty and the store has files, the records are lost. Otherwise nothing is lost: the service is new.
        """
        if state.changes:
            return _files_lost(state) if state.is_marked else None
        return self._unnamed() if self._bucket.contains(FOLDER, except_in=MARK_FOLDER) else None

    def _read_mark(self, max_age: float) -> Mark | None:
        now = time.monotonic()
        if self._has_mark(now, max_age):
            return self._mark
        try:
            raw = self._bucket.read(PATH, 0, MAX_MARK_BYTES)
        except ProblemError:
            self._failed_at = now
            if not self._has_read:
                raise
            return self._mark
        self._read_at = -math.inf  # so that a damaged mark, for which `load_record` raises, is read again
        self._mark = None if raw is None else load_record(f"The mark {self._address}", raw, lambda data: Mark(**data))
        self._read_at, self._has_read = now, True
        return self._mark

    def _has_mark(self, now: float, max_age: float) -> bool:
        """Return whether the mark, as this process has last read it from the store, is used without reading it again.

        This is so if it was read less than `max_age` seconds ago. After a failed reading, an older mark is also used,
        for `MARK_READ_SECONDS`, so that a store that does not answer is not asked at each call.
        """
        return self._has_read and now < max(self._read_at + max_age, self._failed_at + MARK_READ_SECONDS)

    @property
    def _address(self) -> str:
        return self._bucket.address(PATH)

    def _read_redis(self) -> _RedisState:
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(SERVICE)
            pipeline.hgetall(USAGE_OF_ALL)
            replies = pipeline.execute()
        service, usage = ({text(name): text(value) for name, value in reply.items()} for reply in replies)
        return _RedisState(
            service=service.get("id"),
            is_marked="marked" in service,
            changes=_integer(service.get(CHANGES)),
            schema=_integer(service.get(SCHEMA_OF_RECORDS)),
            records={kind: count for kind in KINDS if (count := _integer(usage.get(kind)))},
            has_keys=KEYS in usage,  # the counter exists from the first key on
        )

    def _find_settled(self, mark: Mark, state: _RedisState) -> Mark:
        """Return the mark to write, given `mark`, which is in the store, and `state`, the present state of Redis.

        The mark to write has the newest remembered state that is at least `CHANGE_SETTLING_SECONDS` old, because a
        failover of Redis may still lose a younger one. Without such a state that is newer than `mark`, return `mark`
        itself or, if `mark` is blank, the first mark (`_first_mark`). Also remember `state` for later calls.
        """
        now = time.monotonic()
        self._settling.append((now, state))
        settled = _first_mark(state, mark.service) if mark.is_blank else mark
        while self._settling and self._settling[0][0] <= now - CHANGE_SETTLING_SECONDS:
            former = self._settling.popleft()[1]
            if former.service == mark.service and former.changes > settled.changes:
                settled = _mark_of(former, mark.service)
        return settled

    def _damaged(self, state: _RedisState) -> ProblemError:
        return refuse(
            "mark-damaged",
            503,
            f"The mark of the service, {self._address}, is damaged, so nothing shows whether records are lost. The "
            f"queue's Redis has records ({_list_records(state.records)}) after {state.changes:,} changes.",
            "Restore this file from a backup. Or, if these are all records, run `glle doctor --accept-loss`, which "
            "writes it anew.",
            mark=self._address,
            records=state.records,
            changes=state.changes,
        )

    def _unnamed(self) -> ProblemError:
        return refuse(
            "records-lost",
            503,
            f"The queue's Redis is empty, and {self._bucket.address(FOLDER)} has files of a service.",
            "Set GLLE_REDIS_URL to the server of these files, or for `glle up` put back the folder queue of the data "
            f"folder; or restore a backup (docs/how-to/storage.md); or use an empty folder or bucket. {_ACCEPT}",
        )


def _mark_of(state: _RedisState, service: str) -> Mark:
    return Mark(service=service, changes=state.changes, records=state.records, has_keys=state.has_keys, at=now_iso())


def _first_mark(state: _RedisState, service: str) -> Mark:
    """Return the first content of the mark, the file by which losses of records are noticed.

    It says that Redis had at most one change of records, even if there were more. A failover may lose the last of these
    changes; one still remains, so that Redis is not behind the mark, and no loss is reported. `service` is the id of
    the service.
    """
    return replace(_mark_of(state, service), changes=min(state.changes, 1))


def _integer(value: str | None) -> int:
    """Return a number from the text in Redis; 0 if the number is missing or damaged."""
    try:
        return int(value or 0)
    except ValueError:
        return 0


def _files_lost(state: _RedisState) -> ProblemError:
    return refuse(
        "files-lost",
        503,
        f"The queue's Redis has records ({_list_records(state.records)}), and the folder or bucket of their files "
        "has no mark of this service: it is another folder or bucket, or was emptied.",
        "Set GLLE_DATA_DIR and GLLE_STORE_URL to the folder or bucket of the files, as on the other machines of the"
        f" service, or restore a backup. {_ACCEPT}",
        records=state.records,
        changes=state.changes,
    )


def _records_lost(mark: Mark, state: _RedisState) -> ProblemError:
    other = " of another service" if state.service not in {None, mark.service} else ""
    facts: dict[str, Any] = {"records": state.records, "changes": state.changes}
    return refuse(
        "records-lost",
        503,
        f"At {mark.at} the service of these files had records ({_list_records(mark.records)}) after {mark.changes:,} "
        f"changes; the queue's Redis now has records{other} ({_list_records(state.records)}) after {state.changes:,}. "
        "The server of the queue was replaced or emptied, or has lost data.",
        "Bring back the server of these files: set GLLE_REDIS_URL to it, or for `glle up` put back the folder queue of "
        "the data folder. If the server is the right one, check the line `user default` in its configuration, and "
        f"restart it from its append-only file; or restore a backup (docs/how-to/storage.md). {_ACCEPT}",
        marked=mark.records,
        marked_changes=mark.changes,
        at=mark.at,
        **facts,
    )


def _list_records(records: dict[str, int]) -> str:
    """Return the numbers of records by kind as text, such as ``datasets: 2, keys: 1``."""
    return ", ".join(f"{kind}: {count:,}" for kind, count in records.items()) or "none"
