"""Time of each stage of a draw and of a fit, by number of points."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from bench.data import data_of, neighbors_of, posterior_of
from glle_engine import fit
from glle_engine.base.progress import StageClock
from glle_engine.linalg import LANES

if TYPE_CHECKING:
    from rich.console import Console

SIZES = [
    ("swiss_roll", 2_000),
    ("swiss_roll", 5_000),
    ("digits", 1_797),
    ("swiss_roll", 20_000),
    ("swiss_roll", 100_000),
]


def profile(largest: int) -> list[dict[str, Any]]:
    """Return the seconds of a fit and of a draw by stage, for data sets of up to `largest` points."""
    profiles = []
    for name, n in [size for size in SIZES if size[1] <= largest]:
        clock = StageClock()
        fit(data_of(name, n), n_neighbors=neighbors_of(name), landmarks="all", on_progress=clock)
        profiles.append({"data": name, "n": n, "what": "fit", "seconds": clock.stop()})
        profiles.append({"data": name, "n": n, "what": "draw", "seconds": draw_stages(name, n)})
    return profiles


def draw_stages(name: str, n: int, batches: int = 7) -> dict[str, float]:
    """Return the median seconds of each stage of a draw, when several draws are computed together."""
    from glle_engine.eigen.batched.factorization import factorize
    from glle_engine.eigen.batched.lanczos import Workspace, lanczos
    from glle_engine.eigen.batched.solver import LANE_TOLERANCE, LaneSolver, deviations
    from glle_engine.weights.gaussian import sample, unpack

    posterior = posterior_of(name, n)
    started = time.perf_counter()
    LaneSolver.prepare(posterior.eigenproblem.pattern.structure, posterior.pins, posterior.embedding)
    symbolic = time.perf_counter() - started
    solver = posterior.lane_solver
    assert solver is not None
    lanes, structure = LANES, solver.structure
    room = Workspace.for_structure(structure, solver.wanted)
    mean, factor = posterior.distribution.gaussian("posterior")
    pins, rows = np.full(lanes, solver.pin, np.int32), np.arange(n, dtype=np.int32)
    vectors = np.empty((lanes, n, solver.wanted))
    times: list[dict[str, float]] = []
    for batch in range(batches + 1):
        indices = np.arange(batch * lanes, (batch + 1) * lanes, dtype=np.uint64)
        keys, spread = np.zeros(lanes, np.uint64), np.ones(lanes)
        clock = StageClock()
        sample(room.tag, rows, structure.position, 0, mean, factor, keys, indices, spread, room.normals, room.weights)
        clock(1, 1, "sample")
        factorize(room.tag, room.words, room.weights, pins, room.lower, room.upper, room.blocks, room.scratch)
        clock(1, 1, "factor")
        lanczos(room, pins, True, solver.start, LANE_TOLERANCE)  # noqa: FBT003
        clock(1, 1, "lanczos")
        deviations(room, structure.neighbors)
        clock(1, 1, "acceptance")
        unpack(structure.position, room.vectors, vectors)
        clock(1, 1, "unpack")
        list(posterior.draws(lanes, first=batch * lanes))
        clock(1, 1, "whole")
        times.append(clock.seconds)
    seconds_of_stages = {stage: statistics.median(each[stage] for each in times[1:]) / lanes for stage in times[0]}
    inner = sum(value for stage, value in seconds_of_stages.items() if stage != "whole")
    # Scaling, alignment and diagnostics are the difference between a whole draw and its compiled stages.
    return {**seconds_of_stages, "finish": max(0.0, seconds_of_stages["whole"] - inner), "symbolic, once": symbolic}


def print_profile(console: Console, profiles: list[dict[str, Any]]) -> None:
    """Print what `profile` returned as tables in milliseconds."""
    for what in ("draw", "fit"):
        entries = [entry for entry in profiles if entry["what"] == what]
        if not entries:
            continue
        names = list(entries[0]["seconds"])
        table = Table(
            "data", "n", *names, title=f"a {what} of many, ms by stage" if what == "draw" else "a fit, ms by stage"
        )
        for entry in entries:
            table.add_row(
                entry["data"], f"{entry['n']:,}", *(f"{entry['seconds'].get(name, 0.0) * 1e3:,.3g}" for name in names)
            )
        console.print(table)
