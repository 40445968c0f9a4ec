"""Store of embeddings, each with one record and one file.

The record is written at the request, so that an embedding can be read, named and deleted while a job computes the
coordinates. The job adds the file to the record at its end. Record and file stay until the embedding or its data set is
deleted.
"""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING

import pydantic.dataclasses

from glle_engine.base.texts import Way
from worker.analyses.embedding import EmbeddingSpec, Recipe
from worker.base.clock import now_iso
from worker.records.ids import DEFAULT
from worker.records.stored_file import STORED, StoredFile
from worker.storage.file_records import FileStore
from worker.storage.object_store.files import STORED_BYTES
from worker.storage.records import RecordKind

if TYPE_CHECKING:
    import redis

    from worker.records.cache_entry import Entry
    from worker.storage.object_store.files import ObjectFiles
    from worker.storage.results import ResultStore


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class EmbeddingRecord:
    """Record of an embedding.

    Parameters
    ----------
    recipe
        All inputs of the embedding.
    claim
        Text by which `JobStore.claim_holder` finds the last job that was requested for the embedding.
    file
        File with the coordinates; None until a job has computed them.

    """

    recipe: Recipe
    claim: str
    created: str
    file: StoredFile | None = None
    tenant: str = DEFAULT
    name: str | None = None
    tags: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Id of the embedding, a digest of its inputs."""
        return self.recipe.id

    @property
    def files(self) -> dict[str, StoredFile]:
        """The file of the record, by its path in the store, if there is one."""
        return {} if self.file is None else {self.file.path: self.file}

    @property
    def spec(self) -> EmbeddingSpec:
        """The request that computes the embedding, without scores."""
        return EmbeddingSpec(**asdict(self.recipe))


EMBEDDING_KIND = RecordKind[EmbeddingRecord](
    "embedding",
    "embedding",
    f"Request it with {Way('embed')}.",
    EmbeddingRecord,
    counts=lambda record: {"embeddings": 1, STORED_BYTES: 0 if record.file is None else record.file.size},
    sets=lambda record: [f"of:{record.recipe.dataset}"],
)


class EmbeddingStore(FileStore[EmbeddingRecord]):
    """Store of embeddings: their records, and the files with their coordinates.

    Parameters
    ----------
    client
        The queue's Redis, for the records.
    files
        Files of the embeddings.
    results
        Results about embeddings, which are deleted with the embeddings.

    """

    def __init__(self, client: redis.Redis, files: ObjectFiles, results: ResultStore) -> None:
        super().__init__(client, EMBEDDING_KIND, files, results)

    def request(self, recipe: Recipe, claim: str) -> None:
        """Write the record of an embedding before the job is created that computes the coordinates.

        An existing record only gets the new claim, a text by which `JobStore.claim_holder` finds the job. Nothing is
        written if the data set was deleted.
        """
        record = EmbeddingRecord(recipe=recipe, claim=claim, created=now_iso(), tenant=self.tenant or DEFAULT)
        if not self.create(record, while_existing=[f"glle:dataset:{recipe.dataset}"]):
            self.change(record.id, lambda old: replace(old, claim=claim))

    def find_entry(self, id_: str) -> Entry | None:
        """Return the embedding with this id, or None if its coordinates are not stored.

        Raises `ProblemError` (``embedding-damaged``, ``store-unavailable``).
        """
        record = self.get(id_)
        return None if record is None or record.file is None else self.read_entry(record, record.file)

    def put(self, id_: str, entry: Entry, *, max_bytes: int = 0) -> None:
        """Store the coordinates of an embedding; do nothing if they are stored already, or if there is no record.

        Raises
        ------
        ProblemError
            ``quota-exceeded``, ``storage-full``, ``store-unavailable``.

        """
        record = self.get(id_)
        if record is None or record.file is not None:
            return
        new = replace(record, file=self.files.write_entry(entry))
        with self.limited(new, max_bytes):
            stored = self.change(
                id_,
                lambda old: old if old.file is not None else replace(old, file=new.file),
                limits={STORED_BYTES: max_bytes},
            )
        if stored is None or stored.file != new.file:
            self.files.remove(new.files)
