"""The job records: the project's own truth about a job, which outlives the queue's.

A record is one Redis hash. Every change of status is one script, so two readers never see two truths:

    queued -> running -> succeeded | failed
      |          `-> cancelling -> cancelled        (or succeeded, when the work was done by then)
      `-> cancelled                                 succeeded -> queued, when its result was evicted

A draws job is worked on in shards, by several workers at once: each shard writes its own count, the script
adds up, and the shard that completes the sum ends the job. A redone shard changes nothing twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

from worker.base.clock import iso, now_iso, now_ms
from worker.base.numerics import numbers_of
from worker.base.problems import deadline_exceeded, refuse
from worker.base.versions import queue_name, require_own_version, stamp, versioned
from worker.jobs import lua_scripts
from worker.jobs.index import INDEX, JobIndex
from worker.jobs.shards import count_field
from worker.records.draws import CHAINS
from worker.records.ids import index_member, member_name, new_job_id, text
from worker.records.job import FIELDS, OPEN, POINTS, Job, Kind, Status, inline_fields, inline_points, job_key, job_of
from worker.records.priority import ANY_TIME, Terms
from worker.records.tenants import DEFAULT, tenant_key
from worker.tenancy.quotas import JobLimits, too_many_jobs, too_many_jobs_overall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import redis
    from redis.commands.core import Script

    from worker.base.problems import Problem, ProblemError
    from worker.records.dataset import Array
    from worker.storage.free_space import QueueCapacity

__all__ = ["OPEN", "Cancelled", "Job", "JobStore", "Kind", "Status", "job_key"]

LISTED = 100  # records that a list reads in one round trip
_STATS = versioned("glle:jobs:entered")


class Cancelled(Exception):  # noqa: N818 # not an error: the user's wish
    """The job was cancelled (or its record is gone): its work is to stop."""


class JobStore:
    """Creates, reads and moves job records.

    Parameters
    ----------
    client
        The queue's Redis, bytes in and out.
    ttl
        Seconds a record is kept after the job's end.
    tenant
        Whose jobs are seen, and made; None sees everyone's by their ids, and makes and lists the default tenant's.
    limits
        What bounds the jobs of the tenant, and of all.
    room
        The room on the queue server; None: it is not looked at.

    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        ttl: int,
        tenant: str | None = None,
        limits: JobLimits | None = None,
        room: QueueCapacity | None = None,
    ) -> None:
        self._client = client
        self._ttl = ttl
        self._tenant = tenant
        self._limits = limits or JobLimits()
        self._room = room
        self.index = JobIndex(client)
        self._create = client.register_script(lua_scripts.CREATE)
        self._move = client.register_script(lua_scripts.MOVE)
        self._touch = client.register_script(lua_scripts.TOUCH)
        self._advance = client.register_script(lua_scripts.ADVANCE)
        self._share = client.register_script(lua_scripts.SHARE)
        self._hand_over = client.register_script(lua_scripts.HAND_OVER)
        self._reopen = client.register_script(lua_scripts.REOPEN)
        self._expire = client.register_script(lua_scripts.EXPIRE)

    def of(self, tenant: str, limits: JobLimits) -> Self:
        """Return the same store as a tenant sees it."""
        return type(self)(self._client, ttl=self._ttl, tenant=tenant, limits=limits, room=self._room)

    def create(
        self,
        *,
        kind: Kind,
        claim: str,
        posterior: str | None,
        spec: dict[str, Any],
        total: int,
        reuse: tuple[Status, ...] = ("queued", "running"),
        terms: Terms = ANY_TIME,
        chains: int = CHAINS,
        numbers: str | None = None,
        points: Array | None = None,
    ) -> tuple[Job, bool]:
        """Create a job, or return the one that holds `claim` with a status in `reuse`.

        One script decides, so that of two identical requests at once one creates and both share.

        Parameters
        ----------
        posterior
            The posterior it fits or uses; None for a job that needs none.
        terms
            Of a job that is shared, the kindest of all requests count.
        chains
            Of a draws job: how many of its shards may be in work at once. A program of before this was recorded takes
            four for it; that is as right: whoever opens a shard, and how often, it is made once.
        numbers
            The bits that its results are to have, which name the queue of its tasks; None for the pinned kind.
        points
            Points that came with the request, under the id of a data set that there need not be (`worker.records.job`).

        Returns
        -------
        job, created

        Raises
        ------
        ProblemError
            ``quota-exceeded``, ``too-many-jobs``, ``redis-full``.

        """
        new, tenant, limits = new_job_id(), self._tenant or DEFAULT, self._limits
        created, numbers = now_iso(), numbers or numbers_of("")
        fields = {
            "id": new, "kind": kind, "status": "queued", "done": 0, "total": total, "stage": "queued",
            "created": created, "spec": json.dumps(spec, allow_nan=False), "round": 0, "touched": now_ms(),
            "tenant": tenant, "numbers": numbers, "queue": queue_name(numbers), "digests": 1,
            **({} if chains == CHAINS else {"chains": chains}),
            **({} if posterior is None else {"posterior": posterior}),
            **inline_fields(points),
        }  # fmt: skip
        holder = self._create(
            keys=[
                self._claim(claim), job_key(new), tenant_key(INDEX, tenant), _STATS,
                tenant_key(lua_scripts.OPEN, tenant),
            ],
            args=[
                job_key(""), new, index_member(created, new), self._ttl, f",{','.join(reuse)},", *_told(terms),
                limits.open, limits.all_open, limits.ended, int(self._room is not None and self._room.is_full),
                tenant, now_ms(), *_flat(stamp(fields)),
            ],
        ).decode()  # fmt: skip
        if (refusal := self._refusal(holder)) is not None:
            raise refusal
        return self.fetch(holder), holder == new

    def get(self, id_: str) -> Job | None:
        """Return a job, or None when there is none of this id (any more)."""
        found = job_of(self._client.hmget(job_key(id_), FIELDS))
        return found if found is not None and self._tenant in {None, found.tenant} else None

    def fetch(self, id_: str) -> Job:
        """Return a job.

        Raises
        ------
        ProblemError
            ``job-not-found``.

        """
        if (job := self.get(id_)) is None:
            raise refuse(
                "job-not-found",
                404,
                f"There is no job {id_} (any more).",
                "Send the request that created it again: what is known already is not computed twice.",
                job=id_,
            )
        return job

    def points(self, job: Job) -> Array:
        """Return the points that came with a job's request.

        Raises
        ------
        Cancelled
            When the record is gone.

        """
        raw = self._client.hget(job_key(job.id), POINTS)
        if raw is None:
            raise Cancelled
        return inline_points(raw)

    def holder(self, claim: str) -> Job | None:
        """Return the job that last claimed `claim`."""
        raw = self._client.get(self._claim(claim))
        return None if raw is None else self.get(text(raw))

    def some_open(self, most: int) -> list[str]:
        """Return ids of jobs that are to end yet, whosever: all of them, or `most` by lot."""
        return [text(raw) for raw in self._client.srandmember(lua_scripts.ALL_OPEN, most) or ()]

    def listed(
        self, before: str | None = None, status: Status | None = None, kind: Kind | None = None, most: int = LISTED
    ) -> Iterator[tuple[str, Job | None]]:
        """Yield (cursor, job) from the newest on, or from the one after the cursor `before`; `most` in two round trips.

        None in place of a job whose record has expired, or has another status meanwhile.
        """
        tenant = self._tenant or DEFAULT
        while members := self.index.members(tenant, before, most, status, kind):
            with self._client.pipeline(transaction=False) as together:
                for member in members:
                    together.hmget(job_key(member_name(member)), FIELDS)
                for member, values in zip(members, together.execute(), strict=True):
                    job = job_of(values)
                    is_so = job is not None and status in {None, job.status} and kind in {None, job.kind}
                    yield member, job if is_so else None
            if len(members) < most:
                return
            before = members[-1]

    def newest(self, before: str | None = None) -> Iterator[tuple[str, Job]]:
        """Yield (cursor, job) as `listed` does, without those whose records have expired."""
        return ((at, job) for at, job in self.listed(before) if job is not None)

    def forget(self, id_: str) -> Job:
        """Remove the record of a job that has ended; return it as it was.

        Raises
        ------
        ProblemError
            ``job-not-found``, ``job-not-ended``.

        """
        job = self.fetch(id_)
        if not self.index.drop(job.tenant, id_):
            raise refuse(
                "job-not-ended",
                409,
                f"Job {id_} is {job.status}: its record is needed.",
                f"Cancel it with DELETE /v1/jobs/{id_}, and remove the record when it has ended.",
                job=id_,
            )
        return job

    def start(self, id_: str) -> Job:
        """Enter ``running`` (again, after a worker was lost; or beside other shards).

        Raises
        ------
        Cancelled
            When it is not to be worked on.

        """
        status = self._transition(id_, {"queued": "running"}, started=now_iso(), stage="started")
        if status != "running":
            raise Cancelled
        job = self.fetch(id_)
        if job.is_late:
            self.expire(id_)
            raise Cancelled
        return job

    def wanted(self, id_: str) -> bool:
        """Say whether work on a job is to go on; one whose deadline has passed fails."""
        job = self.get(id_)
        if job is not None and job.is_late:
            job = self.expire(id_)
        return job is not None and job.status in {"queued", "running", "succeeded"}

    def progress(self, id_: str, done: int, total: int, stage: str) -> None:
        """Write progress.

        Raises
        ------
        Cancelled
            When the job is no longer wanted.

        """
        raw = self._touch(keys=[job_key(id_)], args=[now_ms(), "done", done, "total", total, "stage", stage])
        if raw != b"running":
            raise Cancelled

    def stage(self, id_: str, stage: str) -> None:
        """Write what is being done; raises `Cancelled` like `progress`."""
        if self._touch(keys=[job_key(id_)], args=[now_ms(), "stage", stage]) != b"running":
            raise Cancelled

    def advance(self, id_: str, round_: int, shard: int, count: int) -> None:
        """Write that `count` draws of a shard are done; the count that completes the job ends it.

        Raises
        ------
        Cancelled
            When the job is no longer wanted, or is in another round.

        """
        raw = self._advance(keys=[job_key(id_)], args=[now_ms(), round_, count_field(round_, shard), count])
        if raw is None:
            raise Cancelled
        status, done, total = raw
        if done == total:
            self.succeed(id_)
        elif status != b"running":
            raise Cancelled

    def succeed(self, id_: str) -> None:
        """Enter ``succeeded``: the work is done, even if a wish to cancel came meanwhile."""
        self._transition(id_, {"running": "succeeded", "cancelling": "succeeded"}, stage="done")

    def fail(self, id_: str, problem: Problem) -> None:
        """Enter ``failed`` with its problem."""
        moves = dict.fromkeys(OPEN, "failed")
        self._transition(id_, moves, stage="failed", error=json.dumps(problem.to_dict(), allow_nan=False))

    def cancel(self, id_: str) -> Job:
        """Cancel a queued job at once, tell a running one to stop; one that has ended stays as it is."""
        self.fetch(id_)  # of a newer version it is left alone
        self._transition(id_, {"queued": "cancelled", "running": "cancelling"}, stage="cancelled")
        return self.fetch(id_)

    def cancelled(self, id_: str) -> None:
        """Enter ``cancelled``: a running job has stopped as it was told."""
        self._transition(id_, {"cancelling": "cancelled"}, stage="cancelled")

    def expire(self, id_: str) -> Job:
        """Enter ``failed`` if the deadline has passed; a later one that came meanwhile counts."""
        job = self.fetch(id_)
        if job.deadline is not None:
            problem = deadline_exceeded(id_, iso(job.deadline))
            error = json.dumps(problem.to_dict(), allow_nan=False)
            moves = {"queued": "failed", "running": "failed"}
            self._run(self._expire, id_, moves, stage="failed", error=error)
        return self.fetch(id_)

    def reopen(self, job: Job, terms: Terms = ANY_TIME) -> bool:
        """Queue a succeeded job again, in a new round; return whether it was this call that did.

        Raises
        ------
        ProblemError
            As `create`. ``other-numbers``: the result would not be the same.

        """
        require_own_version(f"Job {job.id}", job.numbers)
        self._require_room_for(job)
        deadline, priority = _told(terms)
        fields = {"done": 0, "stage": "queued", "finished": "", "queue": queue_name(job.numbers)}
        moved = self._run(self._reopen, job.id, {"succeeded": "queued"}, **fields, deadline=deadline, priority=priority)
        if moved == ("succeeded", "queued"):
            return True
        self._share(keys=[job_key(job.id)], args=[deadline, priority])
        return False

    def hand_over(self, job: Job) -> bool:
        """Have an open job's tasks in this version's queue; return whether it was this call that did."""
        return bool(self._hand_over(keys=[job_key(job.id)], args=[job.queue, queue_name(job.numbers)]))

    def entered(self) -> dict[tuple[str, str], int]:
        """Return how often jobs entered each (kind, status), ever."""
        counts = self._client.hgetall(_STATS)
        told = {text(name).partition(":"): int(count) for name, count in counts.items()}
        return {(kind, status): count for (kind, _, status), count in told.items()}

    def _require_room_for(self, job: Job) -> None:
        """Refuse to open a job again where a new one would be refused."""
        if self._room is not None:
            self._room.require()
        with self._client.pipeline(transaction=False) as both:
            both.scard(tenant_key(lua_scripts.OPEN, job.tenant))
            both.scard(lua_scripts.ALL_OPEN)
            theirs, all_open = map(int, both.execute())
        if self._limits.open and theirs >= self._limits.open:
            raise too_many_jobs(self._tenant, self._limits.open)
        if self._limits.all_open and all_open >= self._limits.all_open:
            raise too_many_jobs_overall(self._limits.all_open)

    def _refusal(self, answer: str) -> ProblemError | None:
        """Return the refusal that the script of creation answers, None for the id of a job."""
        if answer == lua_scripts.QUOTA:
            return too_many_jobs(self._tenant, self._limits.open)
        if answer == lua_scripts.JOBS:
            return too_many_jobs_overall(self._limits.all_open)
        if answer == lua_scripts.ROOM:
            assert self._room is not None
            return self._room.refusal()
        return None

    def _claim(self, claim: str) -> str:
        return tenant_key(f"glle:claim:{claim}", self._tenant or DEFAULT)

    def _transition(self, id_: str, moves: Mapping[str, str], **fields: Any) -> str | None:
        moved = self._run(self._move, id_, moves, **fields)
        return None if moved is None else moved[1]

    def _run(self, script: Script, id_: str, moves: Mapping[str, str], **fields: Any) -> tuple[str, str] | None:
        raw = script(
            keys=[job_key(id_), _STATS],
            args=[json.dumps(moves), self._ttl, now_iso(), now_ms(), *_flat(fields)],
        )
        return None if raw is None else (raw[0].decode(), raw[1].decode())


def _told(terms: Terms) -> tuple[str, str]:
    """Return terms as the scripts take them."""
    return "" if terms.deadline is None else str(terms.deadline), terms.priority


def _flat(fields: Mapping[str, Any]) -> list[Any]:
    return [part for pair in fields.items() for part in pair]
