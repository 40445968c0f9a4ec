"""docs/explanation/reliability.md promises what the reports of its commands show."""

import fnmatch
import re
from typing import Any

import pytest

from docs.figures.methods.tables import between
from docs.figures.reliability import PAGE, judge_series, read, render

TEXT = PAGE.read_text(encoding="utf-8")
REPORTS = read()


def rows_of(command: str) -> dict[str, Any]:
    """Return the rows of a command's report by name."""
    rows, name = {
        "chaos": (REPORTS["chaos"]["checks"], "name"),
        "degraded": (REPORTS["degraded"], "name"),
        "soak": (REPORTS["soak"]["verdicts"], "what"),
    }[command]
    return {row[name]: row for row in rows}


PROMISED = [
    (command, row)
    for cell in re.findall(r"\| ((?:chaos|degraded|soak): [^|]+?) \|$", TEXT, re.MULTILINE)
    for part in cell.split(" / ")
    for command, _, patterns in [part.partition(": ")]
    for pattern in patterns.split("; ")
    for row in fnmatch.filter(rows_of(command), pattern) or [pattern]
]


@pytest.mark.parametrize("name", render(REPORTS))
def test_tables_are_those_of_the_reports(name: str) -> None:
    """A figure changed by hand, or not written after a run, fails."""
    assert between(TEXT, name) == render(REPORTS)[name]


@pytest.mark.parametrize(("command", "row"), PROMISED)
def test_every_promise_is_backed(command: str, row: str) -> None:
    """A promise names a row whose zero columns are zero."""
    shown = rows_of(command)[row]
    assert not any(shown.get(zero) for zero in ("violations", "wrong", "lost", "other", "failed", "left"))
    assert command != "soak" or judge_series(shown) in {"flat", "not higher"}
    assert shown.get("finished") == shown.get("jobs")


@pytest.mark.parametrize("command", ["chaos", "degraded"])
def test_every_row_is_promised(command: str) -> None:
    """Every row of a report belongs to a promise."""
    assert rows_of(command).keys() == {row for named, row in PROMISED if named == command}
