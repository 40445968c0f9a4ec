"""`make bench`: measure speed and memory against goals and against other libraries, and write out/bench/."""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench.engine import audits, draws, fits, memory, million, orders, stages
from bench.report import HEAD, compare, machine, print_table, show
from bench.service import cached, concurrency, start, uncached
from bench.service.deployment import running_service
from docs.figures.methods.tables import table
from qa.frame import write_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report import Row

WORKERS = 1  # of the service; on two cores the other one has the API process, the servers and the clients
PARTS = ("draws", "fits", "audits", "parallel", "serving", "memory", "stages")


def main() -> None:
    """Run the parts that the command line names, print a table, and write the results to the folder of `--out`."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="parts to measure (all)")
    parser.add_argument("--largest", type=int, default=1_000_000, help="largest number of points (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of the results (%(default)s)")
    parser.add_argument("--compare", type=Path, help="results.json of an earlier run to compare with")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn|scipy")  # the peer's threads
    console = Console(width=200 if not Console().is_terminal else None)
    result = machine()
    console.print(result)
    rows: list[Row] = []
    for row in _rows(options.parts, options.largest):
        show(console, row)
        rows.append(row)
    profile = stages.profile(min(options.largest, 100_000)) if "stages" in options.parts else []
    print_table(console, rows)
    stages.print_profile(console, profile)
    if options.compare:
        compare(console, options.compare, rows)
    report = {"machine": result, "rows": [asdict(row) for row in rows], "stages": profile}
    write_report(options.out / "results.json", report)
    text = table(HEAD, [row.cells() for row in rows])
    (options.out / "table.md").write_text(f"```json\n{json.dumps(result, indent=1)}\n```\n\n{text}\n")
    goals = [row.reached for row in rows if row.reached is not None]
    console.print(f"{sum(goals)} of {len(goals)} goals reached. {options.out}/ has table.md and results.json.")


def _rows(parts: tuple[str, ...], largest: int) -> Iterator[Row]:
    if "serving" in parts:  # first, before other parts fill the memory
        with running_service(WORKERS, 1) as service:
            yield from uncached.rows(service, largest)
            yield from concurrency.rows(service, WORKERS)
            yield from uncached.job_rows(service, largest)
            yield from cached.rows(service)
            yield from start.rows(service)
    if "draws" in parts:
        yield from draws.rows(largest)
        yield from orders.rows(largest)
    if "fits" in parts:
        yield from fits.rows(largest)
    if "audits" in parts:
        yield from audits.rows(largest)
    if "parallel" in parts:
        yield from draws.parallel_rows()
    if "memory" in parts and largest >= memory.N:
        yield from memory.rows(million=largest >= memory.MILLION)
        if largest >= memory.MILLION:
            yield from million.rows()


if __name__ == "__main__":
    main()
