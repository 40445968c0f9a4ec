"""The interface of items, which `FolderItems` and `ObjectItems` implement.

An item is an id with files, each named by its suffix. Its files appear together and vanish together, so that a reader
never finds a part of an item. Ids derive from content, so a repeated write changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from worker.base.files import Temporary

RECORD = ".json"  # suffix of a record, which alone may change after the publication


@dataclass(frozen=True, order=True)
class CatalogEntry:
    """Facts on an item: `member` sorts by creation; `nbytes` is the size of its files when first seen."""

    member: str
    id: str
    tenant: str
    nbytes: int


class Draft(Protocol):
    """New item, whose files are discarded at the end of `Items.draft` unless it was published."""

    def file(self, suffix: str) -> Temporary:
        """Return a new file for writing."""

    def seal(self, id_: str) -> None:
        """Do the slow part of a publication, before a lock is taken."""

    def publish(self, id_: str, tenant: str, created: str) -> None:
        """Make the item visible, in place of an existing one of this id."""


class Items(Protocol):
    """All items of one kind."""

    def draft(self) -> AbstractContextManager[Draft]:
        """Begin a new item."""

    def exists(self, id_: str) -> bool:
        """Return whether an item exists."""

    def record(self, id_: str) -> bytes | None:
        """Return the record of an item, None if the item does not exist."""

    def set_record(self, id_: str, record: bytes) -> None:
        """Replace the record of an existing item; the caller holds `exclusive`."""

    def paths(self, id_: str, suffixes: Sequence[str]) -> list[Path]:
        """Return local paths of an item's files, for reading.

        Raises
        ------
        FileNotFoundError
            The item does not exist. A path may also vanish after the return.
        OSError
            With EIO: a stored file is missing or damaged.

        """

    def discard_copies(self, id_: str) -> bool:
        """Remove local copies of an item's files; return whether there can be any."""

    def is_stored(self, id_: str) -> bool:
        """Return whether the stored files have the digests of their publication; True if none are kept."""

    def newest(self, tenant: str | None, before: str | None) -> Iterator[tuple[str, str]]:
        """Yield (cursor, id) of a tenant's items (None: of all), from the newest or after a cursor."""

    def ids(self) -> list[str]:
        """Return the ids of all tenants' items."""

    def usage(self, tenant: str | None) -> tuple[int, int]:
        """Return the number of a tenant's items (None: of all), and the bytes of their files."""

    def delete(self, id_: str) -> bool:
        """Remove an item; return whether it existed. The caller holds `exclusive`. Open files stay readable."""

    def exclusive(self, id_: str) -> AbstractContextManager[None]:
        """Lock an item, so that it does not change between a read and a write."""

    def room(self, tenant: str | None) -> AbstractContextManager[None]:
        """Lock the quota of a tenant."""

    def confirm(self) -> None:
        """Make the items that a reader finds durable: their writer may still be at work on that."""

    def remove_abandoned(self) -> int:
        """Remove the files of interrupted writes and deletions on this machine; return their number."""
