"""Figures of a fit, and notes in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from glle_engine.base.brief import brief


@dataclass(frozen=True)
class Note:
    """Warning or finding for the user.

    Attributes
    ----------
    code : str
        Stable kebab-case name.
    message : str
        The finding, its meaning and a remedy, in one or two sentences.

    """

    code: str
    message: str


@dataclass(frozen=True)
class Diagnostics:
    """Figures and notes of a fit; JSON-able through `to_dict`.

    Attributes
    ----------
    figures : dict
        Numbers by name: components, closed_classes, spectral_gap, variance and others of the method. "elimination" has
        the "order" of elimination, and the predicted "flops" of a draw's factorization and "bytes" of its factors; it
        is empty without numba.
    notes : tuple of Note
        Warnings and findings.

    """

    figures: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return {"figures": {...}, "notes": [{"code", "message"}, ...]}."""
        return {
            "figures": dict(self.figures),
            "notes": [{"code": note.code, "message": note.message} for note in self.notes],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the diagnostics of a dictionary that `to_dict` returned."""
        return cls(dict(values["figures"]), tuple(Note(**note) for note in values["notes"]))
