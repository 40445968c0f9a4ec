"""Columns that are no features: labels, and a colour, kept beside the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LABEL = 1000  # characters
MOST_LABELS = 2**26  # characters of all labels of a data set, each as long as the longest: that is how they are stored


@dataclass(frozen=True)
class Apart:
    """The columns to set apart, as the request names them (in CSV a number from 0 will do)."""

    label: str | None = None
    color: str | None = None

    def refuse_all(self, why: str, remedy: str) -> None:
        """Refuse to set anything apart, where there are no columns to choose from."""
        for name, given in (("label", self.label), ("color", self.color)):
            if given is not None:
                raise refuse(f"{name}-not-here", 422, f"?{name}= has no meaning here: {why}", remedy)


def no_such_column(name: str, columns: str) -> ProblemError:
    """Return the problem of a column that is to be set apart, and is not there."""
    return refuse("no-such-column", 422, f"There is no column {name!r}.", f"Name one of {columns}.")


def text_labels(labels: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return labels that are text as an array.

    Raises
    ------
    ProblemError
        ``label-too-long``.

    """
    for row, label in enumerate(labels):
        if len(label) > MOST_LABEL:
            detail = f"The label of row {row + 1} has {len(label):,} characters; {MOST_LABEL:,} are allowed."
            raise refuse("label-too-long", 422, detail, "Use shorter labels.", row=row + 1, allowed=MOST_LABEL)
    longest = max(map(len, labels))
    if longest * len(labels) > MOST_LABELS:
        allowed = MOST_LABELS // len(labels)
        detail = f"The longest of {len(labels):,} labels has {longest} characters; {allowed} are allowed of so many."
        raise refuse("label-too-long", 422, detail, "Use shorter labels, such as numbers.", allowed=allowed)
    return np.array(labels, np.str_)
