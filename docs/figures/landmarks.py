"""Tables of docs/explanation/spread.md: fits of some points, the landmarks, compared with fits of all points.

`python -m docs.figures.landmarks million` measures time and memory at a million points instead.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from bench.data import data_of, neighbors_of
from glle_engine import FitSpec, fit
from glle_engine.base.progress import StageClock
from glle_engine.linalg.procrustes import disparity
from glle_engine.linalg.rank_correlation import rank_correlation
from glle_engine.metrics.ranks import trustworthiness

SETS = (("swiss_roll", 5_000, 2), ("cube-3", 5_000, 3), ("digits", 1_797, 2))
SHARES = (20, 10, 4)
DRAWS = 40
MILLION, LANDMARKS = 1_000_000, 10_000


def quality(name: str, n: int, p: int) -> None:
    """Print a row of the table for a fit of all points, and one for each number of landmarks."""
    X, k = data_of(name, n), neighbors_of(name)
    spec = FitSpec(n_neighbors=k, n_components=p, disconnected="bridge")
    whole = fit(X, spec)
    spread = whole.summary(DRAWS).spread
    print(f"| {name} | all {n:,} | {trustworthiness(X, whole.embedding, k):.3f} | 0 | 1 | 1 | 1 |", flush=True)
    for share in SHARES:
        marked = fit(X, spec, landmarks=n // share)
        assert marked.placement is not None
        landmark_spread, others = marked.summary(DRAWS).spread, marked.placement.others
        centered = marked.embedding - marked.embedding.mean(axis=0)
        figures = (
            trustworthiness(X, marked.embedding, k),
            disparity(centered, whole.embedding),
            rank_correlation(landmark_spread, spread),
            np.median(landmark_spread) / np.median(spread),
            np.median(landmark_spread[others]) / np.median(landmark_spread[marked.placement.landmarks]),
        )
        cells = " | ".join(f"{figure:.3f}" for figure in figures)
        print(f"| {name} | {n // share:,} (n / {share}) | {cells} |", flush=True)


def million() -> None:
    """Print the processor seconds of a fit of a million points by stage, of one and of four draws, and peak memory."""
    for small in (1_000, 2_000):
        list(
            fit(data_of("cube-3-50", small), landmarks=small // 2, n_components=3, n_neighbors=10).draws(4)
        )  # loads compiled code
    X = data_of("cube-3-50", MILLION)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock, started = StageClock(clock=time.process_time), time.process_time()
    posterior = fit(X, on_progress=clock, landmarks=LANDMARKS, n_components=3, n_neighbors=10)
    spent = {stage: round(seconds, 1) for stage, seconds in clock.stop().items()}
    print(f"fit {time.process_time() - started:.1f} s, {spent}", flush=True)
    list(posterior.draws(1))  # analyses the pattern
    for count in (1, 4):
        started = time.process_time()
        list(posterior.draws(count, first=4))
        print(f"{count} draws: {time.process_time() - started:.1f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak {peak / 2**20:.2f} GiB, {before / 2**20:.2f} GiB before the fit")


def main() -> None:
    """Print the table, or with the argument `million` the time and memory at a million points."""
    if "million" in sys.argv[1:]:
        million()
        return
    print("| data | landmarks | trust | disparity | rank correlation of spread | spread | spread of placed points |")
    print("|---|---|---|---|---|---|---|")
    for name, n, p in SETS:
        quality(name, n, p)


if __name__ == "__main__":
    main()
