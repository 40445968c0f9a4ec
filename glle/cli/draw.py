"""`glle draw`: embeddings of a posterior, into an npy file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glle.cli.connection import asking, shared, tell
from glle.cli.options import add_options, given
from glle.types import DrawsOptions

if TYPE_CHECKING:
    import argparse

    from glle import Client

_NAMED = {
    "first": ("", "number of the first draw"),
    "seed": ("", "stream of draws"),
    "scale": ("", "factor on the covariance, or auto"),
    "scales": ("", "several of them: an axis of the result"),
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("draw", parents=[shared()], help="draw embeddings, on a running service")
    parser.add_argument("posterior", metavar="POSTERIOR", help="its id, as `glle fit` told it")
    parser.add_argument("--count", type=int, default=8, metavar="N", help="draws at each scale (%(default)s)")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="npy file: (count, n, p)")
    parser.add_argument("--dtype", choices=("float64", "float32"), help="float32 halves the file")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds to wait; the job goes on")
    add_options(parser, DrawsOptions, _NAMED)
    parser.set_defaults(run=asking(_draw))


def _draw(chosen: argparse.Namespace, glle: Client) -> int:
    if chosen.out.suffix != ".npy":
        raise ValueError(f"{chosen.out} is to be an npy file: name it {chosen.out.with_suffix('.npy')}.")
    if not chosen.out.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {chosen.out.parent}: make it first.")
    draws = glle.posterior(chosen.posterior).draws(
        chosen.count,
        out=chosen.out,
        dtype=chosen.dtype,
        timeout=chosen.timeout,
        **given(chosen, DrawsOptions),
    )
    told = {"file": str(chosen.out), "shape": list(draws.shape), "dtype": str(draws.dtype)}
    return tell(chosen, told, f"{chosen.out}  {' x '.join(f'{size:,}' for size in draws.shape)}, {draws.dtype}")
