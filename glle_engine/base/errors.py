"""Errors that a user can cause, each with a stable code and a remedy."""

from __future__ import annotations

from typing import Any

from glle_engine.base.texts import Text, joined


class GlleError(ValueError):
    """Base of the errors that a user can cause.

    Parameters
    ----------
    message
        The problem, in one sentence.
    remedy
        The user's next step, in one sentence.
    details
        JSON-able facts for programs, such as the row and column of a bad value.

    Attributes
    ----------
    code : str
        Stable kebab-case name of the problem. A `TableError` has one of several codes; each other subclass has its own.

    """

    code = "invalid"

    def __init__(self, message: str, *, remedy: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(Text(message))
        self.remedy: str = Text(remedy)
        self.details: dict[str, Any] = details or {}

    def __str__(self) -> str:
        return str(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without calling `__init__`, because its arguments differ from the exception's `args`."""
        return type(self).__new__, (type(self), *self.args), self.__dict__

    @property
    def message(self) -> str:
        """The problem, without the remedy."""
        message: str = self.args[0]
        return message

    @property
    def text(self) -> Text:
        """The problem and the remedy."""
        return joined([self.message, self.remedy])


class InvalidParameterError(GlleError):
    """A parameter outside its domain, or incompatible with another."""

    code = "invalid-parameter"


class InvalidShapeError(GlleError):
    """An array of the wrong shape or kind."""

    code = "invalid-shape"


class NotFiniteError(GlleError):
    """NaN, infinity or masked values; `details` has the first row and column (from 0), or counts the masked values."""

    code = "not-finite"


class InexactIntegerError(GlleError):
    """Integers beyond 2^53, which float64 cannot tell apart; `details` has the first row and column."""

    code = "inexact-integer"


class OutOfRangeError(GlleError):
    """Numbers so large, so small or so far apart that a computation overflows, underflows or loses its digits."""

    code = "out-of-range"


class DataMismatchError(GlleError):
    """Data that are not the training data of the posterior; `details` has the SHA-256 of both."""

    code = "data-mismatch"


class TooFewPointsError(GlleError):
    """Too few points for a computation, for example for its number of neighbors or components."""

    code = "too-few-points"


class DegenerateDataError(GlleError):
    """Data without the variation that a computation needs: all points are equal, or a row has no direction."""

    code = "degenerate-data"


class DisconnectedGraphError(GlleError):
    """A kNN graph that falls into several components, whose relative positions an embedding cannot determine."""

    code = "disconnected-graph"


class ConvergenceError(GlleError):
    """A computation without an accurate result, such as an eigenproblem that no solver could solve."""

    code = "no-convergence"


class MissingLibraryError(GlleError):
    """An option whose library is not installed; `details` names the library and the extra of glle that installs it."""

    code = "missing-library"


class ForkedProcessError(GlleError):
    """A method that needs threads, called in a forked process, which does not have the threads of its parent."""

    code = "forked-process"


class StorageError(GlleError):
    """A file that is not a posterior saved by this library."""

    code = "invalid-posterior-file"


class TableError(GlleError):
    """Columns of a table that cannot be used as they are; `code` names the problem."""

    def __init__(self, code: str, message: str, *, remedy: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, remedy=remedy, details=details)
        self.code = code
