"""Commands on posteriors: `glle fit`, `draw`, `weights`, `summary`, `export`, `transform`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from glle.cli import output
from glle.cli.connection import add_command, argument, report, report_made, select_options
from glle.cli.resources import DATA, dataset_of, file_or_id
from glle.types import DrawsOptions, FitOptions, SummaryOptions, TransformOptions, UploadOptions, WeightsOptions

if TYPE_CHECKING:
    import argparse

    from glle.cli.connection import Argument, Commands
    from glle.client import Client


def add(commands: Commands) -> None:
    """Add the commands on posteriors to the parser."""
    text = "neighbors in place of a search: a file of row numbers from 0, (n, k), or the id of a data set"
    neighbors = argument("--neighbors", metavar="FILE_OR_ID", help=text)
    add_command(commands, _fit, DATA, neighbors, options=[UploadOptions, FitOptions], timeout=True)

    posterior = argument("posterior", metavar="POSTERIOR", help="id, as printed by `glle fit`")
    out = output.out_argument(*output.ARRAY, *output.TABLES, required=True)
    dtype = argument("--dtype", choices=("float64", "float32"), help="float32 halves the file")
    n_draws = _number_of_draws("draws at each scale", 8)
    add_command(commands, _draw, posterior, n_draws, out, dtype, options=[DrawsOptions], timeout=True)
    out = output.out_argument(*output.ARRAY, *output.TABLES, required=True)
    index = argument("--index", type=int, default=0, metavar="I", help="index of the draw (%(default)s)")
    add_command(commands, _weights, posterior, index, out, options=[WeightsOptions], timeout=True)
    out = output.out_argument(*output.TABLES)
    add_command(
        commands, _summary, posterior, _number_of_draws("draws", 100), out, options=[SummaryOptions], timeout=True
    )
    out = output.out_argument(*output.ARCHIVE, required=True)
    add_command(commands, _export, posterior, out, timeout=True)

    text = "id, as printed by `glle fit` or `glle embed`"
    either = argument("posterior", metavar="POSTERIOR_OR_EMBEDDING", help=text)
    new = argument("data", metavar="FILE_OR_ID", help="new points, with the features of the fit")
    out = output.out_argument(*output.ARRAY, *output.TABLES, required=True)
    add_command(commands, _transform, either, new, out, options=[UploadOptions, TransformOptions], timeout=True)


def _number_of_draws(text: str, default: int) -> Argument:
    return argument("--n-draws", type=int, default=default, metavar="N", help=f"{text} (%(default)s)")


def _fit(args: argparse.Namespace, client: Client) -> int:
    """Fit a posterior to a file or a data set."""
    dataset = dataset_of(client, args.data, args)
    options = select_options(args, FitOptions)
    posterior = client.fit(dataset, neighbors=args.neighbors, timeout=args.timeout, **options)
    head = f"{posterior.n:,} points, fitted in {posterior.metadata['seconds']:.2f} s"
    return report_made(args, posterior.metadata, posterior.id, head, *posterior.notes)


def _draw(args: argparse.Namespace, client: Client) -> int:
    """Draw embeddings of a posterior into a file."""
    posterior, options = client.posterior(args.posterior), select_options(args, DrawsOptions)
    job = posterior.start_draws(args.n_draws, **options).wait(args.timeout)
    output.save(client, args.out, "jobs", job.id, "result", query={"dtype": args.dtype})
    scales = [len(options["scales"])] if "scales" in options else []
    shape, dtype = [*scales, args.n_draws, posterior.n, posterior.spec["n_components"]], args.dtype or "float64"
    metadata = {"file": str(args.out), "shape": shape, "dtype": dtype}
    lines, notes = [f"{args.out}  {' x '.join(f'{size:,}' for size in shape)}, {dtype}"], []
    if "auto" in {options.get("scale"), *options.get("scales", ())}:
        calibration = posterior.calibration(timeout=args.timeout)
        notes = calibration.metadata.get("notes", [])
        metadata |= {"scale": calibration.scale, "notes": notes}
        lines += [f"The calibrated scale is {calibration.scale:.3g}."]
    return report(args, metadata, *lines, notes=notes)


def _weights(args: argparse.Namespace, client: Client) -> int:
    """Write the reconstruction weights of one draw: npy (n, k), or a table of row, column and value."""
    from glle.resources.results import warn_of_scale  # noqa: PLC0415 # late: `glle worker` sets BLAS threads before numpy loads

    posterior, options = client.posterior(args.posterior), select_options(args, WeightsOptions)
    path = ("posteriors", posterior.id, "draws", str(args.index), "weights")
    warn_of_scale(output.save(client, args.out, *path, query=options, timeout=args.timeout))
    metadata = {"file": str(args.out), "shape": [posterior.n, posterior.spec["n_neighbors"]]}
    return report(args, metadata, f"{args.out}  the weights of {posterior.n:,} points")


def _export(args: argparse.Namespace, client: Client) -> int:
    """Write a posterior to a file for glle.load."""
    client.posterior(args.posterior).export(args.out, timeout=args.timeout)
    nbytes = args.out.stat().st_size
    return report(args, {"file": str(args.out), "bytes": nbytes}, f"{args.out}  {nbytes:,} bytes")


def _summary(args: argparse.Namespace, client: Client) -> int:
    """Measure how far points move from draw to draw."""
    posterior, options = client.posterior(args.posterior), select_options(args, SummaryOptions)
    result = posterior.summary(args.n_draws, timeout=args.timeout, **options)
    if args.out is not None:
        query = {**options, "n_draws": args.n_draws}
        output.save(client, args.out, "posteriors", posterior.id, "summary", query=query, timeout=args.timeout)
    middle = result.quantiles["levels"].index(0.5)
    spread, stability = (result.quantiles[name][middle] for name in ("spread", "stability"))
    head = f"{posterior.id}  {posterior.n:,} points, {result.n_draws:,} draws at scale {result.scale:.3g}"
    lines = [
        head,
        f"The median point keeps {100 * stability:.0f} % of its neighbors in a draw.",
        f"Its spread is {spread:.2g}; each axis has standard deviation 1.",
    ]
    return report(args, result.metadata, *lines, notes=result.notes)


def _transform(args: argparse.Namespace, client: Client) -> int:
    """Embed new points."""
    options = select_options(args, TransformOptions)
    if args.posterior.startswith("emb_"):
        if options:
            raise ValueError(f"{', '.join(options)} can be given only for a posterior: leave out {', '.join(options)}.")
        place = client.embedding(args.posterior, timeout=args.timeout).transform
    else:
        place = partial(client.posterior(args.posterior).transform, **options)
    placed = place(file_or_id(args.data), timeout=args.timeout, **select_options(args, UploadOptions))
    output.save(client, args.out, "jobs", placed.job, "result")
    metadata = {"file": str(args.out), "shape": list(placed.embedding.shape)}
    return report(args, metadata, f"{args.out}  {len(placed.embedding):,} new points", notes=placed.notes)
