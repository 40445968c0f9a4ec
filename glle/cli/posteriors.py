"""Commands `glle fit`, a posterior of a file or of a data set, and `glle draw`, its embeddings in an npy file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glle.cli.connection import connection_options, report, with_client
from glle.cli.datasets import dataset_of
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

    fit = commands.add_parser("fit", parents=shared, help="fit a posterior to a file or a data set")
    fit.add_argument("data", metavar="FILE_OR_ID", help="a csv, npy or json file, or the id of a data set")
    fit.add_argument("--label", help="column of labels of the file")
    add_options(fit, FitOptions, _FIT_TEXTS)
    fit.set_defaults(run=with_client(_fit))

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


def _fit(args: argparse.Namespace, client: Client) -> int:
    dataset = dataset_of(client, args.data, args.label)
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
