"""Commands `glle datasets list`, `upload`, `synthetic`, `show`, `delete`; data sets as arguments of all commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glle.cli.connection import connection_options, report, report_all, report_metadata, with_client
from glle.cli.options import add_options, selected
from glle.types import DatasetsOptions, SyntheticOptions

if TYPE_CHECKING:
    import argparse

    from glle import Client, Dataset
    from glle.types import DatasetOut


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    group = commands.add_parser("datasets", help="list, upload, sample, show and delete data sets")
    actions = group.add_subparsers(required=True, metavar="action")
    shared = [connection_options()]

    listing = actions.add_parser("list", parents=shared, help="list the data sets, newest first")
    add_options(listing, DatasetsOptions, {})
    listing.set_defaults(run=with_client(_list))

    upload = actions.add_parser("upload", parents=shared, help="upload a csv, npy or json file")
    upload.add_argument("file", type=Path)
    upload.add_argument("--label", help="column of labels")
    upload.set_defaults(run=with_client(_upload))

    synthetic = actions.add_parser("synthetic", parents=shared, help="sample a manifold: swiss_roll, s_curve, ...")
    synthetic.add_argument("name")
    synthetic.add_argument("-n", type=int, default=1000, metavar="POINTS", help="number of points (%(default)s)")
    add_options(synthetic, SyntheticOptions, {"noise": ("", "standard deviation, relative to the manifold")})
    synthetic.set_defaults(run=with_client(_synthetic))

    show = actions.add_parser("show", parents=shared, help="print the description of a data set")
    show.add_argument("id")
    show.set_defaults(run=with_client(_show))

    delete = actions.add_parser("delete", parents=shared, help="delete a data set")
    delete.add_argument("id")
    delete.add_argument("--force", action="store_true", help="also delete its posteriors and their draws")
    delete.set_defaults(run=with_client(_delete))


def dataset_of(client: Client, text: str, label: str | None = None) -> Dataset | str:
    """Return the data set of a command-line argument: the id itself, or the uploaded file."""
    is_id = text.startswith("ds_") and not Path(text).exists()
    return text if is_id else client.dataset(Path(text), label=label)


def _row(dataset: DatasetOut) -> dict[str, object]:
    source = dataset["source"]
    return {
        "id": dataset["id"],
        "points": f"{dataset['n']:,}",
        "features": dataset["d"],
        "from": source.get("name") or source.get("format", source["kind"]),
        "created": dataset["created"],
    }


def _list(args: argparse.Namespace, client: Client) -> int:
    items = [dataset.metadata for dataset in client.datasets(**selected(args, DatasetsOptions))]
    return report_all(args, items, _row)


def _upload(args: argparse.Namespace, client: Client) -> int:
    return _report_new(args, client.dataset(args.file, label=args.label))


def _synthetic(args: argparse.Namespace, client: Client) -> int:
    return _report_new(args, client.synthetic(args.name, args.n, **selected(args, SyntheticOptions)))


def _report_new(args: argparse.Namespace, dataset: Dataset) -> int:
    return report(args, dataset.metadata, f"{dataset.id}  {dataset.n:,} points, {dataset.d} features")


def _show(args: argparse.Namespace, client: Client) -> int:
    return report_metadata(args, client.dataset(args.id).metadata)


def _delete(args: argparse.Namespace, client: Client) -> int:
    client.dataset(args.id).delete(force=args.force)
    return report(args, {"deleted": args.id}, f"{args.id} is deleted.")
