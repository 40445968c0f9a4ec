"""Statements of an exported posterior that go into its record: figures, notes and provenance, bounded and selected.

The whole file is stored and exported again. The record is stored in the queue's Redis and is part of each list.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glle_engine.base.diagnostics import Diagnostics

MAX_LIST = 100  # numbers of a figure in a record; constant features and closed classes may be more
MAX_DEPTH = 2  # of the lists and objects of a figure: pairs of points, and figures by the law of the noise
MAX_WORD, MAX_MESSAGE = 200, 2000  # characters; the messages of fits have some hundred
MAX_NOTES, MAX_FIGURES = 50, 100  # a fit has a dozen notes, and some thirty figures
MAX_PARTS = 50  # names and values of a provenance
_NAME = re.compile("[a-z][a-z_-]{0,49}")  # of a figure, and of a note
_NOT_TEXT = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, and surrogates, which are no UTF-8


def is_line(value: object, most: int = MAX_WORD) -> bool:
    """Return whether a value is text of at most so many characters that is valid UTF-8 without control characters."""
    return isinstance(value, str) and len(value) <= most and _NOT_TEXT.search(value) is None


def checked_diagnostics(diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the figures and notes for a record, without long lists.

    Raises
    ------
    ValueError
        For a figure that is no number, word or small list of these, for notes that are no short texts, for names
        of another form than those of a fit, and for too many figures or notes.

    """
    notes: Any = diagnostics.notes  # of a file, whose values may be anything
    if len(notes) > MAX_NOTES:
        raise ValueError(f"it has {len(notes)} notes; {MAX_NOTES} are allowed")
    for note in notes:
        if not _is_name(note.code) or not is_line(note.message, MAX_MESSAGE):
            raise ValueError(f"a note is no line of text of at most {MAX_MESSAGE:,} characters")
    figures = diagnostics.figures
    if len(figures) > MAX_FIGURES or not all(map(_is_name, figures)):
        raise ValueError(f"it has more than {MAX_FIGURES} figures, or one whose name is no word in lower case")
    for name, value in figures.items():
        _check_figure(name, value, MAX_DEPTH)
    return {
        "figures": {name: value for name, value in figures.items() if not _is_long(value)},
        "notes": [{"code": note.code, "message": note.message} for note in notes],
    }


def _is_name(value: object) -> bool:
    """Return whether a value has the form of the name of a figure or of a note."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def checked_provenance(provenance: dict[str, Any]) -> dict[str, str]:
    """Return the provenance of a file; raise ValueError unless it is short texts."""
    parts = (*provenance, *provenance.values())
    if len(parts) > MAX_PARTS or not all(is_line(part) for part in parts):
        raise ValueError(f"its provenance is not at most {MAX_PARTS} lines of text of {MAX_WORD} characters")
    return provenance


def _check_figure(name: str, value: object, depth: int) -> None:
    """Raise ValueError unless a figure is a finite number, a word, or a list or object of these."""
    if isinstance(value, list | dict):
        if not depth:
            raise ValueError(f"its figure {name} is nested more than {MAX_DEPTH} times")
        if isinstance(value, dict) and not all(map(is_line, value)):
            raise ValueError(f"a name in its figure {name} is no line of text")
        for part in value.values() if isinstance(value, dict) else value:
            _check_figure(name, part, depth - 1)
        return
    is_number = value is None or (isinstance(value, int | float) and math.isfinite(value) and abs(value) < 2.0**1023)
    if not is_number and not is_line(value):
        raise ValueError(f"its figure {name} is no finite number and no line of text")


def _is_long(value: object) -> bool:
    """Return whether a figure has a list, or an object, that is too long for a record."""
    if not isinstance(value, list | dict):
        return False
    return len(value) > MAX_LIST or any(map(_is_long, value.values() if isinstance(value, dict) else value))
