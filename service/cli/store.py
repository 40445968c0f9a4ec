"""`glle store`: what the object store has, and sweeping it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.cli.options import add_flags, span
from worker.base.settings import SettingsError
from worker.operations.store_sweep import ORPHAN_SECONDS, sweep
from worker.stores import Stores

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from worker.base.settings import Settings
    from worker.storage.object_store.store import ObjectStore


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add the commands to those of `glle`."""
    store = commands.add_parser("store", help="look at the object store behind the cache, and sweep it")
    ways = store.add_subparsers(required=True, metavar="what")

    ways.add_parser("show", help="tell how much is there").set_defaults(run=_show)

    swept = ways.add_parser("sweep", help="remove what has expired, or is about nothing any more; once a day does")
    swept.add_argument(
        "--orphans",
        action="store_true",
        help="remove objects that no index names, too; only where no other deployment has the same URL",
    )
    swept.add_argument(
        "--age-hours",
        type=span,
        default=ORPHAN_SECONDS / 3600,
        help="so long an object may be nobody's: it is being written (%(default)g)",
    )
    swept.set_defaults(run=_sweep)
    for way in ways.choices.values():
        add_flags(way, settings)


def _show(chosen: argparse.Namespace, settings: Settings) -> int:
    del chosen

    def show(_: Stores, objects: ObjectStore) -> None:
        count, nbytes, condemned = objects.index.sums()
        _say(f"{count:,} objects of {nbytes:,} bytes; {condemned:,} more are to be removed.")

    return _with_store(settings, show)


def _sweep(chosen: argparse.Namespace, settings: Settings) -> int:
    def swept(here: Stores, objects: ObjectStore) -> None:
        told = sweep(here, objects, orphans=chosen.orphans, age=3600 * chosen.age_hours)
        _say(f"{told.expired:,} had expired, {told.deserted:,} were about nothing; {told.condemned:,} were removed.")
        left = "removed" if chosen.orphans else "left; --orphans removes them"
        _say(f"{told.orphans:,} that no index names: {left}.")

    return _with_store(settings, swept)


def _with_store(settings: Settings, work: Callable[[Stores, ObjectStore], None]) -> int:
    """Do something with the store of a deployment."""
    here = Stores.connect(settings)
    try:
        if here.cache.objects is None:
            raise SettingsError("GLLE_STORE_URL is not set: there is no object store.")
        work(here, here.cache.objects)
    finally:
        here.close()
    return 0


def _say(text: str) -> None:
    print(text)  # noqa: T201 # the command's output
