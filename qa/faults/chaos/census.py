"""Census of all Redis keys: owner, expiry, and existence of the subject."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from worker.base.versions import versioned
from worker.jobs import priority_scripts
from worker.jobs.rq_types import NAME
from worker.records.draws import DRAW, LANE_GROUP
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis

SHORT = f"{NAME}-short"  # queue of the tasks that executors run
Expiry = Literal["always", "never", "when ended"]


@dataclass(frozen=True)
class Owner:
    """Owner of the keys that match a pattern, and their expiry; group `about` of the pattern is the subject."""

    name: str
    pattern: str
    expiry: Expiry
    count_keys: Literal["", "posterior", "subject", "dataset"] = ""


_PREFIX = versioned("")
_SUBJECT = r"(?P<about>(post|ds)_[0-9a-f]+)"
QUEUE = (
    Owner("jobs: record", r"glle:job:job_[0-9a-f]+", "when ended"),
    Owner("jobs: claim", r"glle:claim:.+", "always"),
    Owner("jobs: lists and counts", r"glle:jobs(:.+)?|glle:open|glle:unfinished|glle:tenants", "never"),
    Owner("jobs: maintenance times", r"glle:swept|glle:maintained", "always"),
    Owner("posteriors: record", rf"glle:posterior:{_SUBJECT}", "never", "posterior"),
    Owner("posteriors: calibration", rf"glle:calibration:{_SUBJECT}", "never", "posterior"),
    Owner("posteriors: list", r"glle:posteriors", "never"),
    Owner("posteriors: by data set", r"glle:dataset:(?P<about>ds_[0-9a-f]+):posteriors", "never", "dataset"),
    Owner("embeddings: record", r"glle:embedding:emb_[0-9a-f]+", "always"),
    Owner("idempotency", r"glle:idempotency:.+", "always"),
    Owner("metrics", r"glle:counts", "never"),
    Owner("quotas: requests", r"glle:rate(:.+)?", "always"),
    Owner("RQ: task", r"rq:job:job_.+", "when ended"),
    Owner("RQ: result", r"rq:results:job_.+", "always"),
    Owner("RQ: execution", r"rq:executions?:.+", "always"),
    Owner("RQ: worker", r"rq:worker:.+", "always"),
    Owner("RQ: lists", rf"rq:(queues|workers|workers:{NAME}|queue:({NAME}|{SHORT})(:intermediate)?)", "never"),
    Owner("RQ: lines", rf"rq:queue:({NAME}|{SHORT}):(waiting|clock|turns:.+|line:.+)", "never"),
    Owner("RQ: registries", rf"rq:(wip|finished|failed|deferred|scheduled|canceled):({NAME}|{SHORT})", "never"),
    Owner("executors: tenants and posteriors", rf"rq:queue:{SHORT}:asked(:[^:]+)?", "never"),
    Owner("executors: requests for draws", rf"rq:queue:{SHORT}:asked:[^:]+:.+", "always"),
    Owner("RQ: first seen", rf"rq:queue:{NAME}:intermediate:first_seen:.+", "always"),
    Owner("RQ: maintenance locks", rf"rq:(clean_registries|maintenance):{NAME}|rq:.*lock.*", "always"),
)
CACHE = (
    Owner("cache: unfinished", r".+:tmp:[0-9a-f]+", "always"),
    Owner("cache: posterior", rf"{_PREFIX}posterior:{_SUBJECT}", "always", "posterior"),
    Owner("cache: draw", rf"{_PREFIX}({DRAW}|{LANE_GROUP}):{_SUBJECT}:.+", "always", "posterior"),
    Owner("cache: result", rf"{_PREFIX}result:{_SUBJECT}:.+", "always", "subject"),
    Owner("cache: keys by subject", rf"keys:{_SUBJECT}", "always", "subject"),
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
        for queue in (NAME, SHORT):
            tasks = [
                *priority_scripts.waiting(client, f"rq:queue:{queue}"),
                *client.lrange(f"rq:queue:{queue}:intermediate", 0, -1),
            ]
            self._leaked("RQ: {} waits without an open job", map(text, tasks))
            self._leaked("RQ: {} runs without an open job", map(text, client.zrange(f"rq:wip:{queue}", 0, -1)))
        asked = client.scan_iter(match=f"rq:queue:{SHORT}:asked*", count=1000)
        self._leaked("{}: waits without a client", map(text, asked))
        workers = [text(raw) for raw in client.smembers(f"rq:workers:{NAME}")]
        self._leaked("RQ: {} is listed without a record", (name for name in workers if not client.exists(name)))

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
