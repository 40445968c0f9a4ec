"""`glle scrub`: compare the stored files with the digests in their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.cli.options import add_flags, print_result

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from worker.base.settings import Settings
    from worker.stores import Stores


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add `glle scrub` to the commands."""
    scrub = commands.add_parser("scrub", help="compare every stored file with its digest; 1 if one is damaged")
    add_flags(scrub, settings, ["data_dir"])
    scrub.set_defaults(run=with_stores(_scrub))


def with_stores(
    run: Callable[[argparse.Namespace, Stores], int], *, is_new: bool = False
) -> Callable[[argparse.Namespace, Settings], int]:
    """Return the function of a command: it connects to the stores of the deployment, and calls `run` with the stores.

    With `is_new` the command may create the data folder of a new service. Raises as `connect_stores`.
    """

    def connect_and_run(options: argparse.Namespace, settings: Settings) -> int:
        from service.cli.data_folder import connect_stores  # noqa: PLC0415 # each command loads what it needs

        with connect_stores(settings, is_new=is_new) as stores:
            return run(options, stores)

    return connect_and_run


def _scrub(options: argparse.Namespace, stores: Stores) -> int:
    del options
    damaged = 0
    for store in stores.with_files:
        records = 0
        for record, is_intact in store.verify():
            records += 1
            if not is_intact:
                damaged += 1
                print_result(f"{record.id} is damaged: restore its file from a backup, or delete it and make it again.")
        print_result(f"{records:,} {store.kind.title}s read.")
    print_result(f"{damaged:,} are damaged.")
    return int(bool(damaged))
