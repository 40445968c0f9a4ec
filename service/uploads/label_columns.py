"""Label and color columns, which are stored beside the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from service.uploads.limits import is_text
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LABEL = 1000  # characters
MOST_LABELS = 2**26  # characters of all labels of a data set, each stored as long as the longest


@dataclass(frozen=True)
class LabelColumns:
    """Names of the label and color columns of a request (in CSV also numbers from 0)."""

    label: str | None = None
    color: str | None = None

    def require_none(self, reason: str, remedy: str) -> None:
        """Raise a problem if a column is named, for a format without columns."""
        for name, column in (("label", self.label), ("color", self.color)):
            if column is not None:
                raise refuse(f"{name}-not-here", 422, f"?{name}= cannot be used: {reason}", remedy)


def no_such_column(name: str, columns: str) -> ProblemError:
    """Return the problem of a label or color column that does not exist."""
    return refuse("no-such-column", 422, f"There is no column {name!r}.", f"Use one of {columns}.")


def require_distinct(label: int | None, color: int | None) -> None:
    """Raise a problem if one column is both label and color."""
    if label is not None and label == color:
        detail = "?label= and ?color= name the same column."
        raise refuse("same-column", 422, detail, "Name two columns, or leave one of them out.")


class Labels:
    """Collector of text labels that checks each batch before it stores more.

    Attributes
    ----------
    values
        The labels.

    """

    def __init__(self) -> None:
        self.values: list[str] = []
        self._longest = 0

    def add(self, labels: Sequence[str]) -> None:
        """Add a batch.

        Raises
        ------
        ProblemError
            ``label-too-long``, ``invalid-label``.

        """
        for row, label in enumerate(labels, len(self.values) + 1):
            if len(label) > MOST_LABEL:
                detail = f"The label of row {row} has {len(label):,} characters; {MOST_LABEL:,} are allowed."
                raise refuse("label-too-long", 422, detail, "Use shorter labels.", row=row, allowed=MOST_LABEL)
            if not is_text(label):
                detail = f"The label of row {row} is {label!r}, with half a surrogate pair or U+0000."
                raise refuse("invalid-label", 422, detail, "Remove that character.", row=row)
            self._longest = max(self._longest, len(label))
        self.values += labels
        if self._longest * len(self.values) > MOST_LABELS:
            allowed = MOST_LABELS // len(self.values)
            detail = (
                f"The longest of {len(self.values):,} labels has {self._longest} characters; {allowed} are allowed."
            )
            raise refuse("label-too-long", 422, detail, "Use shorter labels, such as numbers.", allowed=allowed)

    def array(self) -> np.ndarray[Any, Any]:
        """Return the labels as an array."""
        return np.array(self.values, np.str_)


def text_labels(labels: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return text labels as an array; problems as `Labels.add`."""
    collector = Labels()
    collector.add(labels)
    return collector.array()
