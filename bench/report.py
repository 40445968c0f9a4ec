"""Rows of figures beside their goals: timing, the description of the machine, and tables as text and JSON."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "tapkee", "redis", "fastapi", "uvicorn")
MISSING = "the peer is not installed"


def machine() -> dict[str, Any]:
    """Return processor, caches, memory and versions."""
    fields: dict[str, Any] = {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        facts = {name.strip(): value.strip() for name, value in lines.items()}
        fields["processor"] = facts.get("model name", "unknown")
        flags = facts.get("flags", "").split()
        fields["vectors"] = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "SSE"
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = (index / "level").read_text().strip(), (index / "type").read_text().strip()
        if kind != "Instruction":
            caches[f"L{level}"] = (index / "size").read_text().strip()
    fields["caches"] = caches
    fields["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    fields["libraries"] = {name: found for name in LIBRARIES if (found := _version(name))}
    fields["blas_threads"] = os.environ.get("OMP_NUM_THREADS")
    return fields


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True)
class Pair:
    """Interleaved timings of two functions.

    Attributes
    ----------
    ours, theirs : list of float
        Seconds of each repetition.

    """

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """Median of theirs / ours by repetition, so that drift affects both."""
        return statistics.median(b / a for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def our_median(self) -> float:
        """Median of ours, seconds."""
        return statistics.median(self.ours)

    @property
    def their_median(self) -> float:
        """Median of theirs, seconds."""
        return statistics.median(self.theirs)


def always(work: Callable[..., object], *arguments: object) -> Callable[[int], object]:
    """Return a function that ignores the number of the repetition."""

    def do(_: int) -> object:
        return work(*arguments)

    return do


def in_turn(
    ours: Callable[[int], object], theirs: Callable[[int], object], repeats: int, *, units: int = 1, warm: bool = True
) -> Pair:
    """Time two functions in turn, by repetition number; one call of `ours` is worth `units` calls of `theirs`."""
    if warm:
        ours(repeats)
    pair = Pair([], [])
    for number in range(repeats):
        gc.collect()
        pair.ours.append(seconds(partial(ours, number)) / units)
        pair.theirs.append(seconds(partial(theirs, number)))
    return pair


@dataclass(frozen=True)
class Row:
    """A figure beside its goal.

    Attributes
    ----------
    work, against : str
        Measured work, and the reference.
    figure : float or None
        In `unit`; None without the peer.
    unit : str
    goal : float or None
        None without a goal.
    at_least : bool
        Whether more is better.
    detail : dict
        The medians behind the figure, by name; seconds unless the name says otherwise.

    """

    work: str
    against: str
    figure: float | None
    unit: str
    goal: float | None = None
    at_least: bool = True
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        """Return whether the goal is reached, or None without a goal or a figure."""
        if self.figure is None or self.goal is None:
            return None
        return self.figure >= self.goal if self.at_least else self.figure <= self.goal

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return work, against, figure, goal and verdict as text."""
        figure = MISSING if self.figure is None else f"{_number(self.figure)} {self.unit}".rstrip()
        bound = "" if self.at_least else "at most "
        goal = "" if self.goal is None else f"{bound}{_number(self.goal)} {self.unit}".rstrip()
        verdict = {True: "reached", False: "missed", None: ""}[self.reached]
        return self.work, self.against, figure, goal, verdict


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(console: Console, row: Row) -> None:
    """Print a row as soon as it is measured."""
    work, against, figure, goal, verdict = row.cells()
    label = ", ".join(f"{name} {_number(value)}" for name, value in row.detail.items() if isinstance(value, float))
    colour = {"reached": "green", "missed": "red", "": "default"}[verdict]
    ends = f" (goal {goal}: [{colour}]{verdict}[/])" if goal else ""
    console.print(f"{work}, against {against}: [bold]{figure}[/]{ends}  [dim]{label}[/]", highlight=False)


def print_table(console: Console, rows: list[Row]) -> None:
    """Print all rows, goals beside figures."""
    table = Table("work", "against", "figure", "goal", "")
    for row in rows:
        table.add_row(*row.cells())
    console.print(table)


def markdown(rows: list[Row]) -> str:
    """Return the table as Markdown."""
    lines = ["| work | against | figure | goal | |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(row.cells()) + " |" for row in rows)]) + "\n"


def save(path: Path, machine: dict[str, Any], rows: list[Row], stages: list[dict[str, Any]]) -> None:
    """Write the run as JSON for later comparisons."""
    fields = {"machine": machine, "rows": [asdict(row) for row in rows], "stages": stages}
    path.write_text(json.dumps(fields, indent=1) + "\n")


def compare(console: Console, path: Path, rows: list[Row]) -> None:
    """Print this run beside an earlier one: both figures, and their quotient."""
    earlier = {(row["work"], row["against"]): row for row in json.loads(path.read_text())["rows"]}
    table = Table("work", "against", "then", "now", "now / then")
    for row in rows:
        before = earlier.get((row.work, row.against))
        if before and before["figure"] and row.figure:
            quotient = f"{row.figure / before['figure']:.2f}"
            table.add_row(row.work, row.against, _number(before["figure"]), _number(row.figure), quotient)
    console.print(table)
