"""Records of requested embeddings, from which an embedding is computed again under the same id.

The coordinates are in the cache. A record stays until the embedding or its data set is deleted, or until the tenant has
`MAX_EMBEDDINGS` newer ones. It is written before the job that computes the embedding, so a task without the record
removes its result.
"""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

import pydantic.dataclasses

from worker.analyses.base import results_prefix
from worker.analyses.embedding import EmbeddingSpec, Recipe
from worker.analyses.pictures import PictureSpec
from worker.analyses.resamples import spread_prefix
from worker.base.clock import now_iso
from worker.records.ids import DEFAULT
from worker.records.stored_file import STORED
from worker.storage.records import RecordKind, RecordStore

if TYPE_CHECKING:
    from worker.storage.array_cache import ArrayCache

MAX_EMBEDDINGS = 10_000  # records of a tenant, some 10 MB of the queue server


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class EmbeddingRecord:
    """Record of an embedding; `claim` is that of the last job requested for it. Embeddings have no labels."""

    recipe: Recipe
    claim: str
    created: str
    tenant: str = DEFAULT
    name: str | None = None
    tags: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The id of the embedding."""
        return self.recipe.id

    @property
    def spec(self) -> EmbeddingSpec:
        """The analysis that computes the embedding, without scores."""
        return EmbeddingSpec(**asdict(self.recipe))


KIND = RecordKind[EmbeddingRecord](
    "embedding",
    "embedding",
    "Request it with POST /v1/embeddings: cached results are not computed twice. Newer ones replace the oldest.",
    EmbeddingRecord,
    counts=lambda _: {"embeddings": 1},
    sets=lambda record: [f"of:{record.recipe.dataset}"],
)


class EmbeddingStore(RecordStore[EmbeddingRecord]):
    """Store of the records of embeddings."""

    def note(self, recipe: Recipe, claim: str) -> None:
        """Write the record of an embedding before the job with a claim; remove the tenant's oldest surplus records."""
        record = EmbeddingRecord(recipe=recipe, claim=claim, created=now_iso(), tenant=self.tenant or DEFAULT)
        if not self.create(record):
            self.change(record.id, lambda old: replace(old, claim=claim))
        elif (surplus := self.usage()["embeddings"] - MAX_EMBEDDINGS) > 0:
            for id_ in self.ids_in("", surplus):
                self.delete(id_)


def remove_results(cache: ArrayCache, recipe: Recipe) -> None:
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
