"""Items in the object store, with an index in the queue's Redis and local copies for reading.

    items/<kind>/<id>/<time>.<random><suffix>      a file, or the manifest: .item

Each object is written once, under a unique path: first the files, then the manifest, then the index names them. So no
reader sees a part of an item, and two writers of one id do not disturb each other. The manifests describe all items
once more, so that a lost index can be made again (`worker.operations.stored_items`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from worker.base.problems import ProblemError
from worker.base.versions import unreadable
from worker.connections.event_loop import pause
from worker.storage.free_space import nearest_existing
from worker.storage.items.base import RECORD
from worker.storage.items.index import ItemIndex, StoredFile, StoredItem
from worker.storage.items.leases import Leases
from worker.storage.items.local_copies import LocalCopies
from worker.storage.object_store.backend import PIECE
from worker.storage.object_store.store import WAITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import redis

    from worker.base.files import Temporary
    from worker.base.settings import Settings
    from worker.storage.object_store.backend import Bucket

ROOT = "items"  # folder of the store
KINDS = DATASETS, POSTERIORS = "datasets", "posteriors"
MANIFEST = ".item"
COPIES = "copies"  # folder within the data folder
MAX_COPIES = 2**32  # bytes

log = logging.getLogger(__name__)


def copies_limit(folder: Path) -> int:
    """Return the bytes of the copies that a machine keeps in its data folder: a quarter of the disk at most."""
    return min(MAX_COPIES, shutil.disk_usage(nearest_existing(folder)).total // 4)


@dataclass(frozen=True)
class StoredItems:
    """What the items of all kinds share in a process."""

    bucket: Bucket
    client: redis.Redis
    leases: Leases
    copies: LocalCopies
    waits: tuple[float, ...] = ()  # pauses in seconds before a read is repeated

    @classmethod
    def of(cls, settings: Settings, client: redis.Redis, bucket: Bucket, *, patient: bool = False) -> Self:
        """Return those of the settings; with `patient`, as in a worker, reads wait for a store that fails."""
        copies = LocalCopies(Path(settings.data_dir) / COPIES, copies_limit(Path(settings.data_dir)))
        return cls(bucket, client, Leases(client), copies, WAITS if patient else ())

    def kind(self, name: str) -> ObjectItems:
        """Return the items of one kind."""
        return ObjectItems(name, self)


class ObjectItems:
    """Items of one kind in the object store.

    Parameters
    ----------
    kind
        Name in paths and keys.
    shared
        Store, servers and copies.

    Attributes
    ----------
    index
        The index of the items.

    """

    def __init__(self, kind: str, shared: StoredItems) -> None:
        self.kind = kind
        self.index = ItemIndex(shared.client, kind, shared.leases)
        self._shared = shared
        self._bucket = shared.bucket
        self._copies = shared.copies

    @contextlib.contextmanager
    def draft(self) -> Iterator[_ObjectDraft]:
        """Begin a new item."""
        with contextlib.ExitStack() as stack:
            draft = _ObjectDraft(self, self._copies, stack)
            try:
                yield draft
            finally:
                self._remove(draft.unpublished, condemned=False)

    def exists(self, id_: str) -> bool:
        """Return whether an item exists."""
        return self.index.exists(id_)

    def record(self, id_: str) -> bytes | None:
        """Return the record of an item, or None."""
        if (item := self.index.get(id_)) is None:
            return None
        if item.record is None and item.manifest is not None:
            try:
                raw = self._copy(item.manifest, MANIFEST).read_bytes()
            except OSError as error:
                raise unreadable(f"The record of {id_}") from error
            return (StoredItem.load(id_, raw).record or "").encode()
        return (item.record or "").encode()

    def set_record(self, id_: str, record: bytes) -> None:
        """Replace the record of an existing item."""
        if (item := self.index.get(id_)) is not None:
            self.commit(replace(item, record=record.decode()))

    def paths(self, id_: str, suffixes: Sequence[str]) -> list[Path]:
        """Return paths of local copies of an item's files."""
        if (item := self.index.get(id_)) is None:
            raise FileNotFoundError(errno.ENOENT, "There is no such item", id_)
        return [self._copy(item.files[suffix], suffix) for suffix in suffixes]

    def discard_copies(self, id_: str) -> bool:
        """Remove local copies of an item's files; return True."""
        if (item := self.index.get(id_)) is not None:
            for suffix, file in item.files.items():
                self._copies.discard(file.sha256 + suffix)
        return True

    def is_stored(self, id_: str) -> bool:
        """Read an item's files in the store, and return whether they have the digests of the publication."""
        if (item := self.index.get(id_)) is None:
            return False
        return all(
            _sha256(self._bucket.pieces(file.path, file.size)) == file.sha256
            for file in (*item.files.values(), *filter(None, [item.manifest]))
        )

    def newest(self, tenant: str | None, before: str | None) -> Iterator[tuple[str, str]]:
        """Yield (cursor, id) of a tenant's items, from the newest or after a cursor."""
        return self.index.newest(tenant, before)

    def ids(self) -> list[str]:
        """Return the ids of all tenants' items."""
        return self.index.ids()

    def usage(self, tenant: str | None) -> tuple[int, int]:
        """Return the number of a tenant's items, and the bytes of their files."""
        return self.index.usage(tenant)

    def delete(self, id_: str) -> bool:
        """Remove an item; return whether it existed."""
        item = self.index.get(id_)
        paths = None if item is None else self.index.drop(item)
        self._remove(paths or [])
        return paths is not None

    def exclusive(self, id_: str) -> AbstractContextManager[None]:
        """Lock an item."""
        return self._shared.leases.hold(f"{self.kind}:{id_}")

    def room(self, tenant: str | None) -> AbstractContextManager[None]:
        """Lock the quota of a tenant."""
        return self._shared.leases.hold(f"room:{tenant}")

    def confirm(self) -> None:
        """Do nothing: the index names durable objects alone."""

    def remove_abandoned(self) -> int:
        """Remove the temporary files of killed writers on this machine; return their number."""
        return self._copies.remove_abandoned()

    def upload(self, id_: str, suffix: str, pieces: Iterable[bytes], size: int, sha256: str) -> StoredFile:
        """Write an object under a new path."""
        name = f"{time.time_ns() // 10**6:x}.{secrets.token_hex(8)}{suffix}"
        file = StoredFile(f"{ROOT}/{self.kind}/{id_}/{name}", size, sha256)
        self._bucket.write(file.path, pieces, size)
        return file

    def commit(self, item: StoredItem) -> None:
        """Write the manifest of an item, then name the item in the index, and remove the objects that it replaces.

        Without an answer of the index, its objects stay.

        Raises
        ------
        ProblemError
            ``lease-lost``, ``store-unavailable``, ``storage-full``: the index does not name the item.

        """
        raw = replace(item, manifest=None).dump()
        manifest = self.upload(item.id, MANIFEST, [raw], len(raw), hashlib.sha256(raw).hexdigest())
        try:
            replaced = self.index.put(replace(item, manifest=manifest))
        except ProblemError:
            self._remove([manifest.path], condemned=False)
            raise
        self._remove(replaced or [])

    def _copy(self, file: StoredFile, suffix: str) -> Path:
        read = partial(self._bucket.pieces, file.path, file.size)
        for wait in self._shared.waits:
            try:
                return self._copies.get(file.sha256 + suffix, file.sha256, file.size, read)
            except ProblemError as error:
                if error.problem.code != "store-unavailable":
                    raise
                pause(wait)
        return self._copies.get(file.sha256 + suffix, file.sha256, file.size, read)

    def _remove(self, paths: Iterable[str], *, condemned: bool = True) -> None:
        """Remove objects that no item has; if the store fails, a sweep removes them later."""
        try:
            for path in paths:
                self._bucket.remove(path)
                if condemned:
                    self.index.removed(path)
        except ProblemError as error:
            log.warning("Replaced objects could not be removed yet: %s", error)


class _ObjectDraft:
    """New item of the object store: temporary files, which `seal` uploads.

    Attributes
    ----------
    unpublished
        Paths of objects that no item has yet.

    """

    def __init__(self, items: ObjectItems, copies: LocalCopies, stack: contextlib.ExitStack) -> None:
        self._items = items
        self._copies = copies
        self._stack = stack
        self._files: dict[str, Temporary] = {}
        self._stored: dict[str, StoredFile] = {}
        self.unpublished: list[str] = []

    def file(self, suffix: str) -> Temporary:
        """Return a new file for writing."""
        self._files[suffix] = file = self._stack.enter_context(self._copies.temporary())
        return file

    def seal(self, id_: str) -> None:
        """Write the objects of the files."""
        for suffix, file in self._files.items():
            hasher, size = hashlib.sha256(), 0
            for piece in file.pieces(PIECE):
                hasher.update(piece)
                size += len(piece)
            stored = self._items.upload(id_, suffix, file.pieces(PIECE), size, hasher.hexdigest())
            self.unpublished.append(stored.path)
            self._stored[suffix] = stored

    def publish(self, id_: str, tenant: str, created: str) -> None:
        """Write the manifest with the record, and name the item in the index; keep the files as local copies."""
        raw = self._files.pop(RECORD, None)
        record = None if raw is None else b"".join(raw.pieces(PIECE)).decode()
        item = StoredItem(id=id_, tenant=tenant, created=created, files=self._stored, record=record)
        try:
            self._items.commit(item)
        except ProblemError:
            raise
        except BaseException:
            self.unpublished.clear()  # the index may name them
            raise
        self.unpublished.clear()
        for suffix, stored in self._stored.items():
            self._copies.adopt(self._files[suffix], stored.sha256 + suffix, stored.size)


def _sha256(pieces: Iterable[bytes]) -> str:
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.hexdigest()


def written_at(path: str) -> float | None:
    """Return the creation time of an item's object, None for another path."""
    parts = path.rpartition("/")[2].split(".")
    try:
        return int(parts[0], 16) / 1000 if path.startswith(f"{ROOT}/") and len(parts) > 2 else None
    except ValueError:
        return None
