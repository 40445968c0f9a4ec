"""What the client raises: the service's problem, whole, as an exception of its kind."""

from __future__ import annotations

import http
import json
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from glle.transport.calls import Reply
    from glle.types import JobOut, ProblemOut

_PREFIX = "urn:glle:problem:"
_EXCERPT = 200


class GlleServiceError(Exception):
    """What went wrong, and what to do about it.

    Attributes
    ----------
    type, title, status, detail, remedy, details
        The members of the service's problem+json. Status 0: no answer came.
    request_id
        What finds the request in the service's log; None where there was none.

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

    @property
    def code(self) -> str:
        """The last part of the type, such as ``dataset-not-found``."""
        return self.type.removeprefix(_PREFIX)


class InvalidRequestError(GlleServiceError):
    """The request, or the data, cannot be used as they are."""

    statuses = frozenset({400, 405, 406, 413, 415, 422})


class AuthError(GlleServiceError):
    """The key is missing, unknown or not allowed to do this."""

    statuses = frozenset({401, 403})


class NotFoundError(GlleServiceError):
    """There is no such thing (any more)."""

    statuses = frozenset({404, 410})


class ConflictError(GlleServiceError):
    """It cannot be done as things stand: data in use, a job that was cancelled."""

    statuses = frozenset({409, 412, 423})


class RateLimitedError(GlleServiceError):
    """Too much was asked for, for longer than the client waits."""

    statuses = frozenset({429})


class UnavailableError(GlleServiceError):
    """The service, or what it stands on, does not answer, for longer than the client waits."""

    statuses = frozenset({0, 502, 503, 504})


class JobTimeoutError(GlleServiceError, TimeoutError):
    """The job did not end within the caller's timeout; it goes on."""


def refused(reply: Reply) -> GlleServiceError:
    """Return the error of an answer that is none."""
    request_id = reply.headers.get("x-request-id")
    try:
        problem: Any = json.loads(reply.body)
        return of_problem(problem, request_id)
    except (ValueError, TypeError, KeyError):
        text = reply.body.decode(errors="replace").strip() if isinstance(reply.body, bytes) else ""
        return of_problem(
            {
                "type": "about:blank",
                "title": _phrase(reply.status),
                "status": reply.status,
                "detail": f"{reply.status} {_phrase(reply.status)}: {text[:_EXCERPT] or 'an empty body'}",
                "remedy": "Check that the URL is that of a glle service, and what stands in between.",
                "details": {},
            },
            request_id,
        )


def of_problem(problem: ProblemOut, request_id: str | None = None) -> GlleServiceError:
    """Return a problem as the error of its kind."""
    kinds = [kind for kind in GlleServiceError.__subclasses__() if problem["status"] in kind.statuses]
    return (kinds[0] if kinds else GlleServiceError)(problem, request_id)


def of_job(job: JobOut) -> GlleServiceError:
    """Return why a job that ended has no result."""
    if (problem := job["error"]) is not None:
        return of_problem(problem)
    return of_problem(
        {
            "type": _PREFIX + "job-cancelled",
            "title": "Job cancelled",
            "status": 409,
            "detail": f"Job {job['id']} was cancelled.",
            "remedy": "Ask for the same again to have it done.",
            "details": {"job": job["id"]},
        }
    )


def unreachable(url: str, reason: str) -> GlleServiceError:
    """Return the error of a service that gives no answer."""
    return of_problem(
        {
            "type": "urn:glle:client:unreachable",
            "title": "No answer",
            "status": 0,
            "detail": f"No answer from {url}: {reason}.",
            "remedy": "Start the service with `glle up`, or give its address: Client(url), --url or GLLE_URL.",
            "details": {"url": url},
        }
    )


def late(job: JobOut, seconds: float) -> JobTimeoutError:
    """Return the error of a job that goes on beyond the caller's timeout."""
    return JobTimeoutError(
        {
            "type": "urn:glle:client:job-timeout",
            "title": "The job goes on",
            "status": 0,
            "detail": f"Job {job['id']} had not ended after {seconds:g} s; it is {job['status']}.",
            "remedy": "Give it more time, or wait for it later: client.job(id).wait().",
            "details": {"job": job["id"], "progress": job["progress"]},
        }
    )


def unsettled(path: str) -> GlleServiceError:
    """Return the error of a result that is evicted as often as it is made."""
    return of_problem(
        {
            "type": "urn:glle:client:unsettled",
            "title": "Evicted again and again",
            "status": 0,
            "detail": f"The result of {path} was made several times, and was gone each time.",
            "remedy": "Ask for less at once, or have GLLE_CACHE_BYTES raised.",
            "details": {},
        }
    )


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unknown status"
