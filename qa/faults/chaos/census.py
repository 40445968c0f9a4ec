"""Census of all Redis keys: owner, expiry, and existence of the subject."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rq.rate_limit import RateLimitRegistry

from worker.base.versions import versioned_key
from worker.jobs.draw_stream import STREAMS
from worker.jobs.rq_types import QUEUES
from worker.records.draws import DRAW, LANE_GROUP
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis

_NAMES = f"({'|'.join(QUEUES)})"
Expiry = Literal["always", "never", "when ended"]


@dataclass(frozen=True)
class Owner:
    """Owner of the keys that match a pattern, and their expiry; group `about` of the pattern is the subject."""

    name: str
    pattern: str
    expiry: Expiry
    count_keys: Literal["", "posterior", "subject", "dataset"] = ""


_PREFIX = versioned_key("")
_SUBJECT = r"(?P<about>(post|ds)_[0-9a-f]+)"
QUEUE = (
    Owner("jobs: record", r"glle:job:job_[0-9a-f]+", "when ended"),
    Owner("jobs: claim", r"glle:claim:.+", "always"),
    Owner("jobs: lists and counts", r"glle:jobs(:.+)?|glle:open|glle:unfinished|glle:tenants", "never"),
    Owner("jobs: maintenance times", r"glle:swept|glle:maintained", "always"),
    Owner("data sets: record", rf"glle:dataset:{_SUBJECT}", "never", "dataset"),
    Owner("data sets: lists", r"glle:datasets(:(tag|name):.+)?", "never"),
    Owner("posteriors: record", rf"glle:posterior:{_SUBJECT}", "never", "posterior"),
    Owner("posteriors: lists", r"glle:posteriors(:(tag|name):.+)?", "never"),
    Owner("posteriors: by data set", r"glle:posteriors:of:(?P<about>ds_[0-9a-f]+)", "never", "dataset"),
    Owner("embeddings: record", r"glle:embedding:emb_[0-9a-f]+", "never"),
    Owner("embeddings: list", r"glle:embeddings", "never"),
    Owner("embeddings: by data set", r"glle:embeddings:of:(?P<about>ds_[0-9a-f]+)", "never", "dataset"),
    Owner("keys: record", r"glle:key:[0-9a-f]+", "never"),
    Owner("keys: lists", r"glle:keys(:name:.*)?", "never"),
    Owner("usage", r"glle:usage(:all)?", "never"),
    Owner("idempotency", r"glle:idempotency(:.+|-names)", "always"),
    Owner("metrics", r"glle:counts", "never"),
    Owner("quotas: requests", r"glle:rate(:.+)?", "always"),
    Owner("RQ: task", r"rq:job:job_[^:]+", "when ended"),
    Owner("RQ: dependencies", r"rq:job:job_[^:]+:(dependents|dependencies)", "always"),
    Owner("RQ: result", r"rq:results:job_.+", "always"),
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
    Owner("cache: unfinished", r".+:tmp:[0-9a-f]+", "always"),
    Owner("cache: posterior", rf"{_PREFIX}posterior:{_SUBJECT}", "always", "posterior"),
    Owner("cache: draw", rf"{_PREFIX}({DRAW}|{LANE_GROUP}):{_SUBJECT}:.+", "always", "posterior"),
    Owner("cache: result", rf"{_PREFIX}result:{_SUBJECT}:.+", "always", "subject"),
    Owner("cache: requests for draws", "|".join(map(re.escape, STREAMS)), "never"),
)


@dataclass
class Census:
    """Number of keys of each owner, and unexpected keys with the reason."""

    counts: Counter[str] = field(default_factory=Counter)
    expiring: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)

    def count_keys(self, client: redis.Redis, owners: tuple[Owner, ...], alive: set[str]) -> None:
        """Count the keys of a server; `alive` are the ids of existing subjects."""
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
        """Check lists and indexes for members without a record."""
        jobs = [text(raw).partition(" ")[2] for raw in client.zrange("glle:jobs", 0, -1)]
        self._leaked("glle:jobs: {} has no record", (id_ for id_ in jobs if not client.exists(f"glle:job:{id_}")))
        posteriors = [text(raw).partition(" ")[2] for raw in client.zrange("glle:posteriors", 0, -1)]
        self._leaked("glle:posteriors: {} does not exist", (id_ for id_ in posteriors if id_ not in alive))
        opened = [text(raw) for raw in client.smembers("glle:open")]
        self._leaked("glle:open: {} has ended", (id_ for id_ in opened if not _is_open(client, f"glle:job:{id_}")))
        for queue in QUEUES:
            lists = (f"rq:queue:{queue}", f"rq:queue:{queue}:intermediate")
            tasks = [text(raw) for name in lists for raw in client.lrange(name, 0, -1)]
            self._leaked("RQ: {} waits without an open job", tasks)
            for registry, what in (("wip", "runs"), ("deferred", "depends on tasks")):
                members = client.zrange(f"rq:{registry}:{queue}", 0, -1)
                self._leaked(f"RQ: {{}} {what} without an open job", map(text, members))
        for limit in RateLimitRegistry.all(client):
            held = [*limit.get_allowed_job_ids(), *limit.get_rate_limited_job_ids()]
            self._leaked("RQ: {} is in a tenant's limit without an open job", held)

    def check_requests(self, client: redis.Redis) -> None:
        """Check the streams for requests without a client."""
        entries = (f"{stream} {text(id_)}" for stream in STREAMS for id_, _ in client.xrange(stream) or ())
        self._leaked("{}: waits without a client", entries)

    def _leaked(self, why: str, names: Iterable[str]) -> None:
        self.leaks += [why.format(name) for name in names]


def _owner(key: str, owners: tuple[Owner, ...]) -> tuple[Owner | None, Any]:
    for owner in owners:
        if match := re.fullmatch(owner.pattern, key):
            return owner, match
    return None, None


def _is_open(client: redis.Redis, key: str) -> bool:
    status = client.hget(key, "status")
    return status in {b"queued", b"running", b"cancelling", b"started"}
