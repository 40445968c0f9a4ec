"""`glle fit`: a posterior of a file or of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glle.cli.connection import asking, shared, tell
from glle.cli.options import add_options, given
from glle.types import FitOptions

if TYPE_CHECKING:
    import argparse

    from glle import Client

_NAMED = {
    "n_neighbors": ("-k", "neighbours of a point"),
    "n_components": ("-p", "dimension of the embedding"),
    "method": ("", "GLLE Algorithm 1 (em) or 2 (direct)"),
    "variant": ("", "weights that sum to one, or the equations as published"),
    "reg": ("", "ratio of noise to prior variance, the ridge of LLE"),
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("fit", parents=[shared()], help="fit a posterior, on a running service")
    parser.add_argument("data", metavar="FILE_OR_ID", help="a csv, npy or json file, or the id of a data set")
    parser.add_argument("--label", help="the file's column of labels")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds to wait; the fit goes on")
    add_options(parser, FitOptions, _NAMED)
    parser.set_defaults(run=asking(_fit))


def _fit(chosen: argparse.Namespace, glle: Client) -> int:
    is_id = chosen.data.startswith("ds_") and not Path(chosen.data).exists()
    dataset = chosen.data if is_id else glle.dataset(Path(chosen.data), label=chosen.label)
    posterior = glle.fit(dataset, timeout=chosen.timeout, **given(chosen, FitOptions))
    notes = "".join(f"\n  {note}" for note in posterior.notes)
    words = f"{posterior.id}  {posterior.n:,} points, fitted in {posterior.told['seconds']:.2f} s{notes}"
    return tell(chosen, posterior.told, words)
