"""Items in a folder, which all processes of a deployment share: a file `<id><suffix>` for each suffix."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING

from worker.base.files import locked, remove_abandoned, restrict_folder, sync_folder, temporary
from worker.storage.items.base import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from worker.base.files import Temporary
    from worker.storage.items.base import CatalogEntry


class FolderItems:
    """Items of a folder.

    Parameters
    ----------
    folder
        Created by the first item.
    prefix
        Of the ids.
    suffixes
        Of all files. An item exists while the file of the first one does: it is written last and removed first.
    entries
        Function that returns the items, the oldest first.

    """

    def __init__(
        self, folder: Path, prefix: str, suffixes: Sequence[str], entries: Callable[[], list[CatalogEntry]]
    ) -> None:
        self.folder = folder
        self._prefix = prefix
        self._suffixes = suffixes
        self._entries = entries

    @contextlib.contextmanager
    def draft(self) -> Iterator[_FolderDraft]:
        """Begin a new item."""
        restrict_folder(self.folder)
        with contextlib.ExitStack() as stack:
            yield _FolderDraft(self.folder, self._suffixes[0], stack)

    def exists(self, id_: str) -> bool:
        """Return whether an item exists."""
        return self._path(id_, self._suffixes[0]).exists()

    def record(self, id_: str) -> bytes | None:
        """Return the record of an item, or None."""
        try:
            return self._path(id_, RECORD).read_bytes()
        except FileNotFoundError:
            return None

    def set_record(self, id_: str, record: bytes) -> None:
        """Replace the record of an existing item."""
        with temporary(self.folder) as file:
            file.write(record)
            file.publish(self._path(id_, RECORD))

    def paths(self, id_: str, suffixes: Sequence[str]) -> list[Path]:
        """Return the paths of an item's files, whether they exist or not."""
        return [self._path(id_, suffix) for suffix in suffixes]

    def discard_copies(self, id_: str) -> bool:
        """Return False: the files are no copies."""
        del id_
        return False

    def is_stored(self, id_: str) -> bool:
        """Return True: no digest is kept."""
        del id_
        return True

    def newest(self, tenant: str | None, before: str | None) -> Iterator[tuple[str, str]]:
        """Yield (cursor, id) of a tenant's items, from the newest or after a cursor."""
        entries = self._entries()
        end = len(entries) if before is None else bisect_left(entries, before, key=attrgetter("member"))
        for entry in entries[end - 1 :: -1] if end else ():
            if tenant in {None, entry.tenant}:
                yield entry.member, entry.id

    def ids(self) -> list[str]:
        """Return the ids of all tenants' items."""
        return sorted(path.stem for path in self.folder.glob(f"{self._prefix}*{self._suffixes[0]}"))

    def usage(self, tenant: str | None) -> tuple[int, int]:
        """Return the number of a tenant's items, and the bytes of their files."""
        sizes = [entry.nbytes for entry in self._entries() if tenant in {None, entry.tenant}]
        return len(sizes), sum(sizes)

    def delete(self, id_: str) -> bool:
        """Remove an item; return whether it existed."""
        if not self.exists(id_):
            return False
        first, *others = self._suffixes
        self._path(id_, first).unlink(missing_ok=True)
        sync_folder(self.folder)  # otherwise a power cut could bring back a record without its arrays
        for suffix in others:
            self._path(id_, suffix).unlink(missing_ok=True)
        return True

    def exclusive(self, id_: str = "") -> AbstractContextManager[None]:
        """Lock the folder."""
        del id_
        return locked(self.folder.with_name(self.folder.name + ".lock"))

    def room(self, tenant: str | None) -> AbstractContextManager[None]:
        """Lock the quota of a tenant."""
        return locked(self.folder / f".{tenant}.lock")

    def confirm(self) -> None:
        """Write the names in the folder to disk: a writer may be between rename and fsync."""
        sync_folder(self.folder)

    def remove_abandoned(self) -> int:
        """Remove the files of interrupted writes and deletions; return their number."""
        if not self.folder.is_dir():
            return 0
        with self.exclusive():
            removed = remove_abandoned(self.folder)
            ids = set(self.ids())
            for path in self.folder.glob(f"{self._prefix}*"):
                if path.name.partition(".")[0] not in ids:
                    path.unlink()
                    removed += 1
        return removed

    def _path(self, id_: str, suffix: str) -> Path:
        return self.folder / (id_ + suffix)


class _FolderDraft:
    """New item of a folder: temporary files, which a publication renames."""

    def __init__(self, folder: Path, first: str, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._first = first
        self._stack = stack
        self._files: dict[str, Temporary] = {}

    def file(self, suffix: str) -> Temporary:
        """Return a new file for writing."""
        self._files[suffix] = file = self._stack.enter_context(temporary(self._folder))
        return file

    def seal(self, id_: str) -> None:
        """Do nothing: a rename is quick."""

    def publish(self, id_: str, tenant: str, created: str) -> None:
        """Rename the files, the one by which the item exists last."""
        del tenant, created  # in the record
        for suffix, file in sorted(self._files.items(), key=lambda item: item[0] == self._first):
            file.publish(self._folder / (id_ + suffix))
