"""Failures as values: one problem object (RFC 9457) that a job's record and an HTTP answer share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

from glle_engine import GlleError

MOST_TEXT = 2000  # characters of a text; the longest remedy has some 300
MOST_MEMBERS = 100  # of a list or an object
MOST_DEPTH = 6  # lists and objects within each other
MOST_TOTAL = 32_768  # characters of all texts and numbers together
CUT = "truncated"  # the member of details that were cut
_MOST_BITS = 128  # of an integer: seeds have 64

TYPE_PREFIX = "urn:glle:problem:"

TITLES = {
    "internal-error": "Internal error",
    "job-timeout": "The job took too long",
    "worker-lost": "The job's workers died",
    "out-of-memory": "Not enough memory",
    "deadline-exceeded": "The job did not end in time",
    "not-enqueued": "The job left the queue",
    "cache-too-small": "Larger than the cache allows",
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What went wrong, and what to do about it.

    Parameters
    ----------
    code
        Stable kebab-case name; `type` is ``urn:glle:problem:<code>``.
    status
        The HTTP status it is answered with.
    detail
        A sentence on this occurrence.
    remedy
        A sentence on what the user can do.
    details
        Facts: sizes, positions, the smallest k that would do.

    All of it is finite JSON of bounded size, whatever it quotes.

    """

    code: str
    status: int
    detail: str
    remedy: str
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", shortened(self.detail))
        object.__setattr__(self, "remedy", shortened(self.remedy))
        object.__setattr__(self, "details", quotable(self.details))

    @property
    def title(self) -> str:
        """The same for every occurrence of a code."""
        return TITLES.get(self.code, self.code.replace("-", " ").capitalize())

    @property
    def is_internal(self) -> bool:
        """Whether it is an error of the project itself."""
        return self.code == "internal-error"

    def to_dict(self) -> dict[str, Any]:
        """Return the members of the problem+json object."""
        return {
            "type": TYPE_PREFIX + self.code,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "remedy": self.remedy,
            "details": self.details,
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the problem of `to_dict`'s object."""
        return cls(
            code=str(value["type"]).removeprefix(TYPE_PREFIX),
            status=value["status"],
            detail=value["detail"],
            remedy=value["remedy"],
            details=value["details"],
        )

    @classmethod
    def from_engine(cls, error: GlleError) -> Self:
        """Return an engine's refusal as a 422."""
        return cls(code=error.code, status=422, detail=error.message, remedy=error.remedy, details=error.details)


class ProblemError(Exception):
    """Carries a `Problem` to whoever answers or records it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def refuse(code: str, status: int, detail: str, remedy: str, **details: Any) -> ProblemError:
    """Return the exception of a new `Problem`, to be raised."""
    return ProblemError(Problem(code=code, status=status, detail=detail, remedy=remedy, details=details))


def problem_of(error: Exception) -> Problem:
    """Return the problem of an error that ended a piece of work."""
    if isinstance(error, GlleError):
        return Problem.from_engine(error)
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, MemoryError):
        return out_of_memory(str(error))
    return internal_error(error)


def timed_out(seconds: int) -> Problem:
    """Return the problem of a task that took too long."""
    return Problem(
        code="job-timeout",
        status=422,
        detail=f"A task of the job took more than {seconds} s and was stopped.",
        remedy="Use fewer points or neighbours, or raise GLLE_JOB_TIMEOUT. Draws that were made are kept.",
        details={"seconds": seconds},
    )


def worker_lost(job: str, times: int) -> Problem:
    """Return the problem of a task whose workers died again and again."""
    return Problem(
        code="worker-lost",
        status=503,
        detail=f"The workers of job {job} died, or had no answer from a server, {times} times in a row.",
        remedy="Look into the workers' log: most often the machine has too little memory for the data set.",
    )


def orphaned_job(job: str, numbers: str, own: str) -> Problem:
    """Return the problem of a job that was begun for an engine of which no worker is left."""
    return Problem(
        code="other-numbers",
        status=409,
        detail=f"Job {job} was begun for engine {numbers}, of which no worker is left; here is {own}.",
        remedy="Send the request that created it again: the results of this engine have ids of their own.",
        details={"numbers": numbers, "own": own},
    )


def no_worker_of_kind(job: str, numbers: str, live: list[str]) -> Problem:
    """Return the problem of a job whose bits no live worker makes."""
    return Problem(
        code="no-worker-of-kind",
        status=503,
        detail=f"Job {job} needs a worker with numbers {numbers}; the live workers have {', '.join(live)}.",
        remedy="Start a worker of that kind (the kind without `+` needs numba: pip install 'glle[fast]'). "
        "Or fit the posterior again with POST /v1/posteriors: it gets an id of the live kind.",
        details={"numbers": numbers, "live": live},
    )


def deadline_exceeded(job: str, deadline: str) -> Problem:
    """Return the problem of a job that had not ended by its deadline."""
    return Problem(
        code="deadline-exceeded",
        status=504,
        detail=f"Job {job} had not ended at {deadline}, its deadline.",
        remedy="Ask again with a longer deadline, or without one. Draws that were made are kept.",
        details={"deadline": deadline},
    )


def out_of_memory(message: str) -> Problem:
    """Return the problem of a task that its worker had no memory for."""
    return Problem(
        code="out-of-memory",
        status=422,
        detail=f"The worker had not enough memory. {message}".strip(),
        remedy="Use fewer points or neighbours, or give the workers more memory.",
    )


def internal_error(error: Exception) -> Problem:
    """Return the problem of a task that met an error of the project's own."""
    details: dict[str, Any] = {"exception": type(error).__name__}
    return Problem(
        code="internal-error",
        status=500,
        detail="A worker met an error that it should not have met.",
        remedy="Try again; if it stays, report it with the workers' log.",
        details=details,
    )


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """Return a text of at most `most` characters and a note on the rest."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


def quotable(details: dict[str, Any]) -> dict[str, Any]:
    """Return facts as finite JSON of bounded size; `truncated` is true where something was cut.

    A number that is not finite becomes the text ``inf``, ``-inf`` or ``nan``, because JSON has none; an array becomes
    lists, and any other object its text.
    """
    quoter = _Quoter()
    quoted: dict[str, Any] = quoter.quoted(details, 0)
    return {**quoted, CUT: True} if quoter.has_cut else quoted


class _Quoter:
    """Conversion of one object, with the characters that are left for it."""

    def __init__(self) -> None:
        self.has_cut = False
        self._left = MOST_TOTAL

    def quoted(self, value: Any, depth: int) -> Any:
        """Return a value as finite JSON."""
        if value is None or isinstance(value, bool):
            return value
        if hasattr(value, "dtype"):  # of numpy
            value = self._unpacked(value)
        if isinstance(value, int | float):
            return self._number(value)
        if isinstance(value, dict | list | tuple | set | frozenset):
            return self._nested(value, depth)
        return self._text(value if isinstance(value, str) else str(value))

    def _unpacked(self, value: Any) -> Any:
        """Return an array or a number of numpy as Python's."""
        if value.size > MOST_TOTAL:
            self.has_cut = True
            value = value.reshape(-1)[:MOST_MEMBERS]
        return value.tolist()

    def _nested(self, value: Any, depth: int) -> Any:
        if depth > MOST_DEPTH:
            self.has_cut = True
            return "..."
        if isinstance(value, dict):
            pairs = self._members(list(value.items()))
            return {self._text(str(name)): self.quoted(member, depth + 1) for name, member in pairs}
        return [self.quoted(member, depth + 1) for member in self._members(list(value))]

    def _number(self, value: float) -> int | float | str:
        self._left -= 20
        if isinstance(value, int):
            return int(value) if value.bit_length() <= _MOST_BITS else f"an integer of {value.bit_length():,} bits"
        return float(value) if math.isfinite(value) else str(float(value))

    def _text(self, text: str) -> str:
        most = max(0, min(MOST_TEXT, self._left))
        self.has_cut |= len(text) > most
        self._left -= min(len(text), most)
        return shortened(text, most)

    def _members(self, members: list[Any]) -> list[Any]:
        """Return the first members, none when no characters are left."""
        most = MOST_MEMBERS if self._left > 0 else 0
        self.has_cut |= len(members) > most
        self._left -= min(len(members), most)
        return members[:most]
