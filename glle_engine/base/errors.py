"""Failures a user can cause, each with a stable code and a remedy."""

from __future__ import annotations

from typing import Any


class GlleError(ValueError):
    """A request that cannot be answered, and what to do about it.

    Parameters
    ----------
    message
        What is wrong, a sentence.
    remedy
        What the user can do, a sentence.
    details
        JSON-able facts: sizes, positions, the smallest k that would do.

    Attributes
    ----------
    code : str
        Stable kebab-case name of the failure, one a subclass.

    """

    code = "invalid"

    def __init__(self, message: str, *, remedy: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.details: dict[str, Any] = details or {}

    def __str__(self) -> str:
        return f"{self.args[0]} {self.remedy}"

    @property
    def message(self) -> str:
        """What is wrong, without the remedy."""
        return str(self.args[0])


class InvalidParameterError(GlleError):
    """A parameter outside its domain, or one that does not go with another."""

    code = "invalid-parameter"


class InvalidShapeError(GlleError):
    """An array of the wrong shape or kind."""

    code = "invalid-shape"


class NotFiniteError(GlleError):
    """NaN or infinity in the data; `details` has the first row and column (from 0)."""

    code = "not-finite"


class OutOfRangeError(GlleError):
    """Numbers so large or so close together that the squares of their differences leave the floating-point range."""

    code = "out-of-range"


class DataMismatchError(GlleError):
    """Data other than those a posterior was fitted to; `details` has both digests."""

    code = "data-mismatch"


class TooFewPointsError(GlleError):
    """Fewer points than the neighbourhoods or the embedding need."""

    code = "too-few-points"


class DegenerateDataError(GlleError):
    """All points equal: there is no neighbourhood to reconstruct from."""

    code = "degenerate-data"


class DisconnectedGraphError(GlleError):
    """The kNN graph falls into components, which an embedding cannot relate to each other."""

    code = "disconnected-graph"


class ConvergenceError(GlleError):
    """No solver of the chain passed the acceptance test."""

    code = "no-convergence"


class MissingLibraryError(GlleError):
    """An option that needs a library of an extra, which is not installed; `details` has both names."""

    code = "missing-library"


class StorageError(GlleError):
    """A file that is not a posterior saved by this library."""

    code = "invalid-posterior-file"
