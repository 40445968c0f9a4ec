"""Imported posteriors on disk: the one thing that no fit can make again, because their data may be elsewhere."""

from __future__ import annotations

import contextlib
import json
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

import glle_engine
from glle_engine.base.errors import StorageError
from worker.base.files import (
    NPY_HEADER_LOCK,
    locked,
    remove_abandoned,
    restrict_folder,
    size,
    sync_folder,
    temporary,
)
from worker.base.problems import refuse
from worker.records.ids import content_sha256, digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from worker.base.problems import ProblemError
    from worker.storage.posteriors import PosteriorRecord

ORIGIN = "import.json"  # member of a file: the tenant, and the identity of the data set
SUFFIX = ".npz"
_PIECE = 2**20
_REMEDY = "Import its file again, which replaces the stored one under the same id; or restore a backup. Check the disk."
_UNREADABLE = (StorageError, OSError, EOFError, KeyError, ValueError, TypeError, AttributeError, zipfile.BadZipFile)


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
    """Folder of `<id>.npz`, each with the head and the arrays of a posterior, its tenant, and the identity of its data.

    A posterior exists while the queue's Redis has its record: the record is written last and removed first.

    Parameters
    ----------
    folder
        Created by the first import; shared by the API (read and write) and the workers (read).

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tenants: dict[str, str] = {}  # by id, which names one tenant for ever

    @classmethod
    def under(cls, data_dir: str) -> Self:
        """Return the files of a data folder."""
        return cls(Path(data_dir) / "posteriors")

    def exclusive(self) -> AbstractContextManager[None]:
        """Lock the folder, so that an import and a deletion of one posterior do not mix."""
        return locked(self._folder.with_name(self._folder.name + ".lock"))

    def put(self, id_: str, source: IO[bytes]) -> None:
        """Store a file, in place of an existing one."""
        restrict_folder(self._folder)
        with temporary(self._folder) as file:
            while piece := source.read(_PIECE):
                file.write(piece)
            file.publish(self._path(id_))

    def load(self, record: PosteriorRecord) -> glle_engine.Posterior:
        """Return the posterior of a record, compared with its id and the digest of its arrays.

        Raises
        ------
        ProblemError
            ``posterior-damaged``.

        """
        posterior = self._verified(record.id)
        if posterior is None or content_sha256({}, posterior.arrays()) != record.arrays_sha256:
            detail = f"The stored file of the imported posterior {record.id} is missing, or differs from the import."
            raise refuse("posterior-damaged", 500, detail, _REMEDY, posterior=record.id)
        return posterior

    def is_intact(self, id_: str) -> bool:
        """Read a file, and return whether its content has the digest in its id."""
        return self._verified(id_) is not None

    def origin(self, id_: str) -> dict[str, Any] | None:
        """Return `tenant` and `dataset`, the identity of the data set; None if the file is missing or damaged."""
        try:
            with self._path(id_).open("rb") as raw, NPY_HEADER_LOCK, np.load(raw, allow_pickle=False) as file:
                origin: dict[str, Any] = json.loads(file[ORIGIN].tobytes())
        except _UNREADABLE:
            return None
        return origin

    def ids(self) -> list[str]:
        """Return the ids of all tenants' files."""
        return sorted(path.stem for path in self._folder.glob(f"post_*{SUFFIX}"))

    def nbytes(self, tenant: str | None) -> int:
        """Return the bytes on disk of a tenant's files; None: of all."""
        return sum(size(self._path(id_)) for id_ in self.ids() if tenant in {None, self.tenant(id_)})

    def tenant(self, id_: str) -> str | None:
        """Return the tenant of a file; None if it is missing or damaged."""
        if id_ not in self._tenants and (origin := self.origin(id_)) is not None:
            self._tenants[id_] = str(origin.get("tenant"))
        return self._tenants.get(id_)

    def damaged(self) -> Iterator[str]:
        """Read every file, and yield the ids of those that differ from their digest."""
        for id_ in self.ids():
            if not self.is_intact(id_) and self._path(id_).exists():  # not deleted meanwhile
                yield id_

    @contextlib.contextmanager
    def opened(self, id_: str) -> Iterator[IO[bytes] | None]:
        """Yield an open file, which stays readable after a deletion; None if it is missing."""
        try:
            file = self._path(id_).open("rb")
        except FileNotFoundError:
            yield None
            return
        with file:
            yield file

    def delete(self, id_: str) -> None:
        """Remove a file, if it exists."""
        if self._path(id_).exists():
            self._path(id_).unlink(missing_ok=True)
            sync_folder(self._folder)

    def remove_abandoned(self) -> int:
        """Remove the files of interrupted imports; return their number."""
        return remove_abandoned(self._folder) if self._folder.is_dir() else 0

    def data_not_found(self, record: PosteriorRecord) -> ProblemError:
        """Return the problem of an imported posterior whose data set is not in this service."""
        dataset = (self.origin(record.id) or {}).get("dataset", {})
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

    def _verified(self, id_: str) -> glle_engine.Posterior | None:
        """Return the posterior of a file whose content has the digest in its id, or None."""
        try:
            return verified(self._path(id_), id_, str((self.origin(id_) or {}).get("tenant")))
        except FileNotFoundError:
            return None

    def _path(self, id_: str) -> Path:
        return self._folder / (id_ + SUFFIX)


def verified(path: Path, id_: str, tenant: str) -> glle_engine.Posterior | None:
    """Return the posterior of a file if its content has the digest in a tenant's id, otherwise None."""
    try:
        posterior = glle_engine.load(path)
    except _UNREADABLE as error:
        if isinstance(error, FileNotFoundError):
            raise
        return None
    return posterior if imported_id(posterior_sha256(posterior), tenant) == id_ else None
