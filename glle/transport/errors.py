"""Exceptions of the client: one class for each kind of problem that a service answers with (problem+json)."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from glle.transport.calls import Reply
    from glle.types import JobOut, ProblemOut

_PREFIX = "urn:glle:problem:"
_MAX_EXCERPT_CHARACTERS = 200  # a message quotes at most this many characters of a response that is not problem+json


class GlleServiceError(Exception):
    """A request to the service failed; the message has the problem and its remedy.

    The service describes an error as problem+json, whose members are the attributes: `type`, `title`, `status`,
    `detail`, `remedy` and `details`. `detail` and `remedy` spell options and calls for Python: `n_neighbors=10`, not
    "n_neighbors": 10. `request_id` is the id of the request in the service's log, or None. The status is the HTTP
    status; it is 0 if the service did not respond, and for a `JobTimeoutError`.
    """

    statuses: ClassVar[frozenset[int]] = frozenset()

    def __init__(self, problem: ProblemOut, request_id: str | None = None) -> None:
        super().__init__(f"{problem['detail']} {problem['remedy']}".strip())
        self.type = problem["type"]
        self.title = problem["title"]
        self.status = problem["status"]
        self.detail = problem["detail"]
        self.remedy = problem["remedy"]
        self.details: dict[str, Any] = problem["details"]
        self.request_id = request_id

    def __reduce__(self) -> tuple[Any, ...]:
        """Let pickle create the exception without `__init__`, which does not take the message in `self.args`."""
        return type(self).__new__, (type(self), *self.args), self.__dict__

    @property
    def code(self) -> str:
        """Last part of the problem's type, such as ``dataset-not-found``."""
        return self.type.removeprefix(_PREFIX)


class InvalidRequestError(GlleServiceError):
    """The service refused a request because its parameters or data are invalid."""

    statuses = frozenset({400, 405, 406, 413, 415, 422})


class AuthError(GlleServiceError):
    """The API key is missing or unknown, or lacks the required scope."""

    statuses = frozenset({401, 403})


class NotFoundError(GlleServiceError):
    """The resource does not exist, or was deleted."""

    statuses = frozenset({404, 410})


class ConflictError(GlleServiceError):
    """The request conflicts with the state of the service: data are in use, or a job was cancelled."""

    statuses = frozenset({409, 412, 423})


class RateLimitedError(GlleServiceError):
    """A rate limit or a quota was exceeded for longer than the client retries."""

    statuses = frozenset({429})


class UnavailableError(GlleServiceError):
    """The service did not answer, or was unavailable, for longer than the client retries."""

    statuses = frozenset({0, 502, 503, 504})


class JobTimeoutError(GlleServiceError, TimeoutError):
    """A job did not end within the caller's timeout; the job goes on."""


def problem_error(problem: ProblemOut, request_id: str | None = None) -> GlleServiceError:
    """Return the exception for a problem; the HTTP status decides its class, such as `NotFoundError` for 404."""
    classes = [
        error_class for error_class in GlleServiceError.__subclasses__() if problem["status"] in error_class.statuses
    ]
    return (classes[0] if classes else GlleServiceError)(problem, request_id)


def reply_error(reply: Reply) -> GlleServiceError:
    """Return the exception for a response with an error status.

    If the body is no problem+json, such as the error page of a proxy, the message quotes its first 200 characters.
    """
    request_id = reply.headers.get("x-request-id")
    try:
        return problem_error(reply.json(), request_id)
    except (ValueError, TypeError, KeyError):
        text = reply.body.decode(errors="replace").strip() if isinstance(reply.body, bytes) else ""
        phrase = http.HTTPStatus(reply.status).phrase if reply.status in set(http.HTTPStatus) else "Unknown status"
        detail = f"{reply.status} {phrase}: {text[:_MAX_EXCERPT_CHARACTERS] or 'an empty body'}"
        remedy = "Check that a glle service listens at the URL, and that no proxy answers in its place."
        return problem_error(_problem("about:blank", phrase, detail, remedy, status=reply.status), request_id)


def job_error(job: JobOut) -> GlleServiceError:
    """Return the exception for a job that failed or was cancelled."""
    detail, remedy = f"Job {job['id']} was cancelled.", "Send the request again to run it."
    cancelled = _problem(_PREFIX + "job-cancelled", "Job cancelled", detail, remedy, status=409, job=job["id"])
    return problem_error(job["error"] or cancelled)


def unreachable_error(url: str, reason: str, *, is_connected: bool) -> GlleServiceError:
    """Return the exception for a service that does not answer; `is_connected` says whether it accepted a connection."""
    detail = f"No answer from {url}: {reason}."
    remedy = "Start the service with `glle up`, or give its address: Client(url), --url or GLLE_URL."
    if is_connected:
        remedy = "Read the log of the service, and check that no proxy closes the connection early; then call again."
    return problem_error(_problem("urn:glle:client:unreachable", "No answer", detail, remedy, url=url))


def timeout_error(job: JobOut, seconds: float) -> JobTimeoutError:
    """Return the exception for a job that is still running after the caller's timeout."""
    detail = f"Job {job['id']} had not ended after {seconds:g} s; it is {job['status']}."
    remedy = "Increase the timeout, or wait later: client.job(id).wait()."
    details: dict[str, Any] = {"job": job["id"], "progress": job["progress"]}
    return JobTimeoutError(_problem("urn:glle:client:job-timeout", "The job goes on", detail, remedy, **details))


def _problem(type_: str, title: str, detail: str, remedy: str, *, status: int = 0, **details: Any) -> ProblemOut:
    return {
        "type": type_,
        "title": title,
        "status": status,
        "detail": detail,
        "detail_parts": [detail],
        "remedy": remedy,
        "remedy_parts": [remedy],
        "details": details,
    }
