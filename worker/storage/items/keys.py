"""API keys as the record of one item, for every process that reaches the store's index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.base.clock import now_iso
from worker.connections.event_loop import in_thread
from worker.records.tenants import DEFAULT
from worker.storage.items.base import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.storage.items.objects import ObjectItems

ID = "keys"


class StoredKeyFile:
    """Content of the keys' file, in the object store and its index.

    Parameters
    ----------
    items
        Items of a kind that has this one alone.

    """

    name = "the object store"
    remedy = "Check the queue's Redis and the store behind GLLE_STORE_URL, or restore the keys from a backup."

    def __init__(self, items: ObjectItems) -> None:
        self._items = items

    def look(self, seen: object) -> tuple[object, bytes | None]:
        """Return the present version, and the content unless this version was seen; None twice without keys."""
        return in_thread(self._look, seen)

    def _look(self, seen: object) -> tuple[object, bytes | None]:
        item = self._items.index.get(ID)
        version = None if item is None else item.manifest
        return version, None if version == seen else self._items.record(ID)

    def change(self, change: Callable[[bytes | None], bytes]) -> None:
        """Replace the content (None: no keys yet), one process at a time."""
        with self._items.exclusive(ID), self._items.draft() as draft:
            draft.file(RECORD).write(change(self._items.record(ID)))
            draft.publish(ID, DEFAULT, now_iso())
