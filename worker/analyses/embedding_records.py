"""What is remembered of embeddings that were asked for: enough to make them again under the same id.

A record is kept for as long as those of jobs, from when it was last asked for; the coordinates are in the cache. It is
removed with the record of the last job that was to make it, so a tenant's embeddings are bounded as its jobs are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import redis

from worker.analyses.embedding import EmbeddingSpec, Recipe
from worker.base.problems import refuse
from worker.base.versions import dump_record, load_record
from worker.jobs.index import NOTED
from worker.records.ids import text
from worker.records.job import job_key
from worker.records.tenants import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator


# KEYS: record of the embedding, record of its job. ARGV: the record, seconds it is kept, the field of the job's record.
_NOTE = """
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HSET', KEYS[2], ARGV[3], 1) end
"""


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecord:
    """What is kept of an embedding; `job` was the last that was to make it."""

    recipe: Recipe
    job: str
    tenant: str = DEFAULT

    @property
    def spec(self) -> EmbeddingSpec:
        """What a job makes it by, without scores."""
        return EmbeddingSpec(**asdict(self.recipe))


class EmbeddingStore:
    """Keeps records in the queue's Redis.

    Parameters
    ----------
    client
        The queue's Redis.
    ttl
        Seconds a record is kept after it was last asked for.
    tenant
        Whose embeddings are seen, and noted; None: everyone's, and the default tenant's.

    """

    def __init__(self, client: redis.Redis, *, ttl: int, tenant: str | None = None) -> None:
        self._client = client
        self._ttl = ttl
        self._tenant = tenant

    def of(self, tenant: str) -> Self:
        """Return the same store as a tenant sees it."""
        return type(self)(self._client, ttl=self._ttl, tenant=tenant)

    def note(self, recipe: Recipe, job: str) -> None:
        """Write the record of an embedding that a job is to make."""
        record = EmbeddingRecord(recipe=recipe, job=job, tenant=self._tenant or DEFAULT)
        args: list[str | int] = [dump_record(asdict(record)), self._ttl, NOTED + recipe.id]
        self._client.eval(_NOTE, 2, _key(recipe.id), job_key(job), *args)

    def all(self) -> Iterator[tuple[str, str, int]]:
        """Yield (id, record as it is written, milliseconds it is still kept) of all tenants'; perhaps one twice."""
        for raw in self._client.scan_iter(match=_key("*"), count=1000):
            with self._client.pipeline(transaction=True) as both:
                both.get(raw)
                both.pttl(raw)
                record, left = both.execute()
            if record is not None and left > 0:
                yield text(raw).removeprefix(_key("")), text(record), left

    def exists(self, id_: str) -> bool:
        """Say whether there is a record."""
        return bool(self._client.exists(_key(id_)))

    def put(self, record: EmbeddingRecord, left: int) -> bool:
        """Write a record as it was, kept for so many milliseconds; return whether there was none."""
        raw = dump_record(asdict(record))
        return bool(self._client.set(_key(record.recipe.id), raw, px=left, nx=True))

    def fetch(self, id_: str) -> EmbeddingRecord:
        """Return a record, which is then kept anew.

        Raises
        ------
        ProblemError
            ``embedding-not-found``.

        """
        raw = self._client.get(_key(id_))
        record = None if raw is None else record_of(id_, raw)
        if record is None or self._tenant not in {None, record.tenant}:
            raise refuse(
                "embedding-not-found",
                404,
                f"There is no embedding {id_} (any more).",
                "Ask for it with POST /v1/embeddings: what is known already is not computed twice.",
                embedding=id_,
            )
        with suppress(redis.ResponseError):  # a server that is full is read all the same
            self._client.expire(_key(id_), self._ttl)
        return record


def record_of(id_: str, raw: str | bytes) -> EmbeddingRecord:
    """Return a record as it was written; raises as `worker.base.versions.load_record`."""

    def made(told: dict[str, Any]) -> EmbeddingRecord:
        return EmbeddingRecord(**{**told, "recipe": Recipe(**told["recipe"])})

    return load_record(f"The record of embedding {id_}", raw, made)


def _key(id_: str) -> str:
    return f"glle:embedding:{id_}"
