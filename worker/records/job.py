"""The record of a job, and which fits are short enough to begin in the queue of interactive tasks."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Literal

import pydantic.dataclasses

from worker.base.clock import now_ms
from worker.base.problems import Problem
from worker.base.versions import MEMBER, check_schema, unreadable
from worker.records.draws import DrawsSpec
from worker.records.ids import text
from worker.records.sharding import PartsSharding  # noqa: TC001 # pydantic reads the annotation

Kind = Literal[
    "fit",
    "draws",
    "summary",
    "transform",
    "reconstructions",
    "weights",
    "calibration",
    "embedding",
    "placement",
    "comparison",
    "audit",
]
Priority = Literal["interactive", "batch"]
Status = Literal["queued", "running", "cancelling", "cancelled", "succeeded", "failed"]

# Fields of a job's record: the points that came with the request, and whether there are any.
POINTS, IS_INLINE = "inline", "is_inline"
PARTS = "parts"  # field of a job's record with the division of an analysis into shards
OPEN_STATUSES = ("queued", "running", "cancelling")
# RQ's queues: of tasks that should take a few seconds, and of all other tasks.
INTERACTIVE, BATCH = "glle-interactive", "glle-batch"
QUEUES = (INTERACTIVE, BATCH)

# A fit below all of these limits takes about a second for data on a manifold. Such a fit begins as an interactive
# task; larger fits begin as batch tasks.
QUICK_POINTS = 5000
QUICK_NEIGHBORS = 30
QUICK_VALUES = 500_000


def is_quick_fit(n: int, d: int, spec: dict[str, Any]) -> bool:
    """Return whether a fit of n points with d features is expected to take about a second, and can be interactive."""
    return (
        n <= QUICK_POINTS
        and n * d <= QUICK_VALUES
        and spec["n_neighbors"] <= QUICK_NEIGHBORS
        and spec["variant"] == "constrained"
    )


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Record of one job; pydantic converts its fields from the texts in a Redis hash.

    Parameters
    ----------
    spec
        Specification of the result, by which a worker computes it.
    error
        Problem that ended a failed job.
    touched
        Time of the record's last change, milliseconds since 1970.
    since, base
        Start of the current stage in milliseconds since 1970, and the value of `done` at that time.
    queue
        RQ queue of the job's tasks: ``glle-interactive`` or ``glle-batch``.
    is_inline
        Whether the points with the id `inline` came with the request and are in the record, not in a stored data set.
    parts
        How an analysis is divided into shards, each made by one task; None if one task does the whole analysis.

    """

    id: str
    kind: Kind
    status: Status
    done: int
    total: int
    stage: str
    created: str
    started: str | None = None
    finished: str | None = None
    posterior: str | None = None
    spec: dict[str, Any]
    error: Problem | None = None
    touched: int
    since: int
    base: int
    tenant: str
    queue: str
    is_inline: bool = False
    parts: PartsSharding | None = None

    @property
    def priority(self) -> Priority:
        """``interactive`` for work of a few seconds, which does not wait for ``batch`` work."""
        return "interactive" if self.queue == INTERACTIVE else "batch"

    @property
    def sharding(self) -> DrawsSpec | PartsSharding | None:
        """How the job is divided into shards, each made by one task; None if one task does the whole job."""
        return DrawsSpec.from_dict(self.spec) if self.kind == "draws" else self.parts

    @property
    def dataset(self) -> str | None:
        """Id of the data set that the request names, or None."""
        return self.spec.get("dataset")

    @property
    def subject(self) -> str:
        """Id of what the job is about: the posterior that the job fits or uses, or else the data set."""
        return self.posterior or str(self.dataset)

    @property
    def inline(self) -> str | None:
        """Id that `spec` has for the points in the body of the request; None if the body had no points.

        The points are in the job's record, so this is not the id of a stored data set.
        """
        return (self.spec.get("coordinates") or self.dataset) if self.is_inline else None

    @property
    def is_open(self) -> bool:
        """Whether the job has not ended."""
        return self.status in OPEN_STATUSES

    @property
    def idle_seconds(self) -> float:
        """Seconds since the record's last change."""
        return (now_ms() - self.touched) / 1000

    @property
    def eta(self) -> float | None:
        """Estimated seconds until the job ends, at the average rate of the current stage.

        None if the job does not run, or no step of the stage is finished. A step in progress counts as not done, so
        the estimate grows until the step is finished.
        """
        finished = self.done - self.base
        if self.status != "running" or finished <= 0:
            return None
        seconds = max(0, now_ms() - self.since) / 1000
        return round((self.total - self.done) * seconds / finished, 3)


def job_key(id_: str) -> str:
    """Return the Redis key of a job's record."""
    return f"glle:job:{id_}"


FIELDS = (*(item.name for item in fields(Job)), MEMBER)


def job_of(values: list[Any]) -> Job | None:
    """Parse a job's record: `values` are what Redis replies to HMGET of `FIELDS`; None if there is no record.

    Raises
    ------
    ProblemError
        ``record-unreadable``; ``other-schema`` if a version of glle with another schema wrote the record.

    """
    record = {name: text(raw) for name, raw in zip(FIELDS, values, strict=True) if raw}
    if "id" not in record:
        return None
    name = f"The record of job {record['id']}"
    record = check_schema(name, record)
    try:
        spec, error, parts = (json.loads(record.get(member, "null")) for member in ("spec", "error", PARTS))
        parsed = {"error": error and Problem.from_dict(error), PARTS: parts}
        # `since` and `base` are missing until the status of the job changes for the first time.
        return Job(**{"since": record["touched"], "base": record["done"], **record, "spec": spec, **parsed})
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(name) from error
