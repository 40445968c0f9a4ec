"""Problems: descriptions of failures (RFC 9457), which job records and HTTP responses contain."""

from __future__ import annotations

import errno
import json
import math
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from glle_engine import GlleError
from glle_engine.base.texts import FEATURE, UPLOAD_OPTIONS, Text, Way, to_json, written
from worker.base.memory import work_limit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from glle_engine import Note

MAX_TEXT_CHARACTERS = 2000  # a longer text of a problem is cut; the longest remedy has some 300 characters
MAX_DETAIL_MEMBERS = 100  # a list or object in a problem's `details` keeps this many members; the others are left out
MAX_DETAIL_DEPTH = 6  # lists and objects that are nested deeper in a problem's `details` are left out
MAX_DETAIL_CHARACTERS = 32_768  # members of a problem's `details` beyond this many characters of JSON are left out
CUT_MEMBER = "truncated"  # member of a problem's `details` that is true if a part of the details was left out
# Errors that mean a failed allocation: of a thread's stack, or of a library that is being loaded.
_NO_MEMORY = (
    (RuntimeError, "can't start new thread"),
    (ImportError, "failed to map segment"),
    (ImportError, "Cannot allocate memory"),
)
_MAX_INTEGER_BITS = 128  # a longer integer in a problem's `details` is replaced by a text; seeds have 64 bits

TYPE_PREFIX = "urn:glle:problem:"

TITLES = {
    "internal-error": "Internal error",
    "job-timeout": "The job took too long",
    "worker-lost": "The job's workers died",
    "out-of-memory": "Not enough memory",
    "task-crashed": "The job's process crashed",
    "not-enqueued": "The job left the queue",
    "cache-too-small": "Larger than the cache allows",
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Description of a failure and of its remedy, as JSON of bounded size without NaN and infinity.

    Parameters
    ----------
    code
        Stable kebab-case name; `type` is ``urn:glle:problem:<code>``.
    status
        HTTP status.
    detail
        Sentence that says what happened. A detail or remedy that names options or calls is a `Text`, from which each
        client writes these options and calls in its own syntax (Python, HTTP or the command line).
    remedy
        Sentence that says what the user can do.
    details
        Facts for programs, by name: for example sizes, positions, or the smallest sufficient number of neighbors.

    """

    code: str
    status: int
    detail: str
    remedy: str
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", shorten(self.detail))
        object.__setattr__(self, "remedy", shorten(self.remedy))
        object.__setattr__(self, "details", quotable(self.details))

    @property
    def title(self) -> str:
        """Title for people, from `TITLES` or made from the code."""
        return TITLES.get(self.code, self.code.replace("-", " ").capitalize())

    @property
    def is_internal(self) -> bool:
        """Whether the failure is a defect of this software, and neither the request nor a server is at fault."""
        return self.code == "internal-error"

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as the members of an ``application/problem+json`` object."""
        return {
            "type": TYPE_PREFIX + self.code,
            "title": self.title,
            "status": self.status,
            **in_http("detail", self.detail),
            **in_http("remedy", self.remedy),
            "details": self.details,
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the problem from which `to_dict` made `value`."""
        return cls(
            code=str(value["type"]).removeprefix(TYPE_PREFIX),
            status=value["status"],
            detail=Text.from_json(value["detail_parts"]),
            remedy=Text.from_json(value["remedy_parts"]),
            details=value["details"],
        )

    @classmethod
    def from_engine(cls, error: GlleError) -> Self:
        """Return the problem, with status 422, that describes an error of the engine."""
        return cls(code=error.code, status=422, detail=error.message, remedy=error.remedy, details=error.details)


class ProblemError(Exception):
    """Exception that carries a `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def refuse(code: str, status: int, detail: str, remedy: str, **details: Any) -> ProblemError:
    """Return an exception with a new `Problem`, for the caller to raise; `details` are the problem's facts."""
    return ProblemError(Problem(code=code, status=status, detail=detail, remedy=remedy, details=details))


def problem_of(error: Exception) -> Problem:
    """Return the problem that describes the exception that ended a task: ``internal-error`` if it was unexpected."""
    if isinstance(error, GlleError):
        return Problem.from_engine(error)
    if isinstance(error, ProblemError):
        return error.problem
    return too_much_memory(work_limit(), error) if _is_memory_error(error) else internal_error(error)


def _is_memory_error(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, means that an allocation failed."""
    return error is not None and (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(isinstance(error, error_class) and text in str(error) for error_class, text in _NO_MEMORY)
        or _is_memory_error(error.__cause__)
    )


def timed_out(seconds: int) -> Problem:
    """Return the problem for a task that was stopped after its time limit of `seconds`."""
    return Problem(
        code="job-timeout",
        status=422,
        detail=f"A task of the job took more than {seconds} s and was stopped.",
        remedy="Use fewer points or neighbors, or ask the administrator to raise GLLE_JOB_TIMEOUT. Finished draws are "
        "kept.",
        details={"seconds": seconds},
    )


def worker_lost(job: str, times: int) -> Problem:
    """Return the problem for a job whose task failed `times` times: a worker died, or a Redis server did not answer."""
    return Problem(
        code="worker-lost",
        status=503,
        detail=f"A task of job {job} was tried {times} times; each time its worker died or a Redis server did not "
        "answer.",
        remedy="Read the workers' log for the cause: too little memory for the data set, faulty packages (install the "
        "versions of requirements/server.lock), or a server that does not answer.",
    )


def too_much_memory(allowed: int, error: Exception) -> Problem:
    """Return the problem for a task in which an allocation failed, under a limit of `allowed` bytes (0: no limit)."""
    detail = (
        f"A task of the job needs more than {allowed:,} bytes of working memory, which is its limit."
        if allowed
        else f"A task could not allocate the memory that it needs. {error}"
    )
    return Problem(
        code="too-much-memory",
        status=422,
        detail=detail.strip(),
        remedy="Use fewer points, landmarks or neighbors; or ask the administrator to raise GLLE_METHOD_BYTES and the "
        "memory of the workers.",
        details={"allowed_bytes": allowed} if allowed else {},
    )


def out_of_memory(allowed: int, machine: int) -> Problem:
    """Return the problem for a task whose process the kernel killed for lack of memory.

    Parameters
    ----------
    allowed
        Bytes of working memory that the task may take.
    machine
        Bytes of memory of the machine or container on which the task's worker runs.

    """
    return Problem(
        code="out-of-memory",
        status=422,
        detail=f"The process of a task was killed because no memory was left. A task may take {allowed:,} bytes of "
        f"working memory; the machine or container of its worker has {machine:,} bytes for all processes.",
        remedy="Use fewer points or neighbors. If smaller tasks also fail, ask the administrator to give the "
        "workers more memory, or to lower GLLE_METHOD_BYTES or GLLE_WORKERS.",
        details={"allowed_bytes": allowed, "machine_bytes": machine},
    )


def task_crashed(signal: str, allowed: int) -> Problem:
    """Return the problem for a task whose process crashed.

    `signal` is the name of the signal, such as SIGSEGV, and `allowed` the task's limit of working memory in bytes.
    """
    return Problem(
        code="task-crashed",
        status=422,
        detail=f"The process of a task crashed with {signal}. Libraries may crash when an allocation fails: a task may "
        f"take {allowed:,} bytes of working memory.",
        remedy="Use fewer points or neighbors, or ask the administrator to raise GLLE_METHOD_BYTES and the memory of "
        "the workers. If smaller tasks also crash, install the versions of requirements/server.lock on the workers.",
        details={"signal": signal, "allowed_bytes": allowed},
    )


def internal_error(error: Exception) -> Problem:
    """Return the problem ``internal-error`` for an unexpected exception in a task."""
    return Problem(
        code="internal-error",
        status=500,
        detail=f"A task of the job ended with an unexpected error ({type(error).__name__}).",
        remedy="Send the request again; if the error persists, report it with the workers' log.",
        details={"exception": type(error).__name__},
    )


def shorten(sentences: str) -> Text:
    """Cut a text after about `MAX_TEXT_CHARACTERS` characters, and append the number of characters that are missing.

    Plain text may be cut anywhere. A text may also contain placeholders (`Way`) for options and API calls. The
    placeholder of an option with a list of column names is cut between two names; each other placeholder is kept whole
    or left out.
    """
    text = Text(sentences)
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    parts: list[str | Way] = []
    for part in text.parts:
        room = MAX_TEXT_CHARACTERS - len(Text(*parts))
        if isinstance(part, Way) and isinstance(part.value, list):
            sizes = accumulate(len(repr(name)) + 2 for name in part.value)
            names = [name for name, size in zip(part.value, sizes, strict=True) if size <= room]
            parts += [part._replace(value=names)] if names else []
        elif isinstance(part, Way):
            parts += [part] if len(Text(part)) <= room else []
        else:
            parts.append(part[: max(0, room)])
    return Text(*parts, f"... ({len(text) - len(Text(*parts)):,} more characters)")


def in_http(name: str, text: str) -> dict[str, Any]:
    """Return a text, which may mention options and API calls, as two members of a JSON object.

    Member `name` is the text with options and calls as in an HTTP request, such as ``?missing=drop``. Member
    ``<name>_parts`` is the text in parts: plain text, and the options and calls, which a client writes as in its own
    language, such as ``missing="drop"``.
    """
    return {name: written(text, as_request), f"{name}_parts": to_json(text)}


def notes_in_http(notes: Iterable[Note]) -> list[dict[str, Any]]:
    """Return notes of the engine as JSON objects with the members `code`, `message` and `message_parts`."""
    return [{"code": note.code, **in_http("message", note.message)} for note in notes]


_REQUESTS = {
    "upload": "POST /v1/datasets",
    "fit": "POST /v1/posteriors",
    "embed": "POST /v1/embeddings",
    "delete-posterior": "DELETE /v1/posteriors/{}",
    "delete-embedding": "DELETE /v1/embeddings/{}",
    "cancel-job": "DELETE /v1/jobs/{}",
    "delete-results": "DELETE /v1/jobs/{}?record=true",
}


def as_request(way: Way) -> str:
    """Return the option or call `way`, which a message mentions, in HTTP syntax.

    The syntax is a query such as ``?missing=drop``, a member of a JSON body, or a request line such as
    ``POST /v1/datasets``.
    """
    name, value = way
    if name == FEATURE:
        return f"feature {value} (counted from 0)"
    if name in _REQUESTS:
        return _REQUESTS[name].format(value or "{id}")
    if name not in {*UPLOAD_OPTIONS, "force"}:
        return f"`{name}`" if value is None else f"{json.dumps(name)}: {json.dumps(value)}"
    values = value if isinstance(value, list) else [json.dumps(value) if value is True else value or ""]
    query = "&".join(f"{name}={quote(each, safe='*')}" for each in values)
    return f"?{query[:-1]}%2E" if query.endswith(".") else f"?{query}"  # a period would look like the sentence's end


def quotable(details: dict[str, Any]) -> dict[str, Any]:
    """Return the details of a problem as JSON of bounded size; member ``truncated`` is true if a part was left out.

    A number that is not finite becomes the text ``inf``, ``-inf`` or ``nan``, because JSON cannot represent it. Arrays
    become lists, and other objects become their text. Details that do not fit into `MAX_DETAIL_CHARACTERS` characters
    are left out.
    """
    is_cut = bool(details.get(CUT_MEMBER, False))

    def quote(value: Any, depth: int = 0) -> Any:
        nonlocal is_cut
        if hasattr(value, "dtype"):  # a numpy array may be large, so only a slice is converted
            is_cut |= value.size > MAX_DETAIL_CHARACTERS
            value = (value.reshape(-1)[:MAX_DETAIL_MEMBERS] if value.size > MAX_DETAIL_CHARACTERS else value).tolist()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return _quote_number(value)
        if not isinstance(value, dict | list | tuple | set | frozenset):
            text = value if isinstance(value, str) else str(value)
            is_cut |= len(text) > MAX_TEXT_CHARACTERS
            return shorten(text)
        is_cut |= len(value) > MAX_DETAIL_MEMBERS or depth > MAX_DETAIL_DEPTH
        if depth > MAX_DETAIL_DEPTH:
            return "..."
        if isinstance(value, dict):
            return {
                quote(str(name)): quote(member, depth + 1) for name, member in islice(value.items(), MAX_DETAIL_MEMBERS)
            }
        return [quote(member, depth + 1) for member in islice(value, MAX_DETAIL_MEMBERS)]

    quoted: dict[str, Any] = quote(details)
    sizes = accumulate(len(json.dumps(member)) for member in quoted.values())
    fitting = {name: quoted[name] for name, size in zip(quoted, sizes, strict=True) if size <= MAX_DETAIL_CHARACTERS}
    return {**fitting, CUT_MEMBER: True} if is_cut or len(fitting) < len(quoted) else fitting


def _quote_number(value: float) -> int | float | str:
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MAX_INTEGER_BITS else f"an integer of {value.bit_length():,} bits"
    return float(value) if math.isfinite(value) else str(float(value))
