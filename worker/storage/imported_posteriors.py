"""Imported posteriors: the one thing that no fit can make again, because their data may be elsewhere."""

from __future__ import annotations

import contextlib
import errno
import json
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

import glle_engine
from glle_engine.base.errors import StorageError
from worker.base.clock import now_iso
from worker.base.files import NPY_HEADER_LOCK, size
from worker.base.problems import refuse
from worker.records.ids import content_sha256, digest
from worker.storage.items.base import CatalogEntry
from worker.storage.items.folder import FolderItems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from worker.base.problems import ProblemError
    from worker.storage.items.base import Items
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
    """Items of one file, `.npz`: head and arrays of a posterior, its tenant, and the identity of its data.

    A posterior exists while the queue's Redis has its record: the record is written last and removed first.

    Parameters
    ----------
    items
        Written by the API, read by the workers.

    """

    def __init__(self, items: Items) -> None:
        self._items = items

    @classmethod
    def within(cls, folder: Path) -> Self:
        """Return the imported posteriors of a folder."""
        return cls(FolderItems(folder, "post_", (SUFFIX,), _FolderEntries(folder)))

    @classmethod
    def under(cls, data_dir: str) -> Self:
        """Return the files of a data folder."""
        return cls.within(Path(data_dir) / "posteriors")

    def exclusive(self, id_: str) -> AbstractContextManager[None]:
        """Lock a posterior, so that its import and its deletion do not mix."""
        return self._items.exclusive(id_)

    def put(self, id_: str, tenant: str, source: IO[bytes]) -> None:
        """Store a file, in place of an existing one."""
        with self.sealed(id_, tenant, source) as publish:
            publish()

    @contextlib.contextmanager
    def sealed(self, id_: str, tenant: str, source: IO[bytes]) -> Iterator[Callable[[], None]]:
        """Write a file, and yield the quick function that makes it visible, in place of an existing one."""
        with self._items.draft() as draft:
            file = draft.file(SUFFIX)
            while piece := source.read(_PIECE):
                file.write(piece)
            draft.seal(id_)
            yield lambda: draft.publish(id_, tenant, now_iso())

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
        """Read a file where it is stored, and return whether its content has the digest in its id."""
        return self._items.is_stored(id_) and self._verified(id_) is not None

    def origin(self, id_: str) -> dict[str, Any] | None:
        """Return `tenant` and `dataset`, the identity of the data set; None if the file is missing or damaged."""
        try:
            with self._open(id_) as file:
                return _origin(file)
        except _UNREADABLE:
            return None

    def ids(self) -> list[str]:
        """Return the ids of all tenants' files."""
        return self._items.ids()

    def nbytes(self, tenant: str | None) -> int:
        """Return the stored bytes of a tenant's files; None: of all."""
        return self._items.usage(tenant)[1]

    def tenant(self, id_: str) -> str | None:
        """Return the tenant of a file; None if it is missing or damaged."""
        origin = self.origin(id_)
        return None if origin is None else str(origin.get("tenant"))

    def damaged(self) -> Iterator[str]:
        """Read every file, and yield the ids of those that differ from their digest."""
        for id_ in self.ids():
            if not self.is_intact(id_) and self._items.exists(id_):  # not deleted meanwhile
                yield id_

    @contextlib.contextmanager
    def opened(self, id_: str) -> Iterator[IO[bytes] | None]:
        """Yield an open file, which stays readable after a deletion; None if it is missing."""
        try:
            file = self._open(id_)
        except FileNotFoundError:
            yield None
            return
        with file:
            yield file

    def delete(self, id_: str) -> None:
        """Remove a file, if it exists."""
        self._items.delete(id_)

    def remove_abandoned(self) -> int:
        """Remove the files of interrupted imports; return their number."""
        return self._items.remove_abandoned()

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
        """Return the posterior of a file whose content has the digest in its id, or None; replace a damaged copy."""
        posterior = self._read(id_)
        if posterior is None and self._items.discard_copies(id_):
            posterior = self._read(id_)
        return posterior

    def _read(self, id_: str) -> glle_engine.Posterior | None:
        try:
            (path,) = self._items.paths(id_, [SUFFIX])
            return verified(path, id_, str((self.origin(id_) or {}).get("tenant")))
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.EIO}:
                raise
            return None

    def _open(self, id_: str) -> IO[bytes]:
        (path,) = self._items.paths(id_, [SUFFIX])
        return path.open("rb")


class _FolderEntries:
    """Catalog of a folder of imported posteriors, whose tenants are in the files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tenants: dict[str, str] = {}  # by id, which names one tenant for ever

    def __call__(self) -> list[CatalogEntry]:
        """Return the files, ordered by id."""
        paths = sorted(self._folder.glob(f"post_*{SUFFIX}"))
        return [CatalogEntry(path.stem, path.stem, self._tenant(path), size(path)) for path in paths]

    def _tenant(self, path: Path) -> str:
        if path.stem not in self._tenants:
            try:
                with path.open("rb") as file:
                    self._tenants[path.stem] = str(_origin(file).get("tenant"))
            except _UNREADABLE:
                return ""
        return self._tenants[path.stem]


def _origin(file: IO[bytes]) -> dict[str, Any]:
    with NPY_HEADER_LOCK, np.load(file, allow_pickle=False) as content:
        origin: dict[str, Any] = json.loads(content[ORIGIN].tobytes())
    return origin


def verified(path: Path, id_: str, tenant: str) -> glle_engine.Posterior | None:
    """Return the posterior of a file if its content has the digest in a tenant's id, otherwise None."""
    try:
        posterior = glle_engine.load(path)
    except _UNREADABLE as error:
        if isinstance(error, FileNotFoundError):
            raise
        return None
    return posterior if imported_id(posterior_sha256(posterior), tenant) == id_ else None
