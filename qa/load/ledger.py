"""The ledger: what a service has promised and answered, as the clients of a load have seen it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from qa.load.content import Artifact

NO_ANSWER = 0
ENDED = frozenset({"cancelled", "succeeded", "failed"})


@dataclass(frozen=True)
class Attempt:
    """One attempt of an HTTP request.

    Parameters
    ----------
    operation
        Method and resource, such as ``GET draw``.
    status
        HTTP status; `NO_ANSWER` for a missing or incomplete answer.
    at, seconds
        Start (`time.time`) and duration.
    code
        Code of the problem, or class name of the transport's exception.
    may_retry
        Whether the answer had a Retry-After.

    """

    operation: str
    status: int
    at: float
    seconds: float
    code: str
    may_retry: bool

    @property
    def is_error(self) -> bool:
        """Whether the answer is an error of the service (5xx) other than 503 with Retry-After."""
        return self.status >= 500 and not (self.status == 503 and self.may_retry)


@dataclass
class Accepted:
    """A job that the service has accepted.

    Parameters
    ----------
    artifact
        What was requested.
    status, error
        Status as last reported, and the type of the problem of a failed job.
    is_cancelled
        Whether the client has asked to cancel the job.
    is_doomed
        Whether its data set or posterior was deleted, so that the job may fail.
    open_at
        Last time at which the job was open (`time.time`).

    """

    id: str
    artifact: Artifact
    status: str = "queued"
    error: str = ""
    is_cancelled: bool = False
    is_doomed: bool = False
    open_at: float = 0.0


@dataclass
class Ledger:
    """What all clients of a load were promised and answered; several threads may use it at once.

    Parameters
    ----------
    keeps
        Number of attempts and of ended jobs to keep; None: all.
    ttl
        Seconds for which the service keeps the record of a job after its end.

    Attributes
    ----------
    requests : int
        Number of requests, without retries.
    stored : dict
        What the service should have, by path: what was accepted and not deleted since.
    deleted : dict
        What the service should not have, by path: what was deleted and not accepted again.
    arrays : dict
        Digests of the received arrays, by (what was requested, name of the array).
    received : int
        Number of received arrays.
    faults : list of str
        Answers that contradict earlier answers.
    counts : Counter
        Number of attempts by operation and status.

    """

    keeps: int | None = None
    ttl: float = float("inf")
    requests: int = 0
    attempts: deque[Attempt] = field(default_factory=deque)
    jobs: dict[str, Accepted] = field(default_factory=dict)
    stored: dict[str, Artifact] = field(default_factory=dict)
    deleted: dict[str, Artifact] = field(default_factory=dict)
    arrays: dict[tuple[Artifact, str], set[str]] = field(default_factory=dict)
    received: int = 0
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.attempts = deque(maxlen=self.keeps)

    def count_request(self) -> int:
        """Count a request; return the number before it."""
        with self._lock:
            self.requests += 1
            return self.requests - 1

    def record_attempt(self, attempt: Attempt) -> None:
        """Add an attempt of a request."""
        with self._lock:
            self.attempts.append(attempt)
            self.counts[f"{attempt.operation} {attempt.status or attempt.code}"] += 1

    def record_accepted(self, id_: str, artifact: Artifact) -> Accepted:
        """Add an accepted job, unless it is known, and return its entry; another request with this id is a fault."""
        with self._lock:
            if self.keeps is not None and len(self.jobs) > self.keeps:
                self.jobs = {id_: job for id_, job in self.jobs.items() if job.status not in ENDED}
            job = self.jobs.setdefault(id_, Accepted(id_, artifact))
            if job.artifact != artifact:
                self.fault(f"{id_} was accepted for {job.artifact}, and then for {artifact}")
            return job

    def record(self, job: Accepted, body: dict[str, Any], requested_at: float = 0.0) -> None:
        """Record the status of a job as reported; a change of an ended job is a fault.

        Only a job that has succeeded may begin again, if its result has expired.

        Parameters
        ----------
        requested_at
            Time of the request; 0: unknown.

        """
        with self._lock:
            status, error = body["status"], (body.get("error") or {}).get("type", "")
            remade = job.status == "succeeded" and status in {"queued", "running", "cancelling", "cancelled", "failed"}
            if job.status in ENDED and status != job.status and not remade:
                self.fault(f"{job.id} was {job.status}, and then {status}")
            job.status, job.error = status, error
            finished = body.get("finished")
            open_at = datetime.fromisoformat(finished).timestamp() if finished and status in ENDED else requested_at
            job.open_at = max(job.open_at, open_at)

    def is_retained(self, since: float) -> bool:
        """Return whether the service must still have the record of a job that ended at `since` (`time.time`)."""
        return time.time() < since + self.ttl

    def record_created(self, path: str, artifact: Artifact) -> None:
        """Record that a resource exists, as an answer says."""
        with self._lock:
            self.stored[path] = artifact
            self.deleted.pop(path, None)

    def record_request(self, artifact: Artifact) -> None:
        """Record that a resource may exist from now on, because it was requested, whatever the answer will be."""
        with self._lock:
            self.deleted = {path: what for path, what in self.deleted.items() if what != artifact}

    def record_deleted(self, path: str, artifact: Artifact) -> None:
        """Record that a resource was deleted."""
        with self._lock:
            self.stored.pop(path, None)
            self.deleted[path] = artifact

    def received_array(self, artifact: Artifact, name: str, array: NDArray[Any]) -> None:
        """Record the digest of a received array; another digest for the same request is a fault."""
        digest = digest_of(array)
        with self._lock:
            self.received += 1
            digests = self.arrays.setdefault((artifact, name), set())
            digests.add(digest)
            if len(digests) > 1:
                self.fault(f"two results of one request: {name} of {artifact}")

    def fault(self, what: str) -> None:
        """Add an answer that should not occur, described by a sentence."""
        with self._lock:
            self.faults.append(what)

    def errors(self) -> list[Attempt]:
        """Return the attempts whose answer is an error (`Attempt.is_error`)."""
        return [attempt for attempt in self.attempts if attempt.is_error]

    def operations(self) -> list[str]:
        """Return the names of the operations that were attempted, sorted."""
        return sorted({attempt.operation for attempt in self.attempts})

    def seconds(self, operation: str) -> list[float]:
        """Return the seconds that answers of an operation took, without those with status 503."""
        return [
            attempt.seconds
            for attempt in self.attempts
            if attempt.operation == operation and attempt.status not in {NO_ANSWER, 503}
        ]


def joined(ledgers: Iterable[Ledger]) -> Ledger:
    """Return a ledger with the content of several ledgers, which have no job and no path in common."""
    ledger_of_all = Ledger()
    for ledger in ledgers:
        ledger_of_all.requests += ledger.requests
        ledger_of_all.received += ledger.received
        ledger_of_all.attempts.extend(ledger.attempts)
        for name in ("jobs", "stored", "deleted", "counts"):
            getattr(ledger_of_all, name).update(getattr(ledger, name))
        for key, digests in ledger.arrays.items():
            ledger_of_all.arrays.setdefault(key, set()).update(digests)
        ledger_of_all.faults += ledger.faults
    return ledger_of_all


def digest_of(array: NDArray[Any]) -> str:
    """Return a digest of an array's dtype, shape and bits."""
    whole = np.asarray(array, order="C")
    return hashlib.sha256(f"{whole.dtype.str} {whole.shape}".encode() + whole.tobytes()).hexdigest()[:32]


def percentiles(values: Iterable[float], levels: tuple[float, ...] = (50, 95, 99, 100)) -> dict[str, float]:
    """Return percentiles of values by name, such as ``p95``; an empty dictionary if there are no values."""
    numbers = list(values)
    return {f"p{level:g}": float(np.percentile(numbers, level)) for level in levels} if numbers else {}
