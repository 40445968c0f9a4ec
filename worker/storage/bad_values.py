"""Bad values of a body: the first is named by row and column, the rows that have one are counted, and some listed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

LISTED = 20
SHOWN = 50  # characters of a bad value

REMEDIES = {
    "not-finite": "Remove the row, or fill the value in before uploading.",
    "missing-value": "Fill the value in, remove its row, or set its column apart with ?label=.",
    "inexact-integer": "Subtract an offset or rescale: beyond 2^53 float64 cannot tell neighbours apart.",
}


@dataclass
class BadRows:
    """Rows with a bad value, in their order, counted from 0."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, rows: Iterable[int]) -> None:
        """Count more rows; each comes once."""
        for row in rows:
            self.count += 1
            if len(self.first) < LISTED:
                self.first.append(int(row))

    def told(self, error: ProblemError) -> ProblemError:
        """Return the problem of the first bad value, which tells of the other rows, too."""
        problem = error.problem
        others = self.count - 1
        more = f" {others:,} other row{'s have' if others > 1 else ' has'} such values." if others else ""
        details = {**problem.details, "rows_affected": self.count, "rows": [row + 1 for row in self.first]}
        return ProblemError(replace(problem, detail=problem.detail + more, details=details))


def bad_cell(code: str, value: str, row: int, column: int, *, names: list[str] | None, remedy: str) -> ProblemError:
    """Return the problem of one value of a body; `row` and `column` count from 0. A long value is told in part."""
    value = value[:SHOWN]
    where = f"row {row + 1}, column {column + 1}" + (f" ({names[column]})" if names else "")
    return refuse(
        code,
        422,
        f"The value at {where} is {value!r}.",
        remedy,
        row=row + 1,
        column=column + 1,
        name=names[column] if names else None,
        value=value,
    )
