"""What a fit found out: figures, and notes in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Note:
    """Something the user should know.

    Attributes
    ----------
    code : str
        Stable kebab-case name.
    message : str
        One or two sentences: what was found, what it means, what can be done.

    """

    code: str
    message: str


@dataclass(frozen=True)
class Diagnostics:
    """Figures and notes of a fit; JSON-able through `to_dict`.

    Attributes
    ----------
    figures : dict
        Numbers by name: components, closed_classes, spectral_gap, variance and others of the method.
    notes : tuple of Note
        Empty when nothing is remarkable.

    """

    figures: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return {"figures": {...}, "notes": [{"code", "message"}, ...]}."""
        return {
            "figures": dict(self.figures),
            "notes": [{"code": note.code, "message": note.message} for note in self.notes],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        return cls(dict(values["figures"]), tuple(Note(**note) for note in values["notes"]))
