"""`glle store` and `glle scrub`: size and sweep of the object store, and a check of the stored data sets."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from service.cli.options import add_data_dir, add_flags, span
from worker.base.settings import SettingsError
from worker.operations.store_sweep import ORPHAN_SECONDS, sweep

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from worker.base.settings import Settings
    from worker.storage.object_store.store import ObjectStore
    from worker.stores import Stores


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add the commands."""
    store = commands.add_parser("store", help="show or sweep the object store behind the cache")
    actions = store.add_subparsers(required=True, metavar="action")
    actions.add_parser("show", help="print the number and the size of the objects").set_defaults(run=_show)
    sweeping = actions.add_parser("sweep", help="remove expired and unreferenced objects; run it once a day")
    sweeping.add_argument(
        "--orphans",
        action="store_true",
        help="also remove objects without an index entry; only if no other deployment uses the same URL",
    )
    sweeping.add_argument(
        "--age-hours",
        type=span,
        default=ORPHAN_SECONDS / 3600,
        help="least age of an orphan: a younger one may still be in writing (%(default)g)",
    )
    sweeping.set_defaults(run=_sweep)
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
        count, nbytes, condemned = objects.index.sums()
        _print(f"{count:,} objects of {nbytes:,} bytes; {condemned:,} more are to be removed.")
    return 0


def _sweep(options: argparse.Namespace, settings: Settings) -> int:
    with _object_store(settings) as (stores, objects):
        swept = sweep(stores, objects, orphans=options.orphans, age=3600 * options.age_hours)
        _print(f"{swept.expired:,} expired, {swept.deserted:,} unreferenced; {swept.condemned:,} removed.")
        action = "removed" if options.orphans else "kept; --orphans removes them"
        _print(f"{swept.orphans:,} without an index entry: {action}.")
    return 0


def _scrub(options: argparse.Namespace, settings: Settings) -> int:
    del settings
    from worker.storage.datasets import DatasetStore  # noqa: PLC0415 # each command loads what it needs
    from worker.storage.imported_posteriors import ImportedPosteriors  # noqa: PLC0415

    store = DatasetStore.under(options.data_dir)
    count, nbytes = store.usage()
    damaged = 0
    for id_ in store.damaged():
        damaged += 1
        _print(f"{id_} is damaged: upload the same data again, or restore a backup.")
    _print(f"{count:,} data sets of {nbytes:,} bytes read; {damaged:,} damaged.")
    imports = ImportedPosteriors.under(options.data_dir)
    broken = list(imports.damaged())
    for id_ in broken:
        _print(f"{id_} is damaged: import its file again, or restore a backup.")
    if count := len(imports.ids()):
        _print(f"{count:,} imported posteriors of {imports.nbytes(None):,} bytes read; {len(broken):,} damaged.")
    return int(damaged > 0 or bool(broken))


@contextlib.contextmanager
def _object_store(settings: Settings) -> Iterator[tuple[Stores, ObjectStore]]:
    from worker.stores import Stores  # noqa: PLC0415 # each command loads what it needs

    with contextlib.closing(Stores.connect(settings)) as stores:
        if stores.cache.objects is None:
            raise SettingsError("GLLE_STORE_URL is not set: this deployment has no object store. Set it.")
        yield stores, stores.cache.objects


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 # the command's output
