"""`glle store` and `glle scrub`: the object store's size, sweep and index, and a check of the stored data sets."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.options import StartError, add_data_dir, add_flags, span
from worker.base.settings import SettingsError
from worker.storage.object_store.index import ORPHAN_SECONDS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from worker.base.settings import Settings
    from worker.storage.datasets import DatasetStore
    from worker.storage.imported_posteriors import ImportedPosteriors
    from worker.storage.object_store.store import ObjectStore
    from worker.stores import Stores


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add the commands."""
    store = commands.add_parser("store", help="show, sweep or fill the object store")
    actions = store.add_subparsers(required=True, metavar="action")
    actions.add_parser("show", help="print the number and the size of the objects").set_defaults(run=_show)
    sweeping = actions.add_parser("sweep", help="remove expired and unreferenced objects; run it once a day")
    sweeping.add_argument(
        "--age-hours",
        type=span,
        default=ORPHAN_SECONDS / 3600,
        help="least age of an object to remove: a younger one may still be in writing (%(default)g)",
    )
    sweeping.set_defaults(run=_sweep)
    migrating = actions.add_parser(
        "migrate", help="copy data sets and imported posteriors of a folder into the store; 1 if one is damaged"
    )
    migrating.add_argument("folder", help="data folder (GLLE_DATA_DIR) of the deployment so far; it is not changed")
    migrating.set_defaults(run=_migrate)
    actions.add_parser(
        "reindex", help="name the stored data sets that the queue's Redis has lost; 1 if one is damaged"
    ).set_defaults(run=_reindex)
    for action in actions.choices.values():
        add_flags(action, settings)

    scrub = commands.add_parser(
        "scrub", help="compare every data set and imported posterior with its digest; 1 if one is damaged"
    )
    add_data_dir(scrub, settings)
    scrub.set_defaults(run=_scrub)


def _show(options: argparse.Namespace, settings: Settings) -> int:
    del options
    with _object_store(settings) as (_, objects):
        count, nbytes = objects.index.sums()
        _print(f"{count:,} objects of {nbytes:,} bytes.")
    return 0


def _sweep(options: argparse.Namespace, settings: Settings) -> int:
    from worker.operations.store_sweep import sweep  # noqa: PLC0415 # each command loads what it needs

    with _object_store(settings) as (stores, objects):
        swept = sweep(stores, objects, age=3600 * options.age_hours)
        _print(f"{swept.expired:,} expired, {swept.deserted:,} unreferenced; {swept.removed:,} objects removed.")
        if swept.unnamed:
            _print(f"{swept.unnamed:,} data sets or other items are not in the index: `glle store reindex` names them.")
    return 0


def _migrate(options: argparse.Namespace, settings: Settings) -> int:
    from worker.operations.stored_items import migrate  # noqa: PLC0415 # each command loads what it needs

    if not Path(options.folder).is_dir():
        raise StartError(f"The folder {options.folder} does not exist. Name the data folder of the deployment so far.")
    with _object_store(settings) as (stores, objects):
        result = migrate(stores, objects, options.folder)
    for id_ in result.damaged:
        _print(f"{id_} is damaged and was not copied: upload or import the same data again, or restore a backup.")
    _print(f"{result.copied:,} copied and read back, {result.present:,} were in the store.")
    return int(bool(result.damaged))


def _reindex(options: argparse.Namespace, settings: Settings) -> int:
    del options
    from worker.operations.stored_items import reindex  # noqa: PLC0415 # each command loads what it needs

    with _object_store(settings) as (stores, objects):
        named, damaged = reindex(stores, objects)
    for id_ in damaged:
        _print(f"{id_} is damaged: upload or import the same data again, or restore a backup.")
    _print(f"{named:,} items are in the index again; {len(damaged):,} damaged.")
    return int(bool(damaged))


def _scrub(options: argparse.Namespace, settings: Settings) -> int:
    with _user_data(options, settings) as (datasets, imports):
        count, nbytes = datasets.usage()
        damaged = 0
        for id_ in datasets.damaged():
            damaged += 1
            _print(f"{id_} is damaged: upload the same data again, or restore a backup.")
        _print(f"{count:,} data sets of {nbytes:,} bytes read; {damaged:,} damaged.")
        broken = list(imports.damaged())
        for id_ in broken:
            _print(f"{id_} is damaged: import its file again, or restore a backup.")
        if count := len(imports.ids()):
            _print(f"{count:,} imported posteriors of {imports.nbytes(None):,} bytes read; {len(broken):,} damaged.")
    return int(damaged > 0 or bool(broken))


@contextlib.contextmanager
def _user_data(options: argparse.Namespace, settings: Settings) -> Iterator[tuple[DatasetStore, ImportedPosteriors]]:
    """Yield data sets and imported posteriors of the data folder, or of the object store."""
    from worker.storage.datasets import DatasetStore  # noqa: PLC0415 # each command loads what it needs
    from worker.storage.imported_posteriors import ImportedPosteriors  # noqa: PLC0415

    if settings.data_in == "folder":
        yield DatasetStore.under(options.data_dir), ImportedPosteriors.under(options.data_dir)
        return
    with _object_store(replace(settings, data_dir=options.data_dir)) as (stores, _):
        yield stores.datasets, stores.imports


@contextlib.contextmanager
def _object_store(settings: Settings) -> Iterator[tuple[Stores, ObjectStore]]:
    from service.cli.data_folder import connected  # noqa: PLC0415 # each command loads what it needs

    if not settings.store_url:
        raise SettingsError("GLLE_STORE_URL is not set: this deployment has no object store. Set it.")
    with connected(settings) as stores:
        assert stores.cache.objects is not None
        yield stores, stores.cache.objects


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 # the command's output
