"""docs/explanation/reliability.md promises what the reports of its commands show, and nothing else."""

from __future__ import annotations

import re
from statistics import median
from typing import Any

import pytest

from docs.figures.methods.tables import between
from docs.figures.reliability import kept, tables
from docs.figures.reliability.__main__ import PAGE

TEXT = PAGE.read_text(encoding="utf-8")
REPORT = kept.read()
PROMISED = [
    (command, row)
    for cell in re.findall(r"\| ((?:chaos|degraded|hosts|soak): [^|]+?) \|$", TEXT, re.MULTILINE)
    for part in cell.split(" / ")
    for command, _, rows in [part.partition(": ")]
    for row in rows.split("; ")
]


def rows_of(command: str) -> dict[str, Any]:
    """Return the rows of a command's report by their names."""
    if command == "chaos":
        return {row["name"]: row for row in REPORT["chaos"]["checks"]}
    if command == "hosts":
        return {row["scenario"]: row for row in REPORT["faults"]}
    if command == "degraded":
        return {row["name"]: row for row in REPORT["degraded"]}
    return {row["what"]: row for row in REPORT["soak"]["verdicts"]}


@pytest.mark.parametrize("name", tables.all_of(REPORT))
def test_tables_are_those_of_the_reports(name: str) -> None:
    """A figure that was changed by hand, or not written after a run, is seen."""
    assert between(TEXT, name) == tables.all_of(REPORT)[name]


@pytest.mark.parametrize(("command", "row"), PROMISED)
def test_every_promise_is_shown(command: str, row: str) -> None:
    """It names a row in which everything that must be zero is."""
    shown = rows_of(command)[row]
    assert not any(shown.get(zero) for zero in ("violations", "wrong", "lost", "other", "failed", "left"))
    assert command != "soak" or tables.judged(shown) in {"flat", "not higher"}
    assert shown.get("finished") == shown.get("jobs")


@pytest.mark.parametrize("command", ["chaos", "degraded", "hosts"])
def test_every_row_is_promised(command: str) -> None:
    """What is shown and not promised would be a test for nothing."""
    assert rows_of(command).keys() == {row for named, row in PROMISED if named == command}


@pytest.mark.parametrize(
    ("words", "name", "hosts"),
    [(" times as fast as one, three", "throughput", 2), (" times, eight", "throughput", 3), (" times |", "crowd", 8)],
)
def test_more_machines_are_as_much_faster_as_is_promised(words: str, name: str, hosts: int) -> None:
    """The medians of the runs, against one machine's."""
    runs = REPORT[name]["runs"]
    one, more = (median(run["seconds"] for run in runs if run["hosts"] == number) for number in (1, hosts))
    (promised,) = re.findall(rf"at least ([\d.]+){re.escape(words)}", TEXT)
    assert one / more >= float(promised)


def test_machines_that_come_late_add_what_is_promised() -> None:
    """By the one job that is shown, whose bits are the engine's."""
    result = REPORT["joined"]
    (promised,) = re.findall(r"twice as many at least ([\d.]+) times", TEXT)
    assert result["then"] == 2 * result["hosts"]
    assert result["after"] / result["before"] >= float(promised)
    assert result["wrong"] == 0
