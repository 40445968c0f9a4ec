"""Commands `glle datasets` and `glle jobs`, and how every command reads an argument that is a file or a data set."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glle.cli.connection import (
    REFUSED,
    add_command,
    argument,
    in_command,
    report,
    report_all,
    report_made,
    select_options,
)
from glle.types import DatasetsOptions, JobsOptions, SyntheticOptions, UploadOptions
from glle_engine.base.texts import written

if TYPE_CHECKING:
    import argparse

    from glle.cli.connection import Commands
    from glle.client import Client, Dataset, Job
    from glle.types import DatasetOut, JobOut


DATA = argument("data", metavar="FILE_OR_ID", help="a csv, npy or json file, or the id of a data set")


def add(commands: Commands) -> None:
    """Add the commands `datasets` and `jobs` to the parser."""
    id_, file = argument("id"), argument("file", type=Path)
    actions = _group(commands, "datasets", "list, upload, sample, show and delete data sets", _dataset_row)
    n = argument("-n", type=int, default=1000, metavar="POINTS", help="number of points (%(default)s)")
    force = argument("--force", action="store_true", help="also delete its posteriors and their draws")
    add_command(actions, _list, options=[DatasetsOptions])
    add_command(actions, _upload, file, options=[UploadOptions])
    add_command(actions, _preview, file, options=[UploadOptions])
    add_command(actions, _synthetic, argument("name"), n, options=[SyntheticOptions])
    add_command(actions, _show, id_)
    add_command(actions, _delete, id_, force)
    actions = _group(commands, "jobs", "list, show, wait for and cancel jobs", _job_row)
    add_command(actions, _list, options=[JobsOptions])
    add_command(actions, _show, id_)
    add_command(actions, _wait, id_, timeout=True)
    add_command(actions, _cancel, id_)


def _group(commands: Commands, name: str, text: str, row: Any) -> Commands:
    """Add the command `name`, without subcommands; return argparse's object to which the caller adds all of them.

    One of them is `list`, which prints a table. `row` maps the JSON of one data set or job to its row of this table, as
    a dictionary from names of columns to cells.
    """
    group = commands.add_parser(name, help=text)
    group.set_defaults(resource=name, row=row)
    return group.add_subparsers(required=True, metavar="action")


def _list(args: argparse.Namespace, client: Client) -> int:
    """List all data sets, or all jobs, newest first; options select some of them."""
    options = DatasetsOptions if args.resource == "datasets" else JobsOptions
    items = getattr(client, args.resource)(**select_options(args, options))
    return report_all(args, [item.metadata for item in items], args.row)


def _show(args: argparse.Namespace, client: Client) -> int:
    """Print the description of a data set or a job."""
    metadata = getattr(client, args.resource.removesuffix("s"))(args.id).metadata
    return report(args, metadata, json.dumps(metadata, indent=2))


def file_or_id(text: str) -> Path | str:
    """Return `text` as a `Path`, unless it is the id of a data set: then return it unchanged.

    A text that starts with ds_ is an id if no file has this name.
    """
    return text if text.startswith("ds_") and not Path(text).exists() else Path(text)


def dataset_of(client: Client, text: str, args: argparse.Namespace | None = None) -> str:
    """Return the id of the data set for the argument `text`, which is an id or the path of a file.

    A file is uploaded with the upload options in `args`, and the notices of the upload are printed on stderr. Raises
    ValueError if the user gave upload options with an id, because that data set is stored already.
    """
    options = {} if args is None else select_options(args, UploadOptions)
    if file_or_id(text) == text:
        if flags := ", ".join(f"--{name.replace('_', '-')}" for name in options):
            raise ValueError(
                f"The columns of data set {text} got their roles when it was uploaded: leave out {flags}, or give the "
                "file in place of the id."
            )
        return text
    dataset = client.dataset(Path(text), **options)
    for notice in dataset.notices:
        print(written(notice, in_command), file=sys.stderr)  # noqa: T201 # the command's output
    return dataset.id


def _dataset_row(dataset: DatasetOut) -> dict[str, object]:
    source = dataset["source"]
    return {
        "id": dataset["id"],
        "points": f"{dataset['n']:,}",
        "features": dataset["n_features"],
        "from": source.get("name") or source.get("format", source["kind"]),
        "created": dataset["created"],
    }


def _upload(args: argparse.Namespace, client: Client) -> int:
    """Upload a file: csv, tsv, npy, Parquet, Feather, json, also .gz."""
    return _report_new(args, client.dataset(args.file, **select_options(args, UploadOptions)))


def _preview(args: argparse.Namespace, client: Client) -> int:
    """Show what an upload would store: columns, roles, first rows."""
    shown = client.preview(args.file, **select_options(args, UploadOptions))
    lines = [f"{column['name']}  {column['role'] or 'needs a role'}" for column in shown["columns"]]
    if problem := shown["problem"]:
        lines += [problem["detail"], problem["remedy"]]
    else:
        lines.insert(0, f"{shown['n']:,} points, {shown['n_features']} features")
        lines += [notice["message"] for notice in shown["notices"]]
        lines += ["  ".join(f"{value:g}" for value in row[:20]) for row in shown["rows"]]
    report(args, shown, *lines)
    return REFUSED if problem else 0


def _synthetic(args: argparse.Namespace, client: Client) -> int:
    """Sample a manifold: swiss_roll, s_curve, ..."""
    return _report_new(args, client.synthetic(args.name, args.n, **select_options(args, SyntheticOptions)))


def _report_new(args: argparse.Namespace, dataset: Dataset) -> int:
    head = f"{dataset.n:,} points, {dataset.d} features"
    return report_made(args, dataset.metadata, dataset.id, head, *dataset.notices)


def _delete(args: argparse.Namespace, client: Client) -> int:
    """Delete a data set."""
    client.dataset(args.id).delete(force=args.force)
    return report(args, {"deleted": args.id}, f"{args.id} is deleted.")


def _job_row(job: JobOut) -> dict[str, object]:
    progress = job["progress"]
    return {
        **{name: job[name] for name in ("id", "kind", "status")},
        "done": f"{progress['done']}/{progress['total']}",
        "stage": progress["stage"],
        "about": job["posterior"] or job["dataset"],
        "created": job["created"],
    }


def _wait(args: argparse.Namespace, client: Client) -> int:
    """Wait until a job has ended; exit code 1 if it failed."""
    return _report_status(args, client.job(args.id).wait(args.timeout))


def _cancel(args: argparse.Namespace, client: Client) -> int:
    """Cancel a queued or running job."""
    return _report_status(args, client.job(args.id).cancel())


def _report_status(args: argparse.Namespace, job: Job) -> int:
    return report(args, job.metadata, f"{job.id}  {job.kind} {job.status}")
