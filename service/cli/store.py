"""`glle store` and `glle scrub`: size and sweep of the stored objects, and a check of the data sets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from service.cli.options import add_flags, print_result, span
from worker.records.stored_file import ORPHAN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.settings import Settings
    from worker.stores import Stores


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add the commands."""
    store = commands.add_parser("store", help="show or sweep the stored objects")
    actions = store.add_subparsers(required=True, metavar="action")
    actions.add_parser("show", help="print the number and the size of the objects").set_defaults(run=with_stores(_show))
    sweeping = actions.add_parser("sweep", help="remove expired and unreferenced objects; run it once a day")
    sweeping.add_argument(
        "--orphans",
        action="store_true",
        help="also remove files of data sets that no record names; not after a loss of the queue's Redis",
    )
    sweeping.add_argument(
        "--age-hours",
        type=span,
        default=ORPHAN_SECONDS / 3600,
        help="least age of an object to remove: a younger one may still be in writing (%(default)g)",
    )
    sweeping.add_argument(
        "--unused-days",
        type=_days,
        help="also remove posteriors without name and tags unused for so many days",
    )
    sweeping.set_defaults(run=with_stores(_sweep))
    for action in actions.choices.values():
        add_flags(action, settings)

    scrub = commands.add_parser("scrub", help="compare every data set with its digest; 1 if one is damaged")
    add_flags(scrub, settings, ["data_dir"])
    scrub.set_defaults(run=with_stores(_scrub))


def with_stores(
    run: Callable[[argparse.Namespace, Stores], int], *, is_new: bool = False
) -> Callable[[argparse.Namespace, Settings], int]:
    """Return the command that runs on the stores of the deployment, whether its servers run or not.

    With `is_new` it may make the data folder.
    """

    def connect_and_run(options: argparse.Namespace, settings: Settings) -> int:
        from service.cli.data_folder import connect_stores  # noqa: PLC0415 # each command loads what it needs

        with connect_stores(settings, is_new=is_new) as stores:
            return run(options, stores)

    return connect_and_run


def _days(text: str) -> int:
    """Parse a number of days for argparse: 0 would remove the posteriors of today."""
    if (days := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return days


def _show(options: argparse.Namespace, stores: Stores) -> int:
    del options
    usage = stores.datasets.usage()
    print_result(f"{usage['datasets']:,} data sets, {usage['stored_bytes']:,} bytes.")
    if stores.cache.objects is not None:
        count, nbytes = stores.cache.objects.index.sums()
        print_result(f"{count:,} objects of results, {nbytes:,} bytes.")
    return 0


def _sweep(options: argparse.Namespace, stores: Stores) -> int:
    from worker.operations.sweep import sweep, unnamed_files  # noqa: PLC0415 # each command loads what it needs

    action = "removed" if options.orphans else "kept; --orphans removes them"
    age = 3600 * options.age_hours
    unnamed = unnamed_files(stores, age)  # refuses before anything is removed
    if options.unused_days is not None:
        unused = stores.posteriors.remove_unused(options.unused_days)
        print_result(
            f"{len(unused):,} unused posteriors removed with their results; the request of a fit makes it again."
        )
    if stores.cache.objects is not None:
        swept = sweep(stores, stores.cache.objects, age=age)
        print_result(f"{swept.expired:,} expired and {swept.unreferenced:,} unreferenced objects removed.")
    if options.orphans:
        stores.datasets.files.remove(unnamed)
    print_result(f"{len(unnamed):,} files without a record: {action}.")
    return 0


def _scrub(options: argparse.Namespace, stores: Stores) -> int:
    del options
    files = stores.datasets.files
    damaged = [dataset.id for dataset in files.find_damaged(stores.datasets)]
    for id_ in damaged:
        print_result(f"{id_} is damaged: upload the same data again, or restore a backup.")
    print_result(f"{stores.datasets.usage()['datasets']:,} data sets read; {len(damaged):,} damaged.")
    return int(bool(damaged))
