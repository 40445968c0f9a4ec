"""Measure costs, fit the model, simulate, and write docs/how-to/scaling.md: all parts, or some."""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.capacity import picture, scenarios, tables
from bench.capacity.measure import engine, limits, operations
from bench.capacity.model import laws, validation
from bench.capacity.model.queueing_model import MEASURED, Model
from bench.report.machine import machine
from docs.figures.methods.tables import put

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTS = ("engine", "service", "fit", "limits", "simulation", "validation", "page")
RAW = Path("out/capacity")
PICTURE = tables.PAGE.parents[1] / "images" / "scaling.png"
MANY = (1_000_000, 1_000, 100_000)  # posteriors, workers, data sets


def main() -> None:
    """Run the selected parts in order; measurements are stored in out/capacity/."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="parts to run (all)")
    parser.add_argument("--largest", type=int, default=50_000, help="largest number of points (%(default)s)")
    parser.add_argument("--many", type=int, nargs=3, default=MANY, help="posteriors, workers, data sets (%(default)s)")
    options = parser.parse_args()
    RAW.mkdir(parents=True, exist_ok=True)
    if "engine" in options.parts:
        _store("engine", _print_rows(engine.rows(options.largest)))
    if "service" in options.parts:
        _store("service", operations.measured(options.largest))
    if "fit" in options.parts:
        MEASURED.write_text(json.dumps(laws.model(_stored("engine"), _stored("service"), machine()), indent=1) + "\n")
    if "limits" in options.parts:
        _result("limits", _print_rows(asdict(question) for question in limits.questions(*options.many)))
    if "simulation" in options.parts:
        _result("simulation", _print_rows(asdict(result) for result in scenarios.results(Model.read())))
    if "validation" in options.parts:
        _result("validation", _print_rows(asdict(one) for one in validation.compared(Model.read())))
    if "page" in options.parts:
        for name, table in tables.tables().items():
            put(tables.PAGE, name, table)
        picture.draw(tables.read()[1]["simulation"], PICTURE)


def _print_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print each row and return all rows."""
    printed = []
    for row in rows:
        print(json.dumps(row), flush=True)
        printed.append(row)
    return printed


def _store(name: str, result: object) -> None:
    (RAW / f"{name}.json").write_text(json.dumps(result))


def _stored(name: str) -> Any:
    return json.loads((RAW / f"{name}.json").read_text())


def _result(name: str, rows: list[dict[str, Any]]) -> None:
    """Store a result that the page shows beside the model."""
    known = json.loads(tables.RESULTS.read_text()) if tables.RESULTS.exists() else {}
    rounded = json.loads(json.dumps(rows), parse_float=lambda text: float(f"{float(text):.4g}"))
    tables.RESULTS.write_text(json.dumps({**known, name: rounded}, indent=1) + "\n")


if __name__ == "__main__":
    main()
