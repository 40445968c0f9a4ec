"""Rows of the table, and the table as text, JSON and picture."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

MISSING = "the peer is not installed"


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

    @property
    def of_goal(self) -> float | None:
        """Return the fraction of the goal that is reached."""
        if self.figure is None or self.goal is None:
            return None
        return self.figure / self.goal if self.at_least else self.goal / self.figure

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
