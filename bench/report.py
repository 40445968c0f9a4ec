"""What all benchmarks share: timing of two functions in turn, results with goals, and a description of the machine."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from qa.frame import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "tapkee", "redis", "fastapi", "uvicorn")
MISSING = "the peer is not installed"
HEAD = ("work", "against", "figure", "goal", "")


def machine() -> dict[str, Any]:
    """Return the processor, caches, memory and library versions of this machine, for the report."""
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
    fields["libraries"] = {one.name: one.version for one in distributions() if one.name in LIBRARIES}
    fields["blas_threads"] = os.environ.get("OMP_NUM_THREADS")
    return fields


def run_apart(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module of the benchmark in a separate process; return the JSON that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)  # noqa: S603 # own modules
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True)
class Pair:
    """Times of two functions that were called in turn: the project's and the one it is compared with.

    Attributes
    ----------
    ours, theirs : list of float
        Seconds of each repetition.

    """

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """Median over repetitions of theirs / ours: how many times faster the project's function is."""
        return statistics.median(b / a for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def our_median(self) -> float:
        """Median of ours, seconds."""
        return statistics.median(self.ours)

    @property
    def their_median(self) -> float:
        """Median of theirs, seconds."""
        return statistics.median(self.theirs)

    def medians(self, unit: str, scale: float = 1.0) -> dict[str, float]:
        """Return both medians by names such as "ours ms"; `scale` is the number of units in a second."""
        return {f"ours {unit}": scale * self.our_median, f"theirs {unit}": scale * self.their_median}


def always(work: Callable[..., object], *arguments: object) -> Callable[[int], object]:
    """Return a function for `in_turn` that calls `work` with the same arguments in each repetition."""

    def do(_: int) -> object:
        return work(*arguments)

    return do


def in_turn(
    ours: Callable[[int], object], theirs: Callable[[int], object], repeats: int, *, units: int = 1, warm: bool = True
) -> Pair:
    """Time two functions in turn, so that changes of the machine's speed affect both.

    The functions get the number of the repetition. One call of `ours` does `units` times the work of `theirs`, and its
    time is divided by this number. With `warm`, `ours` is called once before.
    """
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
    """A result of a benchmark, with its goal.

    Attributes
    ----------
    work, against : str
        What was measured, and with what it is compared.
    figure : float or None
        The result in `unit`; None if the library to compare with is not installed.
    unit : str
    goal : float or None
        None if there is no goal.
    at_least : bool
        Whether the goal is a lower bound.
    detail : dict
        The medians from which the result was computed, by name; seconds unless the name says otherwise.

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
        """Whether the goal is reached; None if there is no goal or no result."""
        if self.figure is None or self.goal is None:
            return None
        return self.figure >= self.goal if self.at_least else self.figure <= self.goal

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return the cells of a table, in the order of `HEAD`."""
        figure = MISSING if self.figure is None else f"{_number(self.figure)} {self.unit}".rstrip()
        bound = "" if self.at_least else "at most "
        goal = "" if self.goal is None else f"{bound}{_number(self.goal)} {self.unit}".rstrip()
        verdict = {True: "reached", False: "missed", None: ""}[self.reached]
        return self.work, self.against, figure, goal, verdict


def at_most(work: str, figure: float, unit: str, goal: float, against: str = "-", **detail: float) -> Row:
    """Return a `Row` whose goal is an upper bound."""
    return Row(work, against, figure, unit, goal, at_least=False, detail=detail)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(console: Console, row: Row) -> None:
    """Print a result on one line, with its goal and its details."""
    work, against, figure, goal, verdict = row.cells()
    label = ", ".join(f"{name} {_number(value)}" for name, value in row.detail.items() if isinstance(value, float))
    color = {"reached": "green", "missed": "red", "": "default"}[verdict]
    ends = f" (goal {goal}: [{color}]{verdict}[/])" if goal else ""
    console.print(f"{work}, against {against}: [bold]{figure}[/]{ends}  [dim]{label}[/]", highlight=False)


def print_table(console: Console, rows: list[Row]) -> None:
    """Print a table of all results with their goals."""
    shown = Table(*HEAD)
    for row in rows:
        shown.add_row(*row.cells())
    console.print(shown)


def compare(console: Console, path: Path, rows: list[Row]) -> None:
    """Print the results that an earlier run (`path`, its results.json) has, too: then, now, and the quotient."""
    earlier = {(row["work"], row["against"]): row for row in json.loads(path.read_text())["rows"]}
    table = Table("work", "against", "then", "now", "now / then")
    for row in rows:
        before = earlier.get((row.work, row.against))
        if before and before["figure"] and row.figure:
            quotient = f"{row.figure / before['figure']:.2f}"
            table.add_row(row.work, row.against, _number(before["figure"]), _number(row.figure), quotient)
    console.print(table)
