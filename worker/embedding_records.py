"""What is remembered of embeddings that were asked for: enough to make them again under the same id.

A record is kept for as long as those of jobs, from when it was last asked for; the coordinates are in the cache.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from worker.embeddings import EmbeddingSpec, Recipe
from worker.problems import refuse
from worker.tenants import DEFAULT

if TYPE_CHECKING:
    import redis


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
        self._client.set(_key(recipe.id), json.dumps(asdict(record), allow_nan=False), ex=self._ttl)

    def fetch(self, id_: str) -> EmbeddingRecord:
        """Return a record, which is then kept anew.

        Raises
        ------
        ProblemError
            ``embedding-not-found``.

        """
        raw = self._client.get(_key(id_))
        told = None if raw is None else json.loads(raw)
        if told is None or self._tenant not in {None, told["tenant"]}:
            raise refuse(
                "embedding-not-found",
                404,
                f"There is no embedding {id_} (any more).",
                "Ask for it with POST /v1/embeddings: what is known already is not computed twice.",
                embedding=id_,
            )
        self._client.expire(_key(id_), self._ttl)
        return EmbeddingRecord(**{**told, "recipe": Recipe(**told["recipe"])})


def _key(id_: str) -> str:
    return f"glle:embedding:{id_}"
