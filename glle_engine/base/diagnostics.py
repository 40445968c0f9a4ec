"""Figures of a fit, and notes in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

from glle_engine.base.brief import brief

if TYPE_CHECKING:
    from collections.abc import Iterator


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


class _OfComponents(Protocol):
    """Parameters with a dimension of the embedding."""

    @property
    def n_components(self) -> int:
        """The dimension of the embedding, p."""

    @property
    def space(self) -> tuple[str, str]:
        """The parameters `standardize` and `metric`."""


def dimension_notes(d: int, spec: _OfComponents) -> Iterator[Note]:
    """Yield a note if an embedding of data with d features has more than d components.

    Not for categories and distances, whose dimension the number of columns does not bound.
    """
    if spec.n_components > d and spec.space[1] not in {"hamming", "precomputed"}:
        yield Note(
            "more-components-than-features",
            f"n_components={spec.n_components} is more than the number of features, {d}: the embedding has more "
            "coordinates than the data have dimensions. The further ones are functions of the others and show nothing "
            f"new. Use n_components of at most {d}.",
        )


@dataclass(frozen=True)
class Diagnostics:
    """Figures and notes of a fit; JSON-able through `to_dict`.

    Attributes
    ----------
    figures : dict
        Numbers by name: components, closed_classes, spectral_gap, variance and others of the method. "elimination" has
        the "order" of elimination, and the predicted "flops" of a draw's factorization and "bytes" of its factors; it
        is empty for few points, which are solved densely.
    notes : tuple of Note
        Warnings and findings.

    """

    figures: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return {"figures": {...}, "notes": [{"code", "message"}, ...]}."""
        return {"figures": dict(self.figures), "notes": [asdict(note) for note in self.notes]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the diagnostics of a dictionary that `to_dict` returned."""
        return cls(dict(values["figures"]), tuple(Note(**note) for note in values["notes"]))
