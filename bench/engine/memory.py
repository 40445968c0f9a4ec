"""Peak memory of a fit, each in a separate process, and figures at a million points."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.data import data_of
from bench.engine.peers import fit_sklearn
from bench.report import Row
from glle_engine import fit
from glle_engine.linalg import LANES

if TYPE_CHECKING:
    from collections.abc import Iterator

N = 100_000
MILLION = 1_000_000
GIB = 2**30


def rows(*, million: bool) -> Iterator[Row]:
    """Measure memory at 100,000 points, and all figures at a million."""
    ours, theirs = (run_apart(__name__, library, N) for library in ("glle", "sklearn"))
    detail = {"ours MiB": ours["extra"] / 2**20, "theirs MiB": theirs["extra"] / 2**20}
    yield Row(
        f"memory of a fit, swiss_roll, n = {N:,}",
        "scikit-learn's (eigsh)",
        ours["extra"] / theirs["extra"],
        "x",
        1 / 3,
        at_least=False,
        detail=detail,
    )
    if million:
        result = run_apart(__name__, "glle", MILLION)
        detail = {"first draws s": result["first"]}
        what = f"swiss_roll, n = {MILLION:,}"
        yield Row(
            f"peak memory of a fit and draws, {what}",
            "-",
            result["peak"] / GIB,
            "GiB",
            8.0,
            at_least=False,
            detail=detail,
        )
        yield Row(f"fit of a posterior, {what}", "-", result["fit"], "s", 60.0, at_least=False)
        yield Row(f"one draw of many, {what}", "-", result["draw"], "s", 4.0, at_least=False)


def run_apart(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module of the benchmark in a separate process; return the JSON that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)  # noqa: S603 # own modules
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def peak_bytes() -> int:
    """Return the peak memory of this program; `ru_maxrss` may include the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(library: str, n: int) -> None:
    """Fit once, and print the peak memory above the initial use."""
    small = data_of("swiss_roll", 500)
    (fit if library == "glle" else fit_sklearn)(small)  # imports are not counted
    X = data_of("swiss_roll", n)
    before, started = peak_bytes(), time.perf_counter()
    if library == "sklearn":
        fit_sklearn(X)
        fields = {"fit": time.perf_counter() - started, "extra": peak_bytes() - before}
    else:
        posterior = fit(X, n_neighbors=10)
        fields = {"fit": time.perf_counter() - started, "extra": peak_bytes() - before}
        lanes = LANES if posterior.lane_solver else 1
        for name, first in (("first", 0), ("draw", lanes)):  # the first draw analyses the pattern and allocates
            started = time.perf_counter()
            for _ in posterior.draws(lanes, first=first):
                pass
            fields[name] = (time.perf_counter() - started) / (1 if name == "first" else lanes)
    print(json.dumps({**fields, "peak": peak_bytes()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
