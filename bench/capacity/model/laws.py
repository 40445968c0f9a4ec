"""Admissible terms of each cost, and the laws fitted to the measurements."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bench.capacity.model.cost_law import Law
from bench.capacity.model.fitting import fitted
from bench.capacity.model.queueing_model import METERS, Model, Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]

_DRAW = ("1", "n", "n k", "n k^2", "n k log(n)", "n k^2 log(n)", "n p", "n p log(n)", "n k p")
ENGINE: dict[str, tuple[str, ...]] = {
    "fit_neighbors": ("1", "n", "n log(n)", "n k", "n d", "n k d"),
    "fit_weights": ("1", "n", "n k", "n k^2", "n k^3", "n k d", "n k^2 d"),
    "fit_embedding": ("1", "n", "n log(n)", "n k", "n k^2", "n k log(n)", "n k^2 log(n)", "n p", "n k p", "n p log(n)"),
    "fit_posterior": ("1", "n", "n k", "n k^2", "n k^3", "n k d"),
    "fit_diagnostics": ("1", "n", "n k", "n k^2", "n k d", "n d", "d"),
    "analysis": ("1", "n", "n k", "n k^2", "n k log(n)", "n k^2 log(n)"),
    "lane": _DRAW,
    "single": _DRAW,
    "posterior_bytes": ("1", "n", "n k", "n k^2", "n p"),
    "fit_bytes": ("1", "n", "n k", "n k^2", "n d", "n k d", "n p"),
}
MEDIA = ("npy", "json", "csv")
ASKED = ("upload", "poll", "describe", "list", "ready")
# Smaller costs count as zero: one clock tick of the processor, one heartbeat in between.
MIN_COST = {
    "worker_cpu": 2e-3, "api_cpu": 2e-4, "queue_cpu": 2e-5, "cache_cpu": 2e-5, "queue_commands": 0.2, "queue_in": 100,
    "queue_out": 3000, "queue_aof": 100, "cache_commands": 0.2, "cache_in": 100, "cache_out": 3000,
}  # fmt: skip

SERVERS = tuple(meter for meter in METERS if meter.startswith(("queue", "cache")))


def terms(operation: str, meter: str) -> tuple[str, ...]:
    """Return the admissible terms of an operation's cost at a meter."""
    what, station = operation.partition(" ")[0], meter.partition("_")[0]
    if what == "job":
        by_station = {
            "worker": ("engine", "tasks", "draws", "drawn"), "api": ("1", "draws"),
            "queue": ("1", "tasks", "draws"), "cache": ("tasks", "draws", "drawn"),
        }  # fmt: skip
        return by_station[station]
    by_station = {"worker": (), "api": ("1", "bytes"), "queue": ("1",), "cache": ("1",)}
    if what == "fit":
        by_station |= {"worker": ("engine", "1", "posterior"), "api": ("1",), "cache": ("1", "posterior")}
    elif what == "first":
        by_station |= {"worker": ("engine", "1", "drawn"), "cache": ("1", "drawn")}
    elif what == "cached":
        by_station |= {"cache": ("1", "drawn")}
    elif what == "result":
        by_station |= {"api": ("1", "draws", "bytes"), "cache": ("draws", "drawn")}
    return by_station[station]


def model(engine: Sequence[Row], service: dict[str, list[Row]], machine: dict[str, Any]) -> dict[str, Any]:
    """Return the model as a JSON-able dictionary."""
    laws = {name: fitted(engine, name, allowed) for name, allowed in ENGINE.items()}
    draws = [row | {"bytes_of": row["draw_cached"]} for row in service["cached"]]
    laws["draw_cached"] = fitted(draws, "bytes_of", ("1", "n p"))
    laws["posterior_cached"] = fitted(service["cached"], "posterior_cached", ("1", "n", "n k^2"))
    operations = _prepared(service["operations"], Model(laws, {}, machine))
    for media in MEDIA:
        rows = [row for row in operations if row["operation"] == f"cached {media}"]
        laws[f"bytes {media}"] = fitted(rows, "bytes", ("1", "n", "n p"))
    kinds = sorted({row["operation"] for row in operations} - {"idle"})
    for kind in kinds:
        rows = [row for row in operations if row["operation"] == kind]
        for meter in METERS:
            law = fitted(rows, meter, terms(kind, meter), MIN_COST[meter]) if rows else Law(terms={})
            laws[f"{kind} {meter}"] = law
    return {"machine": machine, "laws": {name: asdict(law) for name, law in laws.items()}, "sizes": _sizes(service)}


def _prepared(rows: Sequence[Row], engine: Model) -> list[Row]:
    """Return the operations with the factors of their costs."""
    found = []
    # An API process with the answer in memory sends no command; the counted one is the meter's.
    memory_reads = [row for row in rows if row["operation"].startswith("kept")]
    own = {what: statistics.median(row[what] * row["times"] for row in memory_reads) for what in SERVERS}
    for result in rows:
        if result["operation"] == "idle":
            continue
        row = result | {what: result[what] - own[what] / result["times"] for what in SERVERS}
        shape = Shape(n=row["n"], k=row["k"], p=row["p"], d=row["d"])
        draws = row.get("draws", 1)
        seconds = engine.fit_seconds(shape) if row["operation"] == "fit" else draws * engine.engine("lane", shape)
        more = {"drawn": 8 * shape.n * shape.p * draws, "posterior": engine.engine("posterior_bytes", shape)}
        found.append({"draws": draws, "bytes": 0.0, **row, "engine": seconds, **more})
    return found


def _sizes(service: dict[str, list[Row]]) -> dict[str, float]:
    """Return the constants: an idle worker's commands, records, processes."""
    idle = next(row for row in service["operations"] if row["operation"] == "idle")
    found = {f"idle_{meter}": idle[meter] for meter in ("queue_commands", "queue_cpu", "worker_cpu")}
    found |= dict(service["processes"][0])
    for row in service["keys"]:
        if row["server"] == "queue":
            found[f"key {row['kind']}"] = row["bytes"]
    return {name: float(f"{value:.4g}") for name, value in sorted(found.items())}
