"""Commands on posteriors: `glle estimate`, `fit`, `draw`, `summary`, `export`, `import`, `transform`."""

from __future__ import annotations

import math
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glle.cli import output
from glle.cli.connection import add_command, report
from glle.cli.datasets import add_upload_options, dataset_of
from glle.cli.options import add_options, select_options
from glle.types import DrawsOptions, FitOptions, SummaryOptions, TransformOptions

if TYPE_CHECKING:
    import argparse

    from glle.cli.connection import Commands
    from glle.client import Client

_POSTERIOR: Any = {"metavar": "POSTERIOR", "help": "id, as printed by `glle fit`"}
_FIT_TEXTS = {
    "n_neighbors": ("-k", "neighbours of a point"),
    "n_components": ("-p", "dimension of the embedding"),
    "method": ("", "GLLE Algorithm 1 (em) or 2 (direct)"),
    "variant": ("", "weights that sum to one, or the equations as published"),
    "reg": ("", "ratio of noise to prior variance, the ridge of LLE"),
    "standardize": ("", "zscore or robust, for features in different units"),
    "metric": ("", "distance of the neighbors"),
    "landmarks": ("", "points that have the posterior; the others are placed on them"),
}
_DRAW_TEXTS = {
    "first": ("", "number of the first draw"),
    "seed": ("", "stream of draws"),
    "scale": ("", "factor on the covariance, or auto"),
    "scales": ("", "several factors: an axis of the result"),
}


def add(commands: Commands) -> None:
    """Add the commands."""
    for name, run, text in (
        ("estimate", _estimate, "estimate seconds and memory of a fit and of its draws"),
        ("fit", _fit, "fit a posterior to a file or a data set"),
    ):
        command = add_command(commands, name, run, text, timeout=True)
        command.add_argument("data", metavar="FILE_OR_ID", help="a csv, npy or json file, or the id of a data set")
        add_upload_options(command)
        if run is _fit:
            command.add_argument(
                "--neighbors",
                metavar="FILE_OR_ID",
                help="neighbors in place of a search: a file of row numbers from 0, (n, k), or the id of a data set",
            )
        add_options(command, FitOptions, _FIT_TEXTS)

    draw = add_command(commands, "draw", _draw, "draw embeddings of a posterior into a file", timeout=True)
    draw.add_argument("posterior", **_POSTERIOR)
    draw.add_argument("--count", type=int, default=8, metavar="N", help="draws at each scale (%(default)s)")
    output.add_out(draw, *output.ARRAY, *output.TABLES, *output.PICTURES, required=True)
    draw.add_argument("--dtype", choices=("float64", "float32"), help="float32 halves the file")
    add_options(draw, DrawsOptions, _DRAW_TEXTS)

    text = "measure how far points move, and how sure that is"
    summary = add_command(commands, "summary", _summary, text, timeout=True)
    summary.add_argument("posterior", **_POSTERIOR)
    summary.add_argument("--count", type=int, default=100, metavar="N", help="draws (%(default)s)")
    output.add_out(summary, *output.TABLES, *output.PICTURES)
    texts = {**_DRAW_TEXTS, "resamples": ("", "embeddings of parts of the data, each kind")}
    add_options(summary, SummaryOptions, texts)

    export = add_command(commands, "export", _export, "write a posterior to a file for glle.load", timeout=True)
    export.add_argument("posterior", **_POSTERIOR)
    output.add_out(export, *output.ARCHIVE, required=True)

    importing = add_command(commands, "import", _import, "store an exported posterior here")
    importing.add_argument("file", metavar="FILE", type=Path, help="the file that `glle export` wrote")

    transform = add_command(commands, "transform", _transform, "embed new points", timeout=True)
    transform.add_argument(
        "posterior", metavar="POSTERIOR_OR_EMBEDDING", help="id, as printed by `glle fit` or `glle embed`"
    )
    transform.add_argument("data", metavar="FILE_OR_ID", help="new points, with the features of the fit")
    add_upload_options(transform)
    output.add_out(transform, *output.ARRAY, *output.TABLES, required=True)
    texts = {**_DRAW_TEXTS, "draws": ("", "draws for the spread of new points")}
    add_options(transform, TransformOptions, texts)


def _estimate(args: argparse.Namespace, client: Client) -> int:
    dataset = dataset_of(client, args.data, args)
    expected = client.estimate_fit(dataset, timeout=args.timeout, **select_options(args, FitOptions))
    fit, draw, problem = expected["fit"], expected["draw"], expected["problem"]
    draws = f"{duration(draw['seconds'])} of many, {duration(expected['single_draw_seconds'])} alone"
    lines = [
        f"{expected['n']:,} points of intrinsic dimension {expected['intrinsic_dimension']:.1f}",
        f"fit     {duration(fit['seconds'])}, {size(fit['bytes'])}",
        f"a draw  {draws}, {size(draw['bytes'])}",
    ]
    if problem is not None:
        lines += [problem["detail"], problem["remedy"]]
    return report(args, expected, "\n  ".join(lines))


def duration(seconds: float) -> str:
    """Format an estimate with two digits."""
    if seconds < 1:
        return f"{max(1000 * seconds, 1):.0f} ms" if seconds < 0.1 else f"{10 * round(100 * seconds)} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{float(f'{seconds:.2g}'):,.0f} s"


def size(nbytes: float) -> str:
    """Format an estimate with two digits."""
    return f"{float(f'{nbytes / 1e6:.2g}'):,.0f} MB"


def _fit(args: argparse.Namespace, client: Client) -> int:
    dataset = dataset_of(client, args.data, args)
    options = select_options(args, FitOptions)
    posterior = client.fit(dataset, neighbors=args.neighbors, timeout=args.timeout, **options)
    head = f"{posterior.id}  {posterior.n:,} points, fitted in {posterior.metadata['seconds']:.2f} s"
    return report(args, posterior.metadata, "\n  ".join([head, *posterior.notes]))


def _draw(args: argparse.Namespace, client: Client) -> int:
    posterior, options = client.posterior(args.posterior), select_options(args, DrawsOptions)
    if image := output.picture_format(args.out):
        posterior.picture("draws", format=image, out=args.out, timeout=args.timeout, count=args.count, **options)
        return report(args, {"file": str(args.out)}, f"{args.out}  {args.count:,} draws")
    array = args.out if args.out.suffix.lower() in output.ARRAY else None
    with warnings.catch_warnings():  # the notes of the scale are printed below
        warnings.simplefilter("ignore", UserWarning)
        draws = posterior.draws(args.count, out=array, dtype=args.dtype, timeout=args.timeout, **options)
    if array is None:
        columns = output.draws_columns(draws, options.get("first", 0), options.get("scales"))
        repeats = math.prod(draws.shape[:-2])
        output.save_rows(client, posterior.metadata["dataset"], args.out, columns, draws, repeats)
    metadata = {"file": str(args.out), "shape": list(draws.shape), "dtype": str(draws.dtype)}
    lines = [f"{args.out}  {' x '.join(f'{size:,}' for size in draws.shape)}, {draws.dtype}"]
    if "auto" in {options.get("scale"), *options.get("scales", ())}:
        found = posterior.calibration(timeout=args.timeout)
        notes = found.metadata.get("notes", [])
        metadata |= {"scale": found.scale, "notes": notes}
        lines += [f"The calibrated scale is {found.scale:.3g}.", *[note["message"] for note in notes]]
    return report(args, metadata, "\n  ".join(lines))


def _export(args: argparse.Namespace, client: Client) -> int:
    client.posterior(args.posterior).export(args.out, timeout=args.timeout)
    nbytes = args.out.stat().st_size
    return report(args, {"file": str(args.out), "bytes": nbytes}, f"{args.out}  {nbytes:,} bytes")


def _import(args: argparse.Namespace, client: Client) -> int:
    posterior = client.import_posterior(args.file)
    text = f"{posterior.id}  {posterior.n:,} points, of data set {posterior.metadata['dataset']}"
    return report(args, posterior.metadata, text)


def _summary(args: argparse.Namespace, client: Client) -> int:
    posterior, options = client.posterior(args.posterior), select_options(args, SummaryOptions)
    result = posterior.summary(args.count, timeout=args.timeout, **options)
    if image := output.picture_format(args.out):
        posterior.picture("summary", format=image, out=args.out, timeout=args.timeout, count=args.count, **options)
    elif args.out is not None:
        columns = output.point_columns(result)
        output.save_rows(client, posterior.metadata["dataset"], args.out, columns, result.consensus)
    middle = result.quantiles["levels"].index(0.5)
    spread, stability = (result.quantiles[name][middle] for name in ("spread", "stability"))
    head = f"{posterior.id}  {posterior.n:,} points, {result.count:,} draws at scale {result.scale:.3g}"
    stated, notes = result.metadata.get("reliability"), result.notes
    if stated is not None:
        head += f", 3 x {result.resamples:,} resamples"
        notes = [note for note in notes if note["message"] != stated["reason"]]
    lines = [
        head,
        *([] if stated is None else [f"Reliability of the spread: {stated['level']}. {stated['reason']}"]),
        f"The median point keeps {100 * stability:.0f} % of its neighbors in a draw.",
        f"Its spread is {spread:.2g}; each axis has standard deviation 1.",
        *[note["message"] for note in notes],
    ]
    return report(args, result.metadata, "\n  ".join(lines))


def _transform(args: argparse.Namespace, client: Client) -> int:
    options = select_options(args, TransformOptions)
    if args.posterior.startswith("emb_"):
        if options:
            raise ValueError(f"{', '.join(options)} has a meaning with the draws of a posterior only: leave it out.")
        place = client.embedding(args.posterior, timeout=args.timeout).transform
    else:
        place = partial(client.posterior(args.posterior).transform, **options)
    data = dataset_of(client, args.data, args)
    placed = place(data, timeout=args.timeout)
    distances = {"distance": placed.distances} if "distances" in placed.arrays else {}
    columns = {**output.embedding_columns(placed.embedding), **distances}
    dataset = data if isinstance(data, str) else data.id
    output.save_rows(client, dataset, args.out, columns, placed.embedding)
    metadata = {"file": str(args.out), "shape": list(placed.embedding.shape)}
    return report(args, metadata, f"{args.out}  {len(placed.embedding):,} new points")
