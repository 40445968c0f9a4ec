"""Commands `glle methods`, `glle embed`, `glle audit`, `glle compare`: every method on a file or a data set."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glle.cli import output
from glle.cli.connection import add_command, argument, in_command, report, report_all, report_made, select_options
from glle.cli.resources import DATA, dataset_of, file_or_id
from glle.table import map_table, table_text
from glle.types import AuditOptions, CompareOptions, MethodsOptions, UploadOptions
from glle_engine.base.texts import joined, written

if TYPE_CHECKING:
    from glle.cli.connection import Commands
    from glle.client import Client
    from glle.types import MethodOut

_RESERVED = {"truth", "scores", "score_neighbors", "timeout"}  # arguments of Client.embed that are not parameters


def add(commands: Commands) -> None:
    """Add the commands `methods`, `embed`, `audit` and `compare` to the parser."""
    text = "column of the data with the class of each point; or a file or a data set of one column"
    labels = argument("--labels", metavar="COLUMN", default=argparse.SUPPRESS, help=text)
    truth = argument("--truth", metavar="FILE_OR_ID", help="true coordinates; for a synthetic data set its id")
    add_command(commands, _methods, options=[MethodsOptions])

    method = argument("--method", metavar="METHOD", required=True, help="name of the method: see `glle methods`")
    pairs: dict[str, Any] = {"nargs": "+", "action": "extend", "default": [], "type": _pair, "metavar": "NAME=VALUE"}
    parameters = argument("--parameters", **pairs, help="parameters of the method")
    out = output.out_argument(*output.ARRAY, *output.TABLES)
    text = "scores: all fast ones by default, or `none`"
    scores = argument("--scores", nargs="*", action="extend", metavar="NAME", help=text)
    score_neighbors = argument(
        "--score-neighbors", type=_number_or_auto, default="auto", metavar="N", help="k of the scores, or auto"
    )
    arguments = (DATA, method, parameters, out, scores, score_neighbors, labels, truth)
    add_command(commands, _embed, *arguments, options=[UploadOptions], timeout=True)

    data = argument("data", metavar="FILE_OR_ID", help="the data, or the id of a posterior or an embedding")
    places = argument("coordinates", metavar="COORDINATES", nargs="?", help="file or id: coordinates from anywhere")
    method = argument("--method", metavar="METHOD", help="method of the map, with --parameters: see `glle methods`")
    audited = (data, places, method, parameters, labels, out)
    add_command(commands, _audit, *audited, options=[UploadOptions, AuditOptions], timeout=True)

    methods = argument(
        "--methods",
        metavar="METHOD",
        nargs="+",
        type=_method,
        help="NAME or NAME:PARAMETER=VALUE,...; by default a dozen of the installed methods",
    )
    add_command(commands, _compare, DATA, methods, labels, truth, options=[UploadOptions, CompareOptions], timeout=True)


def _pair(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE into the name and the value of a parameter; a value that is not JSON is taken as a text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a parameter: write NAME=VALUE, such as n_neighbors=10")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _number_or_auto(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _method(text: str) -> dict[str, Any]:
    name, _, parameters = text.partition(":")
    return {"method": name, "parameters": dict(_pair(pair) for pair in parameters.split(",") if pair)}


def _data(args: argparse.Namespace, client: Client) -> tuple[str, dict[str, Any]]:
    """Return the id of the data set, and the options `labels`, `truth` and `timeout` for the client's methods.

    Files of data, labels and true coordinates are uploaded first.
    """
    labels = _labels(args, client)
    data = dataset_of(client, args.data, args)
    truth = args.truth and dataset_of(client, args.truth)
    return data, {"labels": labels, "truth": truth, "timeout": args.timeout}


def _labels(args: argparse.Namespace, client: Client, *, is_stored: bool = False) -> str | None:
    """Return the id of the data set with the labels, or None if `--labels` is absent or is the name of a column.

    If `--labels` is a file, the file is uploaded. If it is the name of a column, it stays in `args`, because the upload
    of the data has the option `labels`. `is_stored` says that the service has the data already: without an upload,
    `--labels` can only be a data set or a file.
    """
    text = getattr(args, "labels", None)
    if text is None or not (is_stored or text.startswith("ds_") or Path(text).is_file()):
        return None
    del args.labels
    return dataset_of(client, text)


def _set_blocks_apart(args: argparse.Namespace) -> None:
    """Keep the blocks out of the features: add the column that `--blocks` names to the option `id` in `args`.

    If that column has a role already, or the data are the id of a data set, `args` stay as they are.
    """
    from glle.inputs import set_blocks_apart  # noqa: PLC0415 # late: `glle worker` sets BLAS threads before numpy loads

    if file_or_id(args.data) != args.data:
        options = select_options(args, UploadOptions)
        vars(args).update(set_blocks_apart(args.data, getattr(args, "blocks", None), options)[1])


def _methods(args: argparse.Namespace, client: Client) -> int:
    """List the methods of the service."""
    return report_all(args, client.methods(**select_options(args, MethodsOptions)), _method_row)


def _method_row(method: MethodOut) -> dict[str, object]:
    available = "yes" if method["available"] else f"needs the extra {method['missing_extra']}"
    cells = {name: method[name] for name in ("name", "makes", "family", "growth")}
    return {**cells, "available": available, "title": method["title"]}


def _embed(args: argparse.Namespace, client: Client) -> int:
    """Embed a file or a data set by any method."""
    from glle.inputs import DataOptions  # noqa: PLC0415 # late: `glle worker` sets BLAS threads before numpy loads

    if names := {name for name, _ in args.parameters} & {*_RESERVED, *DataOptions.__annotations__}:
        if "obsm" in names:
            raise ValueError("obsm is for an AnnData, which `glle embed` does not read: use `embed` of Python.")
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(names))
        raise ValueError(f"{', '.join(sorted(names))} cannot be given as NAME=VALUE: use {flags} of `glle embed`.")
    data, options = _data(args, client)
    scores = [] if args.scores == ["none"] else args.scores or None
    result = client.embed(
        data, args.method, scores=scores, score_neighbors=args.score_neighbors, **options, **dict(args.parameters)
    )
    if args.out is not None:
        output.save(client, args.out, "embeddings", result.id, "coordinates")
    lines = [f"{result.n:,} points by {result.method} in {sum(result.seconds.values()):.2f} s"]
    lines += [f"{name} {value:.4g}" for name, value in result.metadata.get("scores", {}).items()]
    return report_made(args, result.metadata, result.id, *lines, notes=result.notes)


def _audit(args: argparse.Namespace, client: Client) -> int:
    """Audit a map: whether it shows more than chance, how much remains in another sample, which points are stable."""
    is_map = args.data.startswith(("post_", "emb_"))
    labels = _labels(args, client, is_stored=is_map)
    if not is_map:
        _set_blocks_apart(args)
    result = client.audit(
        args.data if is_map else dataset_of(client, args.data, args),
        args.coordinates and dataset_of(client, args.coordinates),
        method=args.method,
        parameters=dict(args.parameters),
        labels=labels,
        timeout=args.timeout,
        **select_options(args, AuditOptions),
    )
    if args.out is not None:
        output.save(client, args.out, "jobs", result.job, "result")
    lines = [f"{result.level}: {result.verdict}"]
    if (groups := result.groups) is not None:
        share = [
            f"{a} and {b} {groups['apart'][i][j]:.0%}"
            for j, b in enumerate(groups["names"])
            for i, a in enumerate(groups["names"][:j])
        ]
        lines += [f"Groups apart in other samples: {', '.join(share)}."] if share else []
    return report(args, result.metadata, *lines, notes=result.notes)


def _compare(args: argparse.Namespace, client: Client) -> int:
    """Compare maps of a file or a data set by several methods, and say which map to show."""
    _set_blocks_apart(args)
    data, options = _data(args, client)
    result = client.compare(data, args.methods, **options, **select_options(args, CompareOptions))
    (_, *names), *cells = map_table(result.rows)
    rows = [[*line, *_cost_and_notes(row)] for line, row in zip(cells, result.rows, strict=True)]
    table = table_text([["method", *names, "seconds", "notes"], *rows])
    return report(args, result.metadata, "\n".join([*result.metadata.get("sentences", ()), table]))


def _cost_and_notes(row: dict[str, Any]) -> tuple[str, str]:
    """Return the last two cells in the row of a method: its seconds, and its notes (or the error, if it failed)."""
    problem, seconds = row["problem"], row["seconds"]
    texts = [problem["detail"], problem["remedy"]] if problem else [note["message"] for note in row["notes"]]
    cost = f"{sum(seconds.values()):.4g}" if seconds else ""
    return cost, written(joined(texts), partial(in_command, flags=()))
