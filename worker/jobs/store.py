"""Job records, which are kept for longer than RQ's records of tasks.

A record is one Redis hash. Each change of status is one script, so readers always see a consistent record:

    queued -> running -> succeeded | failed
      |          `-> cancelling -> cancelled        (or succeeded, if the work was done by then)
      `-> cancelled

An interactive job that needs more time or memory goes back from running to queued, once, as a batch job.
Several workers may make the shards of a job. The record has the number of finished steps of each shard, and the sum of
these numbers as the job's progress. A draws job ends when the sum is complete. An analysis ends with one more task,
which combines the parts. A shard that is made again changes nothing.
"""

from __future__ import annotations

import json
from copy import copy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.texts import Way
from worker.base.clock import now_iso, now_ms
from worker.base.problems import refuse
from worker.base.versions import stamp
from worker.jobs import lua_scripts
from worker.records.ids import DEFAULT, index_member, member_name, new_job_id, other_kind, tenant_key, text
from worker.records.job import (
    BATCH,
    FIELDS,
    INTERACTIVE,
    IS_INLINE,
    OPEN_STATUSES,
    PARTS,
    POINTS,
    Job,
    Kind,
    Status,
    job_key,
    job_of,
)
from worker.records.quotas import Quota, too_many_jobs, too_many_jobs_overall
from worker.records.shares import MAX_JOBS, SHARE, UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import redis
    from redis.client import Pipeline

    from worker.base.problems import Problem, ProblemError
    from worker.records.dataset import Array
    from worker.records.sharding import PartsSharding
    from worker.storage.free_space import QueueCapacity

__all__ = ["OPEN_STATUSES", "Cancelled", "Job", "JobStore", "Kind", "Status", "job_key"]

RECORDS_PER_READ = 100  # `JobStore.iterate` reads this many records at a time
SWEEP_TENANTS = 20  # a sweep trims the records of this many tenants, chosen at random
# For a store without a tenant, as in a worker; 0 means that the records of ended jobs may have any number of bytes.
NO_QUOTA = Quota(records=0)
SWEEP_RECORDS = 500  # maximum number of a tenant's expired or surplus records that one sweep removes


class Cancelled(Exception):  # noqa: N818 # not an error: the client's request
    """Raised to stop the work on a job, because the job was cancelled or its record was removed."""


class JobStore:
    """Store of job records, in the queue's Redis.

    Parameters
    ----------
    ttl
        Seconds to keep the record of an ended job.
    room
        Says whether the servers have space for new jobs.

    Attributes
    ----------
    tenant
        Tenant whose jobs are visible. With None, the jobs of all tenants are found by id, and jobs are created and
        listed as those of the default tenant.
    quota
        Quota of the tenant, which limits the bytes of records of ended jobs.
    limit
        Returns the tenant's limit of open jobs (see `worker.records.shares.may_hold`).

    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        ttl: int,
        room: QueueCapacity,
    ) -> None:
        self._client = client
        self._ttl = ttl
        self.tenant: str | None = None
        self.quota = NO_QUOTA
        self.limit: Callable[[], int] = lambda: UNLIMITED
        self._room = room
        self._create = client.register_script(lua_scripts.CREATE)
        self._remove = client.register_script(lua_scripts.REMOVE)
        self._change_record = client.register_script(lua_scripts.CHANGE)

    def for_tenant(self, tenant: str, quota: Quota, limit: Callable[[], int] | None = None) -> Self:
        """Return a store in which only the jobs of a tenant are visible.

        Parameters
        ----------
        limit
            Returns the limit of open jobs (see `worker.records.shares.may_hold`); by default the limit in `quota`.

        """
        store = copy(self)
        store.tenant, store.quota = tenant, quota
        store.limit = limit or (lambda: SHARE if quota.jobs is None else quota.jobs)
        return store

    def create(
        self,
        *,
        kind: Kind,
        claim: str,
        posterior: str | None,
        spec: dict[str, Any],
        total: int,
        reuse: tuple[Status, ...] = ("queued", "running"),
        parts: PartsSharding | None = None,
        points: Array | None = None,
        short: bool = False,
    ) -> tuple[Job, bool]:
        """Create a job; or, if an equal request has created a job whose status is in `reuse`, return this job.

        A script does this atomically, so that simultaneous equal requests share one job.

        Parameters
        ----------
        claim
            Text that is equal for equal requests, such as a digest of the specification. Redis keeps which job was
            created last with this text.
        posterior
            Id of the posterior that the job fits or uses, if any.
        total
            Number of steps of the job's progress.
        parts
            Division of an analysis into shards; None for one task. A draws job is divided by its specification.
        points
            Points in the body of the request. `spec` names them by an id that belongs to no stored data set.
        short
            Whether the job begins in the queue of interactive tasks.

        Returns
        -------
        tuple
            The job, and whether it is new.

        Raises
        ------
        ProblemError
            ``quota-exceeded``, ``too-many-jobs``, ``redis-full``.

        """
        new, tenant, quota = new_job_id(), self.tenant or DEFAULT, self.quota
        created, queue = now_iso(), INTERACTIVE if short else BATCH
        fields = {
            "id": new, "kind": kind, "status": "queued", "done": 0, "total": total, "stage": "queued",
            "created": created, "created_ms": now_ms(), "spec": json.dumps(spec, allow_nan=False),
            "touched": now_ms(), "tenant": tenant, "queue": queue,
            **({} if parts is None else {PARTS: json.dumps(asdict(parts))}),
            **({} if posterior is None else {"posterior": posterior}),
            **({} if points is None else {POINTS: json.dumps(points.tolist()), IS_INLINE: "1"}),
        }  # fmt: skip
        raw, *record = self._create(
            keys=[self._claim(claim), job_key(new)],
            args=[
                job_key(""), new, index_member(created, new), self._ttl, f",{','.join(reuse)},",
                self.limit(), MAX_JOBS, quota.records, int(self._room.is_full),
                tenant, now_ms(), *_flat(stamp(fields)),
            ],
        )  # fmt: skip
        holder = text(raw)
        if (refusal := self._refusal(holder)) is not None:
            raise refusal
        job = job_of(*record)
        assert job is not None
        return job, holder == new

    def get(self, id_: str) -> Job | None:
        """Return a job by its id; None if there is no record, or if the job belongs to another tenant."""
        job = job_of(self._client.hmget(job_key(id_), FIELDS))
        return job if job is not None and self.tenant in {None, job.tenant} else None

    def fetch(self, id_: str) -> Job:
        """Return a job by its id.

        Raises `ProblemError` (``job-not-found``) if there is no record, or if the job belongs to another tenant.
        """
        if (job := self.get(id_)) is None:
            raise refuse(
                "job-not-found",
                404,
                f"Job {id_} does not exist, or its record has expired.",
                other_kind(id_, "jobs")
                or "Send the request that created the job again: a stored result is not computed twice.",
                job=id_,
            )
        return job

    def points(self, job: Job) -> Array:
        """Return the points (m, d) in the body of the request for a job, as float64.

        Raises `Cancelled` if there are none, because the record was removed.
        """
        raw = self._client.hget(job_key(job.id), POINTS)
        if raw is None:
            raise Cancelled
        return np.array(json.loads(raw), np.float64)

    def counts(self) -> tuple[int, int]:
        """Return the number of the tenant's open jobs, and the bytes of the records of the tenant's ended jobs."""
        tenant = self.tenant or DEFAULT
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.scard(tenant_key(lua_scripts.OPEN_JOBS, tenant))
            pipeline.get(tenant_key(lua_scripts.ENDED_BYTES, tenant))
            is_open, nbytes = pipeline.execute()
        return int(is_open), int(nbytes or 0)

    def claim_holder(self, claim: str) -> Job | None:
        """Return the last job that was created for requests with the text `claim`, or None if it has no record.

        The text is equal for equal requests, such as a digest of the specification.
        """
        raw = self._client.get(self._claim(claim))
        return None if raw is None else self.get(text(raw))

    def sample_open(self, limit: int) -> list[str]:
        """Return the ids of the open jobs of all tenants; if there are more than `limit`, `limit` chosen at random."""
        return [text(raw) for raw in self._client.srandmember(lua_scripts.ALL_OPEN, limit) or ()]

    def iterate(
        self,
        before: str | None = None,
        status: Status | None = None,
        kind: Kind | None = None,
        limit: int = RECORDS_PER_READ,
    ) -> Iterator[tuple[str, Job | None]]:
        """Yield (cursor, job) for each of the tenant's jobs, the newest first.

        In place of the job, None is yielded if its record has expired, or if it has another status or kind. Two round
        trips to Redis read `limit` jobs.

        Parameters
        ----------
        before
            Cursor of the last job that the caller has: only older jobs follow. None begins with the newest job.
        status, kind
            Select the jobs with this status and kind; None selects all.

        """
        key, upper = tenant_key(lua_scripts.INDEX, self.tenant or DEFAULT), "+" if before is None else f"({before}"
        while members := [text(raw) for raw in self._client.zrevrangebylex(key, upper, "-", start=0, num=limit)]:
            with self._client.pipeline(transaction=False) as pipeline:
                for member in members:
                    pipeline.hmget(job_key(member_name(member)), FIELDS)
                for member, values in zip(members, pipeline.execute(), strict=True):
                    job = job_of(values)
                    is_match = job is not None and status in {None, job.status} and kind in {None, job.kind}
                    yield member, job if is_match else None
            if len(members) < limit:
                return
            upper = f"({members[-1]}"

    def delete(self, id_: str) -> Job:
        """Remove the record of an ended job, and return the job.

        Raises `ProblemError` (``job-not-found``, ``job-not-ended``).
        """
        job = self.fetch(id_)
        if not self._remove(args=[job.tenant, now_ms(), 0, 1, id_]):
            raise refuse(
                "job-not-ended",
                409,
                f"Job {id_} is {job.status}, so its record cannot be removed yet.",
                f"Cancel it ({Way('cancel-job', id_)}), and remove the record when it has ended.",
                job=id_,
            )
        return job

    def trim(self, tenant: str, limit: int) -> int:
        """Remove records of a tenant's ended jobs: those that have expired, and the oldest beyond `limit` bytes.

        A limit of 0 means no limit. At most `SWEEP_RECORDS` records are removed; return how many were removed.
        """
        return int(self._remove(args=[tenant, now_ms(), limit, SWEEP_RECORDS, ""]))

    def tenants(self) -> list[str]:
        """Return the names of all tenants that have had jobs, sorted."""
        return sorted(text(raw) for raw in self._client.smembers(lua_scripts.TENANTS))

    def open_of_tenants(self) -> dict[str, int]:
        """Return a mapping from each tenant that has had jobs to the number of its open jobs."""
        tenants = self.tenants()
        with self._client.pipeline(transaction=False) as pipeline:
            for tenant in tenants:
                pipeline.scard(tenant_key(lua_scripts.OPEN_JOBS, tenant))
            return dict(zip(tenants, pipeline.execute(), strict=True))

    def sample_tenants(self) -> list[str]:
        """Return the names of at most `SWEEP_TENANTS` tenants that have had jobs, chosen at random."""
        return [text(raw) for raw in self._client.srandmember(lua_scripts.TENANTS, SWEEP_TENANTS) or ()]

    def start(self, id_: str) -> Job:
        """Set the status of a queued job to ``running``; return the job.

        A job that is running already stays so, because it has several tasks, or its task is repeated. Raises
        `Cancelled` if the job has another status or no record.
        """
        job = self._move(id_, {"queued": "running"}, started=now_iso(), stage="started")
        if job is None or job.status != "running":
            raise Cancelled
        return job

    def requeue(self, job: Job, parts: PartsSharding | None, pipeline: Pipeline) -> Job:
        """Add commands to a transaction that set a job back to ``queued``, as a batch job; return the changed job.

        `parts` is the new division of an analysis into shards, or None. A job without shards begins again, with no
        steps done; a job with shards keeps the number of finished steps of each. A job that was cancelled or has ended
        does not change.
        """
        fields: dict[str, Any] = {"queue": BATCH, "stage": "queued"}
        fields |= {} if job.sharding else {"done": 0}
        fields |= {} if parts is None else {PARTS: json.dumps(asdict(parts))}
        self._move(job.id, {"running": "queued", "queued": "queued"}, pipeline, **fields)
        return replace(job, queue=BATCH, parts=parts or job.parts)

    def progress(self, id_: str, done: int, total: int, stage: str) -> None:
        """Write the progress of a running job: `done` of `total` steps, and the stage.

        Raises `Cancelled` if the job is not running any more, so that its work must stop.
        """
        self.stage(id_, stage, done=done, total=total)

    def stage(self, id_: str, stage: str, **progress: int) -> None:
        """Write the stage of a running job, and `done` and `total` if given.

        Raises `Cancelled` if the job is not running any more, so that its work must stop.
        """
        if self._change(id_, "progress", {"stage": stage, **progress})[1] != "running":
            raise Cancelled

    def advance(self, id_: str, shard: int, count: int) -> Job | None:
        """Write the number of finished steps of a shard (the part of a job that one task makes); return the job.

        A lower number than before changes nothing. When all steps of a draws job are finished, this also sets the job's
        status to ``succeeded``. Raises `Cancelled` if the job was cancelled, has ended otherwise, or has no record.
        """
        _, status, job = self._change(id_, "count", {"stage": "done"}, shard=_count_field(shard), count=count)
        if status not in {"running", "succeeded"}:
            raise Cancelled
        return job

    def unfinished_shards(self, job: Job) -> list[int]:
        """Return the numbers of the shards (parts of a job, each made by one task) with unfinished steps, in order."""
        assert job.sharding is not None
        shards, size = range(job.sharding.shards), job.sharding.shard_size
        counts = self._client.hmget(job_key(job.id), [_count_field(shard) for shard in shards])
        return [shard for shard, count in zip(shards, counts, strict=True) if int(count or 0) < size(shard)]

    def succeed(self, id_: str, **progress: int) -> Job | None:
        """Set the status of a running job to ``succeeded``, even if the job was just cancelled: the work is done.

        Write `done` and `total` if given. Return the job, or None if it has no record.
        """
        return self._move(id_, {"running": "succeeded", "cancelling": "succeeded"}, stage="done", **progress)

    def fail(self, id_: str, problem: Problem) -> Job | None:
        """Set an open job to ``failed``, with the problem; return the job, or None if it has no record."""
        moves = dict.fromkeys(OPEN_STATUSES, "failed")
        return self._move(id_, moves, stage="failed", error=json.dumps(problem.to_dict(), allow_nan=False))

    def cancel(self, id_: str) -> Job:
        """Cancel a queued job, or set a running job to ``cancelling``, so that its task stops; return the job.

        A job that has ended does not change. Raises `ProblemError` (``job-not-found``).
        """
        self.fetch(id_)  # raises an error for a missing record or another schema
        self._move(id_, {"queued": "cancelled", "running": "cancelling"}, stage="cancelled")
        return self.fetch(id_)

    def finish_cancel(self, id_: str, pipeline: Pipeline | None = None) -> Job | None:
        """Set a job with the status ``cancelling`` to ``cancelled``, after its work has stopped.

        Return the job, or None if it has no record. With a `pipeline`, only add the command to its transaction, and
        return None.
        """
        return self._move(id_, {"cancelling": "cancelled"}, pipeline, stage="cancelled")

    def _refusal(self, reply: str | None) -> ProblemError | None:
        """Return the error if a reply of the script `CREATE` names a limit; None if the reply is the id of a job."""
        if reply == lua_scripts.QUOTA:
            return too_many_jobs(self.tenant, self.limit())
        if reply == lua_scripts.JOBS:
            return too_many_jobs_overall(MAX_JOBS)
        return self._room.refusal() if reply == lua_scripts.ROOM else None

    def _claim(self, claim: str) -> str:
        return tenant_key(f"glle:claim:{claim}", self.tenant or DEFAULT)

    def _change(
        self,
        id_: str,
        action: str,
        fields: Mapping[str, Any],
        moves: Mapping[str, str] | None = None,
        pipeline: Pipeline | None = None,
        **arguments: Any,
    ) -> tuple[str | None, str | None, Job | None]:
        """Change a record by the script `lua_scripts.CHANGE`; return the old status, the new status and the job.

        All three are None if there is no record. With a `pipeline`, the script is only added to its transaction, and
        all three are None, too.

        Parameters
        ----------
        action
            ``move`` changes the status of the job. ``progress`` sets `fields`, such as the stage, if the job is
            running. ``count`` sets the number of finished steps of one shard: the part of the job that one task makes.
        fields
            Fields of the record to set.
        moves
            For ``move``: a mapping from old to new status.
        arguments
            For ``count``: `shard`, the field with the number of finished steps of a shard, and `count`, this number.

        """
        flat = [str(item) for item in _flat(fields)]
        change = json.dumps({"action": action, "moves": moves or {}, "fields": flat, **arguments})
        client = self._client if pipeline is None else pipeline
        reply = self._change_record(keys=[job_key(id_)], args=[change, now_ms(), now_iso(), self._ttl], client=client)
        if pipeline is not None or not reply:
            return None, None, None
        was, after, record = reply
        return text(was), text(after), job_of(record) if record else None

    def _move(
        self, id_: str, moves: Mapping[str, str], pipeline: Pipeline | None = None, /, **fields: Any
    ) -> Job | None:
        """Change the status by `moves`, a mapping from old to new status, and write fields; return the job.

        If `moves` does not name the job's status, nothing changes. Return None if the job has no record. With a
        `pipeline`, the script that makes the change is only added to its transaction, and None is returned, too.
        """
        return self._change(id_, "move", fields, moves, pipeline)[2]


def _count_field(shard: int) -> str:
    """Return the name of the field, in a job's record, with how many steps task number `shard` has finished."""
    return f"shard:{shard}"


def _flat(fields: Mapping[str, Any]) -> list[Any]:
    return [item for pair in fields.items() for item in pair]
