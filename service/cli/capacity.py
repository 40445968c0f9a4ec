"""`glle capacity`: what a demand needs, by the costs that were measured (docs/how-to/scaling.md)."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from bench.capacity.model.plan import BUSY, Demand, Plan, plan
from bench.capacity.model.queueing_model import Model, Shape

if TYPE_CHECKING:
    from worker.base.settings import Settings

_MANY = 2  # points, neighbours and features without which there is nothing to fit


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `glle`."""
    command = commands.add_parser("capacity", help="say what a demand needs: workers, API processes, memory")
    for name, default, told in (
        ("n", 5_000, "points of a data set"),
        ("d", 3, "features"),
        ("k", 10, "neighbours"),
        ("p", 2, "dimensions of the embedding"),
        ("draws-per-job", 64, "draws of a job"),
        ("posteriors", 0, "posteriors that are to stay in the cache"),
        ("draws-kept", 0, "draws of each that are to stay there"),
    ):
        least = 0 if default == 0 else _MANY if name in {"n", "k"} else 1
        command.add_argument(f"--{name}", type=_whole(least), default=default, help=f"{told} (%(default)s)")
    for name, told in (
        ("fits", "new data sets, uploaded and fitted"),
        ("draws", "draws in jobs, their results read"),
        ("singles", "single draws that nobody asked for before"),
        ("reads", "single draws that are in the cache"),
        ("kept", "single draws that an API process has at hand"),
    ):
        command.add_argument(f"--{name}-per-second", type=_rate, default=0.0, help=f"{told} (%(default)g)")
    command.add_argument("--json", action="store_true", help="the figures as JSON")
    command.set_defaults(run=_run)


def _run(chosen: argparse.Namespace, settings: Settings) -> int:
    del settings  # a demand is of no deployment
    demand = Demand(
        shape=Shape(n=chosen.n, d=chosen.d, k=chosen.k, p=chosen.p),
        fits=chosen.fits_per_second,
        draws=chosen.draws_per_second,
        singles=chosen.singles_per_second,
        reads=chosen.reads_per_second,
        kept=chosen.kept_per_second,
        job=chosen.draws_per_job,
        posteriors=chosen.posteriors,
        draws_kept=chosen.draws_kept,
    )
    found = plan(Model.read(), demand)
    told = json.dumps(asdict(found), indent=1) if chosen.json else "\n".join(lines(demand, found))
    print(told)  # noqa: T201 # the command's output
    return 0


def lines(demand: Demand, found: Plan) -> list[str]:
    """Return a plan in words."""
    first = found.stations[0]
    rows = [
        ("workers", f"{found.workers:,}, for {found.cost.worker_cpu:,.2f} processor seconds a second"),
        ("API processes", f"{found.api:,}, for {found.cost.api_cpu:,.2f}"),
        *((one.name, f"{one.busy:.1%} ({one.what})") for one in found.stations),
        ("cache memory", f"{_bytes(found.cache_bytes)} for {demand.posteriors:,} posteriors"),
        ("queue memory", f"{_bytes(found.queue_bytes)} of records, jobs kept for a week"),
        ("queue log", f"{_bytes(found.cost.queue_aof)} a second, until it is rewritten"),
        ("data sets", f"{_bytes(found.disk_bytes * 86400)} a day"),
    ]
    width = max(len(name) for name, _ in rows)
    said = [f"{name:{width}}  {what}" for name, what in rows]
    if not found.cost.worker_cpu + found.cost.api_cpu:
        return [*said, "Nothing is asked for: give a rate, such as --draws-per-second 200."]
    more = f"it is full at {1 / first.busy:,.1f} times this demand"
    if found.fits:
        return [*said, f"Full first, of what there is one: the {first.name}; {more}."]
    return [*said, f"Too much for one {first.name}: {more}, planned for {BUSY:.0%} of it. See docs/how-to/scaling.md."]


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"


def _whole(least: int) -> type[int]:
    """Return a type of whole numbers from a least one on, as argparse takes it."""

    def parsed(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}")
        return value

    parsed.__name__ = "whole number"
    return parsed  # type: ignore[return-value] # a function that makes one


def _rate(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no rate: give a number of 0 or more")
    return value
