"""Labels of the points, which are stored beside the features; a missing label is the empty text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from service.uploads.limits import is_text
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LABEL = 1000  # characters
MOST_LABELS = 2**26  # characters of all labels of a data set, each stored as long as the longest


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


def label_array(labels: Sequence[str | float | None]) -> np.ndarray[Any, Any]:
    """Return labels as numbers if all are, else as text; None and NaN are missing, so that they become empty texts.

    Numbers beside a missing label become text, as in a CSV file.
    """
    if all(type(label) in {int, float} and label == label for label in labels):  # noqa: PLR0124 # NaN
        return np.array(labels, np.float64)
    texts = ["" if label is None or label != label else str(label) for label in labels]  # noqa: PLR0124 # NaN
    return text_labels(texts)


def missing_labels(labels: np.ndarray[Any, Any] | None) -> list[str]:
    """Return the notice of missing labels, or none."""
    if labels is None or labels.dtype.kind != "U" or not (missing := int((labels == "").sum())):
        return []
    return [f"The label is missing in {missing:,} of {len(labels):,} rows; these rows share the empty label."]
