"""Residual variance of Isomap with and without short circuits: a table of docs/reference/methods.md.

`python -m docs.figures.short_circuits` prints it in two minutes on one core.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

from typing import TYPE_CHECKING

import numpy as np

from glle_engine import manifolds
from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import method
from glle_engine.reliability.short_circuits import residuals

if TYPE_CHECKING:
    from collections.abc import Iterator

POINTS, SEEDS, NOISES = 500, range(5), (0.0, 0.02)
NEIGHBORS = (5, 6, 7, 8, 10, 12, 15, 20)
SHEETS = {"swiss_roll": "Swiss roll", "s_curve": "S-curve", "severed_bowl": "bowl", "swiss_roll_hole": "roll with hole"}


def count_short_circuits(name: str, seed: int, noise: float) -> Iterator[tuple[int, float]]:
    """Yield the number of short circuits and the residual variance of each connected graph of a sheet."""
    sheet = manifolds.make(name, POINTS, noise=noise, seed=seed)
    arc, isomap = sheet.coordinates[:, 0], method("isomap")
    turn = 20 if name.startswith("swiss_roll") else np.pi  # one turn is at least 49 long
    for k in NEIGHBORS:
        try:
            Y = isomap.embed(sheet.X, isomap.spec(n_neighbors=k)).Y
        except DisconnectedGraphError:
            continue
        jumps = np.abs(arc[kneighbors(sheet.X, k)[0]] - arc[:, None]) > turn
        yield int(jumps.sum()), residuals(sheet.X, k, [Y])[0]


def row(title: str, graphs: list[tuple[int, float]]) -> str:
    """Return the row of a sheet: graphs without short circuits with the largest variance, with them the smallest."""
    without = [variance for jumps, variance in graphs if not jumps]
    shorted = [variance for jumps, variance in graphs if jumps]
    most, least = (f"{of(part):.3f}"[1:] if part else "" for of, part in ((max, without), (min, shorted)))
    return f"| {title} | {len(without)} | {most} | {len(shorted)} | {least} |"


def main() -> None:
    """Print the table."""
    print("| sheet | graphs without short circuits | largest | graphs with | smallest |\n|---|---|---|---|---|")
    for name, title in SHEETS.items():
        graphs = [graph for noise in NOISES for seed in SEEDS for graph in count_short_circuits(name, seed, noise)]
        print(row(title, graphs), flush=True)


if __name__ == "__main__":
    main()
