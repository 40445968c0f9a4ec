"""Commands on posteriors: `glle estimate`, `fit`, `draw`, `summary`, `export`, `import`, `transform`."""

from __future__ import annotations

import math
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from glle.cli.connection import connection_options, report, with_client
from glle.cli.datasets import add_upload_options, dataset_of, ids_of
from glle.cli.options import add_options, selected
from glle.cli.output import (
    ARCHIVE,
    ARRAY,
    PICTURES,
    TABLES,
    add_out,
    draws_columns,
    embedding_columns,
    id_columns,
    picture_format,
    point_columns,
    save_columns,
)
from glle.types import DrawsOptions, FitOptions, SummaryOptions, TransformOptions

if TYPE_CHECKING:
    import argparse

    from glle.client import Client

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


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    shared = [connection_options(timeout=True)]

    for name, run, text in (
        ("estimate", _estimate, "estimate seconds and memory of a fit and of its draws"),
        ("fit", _fit, "fit a posterior to a file or a data set"),
    ):
        command = commands.add_parser(name, parents=shared, help=text)
        command.add_argument("data", metavar="FILE_OR_ID", help="a csv, npy or json file, or the id of a data set")
        add_upload_options(command)
        if name == "fit":
            command.add_argument(
                "--neighbors",
                metavar="FILE_OR_ID",
                help="neighbors in place of a search: a file of row numbers from 0, (n, k), or the id of a data set",
            )
        add_options(command, FitOptions, _FIT_TEXTS)
        command.set_defaults(run=with_client(run))

    of_posterior = connection_options(timeout=True)
    of_posterior.add_argument("posterior", metavar="POSTERIOR", help="id, as printed by `glle fit`")

    draw = commands.add_parser("draw", parents=[of_posterior], help="draw embeddings of a posterior into a file")
    draw.add_argument("--count", type=int, default=8, metavar="N", help="draws at each scale (%(default)s)")
    add_out(draw, *ARRAY, *TABLES, *PICTURES, required=True)
    draw.add_argument("--dtype", choices=("float64", "float32"), help="float32 halves the file")
    add_options(draw, DrawsOptions, _DRAW_TEXTS)
    draw.set_defaults(run=with_client(_draw))

    summary = commands.add_parser(
        "summary", parents=[of_posterior], help="measure how far points move, and how sure that is"
    )
    summary.add_argument("--count", type=int, default=100, metavar="N", help="draws (%(default)s)")
    add_out(summary, *TABLES, *PICTURES)
    add_options(
        summary, SummaryOptions, {**_DRAW_TEXTS, "resamples": ("", "embeddings of parts of the data, each kind")}
    )
    summary.set_defaults(run=with_client(_summary))

    export = commands.add_parser(
        "export", parents=[of_posterior], help="write a posterior to a file for glle_engine.load"
    )
    add_out(export, *ARCHIVE, required=True)
    export.set_defaults(run=with_client(_export))

    importing = commands.add_parser("import", parents=[connection_options()], help="store an exported posterior here")
    importing.add_argument("file", metavar="FILE", type=Path, help="the file that `glle export` wrote")
    importing.set_defaults(run=with_client(_import))

    of_result = connection_options(timeout=True)
    of_result.add_argument(
        "posterior", metavar="POSTERIOR_OR_EMBEDDING", help="id, as printed by `glle fit` or `glle embed`"
    )
    transform = commands.add_parser("transform", parents=[of_result], help="embed new points")
    transform.add_argument("data", metavar="FILE_OR_ID", help="new points, with the features of the fit")
    add_upload_options(transform)
    add_out(transform, *ARRAY, *TABLES, required=True)
    add_options(transform, TransformOptions, {**_DRAW_TEXTS, "draws": ("", "draws for the spread of new points")})
    transform.set_defaults(run=with_client(_transform))


def _estimate(args: argparse.Namespace, client: Client) -> int:
    dataset = dataset_of(client, args.data, args)
    expected = client.estimate_fit(dataset, timeout=args.timeout, **selected(args, FitOptions))
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
    options = selected(args, FitOptions)
    posterior = client.fit(dataset, neighbors=args.neighbors, timeout=args.timeout, **options)
    head = f"{posterior.id}  {posterior.n:,} points, fitted in {posterior.metadata['seconds']:.2f} s"
    return report(args, posterior.metadata, "\n  ".join([head, *posterior.notes]))


def _draw(args: argparse.Namespace, client: Client) -> int:
    posterior, options = client.posterior(args.posterior), selected(args, DrawsOptions)
    if image := picture_format(args.out):
        posterior.picture("draws", format=image, out=args.out, timeout=args.timeout, count=args.count, **options)
        return report(args, {"file": str(args.out)}, f"{args.out}  {args.count:,} draws")
    array = args.out if args.out.suffix.lower() in ARRAY else None
    with warnings.catch_warnings():  # the notes of the scale are printed below
        warnings.simplefilter("ignore", UserWarning)
        draws = posterior.draws(args.count, out=array, dtype=args.dtype, timeout=args.timeout, **options)
    if array is None:
        ids = ids_of(client, posterior.metadata["dataset"], args.out)
        columns = draws_columns(draws, options.get("first", 0), options.get("scales"))
        save_columns(args.out, {**id_columns(ids, math.prod(draws.shape[:-2])), **columns}, draws)
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
    posterior, options = client.posterior(args.posterior), selected(args, SummaryOptions)
    result = posterior.summary(args.count, timeout=args.timeout, **options)
    if image := picture_format(args.out):
        posterior.picture("summary", format=image, out=args.out, timeout=args.timeout, count=args.count, **options)
    elif args.out is not None:
        ids = ids_of(client, posterior.metadata["dataset"], args.out)
        save_columns(args.out, {**id_columns(ids), **point_columns(result)}, result.consensus)
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
    options = selected(args, TransformOptions)
    if args.posterior.startswith("emb_"):
        if options:
            raise ValueError(f"{', '.join(options)} has a meaning with the draws of a posterior only: leave it out.")
        place = client.embedding(args.posterior, timeout=args.timeout).transform
    else:
        place = partial(client.posterior(args.posterior).transform, **options)
    data = dataset_of(client, args.data, args)
    placed = place(data, timeout=args.timeout)
    distances = {"distance": placed.distances} if "distances" in placed.arrays else {}
    ids = id_columns(ids_of(client, data if isinstance(data, str) else data.id, args.out))
    save_columns(args.out, {**ids, **embedding_columns(placed.embedding), **distances}, placed.embedding)
    metadata = {"file": str(args.out), "shape": list(placed.embedding.shape)}
    return report(args, metadata, f"{args.out}  {len(placed.embedding):,} new points")
