"""What a tenant may have at once, and what is said when it asks for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.problems import refuse

if TYPE_CHECKING:
    from worker.problems import ProblemError

JOB_SECONDS = 5  # when to try again, where a job has to end first
BYTES_SECONDS = 60  # where somebody has to delete something


def too_many_bytes(tenant: str | None, nbytes: int, stored: int, allowed: int) -> ProblemError:
    """Return the refusal of a data set that there is no room for."""
    return _exceeded(
        "bytes",
        f"{nbytes:,} bytes would be added to the {stored:,} of tenant {tenant}; {allowed:,} are allowed.",
        "Delete data sets that are no longer needed, or ask whoever runs the service for more room.",
        BYTES_SECONDS,
        allowed=allowed,
        used=stored,
    )


def too_many_jobs(tenant: str | None, allowed: int) -> ProblemError:
    """Return the refusal of a job beyond those that wait or run."""
    detail = f"{allowed:,} jobs of tenant {tenant} wait or run; no more are allowed."
    remedy = "Wait until one has ended, or cancel one: GET /v1/jobs lists them."
    return _exceeded("jobs", detail, remedy, JOB_SECONDS, allowed=allowed)


def too_many_requests(tenant: str, allowed: int, seconds: int) -> ProblemError:
    """Return the refusal of a request that comes too early by so many seconds."""
    detail = f"Tenant {tenant} asks more than {allowed:,} times a minute; the next is taken in {seconds} s."
    remedy = "Wait as long as Retry-After says; ask for jobs with ?wait= instead of again and again."
    return _exceeded("requests", detail, remedy, seconds, allowed=allowed)


def _exceeded(quota: str, detail: str, remedy: str, retry_after: int, **details: Any) -> ProblemError:
    return refuse("quota-exceeded", 429, detail, remedy, quota=quota, retry_after=retry_after, **details)
