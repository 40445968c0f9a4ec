"""Checks after processes were killed: each returns a row with the number of checked items and the violations.

Results of the service are compared with results that the engine computes in this process, one at a time. A census of
all Redis keys finds keys that nothing owns, that should expire, or whose data set or posterior does not exist.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from redis.exceptions import ConnectionError, TimeoutError  # noqa: A004 # names of redis-py
from rq.rate_limit import RateLimitRegistry

import glle_engine
from glle_engine import FitSpec, Posterior
from glle_engine.methods import method
from glle_engine.metrics.ranks import local_trustworthiness
from qa.faults.chaos.killer import tree, without_residents
from qa.frame import Row
from qa.load.content import METHODS, Artifact, Content, Draws, Embedding, Fit, Summary
from qa.load.ledger import ENDED, digest_of
from qa.load.user import JSON, NPY, NPZ
from worker.analyses.embedding_records import EMBEDDING_KIND as EMBEDDING
from worker.base.versions import versioned_key
from worker.jobs.draw_stream import BELL, STREAM, TURNS
from worker.jobs.lua_scripts import TENANTS
from worker.operations.health import PROBE
from worker.records.ids import DEFAULT, member_name, tenant_key, text
from worker.records.job import QUEUES, job_key
from worker.records.shares import HELD
from worker.storage.datasets import DATASET_KIND as DATASET
from worker.storage.mark import MARK_FOLDER
from worker.storage.posteriors import POSTERIOR_KIND as POSTERIOR
from worker.storage.records import SERVICE, RecordKind, RecordStore
from worker.storage.results import RESULT_KIND as RESULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import httpx
    import redis
    from numpy.typing import NDArray

    from qa.load.ledger import Accepted, Ledger
    from qa.load.user import User

TRUST_NEIGHBORS = 10
TERMINAL_SECONDS = 30.0
LEAVING_SECONDS = 20.0  # longest wait until the keys of ended jobs are gone
SHOWN = 10
SUMMARY_ARRAYS = ("consensus", "covariance", "spread", "stability", "eigenvalues", "relative_gaps", "agreement")

Arrays = dict[str, "NDArray[Any]"]
_NAMES = f"({'|'.join(QUEUES)})"
Expiry = Literal["always", "never", "when ended"]
_PREFIX = versioned_key("")
_OF = "glle:(tenant:[a-z0-9-]+:)?"  # beginning of a key of the default tenant, or of another tenant
_SUBJECT = r"(?P<about>(post|ds)_[0-9a-f]+)"


def differing_arrays(received: dict[tuple[Artifact, str], set[str]]) -> Iterator[str]:
    """Yield the names of received arrays that differ in any bit from the arrays that the engine computes alone.

    `received` has the digests of the received arrays, by what was requested and the name of the array.
    """
    for artifact in sorted({artifact for artifact, _ in received}, key=_sort_key):
        arrays = expected_arrays(artifact)
        for (received_artifact, name), digests in received.items():
            if received_artifact == artifact and digests != {digest_of(arrays[name])}:
                yield f"{name} of {artifact}"


def expected_arrays(artifact: Artifact) -> Arrays:
    """Return the arrays that the service should answer for a request, by name, computed by the engine."""
    match artifact:
        case Content():
            return {"data": artifact.values()}
        case Fit():
            return dict(posterior(artifact).arrays())
        case Draws(is_single=True):
            return {"embedding": _draw(artifact.fit, artifact.first, artifact.seed, artifact.scale)}
        case Draws():
            drawn = [
                _draw(artifact.fit, artifact.first + i, artifact.seed, artifact.scale) for i in range(artifact.count)
            ]
            return {"embedding": np.stack(drawn)}
        case Summary():
            return _summary(artifact)
        case Embedding():
            return {"embedding": _embedding(artifact)}


@lru_cache(4)
def posterior(fit: Fit) -> Posterior:
    """Fit the posterior of a request by the engine; the last four are kept."""
    return glle_engine.fit(fit.content.values(), FitSpec(n_neighbors=fit.n_neighbors))


@lru_cache(2000)
def _draw(fit: Fit, index: int, seed: int, scale: float) -> NDArray[np.float64]:
    return posterior(fit).draw(index, seed=seed, scale=scale).embedding


def _summary(artifact: Summary) -> Arrays:
    fitted, values = posterior(artifact.fit), artifact.fit.content.values()
    summary = fitted.summary(artifact.count, seed=artifact.seed)
    trust = local_trustworthiness(values, fitted.embedding, TRUST_NEIGHBORS, np.arange(len(values)))
    return {"local_trust": trust, **{name: getattr(summary, name) for name in SUMMARY_ARRAYS}}


def _embedding(artifact: Embedding) -> NDArray[np.float64]:
    embedder = method(artifact.method)
    return embedder.embed(
        artifact.content.values(), embedder.spec(**METHODS[artifact.method]), lambda *_: None, labels=None
    ).Y


def _sort_key(artifact: Artifact) -> str:
    """Return a sort key that groups the requests about one posterior, so that it is fitted once."""
    fit = artifact if isinstance(artifact, Fit) else artifact.fit if isinstance(artifact, Draws | Summary) else None
    return f"{fit} {artifact}"


@dataclass(frozen=True)
class Owner:
    """Which part of the service writes the Redis keys that match a pattern, and whether the keys expire.

    The group `about` of the pattern is the id of a data set or posterior. If `count_keys` is set, this must exist.
    """

    name: str
    pattern: str
    expiry: Expiry
    count_keys: Literal["", "posterior", "subject", "dataset"] = ""


QUEUE = (
    Owner("jobs: record", r"glle:job:job_[0-9a-f]+", "when ended"),
    Owner("jobs: claim", rf"{_OF}claim:.+", "always"),
    Owner("jobs: lists and counts", rf"{_OF}jobs(:.+)?|{_OF}open|glle:unfinished|glle:tenants", "never"),
    Owner("jobs: maintenance times", r"glle:swept|glle:maintained", "always"),
    Owner("sweep: time of the next", r"glle:sweep", "never"),
    Owner("readiness: last write", re.escape(PROBE), "always"),
    Owner("mark: service and its changes", re.escape(SERVICE), "never"),
    Owner("results: record", r"glle:result:res_[0-9a-f]+", "never"),
    Owner("results: list", rf"{_OF}results", "never"),
    Owner("results: by owner", rf"{_OF}results:of:{_SUBJECT}", "never", "subject"),
    Owner("results: by embedding or job", rf"{_OF}results:of:(emb|job)_[0-9a-f]+", "never"),
    Owner("data sets: record", rf"glle:dataset:{_SUBJECT}", "never", "dataset"),
    Owner("data sets: lists", rf"{_OF}datasets(:(tag|name):.+)?", "never"),
    Owner("posteriors: record", rf"glle:posterior:{_SUBJECT}", "never", "posterior"),
    Owner("posteriors: lists", rf"{_OF}posteriors(:(tag|name):.+)?", "never"),
    Owner("posteriors: by data set", rf"{_OF}posteriors:of:(?P<about>ds_[0-9a-f]+)", "never", "dataset"),
    Owner("embeddings: record", r"glle:embedding:emb_[0-9a-f]+", "never"),
    Owner("embeddings: list", rf"{_OF}embeddings", "never"),
    Owner("embeddings: by data set", rf"{_OF}embeddings:of:(?P<about>ds_[0-9a-f]+)", "never", "dataset"),
    Owner("keys: record", r"glle:key:[0-9a-f]+", "never"),
    Owner("keys: lists", rf"{_OF}keys(:name:.*)?", "never"),
    Owner("usage", rf"{_OF}usage(:all)?", "never"),
    Owner("metrics", r"glle:counts", "never"),
    Owner("RQ: task", r"rq:job:[^:]+", "when ended"),
    Owner("RQ: dependencies", r"rq:job:job_[^:]+:(dependents|dependencies)", "always"),
    Owner("RQ: result", r"rq:results:.+", "always"),
    Owner("RQ: execution", r"rq:executions?:.+", "always"),
    Owner("RQ: worker", r"rq:worker:.+", "always"),
    Owner("RQ: lists", rf"rq:(queues|workers|workers:{_NAMES}|queue:{_NAMES}(:intermediate)?)", "never"),
    Owner("RQ: registries", rf"rq:(wip|finished|failed|deferred|scheduled|canceled):{_NAMES}", "never"),
    Owner("RQ: limits of tenants", rf"rq:rl-keys|rq:rl:{_NAMES}:.+", "never"),
    Owner("RQ: first seen", rf"rq:queue:{_NAMES}:intermediate:first_seen:.+", "always"),
    Owner(
        "RQ: maintenance locks", rf"rq:(clean_registries|maintenance):{_NAMES}|rq:clean_groups|rq:.*lock.*", "always"
    ),
    Owner("workers: record", r"glle:worker:.+", "always"),
    Owner("workers: list", r"glle:workers", "never"),
)
CACHE = (
    Owner("cache: draws", rf"{_PREFIX}lanes:[^:]+:{_SUBJECT}:.+", "always"),  # of a deleted posterior, too
    Owner("cache: statements of running audits", rf"{_PREFIX}partial:.+", "always"),
    Owner("cache: requests for draws", rf"{TURNS}|{STREAM}[a-z0-9-]+|{BELL}", "never"),
    Owner("cache: shares of tenants in use", HELD, "always"),
)


@dataclass
class Census:
    """Numbers of Redis keys, and of keys that expire, by owner; `leaks` are keys that should not be there, with why."""

    counts: Counter[str] = field(default_factory=Counter)
    expiring: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)

    def count_keys(self, client: redis.Redis, owners: tuple[Owner, ...], alive: set[str]) -> None:
        """Count the keys of a server, and collect leaks; `alive` are the ids of existing data sets and posteriors."""
        for raw in client.scan_iter(count=1000):
            key = text(raw)
            owner, match = _owner(key, owners)
            if owner is None:
                self.leaks.append(f"{key}: no owner")
                continue
            seconds = client.ttl(key)
            if seconds == -2:  # expired just now
                continue
            self.counts[owner.name] += 1
            self.expiring[owner.name] += seconds >= 0
            if (owner.expiry == "always" or (owner.expiry == "when ended" and not _is_open(client, key))) and (
                seconds == -1
            ):
                self.leaks.append(f"{key}: should expire")
            if owner.expiry == "never" and seconds != -1:
                self.leaks.append(f"{key}: should not expire")
            if owner.count_keys and match["about"] not in alive:
                self.leaks.append(f"{key}: its subject does not exist")

    def check_members(self, client: redis.Redis, alive: set[str]) -> None:
        """Collect members of lists and sorted sets in the queue's Redis that have no record or no open job."""
        for tenant in {DEFAULT, *map(text, client.smembers(TENANTS))}:
            jobs, posteriors, opened = (tenant_key(f"glle:{name}", tenant) for name in ("jobs", "posteriors", "open"))
            ids = [member_name(text(raw)) for raw in client.zrange(jobs, 0, -1)]
            self._add_leaks(f"{jobs}: {{}} has no record", (id_ for id_ in ids if not client.exists(job_key(id_))))
            ids = [member_name(text(raw)) for raw in client.zrange(posteriors, 0, -1)]
            self._add_leaks(f"{posteriors}: {{}} does not exist", (id_ for id_ in ids if id_ not in alive))
            ids = [text(raw) for raw in client.smembers(opened)]
            self._add_leaks(f"{opened}: {{}} has ended", (id_ for id_ in ids if not _is_open(client, job_key(id_))))
        for queue in QUEUES:
            lists = (f"rq:queue:{queue}", f"rq:queue:{queue}:intermediate")
            tasks = [text(raw) for name in lists for raw in client.lrange(name, 0, -1)]
            self._add_leaks("RQ: {} waits without an open job", tasks)
            for registry, what in (("wip", "runs"), ("deferred", "depends on tasks")):
                members = client.zrange(f"rq:{registry}:{queue}", 0, -1)
                self._add_leaks(f"RQ: {{}} {what} without an open job", map(text, members))
        for limit in RateLimitRegistry.all(client):
            held = [*limit.get_allowed_job_ids(), *limit.get_rate_limited_job_ids()]
            self._add_leaks("RQ: {} is in a tenant's limit without an open job", held)

    def check_requests(self, client: redis.Redis) -> None:
        """Collect requests for draws that still wait although all clients are gone."""
        streams = [text(key) for key in client.scan_iter(match=f"{STREAM}*", count=1000)]
        entries = (f"{stream} {text(id_)}" for stream in streams for id_, _ in client.xrange(stream) or ())
        self._add_leaks("{}: waits without a client", entries)
        tenants = [*(stream.removeprefix(STREAM) for stream in streams), *map(text, client.zrange(TURNS, 0, -1))]
        self._add_leaks("{}: is in the turns of draws without a request", sorted(set(tenants)))

    def _add_leaks(self, why: str, names: Iterable[str]) -> None:
        self.leaks += [why.format(name) for name in names]


def _owner(key: str, owners: tuple[Owner, ...]) -> tuple[Owner | None, Any]:
    for owner in owners:
        if match := re.fullmatch(owner.pattern, key):
            return owner, match
    return None, None


def _is_open(client: redis.Redis, key: str) -> bool:
    status = client.hget(key, "status")
    return status in {b"queued", b"running", b"cancelling", b"started"}


def all_ended(client: redis.Redis, ledger: Ledger, last: float) -> tuple[list[Row], float]:
    """Check that all accepted jobs end within `TERMINAL_SECONDS`, and have records; also return the wait in seconds.

    Parameters
    ----------
    client
        Client of the queue's Redis.
    last
        Time of the last kill (`time.time`), from which the wait counts.

    """
    while (remaining := _open_jobs(client)) and time.time() - last < TERMINAL_SECONDS:
        time.sleep(0.1)
    seconds = time.time() - last
    late = Row(
        "jobs not at an end 30 s after the last kill", len(ledger.jobs), [f"{id_} {is_}" for id_, is_ in remaining]
    )
    missing = [id_ for id_ in ledger.jobs if not client.exists(f"glle:job:{id_}")]
    return [late, Row("accepted jobs that are missing", len(ledger.jobs), missing)], seconds


def read_again(user: User, count: int) -> list[Row]:
    """Request `count` of the jobs, and all that was stored or deleted; check the answers, and all received arrays."""
    jobs = list(user.ledger.jobs.values())
    rows = [results(user, jobs[:: max(1, len(jobs) // count)]), check_stored(user), check_deleted(user)]
    return [*rows, *bits(user.ledger)]


def results(user: User, jobs: list[Accepted]) -> Row:
    """Check that jobs and their results are as they were reported before; the ledger records the answers."""
    row = Row("jobs and results, as reported at the end", len(jobs))
    before = len(user.ledger.faults)
    for job in jobs:
        for _ in range(60):  # until it has ended
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


def check_stored(user: User) -> Row:
    """Check that all data sets, posteriors and embeddings that were accepted and not deleted can be read."""
    ledger = user.ledger
    row = Row("data sets, posteriors, embeddings missing or different", len(ledger.stored))
    before = len(ledger.faults)
    ended = ledger.jobs.values()
    cancelled = {job.artifact for job in ended if job.status == "cancelled" and isinstance(job.artifact, Embedding)}
    for path, artifact in list(ledger.stored.items()):
        what = {Content: "/data", Fit: "/arrays", Embedding: "/coordinates?wait=20"}[type(artifact)]
        media = NPZ if isinstance(artifact, Fit) else NPY
        for _ in range(60):
            answer = user.requester.ask("GET there", path + what, headers={"Accept": media})
            if answer is None or answer.status_code != 202:
                break
            time.sleep(0.5)
        if answer is not None and answer.status_code == 409 and artifact in cancelled:
            continue  # the record of an embedding stays when its job is cancelled, and a GET computes nothing
        if answer is None or answer.status_code != 200:
            row.violations.append(f"{path}: {answer and (answer.status_code, answer.text[:200])} ({artifact})")
        else:
            user.receive(answer, artifact)
    row.violations += ledger.faults[before:]
    return row


def check_deleted(user: User) -> Row:
    """Check that what was deleted is not found."""
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
    """Check that each received array has the engine's bits, and that equal requests have received equal arrays."""
    different = Row(
        "results that differ from those computed alone", len(ledger.arrays), list(differing_arrays(ledger.arrays))
    )
    several = [f"{name} of {artifact}" for (artifact, name), digests in ledger.arrays.items() if len(digests) > 1]
    return [different, Row("one request, two results", ledger.received, several)]


def wrong(ledger: Ledger) -> list[Row]:
    """Check the answers during the load: none contradicts another, and no error is without a Retry-After."""
    errors = [f"{error.operation} {error.status} {error.code}" for error in ledger.errors()]
    return [
        Row("wrong answers", ledger.requests, list(ledger.faults)),
        Row("errors other than no answer, and 503 with Retry-After", len(ledger.attempts), errors),
    ]


def keys(queue: redis.Redis, cache: redis.Redis, tenants: list[httpx.Client]) -> tuple[Row, Census]:
    """Check all keys of both Redis servers for leaks, and count them; wait for keys that are about to expire."""
    until = time.monotonic() + LEAVING_SECONDS
    while (census := _census(queue, cache, tenants)).leaks and time.monotonic() < until:
        time.sleep(1)
    return Row("leaked keys", sum(census.counts.values()), census.leaks), census


def _census(queue: redis.Redis, cache: redis.Redis, tenants: list[httpx.Client]) -> Census:
    alive = set()
    for http, name in product(tenants, ("datasets", "posteriors")):
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
    """Check that each worker soon has a sampler and two RQ workers again; `head` is the pid of `glle up`."""
    until = time.monotonic() + TERMINAL_SECONDS
    while (missing := without_residents(tree(head))) and time.monotonic() < until:
        time.sleep(0.1)
    return Row("workers without a sampler or an RQ worker", len(tree(head)), missing)


def files(folder: Path, client: redis.Redis) -> Row:
    """Check that each stored file has a record, and each record its files; call this after a sweep.

    The mark (`worker.storage.mark`) is the only file without a record.
    """
    mark = folder / "objects" / MARK_FOLDER
    paths = [
        path for subfolder in ("objects", "incoming") for path in (folder / subfolder).rglob("*") if path.is_file()
    ]
    stored = [path for path in paths if path.parent != mark]
    named: set[Path] = set()
    kinds: tuple[RecordKind[Any], ...] = (DATASET, POSTERIOR, EMBEDDING, RESULT)
    for kind in kinds:
        for id_, raw in RecordStore(client, kind).all():
            named.update(folder / "objects" / path for path in kind.load(id_, raw).files)
    remaining = [str(path) for path in stored if path not in named]
    missing = [f"{path} is missing" for path in named.difference(stored)]
    return Row("files without a record, and records without a file", len(stored), remaining + missing)


def _open_jobs(client: redis.Redis) -> list[tuple[str, str]]:
    """Return the jobs that have not ended, with their status, from their records.

    An HTTP request for a job would not do, because such a request may repair the job.
    """
    open_jobs = []
    try:
        for raw in client.scan_iter(match="glle:job:*", count=1000):
            status = text(client.hget(raw, "status") or "")
            if status not in ENDED:
                open_jobs.append((text(raw).removeprefix("glle:job:"), status))
    except (ConnectionError, TimeoutError) as error:  # the queue server was the last process killed
        return [("all jobs", str(error))]
    return open_jobs
