"""Imported posteriors: the one thing that no fit can make again, because their data may be elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

import glle_engine
from glle_engine.base.errors import StorageError
from worker.base.files import NPY_HEADER_LOCK
from worker.base.problems import refuse
from worker.records.ids import content_sha256, digest
from worker.storage.object_store.files import DamagedFileError, pieces_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.base.problems import ProblemError
    from worker.storage.object_store.files import ObjectFiles
    from worker.storage.posteriors import PosteriorRecord, PosteriorStore

ORIGIN = "import.json"  # member of a file: the tenant, and the identity of the data set
NAME = "posterior.npz"
_REMEDY = "Import its file again, which replaces the stored one under the same id; or restore a backup. Check the disk."
_UNREADABLE = (StorageError, OSError, DamagedFileError)


def imported_id(sha256: str, tenant: str) -> str:
    """Return the id of a tenant's imported posterior, whose head and arrays have this digest; no fit has such an id."""
    return "post_" + digest("import", sha256, tenant)


def posterior_sha256(posterior: glle_engine.Posterior) -> str:
    """Return the digest of a posterior's head and arrays."""
    return content_sha256(posterior.head(), posterior.arrays())


def write_posterior(file: IO[bytes], posterior: glle_engine.Posterior, origin: Mapping[str, Any]) -> None:
    """Write the file of an imported posterior, which `glle_engine.load` reads, to a seekable file."""
    heads = {"head.json": posterior.head(), ORIGIN: origin}
    texts = {name: json.dumps(value, allow_nan=False).encode() for name, value in heads.items()}
    encoded = {name: np.frombuffer(text, np.uint8) for name, text in texts.items()}
    np.savez(file, allow_pickle=False, **encoded, **posterior.arrays())


class ImportedPosteriors:
    """Files of imported posteriors, `.npz`: head and arrays of a posterior, its tenant, and the identity of its data.

    Parameters
    ----------
    files
        Written by the API, read by the workers.

    """

    def __init__(self, files: ObjectFiles) -> None:
        self._files = files

    def add(
        self, posteriors: PosteriorStore, record: PosteriorRecord, file: IO[bytes], size: int, max_bytes: int = 0
    ) -> tuple[PosteriorRecord, bool]:
        """Store a file of so many bytes and its record; return the record, and whether it is new.

        The file of an existing one is replaced if it is damaged. `max_bytes` is the quota of the tenant's files.

        Raises
        ------
        ProblemError
            ``quota-exceeded``, and those of `ObjectFiles.write`.

        """
        stored = self._files.write_new({NAME: (pieces_of(file), size)})
        return self._files.publish(
            posteriors,
            replace(record, file=stored[NAME]),
            with_files=lambda old, new: replace(old, file=new.file),
            max_bytes=max_bytes,
        )

    def load(self, record: PosteriorRecord) -> glle_engine.Posterior:
        """Return the posterior of a record; raises ``posterior-damaged``."""
        assert record.file is not None
        try:
            return glle_engine.load(self._files.path(record.file))
        except _UNREADABLE as error:
            detail = f"The stored file of the imported posterior {record.id} is missing, or differs from the import."
            raise refuse("posterior-damaged", 500, detail, _REMEDY, posterior=record.id) from error

    def origin(self, record: PosteriorRecord) -> dict[str, Any] | None:
        """Return `tenant` and `dataset`, the identity of the data set; None if the file is missing or damaged."""
        assert record.file is not None
        try:
            with NPY_HEADER_LOCK, np.load(self._files.path(record.file), allow_pickle=False) as content:
                origin: dict[str, Any] = json.loads(content[ORIGIN].tobytes())
        except _UNREADABLE:
            return None
        return origin

    def remove(self, record: PosteriorRecord) -> None:
        """Remove the file of a deleted record."""
        self._files.remove(record.files)

    def data_not_found(self, record: PosteriorRecord) -> ProblemError:
        """Return the problem of an imported posterior whose data set is not in this service."""
        dataset = (self.origin(record) or {}).get("dataset", {})
        names = dataset.get("names")
        columns = f" with the features {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}" if names else ""
        return refuse(
            "dataset-not-found",
            404,
            f"Posterior {record.id} was imported, and its data set {record.dataset} is not here: {record.n:,} points,"
            f" {record.d:,} features, SHA-256 {dataset.get('sha256')}.",
            f"Upload the same table{columns} by POST /v1/datasets, with its labels, colors and ids if it had them, so"
            " that the SHA-256 is equal; or use the draws, which need no data.",
            dataset=record.dataset,
            sha256=dataset.get("sha256"),
            n=record.n,
            d=record.d,
            names=names,
        )
