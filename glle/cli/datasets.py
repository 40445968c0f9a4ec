"""`glle datasets`: list, upload, synthetic, show, delete."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glle.cli.connection import asking, shared, tell, tell_all, tell_one
from glle.cli.options import add_options, given
from glle.types import DatasetsOptions, SyntheticOptions

if TYPE_CHECKING:
    import argparse

    from glle import Client

_COLUMNS = {
    "id": lambda told: told["id"],
    "points": lambda told: f"{told['n']:,}",
    "features": lambda told: told["d"],
    "from": lambda told: told["source"].get("name") or told["source"].get("format", told["source"]["kind"]),
    "created": lambda told: told["created"],
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    group = commands.add_parser("datasets", help="data sets of a running service")
    actions = group.add_subparsers(required=True, metavar="action")

    listing = actions.add_parser("list", parents=[shared()], help="all, the newest first")
    add_options(listing, DatasetsOptions, {})
    listing.set_defaults(run=asking(_list))

    upload = actions.add_parser("upload", parents=[shared()], help="upload a file: csv, npy, json")
    upload.add_argument("file", type=Path)
    upload.add_argument("--label", help="the column of labels")
    upload.set_defaults(run=asking(_upload))

    synthetic = actions.add_parser(
        "synthetic", parents=[shared()], help="have a sheet sampled: swiss_roll, s_curve, ..."
    )
    synthetic.add_argument("name")
    synthetic.add_argument("-n", type=int, default=1000, metavar="POINTS", help="points (%(default)s)")
    add_options(synthetic, SyntheticOptions, {"noise": ("", "standard deviation, relative to the sheet")})
    synthetic.set_defaults(run=asking(_synthetic))

    show = actions.add_parser("show", parents=[shared()], help="what is known of one")
    show.add_argument("id")
    show.set_defaults(run=asking(_show))

    delete = actions.add_parser("delete", parents=[shared()], help="delete one")
    delete.add_argument("id")
    delete.add_argument("--force", action="store_true", help="its posteriors and their draws, too")
    delete.set_defaults(run=asking(_delete))


def _list(chosen: argparse.Namespace, glle: Client) -> int:
    return tell_all(chosen, [dataset.told for dataset in glle.datasets(**given(chosen, DatasetsOptions))], _COLUMNS)


def _upload(chosen: argparse.Namespace, glle: Client) -> int:
    dataset = glle.dataset(chosen.file, label=chosen.label)
    return tell(chosen, dataset.told, f"{dataset.id}  {dataset.n:,} points, {dataset.d} features")


def _synthetic(chosen: argparse.Namespace, glle: Client) -> int:
    dataset = glle.synthetic(chosen.name, chosen.n, **given(chosen, SyntheticOptions))
    return tell(chosen, dataset.told, f"{dataset.id}  {dataset.n:,} points, {dataset.d} features")


def _show(chosen: argparse.Namespace, glle: Client) -> int:
    return tell_one(chosen, glle.dataset(f"{chosen.id}").told)


def _delete(chosen: argparse.Namespace, glle: Client) -> int:
    glle.dataset(chosen.id).delete(force=chosen.force)
    return tell(chosen, {"deleted": chosen.id}, f"{chosen.id} is deleted.")
