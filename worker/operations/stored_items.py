"""Data sets and imported posteriors in the object store: copy of a folder, repair of the index, sweep."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from worker.storage.datasets import DatasetStore
from worker.storage.imported_posteriors import ImportedPosteriors
from worker.storage.items.base import RECORD
from worker.storage.items.index import StoredFile, StoredItem
from worker.storage.items.objects import KINDS, MANIFEST, ROOT, StoredItems, written_at
from worker.stores import stored_user_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.storage.object_store.store import ObjectStore
    from worker.stores import Stores

MOST_MANIFEST = 2**26  # bytes

Outcome = Literal["copied", "present", "damaged", "deleted"]


@dataclass
class Migration:
    """Numbers of copied and of present data sets and imported posteriors, and the damaged ids."""

    copied: int = 0
    present: int = 0
    damaged: list[str] = field(default_factory=list)

    def count(self, id_: str, outcome: Outcome) -> None:
        """Count an item; one that was deleted meanwhile is none."""
        self.copied += outcome == "copied"
        self.present += outcome == "present"
        if outcome == "damaged":
            self.damaged.append(id_)


def migrate(stores: Stores, objects: ObjectStore, folder: str) -> Migration:
    """Copy data sets and imported posteriors of a data folder into the store; change nothing in the folder.

    Each is compared with its digest before it is copied, and read back from the store afterwards. What the store has
    undamaged is not copied again, so that a repetition goes on where an earlier one ended.
    """
    datasets, imports = stored_user_data(stores.settings, stores.client, objects)
    result = Migration()
    source, posteriors = DatasetStore.under(folder), ImportedPosteriors.under(folder)
    for id_ in source.ids():
        result.count(id_, _copy_dataset(source, datasets, id_))
    for id_ in posteriors.ids():
        result.count(id_, _copy_import(posteriors, imports, id_))
    return result


def _copy_dataset(source: DatasetStore, target: DatasetStore, id_: str) -> Outcome:
    if (stored := target.get(id_)) is not None and target.is_intact(stored):
        return "present"
    if (dataset := source.get(id_)) is None:
        return "deleted"
    if not source.is_intact(dataset):
        return "damaged"
    with source.opened(id_) as files:
        if files is None:
            return "deleted"
        target.put(dataset, {suffix: file for suffix, file in files.items() if suffix != RECORD})
    return "copied" if target.is_intact(dataset) else "damaged"


def _copy_import(source: ImportedPosteriors, target: ImportedPosteriors, id_: str) -> Outcome:
    if target.is_intact(id_):
        return "present"
    tenant = source.tenant(id_)
    if tenant is None or not source.is_intact(id_):
        return "damaged"
    with source.opened(id_) as file:
        if file is None:
            return "deleted"
        target.put(id_, tenant, file)
    return "copied" if target.is_intact(id_) else "damaged"


def reindex(stores: Stores, objects: ObjectStore) -> tuple[int, list[str]]:
    """Name the items of the store that the index lacks, by their manifests.

    An index is lost with the queue's Redis. Items of the index stay as they are.

    Returns
    -------
    tuple
        The number of named items, and the ids whose files are missing or damaged.

    """
    shared = StoredItems.of(stores.settings, stores.client, objects.bucket)
    condemned = set(objects.index.condemned())
    named, damaged = 0, []
    for kind in KINDS:
        items = shared.kind(kind)
        for id_, paths in _folders(objects, kind).items():
            manifests = [path for path in paths if path.endswith(MANIFEST) and path not in condemned]
            if not manifests or items.exists(id_):
                continue
            path = max(manifests, key=lambda path: written_at(path) or 0.0)
            raw = objects.bucket.read(path, 0, MOST_MANIFEST) or b""
            manifest = StoredFile(path, len(raw), sha256(raw).hexdigest())
            item = replace(StoredItem.load(id_, raw), manifest=manifest)
            if items.index.put(item, only_new=True) is not None:
                named += 1
                if not items.is_stored(id_):
                    damaged.append(id_)
    return named, damaged


def abandoned(stores: Stores, objects: ObjectStore, age: float) -> tuple[list[str], int]:
    """Return the objects that no item has, written more than `age` seconds ago, and the number of unnamed items.

    An item with a manifest that the index lacks is unnamed, and its objects are not abandoned: `reindex` names it.
    """
    paths: list[str] = []
    unnamed = 0
    shared = StoredItems.of(stores.settings, stores.client, objects.bucket)
    for kind in KINDS:
        folders = _folders(objects, kind)  # listed before the index is read
        index = shared.kind(kind).index
        named, ids = index.paths(), set(index.ids())
        for id_, objects_of in folders.items():
            loose = [path for path in objects_of if path not in named and (written_at(path) or 0) + age < time.time()]
            if id_ not in ids and any(path.endswith(MANIFEST) for path in loose):
                unnamed += 1
            else:
                paths += loose
    return paths, unnamed


def _folders(objects: ObjectStore, kind: str) -> dict[str, list[str]]:
    """Return the paths of a kind's objects by id."""
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for path in _item_paths(objects, kind):
        folders[path.split("/")[2]].append(path)
    return folders


def _item_paths(objects: ObjectStore, kind: str) -> Iterator[str]:
    for path in objects.bucket.paths(f"{ROOT}/{kind}"):
        if written_at(path) is not None and path.count("/") == 3:
            yield path
