"""Estimates of fits and draws beside their measured time and memory: `python -m bench.engine.estimates`.

One process for each data set. Processor seconds of one thread, so that other work on the machine counts less.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.data import data_of, neighbors_of
from bench.engine.memory import peak_bytes
from bench.report import run_apart
from glle_engine import fit
from glle_engine.linalg import LANES
from glle_engine.posterior.cost.estimate import estimate

SETS = (
    ("cube-2", 5_000),
    ("cube-3", 5_000),
    ("cube-5", 5_000),
    ("cube-8", 3_000),
    ("gaussian-20", 3_000),
    ("rank-10", 3_000),
    ("digits", 1_797),
    ("swiss_roll", 5_000),
    ("swiss_roll", 20_000),
    ("swiss_roll", 100_000),
    ("patches", 20_000),
    ("cube-3-50", 100_000),
    ("swiss_roll", 1_000_000),
)
FIGURES = ("fit", "draw", "single draw", "bytes of fit", "bytes of both")


def measure(name: str, n: int) -> dict[str, Any]:
    """Return the estimated and the measured figures of one set; memory is above that before the fit."""
    for small in (data_of("swiss_roll", 500), np.random.default_rng(1).normal(size=(500, 20))):
        list(fit(small).draws(LANES))  # loads the compiled code of both searches
        estimate(small)
    X, k = data_of(name, n), neighbors_of(name)
    before = peak_bytes()
    posterior, fitted = _time_call(lambda: fit(X, n_neighbors=k, landmarks="all"))
    fit_bytes = peak_bytes() - before
    list(posterior.draws(LANES))  # analyses the pattern
    _, single = _time_call(lambda: list(posterior.draws(1, first=LANES)))
    many = [_time_call(partial(list, posterior.draws(LANES, first=LANES * i)))[1] / LANES for i in range(3)]
    peak = peak_bytes() - before
    expected, spent = _time_call(lambda: estimate(X, n_neighbors=k, landmarks="all"))
    costs = [expected.fit.seconds, expected.draw.seconds, expected.single_draw_seconds]
    return {
        "seconds of the estimate": spent,
        "dimension": expected.factorization.dimension,
        "estimated": [*costs, expected.fit.bytes, max(expected.fit.bytes, expected.draw.bytes)],
        "measured": [fitted, statistics.median(many), single, fit_bytes, peak],
    }


def _time_call(function: Any) -> tuple[Any, float]:
    started = time.process_time()
    result = function()
    return result, time.process_time() - started


def main() -> None:
    """Print a table: for each set estimated / measured figures and their ratio; and the speed of this machine.

    The estimates are those of one machine. The service's safety factor should cover a slower one.
    """
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
        return
    table = Table("data", "n", "k", "dimension", "estimate, s", *FIGURES, title="estimated / measured = ratio")
    slower: list[float] = []
    for name, n in SETS:
        found = run_apart("bench.engine.estimates", name, n)
        pairs = list(zip(found["estimated"], found["measured"], strict=True))
        slower += [actual / expected for expected, actual in pairs[:3]]
        cells = []
        for figure, (expected, actual) in zip(FIGURES, pairs, strict=True):
            scale, unit = (2**-20, "MiB") if figure.startswith("bytes") else (1e3, "ms")
            cells.append(f"{expected * scale:,.3g} / {actual * scale:,.3g} {unit} = {expected / max(actual, 1e-9):.2f}")
        spent, dimension = found["seconds of the estimate"], found["dimension"]
        table.add_row(name, f"{n:,}", str(neighbors_of(name)), f"{dimension:.1f}", f"{spent:.3f}", *cells)
    console = Console(width=200)
    console.print(table)
    console.print(f"Seconds on this machine: {statistics.median(slower):.2f} x the estimated ones, in the median.")


if __name__ == "__main__":
    main()
