"""Commands `glle datasets list`, `upload`, `synthetic`, `show`, `delete`; data sets as arguments of all commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glle.cli.connection import REFUSED, add_command, argument, report, report_all, report_metadata
from glle.cli.options import select_options
from glle.transport.errors import flag, in_words
from glle.types import DatasetsOptions, SyntheticOptions, UploadOptions

if TYPE_CHECKING:
    import argparse

    from glle.cli.connection import Commands
    from glle.client import Client, Dataset
    from glle.types import DatasetOut


DATA = argument("data", metavar="FILE_OR_ID", help="a csv, npy or json file, or the id of a data set")


def add(commands: Commands) -> None:
    """Add the command."""
    group = commands.add_parser("datasets", help="list, upload, sample, show and delete data sets")
    actions = group.add_subparsers(required=True, metavar="action")
    id_, file = argument("id"), argument("file", type=Path)
    n = argument("-n", type=int, default=1000, metavar="POINTS", help="number of points (%(default)s)")
    force = argument("--force", action="store_true", help="also delete its posteriors and their draws")
    add_command(actions, _list, options=[DatasetsOptions])
    add_command(actions, _upload, file, options=[UploadOptions])
    add_command(actions, _preview, file, options=[UploadOptions])
    add_command(actions, _synthetic, argument("name"), n, options=[SyntheticOptions])
    add_command(actions, _show, id_)
    add_command(actions, _delete, id_, force)


def dataset_of(client: Client, text: str, args: argparse.Namespace | None = None) -> Dataset | str:
    """Return the data set of a command-line argument: the id itself, or the uploaded file."""
    options = {} if args is None else select_options(args, UploadOptions)
    if text.startswith("ds_") and not Path(text).exists():
        if given := ", ".join(f"--{name.replace('_', '-')}" for name in options):
            raise ValueError(
                f"The data set {text} is stored with the roles of its columns: leave out {given}, or give its file."
            )
        return text
    dataset = client.dataset(Path(text), **options)
    for notice in dataset.metadata["notices"]:
        print(in_words(notice, flag), file=sys.stderr)  # noqa: T201 # the command's output
    return dataset


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
    """List the data sets, newest first."""
    items = [dataset.metadata for dataset in client.datasets(**select_options(args, DatasetsOptions))]
    return report_all(args, items, _row)


def _upload(args: argparse.Namespace, client: Client) -> int:
    """Upload a file: csv, tsv, npy, Parquet, Feather, json, also .gz and .zst."""
    return _report_new(args, client.dataset(args.file, **select_options(args, UploadOptions)))


def _preview(args: argparse.Namespace, client: Client) -> int:
    """Show what an upload would store: columns, roles, first rows."""
    shown = client.preview(args.file, **select_options(args, UploadOptions))
    lines = [f"{column['name']}  {column['role'] or 'needs a role'}" for column in shown["columns"]]
    if problem := shown["problem"]:
        lines += [problem["detail"], in_words(problem["remedy"], flag)]
    else:
        lines.insert(0, f"{shown['n']:,} points, {shown['d']} features")
        lines += [in_words(notice, flag) for notice in shown["notices"]]
        lines += ["  ".join(f"{value:g}" for value in row[:20]) for row in shown["rows"]]
    report(args, shown, "\n  ".join(lines))
    return REFUSED if problem else 0


def _synthetic(args: argparse.Namespace, client: Client) -> int:
    """Sample a manifold: swiss_roll, s_curve, ..."""
    return _report_new(args, client.synthetic(args.name, args.n, **select_options(args, SyntheticOptions)))


def _report_new(args: argparse.Namespace, dataset: Dataset) -> int:
    lines = [f"{dataset.id}  {dataset.n:,} points, {dataset.d} features"]
    lines += [in_words(notice, flag) for notice in dataset.metadata["notices"]]
    return report(args, dataset.metadata, "\n  ".join(lines))


def _show(args: argparse.Namespace, client: Client) -> int:
    """Print the description of a data set."""
    return report_metadata(args, client.dataset(args.id).metadata)


def _delete(args: argparse.Namespace, client: Client) -> int:
    """Delete a data set."""
    client.dataset(args.id).delete(force=args.force)
    return report(args, {"deleted": args.id}, f"{args.id} is deleted.")
