"""Columns that are no features: labels, and a colour, kept beside the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from service.uploads.limits import is_text
from worker.base.problems import ProblemError, refuse

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


class Labels:
    """Labels that are text, as they come; what is too much, or no text, is refused before more is kept.

    Attributes
    ----------
    found
        Those that came.

    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._longest = 0

    def add(self, labels: Sequence[str]) -> None:
        """Take more of them.

        Raises
        ------
        ProblemError
            ``label-too-long``, ``invalid-label``.

        """
        for row, label in enumerate(labels, len(self.found) + 1):
            if len(label) > MOST_LABEL:
                detail = f"The label of row {row} has {len(label):,} characters; {MOST_LABEL:,} are allowed."
                raise refuse("label-too-long", 422, detail, "Use shorter labels.", row=row, allowed=MOST_LABEL)
            if not is_text(label):
                detail = f"The label of row {row} is {label!r}: half a surrogate pair and U+0000 are no text."
                raise refuse("invalid-label", 422, detail, "Leave that character out.", row=row)
            self._longest = max(self._longest, len(label))
        self.found += labels
        if self._longest * len(self.found) > MOST_LABELS:
            allowed = MOST_LABELS // len(self.found)
            detail = f"The longest of {len(self.found):,} labels has {self._longest} characters; "
            detail += f"{allowed} are allowed of so many."
            raise refuse("label-too-long", 422, detail, "Use shorter labels, such as numbers.", allowed=allowed)

    def array(self) -> np.ndarray[Any, Any]:
        """Return them as an array."""
        return np.array(self.found, np.str_)


def text_labels(labels: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return labels that are text as an array; problems as `Labels.add`."""
    kept = Labels()
    kept.add(labels)
    return kept.array()
