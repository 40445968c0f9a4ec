"""Records of requested embeddings, from which an embedding is computed again under the same id.

A record is kept as long as those of jobs after its last use; the coordinates are in the cache. It is removed with the
record of the last job that computes it, so the limit on a tenant's jobs bounds its embeddings. A deletion leaves a
mark, so that a task that computes the embedding meanwhile removes its result.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import redis

from worker.analyses.base import results_prefix
from worker.analyses.embedding import EmbeddingSpec, Recipe
from worker.analyses.plots.picture import PictureSpec
from worker.analyses.spread import spread_prefix
from worker.base.problems import refuse
from worker.base.versions import dump_record, load_record
from worker.jobs.index import NOTED
from worker.records.ids import text
from worker.records.job import job_key
from worker.records.tenants import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.storage.tiered_cache import TieredCache

# KEYS: record of the embedding, record of its job, mark of a deletion. ARGV: the record, seconds to keep it, the field
# of the job's record.
_NOTE = """
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('DEL', KEYS[3])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HSET', KEYS[2], ARGV[3], 1) end
"""


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecord:
    """Record of an embedding; `job` is the last one that computes it."""

    recipe: Recipe
    job: str
    tenant: str = DEFAULT

    @property
    def spec(self) -> EmbeddingSpec:
        """The analysis that computes the embedding, without scores."""
        return EmbeddingSpec(**asdict(self.recipe))


class EmbeddingStore:
    """Records of embeddings in the queue's Redis, kept for `ttl` seconds after their last use.

    Without a tenant, the store finds all tenants' records, and writes the default tenant's.
    """

    def __init__(self, client: redis.Redis, *, ttl: int, tenant: str | None = None) -> None:
        self._client = client
        self._ttl = ttl
        self._tenant = tenant

    def of(self, tenant: str) -> Self:
        """Return the store as a tenant sees it."""
        return type(self)(self._client, ttl=self._ttl, tenant=tenant)

    def note(self, recipe: Recipe, job: str) -> None:
        """Write the record of an embedding that a job computes."""
        record = EmbeddingRecord(recipe=recipe, job=job, tenant=self._tenant or DEFAULT)
        args: list[str | int] = [dump_record(asdict(record)), self._ttl, NOTED + recipe.id]
        self._client.eval(_NOTE, 3, _key(recipe.id), job_key(job), _deleted_key(recipe.id), *args)

    def all(self) -> Iterator[tuple[str, str, int]]:
        """Yield (id, stored record, milliseconds to live) of all tenants' embeddings, possibly with repetitions."""
        for raw in self._client.scan_iter(match=_key("*"), count=1000):
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.get(raw)
                pipeline.pttl(raw)
                record, ttl_ms = pipeline.execute()
            if record is not None and ttl_ms > 0:
                yield text(raw).removeprefix(_key("")), text(record), ttl_ms

    def delete(self, id_: str) -> None:
        """Remove a record, and mark the embedding as deleted until it is requested again."""
        with self._client.pipeline() as pipeline:
            pipeline.set(_deleted_key(id_), "", ex=self._ttl)
            pipeline.delete(_key(id_))
            pipeline.execute()

    def is_deleted(self, id_: str) -> bool:
        """Return whether an embedding was deleted and not requested again."""
        return bool(self._client.exists(_deleted_key(id_)))

    def exists(self, id_: str) -> bool:
        """Return whether a record exists."""
        return bool(self._client.exists(_key(id_)))

    def put(self, record: EmbeddingRecord, ttl_ms: int) -> bool:
        """Restore a record for some milliseconds; return False if one exists."""
        raw = dump_record(asdict(record))
        return bool(self._client.set(_key(record.recipe.id), raw, px=ttl_ms, nx=True))

    def fetch(self, id_: str) -> EmbeddingRecord:
        """Return a record, and extend its life; raises ``embedding-not-found``."""
        raw = self._client.get(_key(id_))
        record = None if raw is None else record_of(id_, raw)
        if record is None or self._tenant not in {None, record.tenant}:
            raise refuse(
                "embedding-not-found",
                404,
                f"Embedding {id_} does not exist, or its record has expired.",
                "Request it with POST /v1/embeddings: cached results are not computed twice.",
                embedding=id_,
            )
        with suppress(redis.ResponseError):  # a full server still serves reads
            self._client.expire(_key(id_), self._ttl)
        return record


def record_of(id_: str, raw: str | bytes) -> EmbeddingRecord:
    """Return a stored record; raises as `worker.base.versions.read`."""

    def make(fields: dict[str, Any]) -> EmbeddingRecord:
        return EmbeddingRecord(**{**fields, "recipe": Recipe(**fields["recipe"])})

    return load_record(f"The record of embedding {id_}", raw, make)


def remove_results(cache: TieredCache, recipe: Recipe) -> None:
    """Remove the cached coordinates of an embedding, its scores, spread and pictures; comparisons keep their rows."""
    prefix = results_prefix(recipe.dataset)
    scores, pictures = f"{prefix}{EmbeddingSpec.kind}:", f"{prefix}{PictureSpec.kind}:"
    every = cache.keys_of(recipe.dataset)
    keys = [key for key in every if key.startswith((scores, pictures))]
    for key, meta in zip(keys, cache.heads(keys), strict=True):
        if meta is not None and _embedding_of(meta, is_picture=key.startswith(pictures)) == recipe.id:
            cache.delete(key)
    for key in every:
        if key.startswith(spread_prefix(recipe)):
            cache.delete(key)
    cache.delete(recipe.cache_key)


def _embedding_of(meta: dict[str, Any], *, is_picture: bool) -> str | None:
    """Return the id of the embedding that a result is of, or None."""
    if not is_picture:
        return str(meta["id"])
    return EmbeddingSpec.from_dict(meta["asked"]).recipe.id if meta["of"] == EmbeddingSpec.kind else None


def _deleted_key(id_: str) -> str:
    return f"glle:embedding-deleted:{id_}"


def _key(id_: str) -> str:
    return f"glle:embedding:{id_}"
