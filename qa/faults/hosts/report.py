"""Report of a run: rows for the terminal and for a JSON file."""

from __future__ import annotations

from dataclasses import dataclass

from qa.report import aligned


@dataclass(frozen=True)
class Row:
    """Outcome of one fault.

    Parameters
    ----------
    jobs, finished
        Jobs that were accepted, and that succeeded.
    wrong
        Draws that differ from the engine's in any bit.
    failed
        Answers other than success, or 503 with Retry-After.
    refused
        Answers of 503 with Retry-After.
    heal
        Seconds from the fault, or from its end, to the end of the job.
    left
        Differences that remain, such as a worker that is missing from the registry or in it twice.

    """

    scenario: str
    jobs: int
    finished: int
    wrong: int
    failed: int
    refused: int
    slowest: float
    heal: float
    left: str = ""

    @property
    def is_good(self) -> bool:
        """Return whether every column that must be zero is zero."""
        return self.jobs == self.finished and not (self.wrong or self.failed or self.left)


HEAD = ("scenario", "jobs", "finished", "wrong bits", "failed requests", "503s", "slowest answer", "seconds to heal")


def table(rows: list[Row]) -> str:
    """Return the rows as a table."""
    result = [
        (
            row.scenario + (f" ({row.left})" if row.left else ""),
            row.jobs,
            row.finished,
            row.wrong,
            row.failed,
            row.refused,
            f"{row.slowest:.1f} s",
            f"{row.heal:.1f}",
        )
        for row in rows
    ]
    return aligned([HEAD, *result])
