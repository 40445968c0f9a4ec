"""Commands `glle estimate` and `glle fit`, a posterior of a file or a data set, and `glle draw`, its embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glle.cli.connection import connection_options, report, with_client
from glle.cli.datasets import add_upload_options, dataset_of
from glle.cli.options import add_options, selected
from glle.types import DrawsOptions, FitOptions

if TYPE_CHECKING:
    import argparse

    from glle import Client

_FIT_TEXTS = {
    "n_neighbors": ("-k", "neighbours of a point"),
    "n_components": ("-p", "dimension of the embedding"),
    "method": ("", "GLLE Algorithm 1 (em) or 2 (direct)"),
    "variant": ("", "weights that sum to one, or the equations as published"),
    "reg": ("", "ratio of noise to prior variance, the ridge of LLE"),
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
        add_options(command, FitOptions, _FIT_TEXTS)
        command.set_defaults(run=with_client(run))

    draw = commands.add_parser("draw", parents=shared, help="draw embeddings of a posterior into an npy file")
    draw.add_argument("posterior", metavar="POSTERIOR", help="id, as printed by `glle fit`")
    draw.add_argument("--count", type=int, default=8, metavar="N", help="draws at each scale (%(default)s)")
    draw.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="npy file: (count, n, p)")
    draw.add_argument("--dtype", choices=("float64", "float32"), help="float32 halves the file")
    add_options(draw, DrawsOptions, _DRAW_TEXTS)
    draw.set_defaults(run=with_client(_draw))


def check_npy(path: Path) -> None:
    """Raise ValueError unless an npy file can be written at the path."""
    if path.suffix != ".npy":
        raise ValueError(f"{path} must be an npy file: name it {path.with_suffix('.npy')}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {path.parent}: create it first.")


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
    posterior = client.fit(dataset, timeout=args.timeout, **selected(args, FitOptions))
    head = f"{posterior.id}  {posterior.n:,} points, fitted in {posterior.metadata['seconds']:.2f} s"
    return report(args, posterior.metadata, "\n  ".join([head, *posterior.notes]))


def _draw(args: argparse.Namespace, client: Client) -> int:
    check_npy(args.out)
    posterior = client.posterior(args.posterior)
    options = selected(args, DrawsOptions)
    draws = posterior.draws(args.count, out=args.out, dtype=args.dtype, timeout=args.timeout, **options)
    metadata = {"file": str(args.out), "shape": list(draws.shape), "dtype": str(draws.dtype)}
    return report(args, metadata, f"{args.out}  {' x '.join(f'{size:,}' for size in draws.shape)}, {draws.dtype}")
