"""`glle methods`, `glle embed`, `glle compare`: any method on a file or on a data set."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glle.cli.connection import asking, shared, tell, tell_all
from glle.cli.options import add_options, given
from glle.types import CompareOptions, MethodsOptions

if TYPE_CHECKING:
    from glle import Client

_COLUMNS = {
    "name": lambda told: told["name"],
    "makes": lambda told: told["makes"],
    "family": lambda told: told["family"],
    "growth": lambda told: told["growth"],
    "here": lambda told: "yes" if told["available"] else f"needs the extra {told['missing_extra']}",
    "title": lambda told: told["title"],
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    listing = commands.add_parser("methods", parents=[shared()], help="the methods of a running service")
    add_options(listing, MethodsOptions, {"makes": ("", "only those that make this")})
    listing.set_defaults(run=asking(_methods))

    one = commands.add_parser("embed", parents=[shared()], help="embed by any method, on a running service")
    _add_data(one)
    one.add_argument("method", metavar="METHOD", help="its name: see `glle methods`")
    one.add_argument("--set", action="append", default=[], type=_pair, metavar="NAME=VALUE", help="a parameter of it")
    one.add_argument("-o", "--out", type=Path, metavar="FILE", help="npy file of the coordinates: (n, p)")
    one.add_argument("--scores", nargs="*", metavar="NAME", help="by what it is judged; none with no name")
    one.set_defaults(run=asking(_embed))

    several = commands.add_parser("compare", parents=[shared()], help="compare methods, on a running service")
    _add_data(several)
    several.add_argument("methods", metavar="METHOD", nargs="+", type=_method, help="NAME or NAME:PARAMETER=VALUE,...")
    add_options(several, CompareOptions, {"n_neighbors": ("", "neighbours that the scores look at")})
    several.set_defaults(run=asking(_compare))


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="FILE_OR_ID", help="a csv, npy or json file, or the id of a data set")
    parser.add_argument("--labels", metavar="FILE_OR_ID", help="the class of each point, a column")
    parser.add_argument("--truth", metavar="FILE_OR_ID", help="the true coordinates; of a synthetic data set its id")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds to wait; the job goes on")


def _pair(text: str) -> tuple[str, Any]:
    """Return the name and the value of a parameter: JSON, or a word."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _method(text: str) -> dict[str, Any]:
    name, _, parameters = text.partition(":")
    return {"method": name, "parameters": dict(_pair(part) for part in parameters.split(",") if part)}


def _data(glle: Client, text: str | None) -> Any:
    """Return what a file or an id stands for."""
    if text is None or (text.startswith("ds_") and not Path(text).exists()):
        return text
    return glle.dataset(Path(text))


def _methods(chosen: argparse.Namespace, glle: Client) -> int:
    return tell_all(chosen, glle.methods(**given(chosen, MethodsOptions)), _COLUMNS)


def _embed(chosen: argparse.Namespace, glle: Client) -> int:
    if chosen.out is not None and chosen.out.suffix != ".npy":
        raise ValueError(f"{chosen.out} is to be an npy file: name it {chosen.out.with_suffix('.npy')}.")
    if taken := {name for name, _ in chosen.set} & {"labels", "truth", "scores", "score_neighbors", "timeout"}:
        raise ValueError(f"{', '.join(sorted(taken))} is no parameter of a method: see the options of this command.")
    found = glle.embed(
        _data(glle, chosen.data),
        chosen.method,
        labels=_data(glle, chosen.labels),
        truth=_data(glle, chosen.truth),
        scores=chosen.scores,
        timeout=chosen.timeout,
        **dict(chosen.set),
    )
    if chosen.out is not None:
        import numpy as np  # noqa: PLC0415 # `glle worker` pins BLAS threads before numpy is imported

        np.save(chosen.out, found.embedding)
    lines = [f"{found.id}  {found.n:,} points by {found.method} in {sum(found.seconds.values()):.2f} s"]
    lines += [f"  {name} {value:.4g}" for name, value in found.told.get("scores", {}).items()]
    lines += [f"  {note['message']}" for note in found.notes]
    return tell(chosen, found.told, "\n".join(lines))


def _compare(chosen: argparse.Namespace, glle: Client) -> int:
    found = glle.compare(
        _data(glle, chosen.data),
        chosen.methods,
        labels=_data(glle, chosen.labels),
        truth=_data(glle, chosen.truth),
        timeout=chosen.timeout,
        **given(chosen, CompareOptions),
    )
    names = list(dict.fromkeys(name for row in found.rows for name in row["scores"] or {}))
    columns: dict[str, Any] = {"method": lambda row: row["label"]}
    columns |= {name: lambda row, name=name: _number((row["scores"] or {}).get(name)) for name in names}
    columns["seconds"] = lambda row: _number(sum(row["seconds"].values()) if row["seconds"] else None)
    columns["told"] = lambda row: " ".join(
        [f"{row['problem']['detail']} {row['problem']['remedy']}"]
        if row["problem"]
        else [note["message"] for note in row["notes"]]
    )
    return tell_all(chosen, found.rows, columns)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
