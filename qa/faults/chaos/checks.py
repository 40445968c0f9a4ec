"""Checks after the chaos: each is a row with the number of checked items and the violations."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError, TimeoutError  # noqa: A004 # names of redis-py

from qa.faults.chaos.census import CACHE, QUEUE, Census
from qa.faults.chaos.processes import tree, without_residents
from qa.faults.chaos.reference import differing_arrays
from qa.load.content import Content, Embedding, Fit
from qa.load.following import JSON, NPY, NPZ
from qa.load.ledger import ENDED
from worker.records.ids import text
from worker.storage.datasets import KIND as DATASET
from worker.storage.posteriors import KIND as POSTERIOR
from worker.storage.records import RecordKind, RecordStore

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    import redis

    from qa.load.ledger import Accepted, Ledger
    from qa.load.user import User

TERMINAL_SECONDS = 30.0
LEAVING_SECONDS = 20.0  # maximum wait of an ended job's task until a worker drops it, s
SHOWN = 10


@dataclass
class Row:
    """A check: number of checked items, and the violations."""

    name: str
    checked: int
    violations: list[str] = field(default_factory=list)


def all_ended(client: redis.Redis, ledger: Ledger, last: float) -> tuple[list[Row], float]:
    """Wait until all accepted jobs have ended; return rows, and an upper bound of the wait in seconds.

    Parameters
    ----------
    client
        Of the queue server.
    last
        Time of the last kill (`time.time`).

    """
    while (remaining := _open_jobs(client)) and time.time() - last < TERMINAL_SECONDS:
        time.sleep(0.1)
    seconds = time.time() - last
    late = Row(
        "jobs not at an end 30 s after the last kill", len(ledger.jobs), [f"{id_} {is_}" for id_, is_ in remaining]
    )
    missing = [id_ for id_ in ledger.jobs if not client.exists(f"glle:job:{id_}")]
    return [late, Row("accepted jobs that are missing", len(ledger.jobs), missing)], seconds


def results(user: User, jobs: list[Accepted]) -> Row:
    """Request jobs and their results; the ledger records the answers."""
    row = Row("jobs and results, as reported at the end", len(jobs))
    before = len(user.ledger.faults)
    for job in jobs:
        for _ in range(60):  # a result that was lost with the cache is computed again
            answer = user.requester.ask("GET job", f"/v1/jobs/{job.id}?wait=20")
            if answer is None or answer.status_code != 200:
                row.violations.append(f"{job.id}: {answer}")
                break
            user.ledger.record(job, answer.json())
            if job.status not in ENDED:
                continue
            if job.status != "succeeded" or job.is_doomed or user.fetch(job):
                user.judge(job)
                break
        else:
            row.violations.append(f"{job.id}: its result did not come")
    row.violations += user.ledger.faults[before:]
    return row


def stored(user: User) -> Row:
    """Read everything that was accepted and not deleted."""
    ledger = user.ledger
    row = Row("data sets, posteriors, embeddings missing or different", len(ledger.stored))
    before = len(ledger.faults)
    for path, artifact in list(ledger.stored.items()):
        what = {Content: "/data", Fit: "/arrays", Embedding: "/coordinates?wait=20"}[type(artifact)]
        media = NPZ if isinstance(artifact, Fit) else NPY
        for _ in range(60):
            answer = user.requester.ask("GET there", path + what, headers={"Accept": media})
            if answer is None or answer.status_code != 202:
                break
            time.sleep(0.5)
        if answer is None or answer.status_code != 200:
            row.violations.append(f"{path}: {answer and (answer.status_code, answer.text[:200])} ({artifact})")
        elif isinstance(artifact, Fit):
            user.arrays(answer, artifact)
        else:
            user.array(answer, artifact, "data" if isinstance(artifact, Content) else "embedding")
    row.violations += ledger.faults[before:]
    return row


def deleted(user: User) -> Row:
    """Request everything that was deleted."""
    row = Row("deleted resources that still exist", len(user.ledger.deleted))
    for path, artifact in user.ledger.deleted.items():
        answer = user.requester.ask("GET gone", path, headers={"Accept": JSON})
        if answer is None or answer.status_code != 404:
            # 409: the fit of this posterior was cancelled.
            if answer is not None and answer.status_code == 409 and isinstance(artifact, Fit):
                continue
            row.violations.append(f"{path}: {answer and answer.status_code} ({artifact})")
    return row


def bits(ledger: Ledger) -> list[Row]:
    """Compare every array with the result computed alone."""
    different = Row(
        "results that differ from those computed alone", len(ledger.arrays), list(differing_arrays(ledger.arrays))
    )
    several = [f"{name} of {artifact}" for (artifact, name), digests in ledger.arrays.items() if len(digests) > 1]
    return [different, Row("one request, two results", ledger.received, several)]


def wrong(ledger: Ledger) -> list[Row]:
    """Return the answers under load that no client should have received."""
    errors = [f"{error.operation} {error.status} {error.code}" for error in ledger.errors()]
    return [
        Row("wrong answers", ledger.requests, list(ledger.faults)),
        Row("errors other than no answer, and 503 with Retry-After", len(ledger.attempts), errors),
    ]


def keys(queue: redis.Redis, cache: redis.Redis, http: httpx.Client) -> tuple[Row, Census]:
    """Count all keys of both servers; poll until keys that are about to expire are gone."""
    until = time.monotonic() + LEAVING_SECONDS
    while (census := _census(queue, cache, http)).leaks and time.monotonic() < until:
        time.sleep(1)
    return Row("leaked keys", sum(census.counts.values()), census.leaks), census


def _census(queue: redis.Redis, cache: redis.Redis, http: httpx.Client) -> Census:
    alive = set()
    for name in ("datasets", "posteriors"):
        cursor = ""
        while cursor is not None:
            page = http.get(f"/v1/{name}?limit=100{cursor and '&cursor='}{cursor}").json()
            alive |= {item["id"] for item in page["items"]}
            cursor = page["next"]
    census = Census()
    census.count_keys(queue, QUEUE, alive)
    census.count_keys(cache, CACHE, alive)
    census.check_members(queue, alive)
    census.check_requests(cache)
    return census


def residents(head: int) -> Row:
    """Wait until each worker has a sampler and two RQ workers again; a worker replaces those that were killed."""
    until = time.monotonic() + TERMINAL_SECONDS
    while (missing := without_residents(tree(head))) and time.monotonic() < until:
        time.sleep(0.1)
    return Row("workers without a sampler or an RQ worker", len(tree(head)), missing)


def files(folder: Path, client: redis.Redis) -> Row:
    """Look for files that no record names, such as those of killed processes, after a sweep."""
    stored = [path for part in ("objects", "incoming") for path in (folder / part).rglob("*") if path.is_file()]
    named: set[Path] = set()
    kinds: tuple[RecordKind[Any], ...] = (DATASET, POSTERIOR)
    for kind in kinds:
        for id_, raw in RecordStore(client, kind).all():
            named.update(folder / "objects" / path for path in kind.load(id_, raw).files)
    remaining = [str(path) for path in stored if path not in named]
    missing = [f"{path} is missing" for path in named.difference(stored)]
    return Row("files without a data set in the data folder", len(stored), remaining + missing)


def _open_jobs(client: redis.Redis) -> list[tuple[str, str]]:
    """Return the jobs that have not ended. Read only the records, because a request for a job may repair it."""
    open_jobs = []
    try:
        for raw in client.scan_iter(match="glle:job:*", count=1000):
            status = text(client.hget(raw, "status") or "")
            if status not in ENDED:
                open_jobs.append((text(raw).removeprefix("glle:job:"), status))
    except (ConnectionError, TimeoutError) as error:  # the queue server was the last process killed
        return [("all jobs", str(error))]
    return open_jobs
