"""One job as its record has it."""

from __future__ import annotations

import base64
import io
import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from worker.base.clock import now_ms
from worker.base.problems import Problem
from worker.base.versions import FIRST_NUMBERS, FIRST_QUEUE, MEMBER, check_schema, unreadable
from worker.records.draws import CHAINS
from worker.records.ids import text
from worker.records.tenants import DEFAULT

if TYPE_CHECKING:
    from worker.records.priority import Priority

    Array = np.ndarray[Any, np.dtype[Any]]

Kind = Literal[
    "fit",
    "draws",
    "summary",
    "transform",
    "reconstructions",
    "calibration",
    "advice",
    "embedding",
    "comparison",
    "picture",
]
Status = Literal["queued", "running", "cancelling", "cancelled", "succeeded", "failed"]

POINTS, IS_INLINE = "inline", "is_inline"  # fields of the record: the points, and that there are some
OPEN = ("queued", "running", "cancelling")

FIELDS = (
    "id", "kind", "status", "done", "total", "stage", "created", "started", "finished",
    "posterior", "spec", "error", "round", "touched", "sequence", "since", "base", "deadline", "priority",
    "tenant", "numbers", "queue", "chains", "digests", IS_INLINE, MEMBER,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job.

    Parameters
    ----------
    spec
        What was asked for.
    error
        The problem it failed with.
    round
        How often it was opened again, because its result was evicted.
    touched
        When the record last changed, in milliseconds since 1970, as is `since`.
    sequence
        The number of changes so far: it names the state that a reader has seen.
    since, base
        When the stage began, and what was done by then.
    deadline, priority
        Its terms: `worker.records.priority`.
    tenant
        Whose it is.
    numbers
        The version of the engine's numbers that its results are to have.
    queue
        The name of the queue of its tasks (`worker.base.versions.queue_name`).
    chains
        Of a draws job: how many of its shards may be in work at once.
    digests
        Whether the API that created it finds draws by the digest of their posterior's arrays. An earlier API looks
        under the id alone, so the record of a fit for such a job has no digest.
    is_inline
        Whether the points of `dataset` came with the request and are in the record; there need not be such a data set.

    """

    id: str
    kind: Kind
    status: Status
    done: int
    total: int
    stage: str
    created: str
    started: str | None
    finished: str | None
    posterior: str | None
    spec: dict[str, Any]
    error: Problem | None
    round: int
    touched: int
    sequence: int
    since: int
    base: int
    deadline: int | None
    priority: Priority
    tenant: str
    numbers: str
    queue: str
    chains: int
    digests: bool
    is_inline: bool = False

    @property
    def dataset(self) -> str | None:
        """The data set that the request named: to fit, to place in an embedding, to advise on."""
        return self.spec.get("dataset")

    @property
    def subject(self) -> str:
        """What it is about: the posterior, or the data set where there is none."""
        return self.posterior or str(self.dataset)

    @property
    def is_open(self) -> bool:
        """Whether it is still to end."""
        return self.status in OPEN

    @property
    def idle_seconds(self) -> float:
        """Seconds since the record last changed."""
        return (now_ms() - self.touched) / 1000

    @property
    def is_late(self) -> bool:
        """Whether it should have ended, and goes on; one that is being cancelled is left to that."""
        return self.deadline is not None and self.status in {"queued", "running"} and now_ms() >= self.deadline

    @property
    def eta(self) -> float | None:
        """Seconds until `done` is `total`, at the stage's rate so far; None while there is no rate.

        What is in work counts as not done: when nothing comes any more, the answer grows.
        """
        made = self.done - self.base
        if self.status != "running" or made <= 0:
            return None
        took = max(0, now_ms() - self.since) / 1000
        return round((self.total - self.done) * took / made, 3)


def job_key(id_: str) -> str:
    """Return where a job's record is."""
    return f"glle:job:{id_}"


def job_of(values: list[Any]) -> Job | None:
    """Return the job of a record's `FIELDS`, as Redis sent them; None when there is no record.

    Raises
    ------
    ProblemError
        As `worker.base.versions.check_schema`.

    """
    record = {name: text(raw) for name, raw in zip(FIELDS, values, strict=True) if raw is not None}
    if "id" not in record:
        return None
    try:
        return _read(check_schema(f"The record of job {record['id']}", record))
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(f"The record of job {record['id']}") from error


def job_from(record: dict[str, str]) -> Job:
    """Return the job of a record as it is written, all its fields; raises as `job_of`."""
    job = job_of([record.get(name) for name in FIELDS])
    if job is None:
        raise unreadable("The record of a job")
    return job


def _read(record: dict[str, Any]) -> Job:
    if record["kind"] not in get_args(Kind) or record["status"] not in get_args(Status):
        raise ValueError(record)
    return Job(
        id=record["id"],
        kind=record["kind"],
        status=record["status"],
        done=int(record["done"]),
        total=int(record["total"]),
        stage=record["stage"],
        created=record["created"],
        started=record.get("started"),
        finished=record.get("finished") or None,
        posterior=record.get("posterior"),
        spec=json.loads(record["spec"]),
        error=Problem.from_dict(json.loads(record["error"])) if record.get("error") else None,
        round=int(record["round"]),
        touched=int(record["touched"]),
        sequence=int(record.get("sequence", 0)),  # records of earlier versions have none of these
        since=int(record.get("since", record["touched"])),
        base=int(record.get("base", record["done"])),
        deadline=int(record["deadline"]) if record.get("deadline") else None,
        priority="interactive" if record.get("priority") == "interactive" else "batch",
        tenant=record.get("tenant", DEFAULT),
        numbers=record.get("numbers", FIRST_NUMBERS),
        queue=record.get("queue", FIRST_QUEUE),
        chains=int(record.get("chains", CHAINS)),
        digests="digests" in record,
        is_inline=bool(record.get(IS_INLINE)),
    )


def inline_fields(points: Array | None) -> dict[str, str]:
    """Return the fields of a job's record for its points (m, d), none where it has none.

    They are text, because records are; packed they take some tenth more than the request did.
    """
    if points is None:
        return {}
    buffer = io.BytesIO()
    np.save(buffer, points, allow_pickle=False)
    return {POINTS: base64.b64encode(zlib.compress(buffer.getvalue())).decode(), IS_INLINE: "1"}


def inline_points(raw: bytes | str) -> Array:
    """Return the points of a record."""
    array: Array = np.load(io.BytesIO(zlib.decompress(base64.b64decode(raw))), allow_pickle=False)
    return array
