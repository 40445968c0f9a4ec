"""Peak memory of fits, each in a process of its own, and time and memory at a million points."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import TYPE_CHECKING

from bench.data import data_of
from bench.engine.peers import fit_sklearn
from bench.report import at_most, run_apart
from glle_engine import Posterior, fit
from glle_engine.linalg import LANES
from qa.frame import memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report import Row

N = 100_000
MILLION = 1_000_000
GIB = 2**30


def rows(*, million: bool) -> Iterator[Row]:
    """Yield the memory of a fit of 100,000 points; with `million`, also time and memory at a million points."""
    ours, theirs = (run_apart(__name__, library, N) for library in ("glle", "sklearn"))
    work, ratio = f"memory of a fit, swiss_roll, n = {N:,}", ours["extra"] / theirs["extra"]
    detail = {"ours MiB": ours["extra"] / 2**20, "theirs MiB": theirs["extra"] / 2**20}
    yield at_most(work, ratio, "x", 1 / 3, "scikit-learn's (eigsh)", **detail)
    if million:
        result = run_apart(__name__, "glle", MILLION)
        what, detail = f"swiss_roll, n = {MILLION:,}", {"first draws s": result["first"]}
        yield at_most(f"peak memory of a fit and draws, {what}", result["peak"] / GIB, "GiB", 8.0, **detail)
        yield at_most(f"fit of a posterior, {what}", result["fit"], "s", 60.0)
        yield at_most(f"one draw of many, {what}", result["draw"], "s", 4.0)


def peak_bytes() -> int:
    """Return the peak memory of this program in bytes: VmHWM, or else `ru_maxrss`, which may include the parent's."""
    return memory("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(library: str, n: int) -> None:
    """Fit once by a library ("glle" or "sklearn"), and print time and peak memory as JSON.

    `extra` is the peak above the memory before the fit, so that imports and data do not count.
    """
    small = data_of("swiss_roll", 500)
    (fit if library == "glle" else fit_sklearn)(small)  # imports are not counted
    X = data_of("swiss_roll", n)
    before, started = peak_bytes(), time.perf_counter()
    posterior = fit(X, n_neighbors=10, landmarks="all") if library == "glle" else fit_sklearn(X)
    fields = {"fit": time.perf_counter() - started, "extra": peak_bytes() - before}
    if isinstance(posterior, Posterior):
        lanes = LANES if posterior.lane_solver else 1
        for name, first in (("first", 0), ("draw", lanes)):  # the first draw analyses the pattern and allocates
            started = time.perf_counter()
            for _ in posterior.draws(lanes, first=first):
                pass
            fields[name] = (time.perf_counter() - started) / (1 if name == "first" else lanes)
    print(json.dumps({**fields, "peak": peak_bytes()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
