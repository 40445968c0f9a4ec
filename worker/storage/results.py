"""Results of analyses, of parts of analyses, and of shards of draws jobs; each is one record and one file.

A result is stored under a key made from all its inputs, so equal requests share one result. The owners of a result are
the data sets, posteriors or embeddings that it is about; it is deleted with any of them. A result also expires after
`ttl` seconds.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import pydantic.dataclasses

from glle_engine.base.texts import Way
from worker.base.clock import iso, now_iso, now_ms
from worker.records.ids import DEFAULT, digest, member_name, text
from worker.records.stored_file import STORED, StoredFile
from worker.storage.file_records import FileStore, damaged_file
from worker.storage.object_store.files import STORED_BYTES
from worker.storage.records import RecordKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis

    from worker.base.problems import ProblemError
    from worker.records.cache_entry import Entry
    from worker.storage.object_store.files import ObjectFiles

_OWNERS = {"ds": "dataset", "post": "posterior", "emb": "embedding"}  # kinds of owners by the prefixes of their ids


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class ResultRecord:
    """Record of a result.

    Parameters
    ----------
    key
        Key under which the result is stored: a text made from all inputs, so that equal requests find one result.
    owners
        Ids of the data sets, posteriors or embeddings that the result is about; it is deleted with any of them.
    job
        Id of the job that made the result.

    """

    key: str
    owners: list[str]
    job: str
    file: StoredFile
    created: str
    tenant: str = DEFAULT
    name: str | None = None
    tags: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Id of the result, a digest of its key."""
        return result_id(self.key)

    @property
    def files(self) -> dict[str, StoredFile]:
        """The file of the record, by its path in the store."""
        return {self.file.path: self.file}


RESULT_KIND = RecordKind[ResultRecord](
    "result",
    "result",
    "It has expired, or was deleted: send the request that made it again.",
    ResultRecord,
    counts=lambda record: {"results": 1, STORED_BYTES: record.file.size},
    sets=lambda record: [f"of:{owner}" for owner in (*record.owners, record.job)],
)


class ResultStore(FileStore[ResultRecord]):
    """Store of results: their records in Redis, and the files with their arrays.

    Parameters
    ----------
    client
        The queue's Redis, for the records.
    files
        Files of the results.
    ttl
        Seconds that a result is kept.

    """

    def __init__(self, client: redis.Redis, files: ObjectFiles, ttl: int) -> None:
        super().__init__(client, RESULT_KIND, files)
        self._ttl = ttl

    def put(self, key: str, entry: Entry, *, owners: Sequence[str], job: str, tenant: str, max_bytes: int = 0) -> bool:
        """Store a result under a key; return whether there is a result under this key now.

        Nothing is written if one of the owners was deleted, or if a result is stored under the key already.

        Parameters
        ----------
        owners
            Ids of the records that the result is about; the result is deleted with any of them.
        job
            Id of the job that made the result.
        max_bytes
            Quota of the tenant's stored bytes; 0: none.

        Raises
        ------
        ProblemError
            ``quota-exceeded``, ``storage-full``, ``store-unavailable``.

        """
        file = self.files.write_entry(entry)
        record = ResultRecord(key=key, owners=list(owners), job=job, file=file, created=now_iso(), tenant=tenant)
        existing = [f"glle:{_OWNERS[owner.partition('_')[0]]}:{owner}" for owner in owners]
        return self.create_with_files(record, max_bytes=max_bytes, while_existing=existing)

    def find(self, key: str) -> Entry | None:
        """Return the result under a key, or None; raises `ProblemError` (``result-damaged``, ``store-unavailable``)."""
        record = self.get(result_id(key))
        return None if record is None else self.read_entry(record, record.file)

    def fetch_entry(self, key: str) -> Entry:
        """Return the result under a key.

        Raises `ProblemError` (``result-not-found``, ``result-damaged``, ``store-unavailable``).
        """
        if (entry := self.find(key)) is None:
            raise self.kind.not_found(result_id(key))
        return entry

    def contains(self, keys: Sequence[str]) -> list[bool]:
        """Return, for each key in order, whether a result is stored under this key."""
        records = self._client.mget([self.kind.key(result_id(key)) for key in keys]) if keys else []
        return [raw is not None for raw in records]

    def damaged(self, record: ResultRecord, flaw: str) -> ProblemError:
        """Return the error for a result whose file is damaged; `flaw` is "is missing" or "has changed"."""
        deletion = f"job with its results ({Way('delete-results', record.job)})"
        return damaged_file("result", f"a result of job {record.job}", flaw, deletion, job=record.job)

    def delete_of_deleted(self) -> int:
        """Remove all tenants' results whose owner no longer exists; return how many were removed.

        The owner is the data set, posterior or embedding that a result is about. Its results may remain if a process is
        killed while it deletes the owner. Each owner has a set in Redis of its results; only these sets are listed, and
        not all results.
        """
        removed = 0
        for key in map(text, self._client.scan_iter(match=f"glle:*{self.kind.name}s:of:*", count=1000)):
            owner = key.rpartition(":")[2]
            kind = _OWNERS.get(owner.partition("_")[0])
            if kind is not None and not self._client.exists(f"glle:{kind}:{owner}"):
                ids = [member_name(text(raw)) for raw in self._client.zrange(key, 0, -1)]
                removed += sum(self.delete(id_) is not None for id_ in ids)
        return removed

    def delete_expired(self, tenant: str) -> int:
        """Remove the results of a tenant that are older than `ttl` seconds; return how many were removed.

        The set of a tenant's results is sorted by their time of creation, so that only old results are read.
        """
        store, oldest = self.for_tenant(tenant), iso(now_ms() - 1000 * self._ttl)
        members: list[Any] = self._client.zrangebylex(store.set_of(""), "-", f"({oldest}")
        return sum(store.delete(member_name(text(member))) is not None for member in members)


def result_id(key: str) -> str:
    """Return the id of the result with this key."""
    return "res_" + digest(key)
