"""Compute the workers, API processes and memory for a demand, from the measured costs (docs/how-to/scaling.md).

Run it as `python -m bench.capacity.demand --n 5000 --draws-per-second 200`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from bench.capacity.model.plan import BUSY, Demand, Plan, plan
from bench.capacity.model.queueing_model import Model, Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

# Option, least value, default, help.
_SIZES = (
    ("n", 2, 5_000, "points of a data set"),
    ("d", 1, 3, "features"),
    ("k", 2, 10, "neighbors"),
    ("p", 1, 2, "dimensions of the embedding"),
    ("draws-per-job", 1, 64, "draws per job"),
    ("posteriors", 0, 0, "posteriors to keep in the cache"),
    ("draws-kept", 0, 0, "draws of each posterior to keep in the cache"),
)
_RATES = (
    ("fits", "new data sets, uploaded and fitted"),
    ("draws", "draws in jobs, with their results read"),
    ("singles", "single draws that are not in the cache"),
    ("reads", "single draws that are in the cache"),
    ("kept", "single draws that the API process has in memory"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan for a demand; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.demand", description=__doc__)
    for name, least, default, text in _SIZES:
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text}, {least} or more (%(default)s)")
    for name, text in _RATES:
        parser.add_argument(f"--{name}-per-second", type=float, default=0.0, help=f"{text} (%(default)g)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    values = vars(options)
    for name, least, *_ in _SIZES:
        if (size := values[name.replace("-", "_")]) < least:
            parser.error(f"--{name} {size} is too small. Give {least} or more.")
    for name, _ in _RATES:
        if not 0 <= (rate := values[f"{name}_per_second"]) < float("inf"):
            parser.error(f"--{name}-per-second {rate} is not a rate. Give a number of 0 or more.")
    demand = Demand(
        shape=Shape(n=options.n, d=options.d, k=options.k, p=options.p),
        job=options.draws_per_job,
        posteriors=options.posteriors,
        draws_kept=options.draws_kept,
        **{name: values[f"{name}_per_second"] for name, _ in _RATES},
    )
    result = plan(Model.read(), demand)
    print(json.dumps(asdict(result), indent=1) if options.json else "\n".join(lines(demand, result)))
    return 0


def lines(demand: Demand, result: Plan) -> list[str]:
    """Return a plan as lines of text."""
    first = result.stations[0]
    rows = [
        ("workers", f"{result.workers:,}, for {result.cost.worker_cpu:,.2f} processor seconds a second"),
        ("API processes", f"{result.api:,}, for {result.cost.api_cpu:,.2f}"),
        *((station.name, f"{station.busy:.1%} ({station.what})") for station in result.stations),
        ("cache memory", f"{_bytes(result.cache_bytes)} for {demand.posteriors:,} posteriors"),
        ("queue memory", f"{_bytes(result.queue_bytes)} of records, jobs kept for a week"),
        ("queue log", f"{_bytes(result.cost.queue_aof)} a second, until it is rewritten"),
        ("data sets", f"{_bytes(result.disk_bytes * 86400)} a day"),
    ]
    width = max(len(name) for name, _ in rows)
    text = [f"{name:{width}}  {value}" for name, value in rows]
    if not result.cost.worker_cpu + result.cost.api_cpu:
        return [*text, "The demand is empty. Give a rate, such as --draws-per-second 200."]
    headroom = f"it is full at {1 / first.busy:,.1f} times this demand"
    if result.fits:
        return [*text, f"Full first: the {first.name}; {headroom}."]
    return [
        *text,
        f"Too much for one {first.name}: {headroom}; plan for {BUSY:.0%} of that. See docs/how-to/scaling.md.",
    ]


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"


if __name__ == "__main__":
    raise SystemExit(main())
