"""`glle scrub`: read every stored data set, and report those whose bits have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.storage.datasets import DatasetStore

if TYPE_CHECKING:
    import argparse

    from worker.base.settings import Settings


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add the command to those of `glle`."""
    scrub = commands.add_parser("scrub", help="read every data set and compare its digest; 1 where one is damaged")
    scrub.add_argument("--data-dir", default=settings.data_dir, help="folder of all data (%(default)s)")
    scrub.set_defaults(run=_scrub)


def _scrub(chosen: argparse.Namespace, settings: Settings) -> int:
    del settings
    store = DatasetStore.under(chosen.data_dir)
    count, nbytes = store.usage()
    found = 0
    for found, id_ in enumerate(store.damaged(), start=1):  # noqa: B007 # the last number is the count
        _say(f"{id_} is damaged: upload the same data again, or restore a backup.")
    _say(f"{count:,} data sets of {nbytes:,} bytes were read; {found:,} are damaged.")
    return int(found > 0)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 # the command's output
