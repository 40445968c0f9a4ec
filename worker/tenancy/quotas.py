"""What a tenant may have at once, and what is said when it asks for more."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from worker.base.problems import refuse
from worker.base.settings import Settings, SettingsError
from worker.records.tenants import is_tenant_name

if TYPE_CHECKING:
    from worker.base.problems import ProblemError

JOB_SECONDS = 5  # when to try again, where a job has to end first
BYTES_SECONDS = 60  # where somebody has to delete something

_ONE = re.compile(r"(bytes|jobs|requests|records|posteriors):([0-9]{1,18})")


@dataclass(frozen=True)
class Quota:
    """Bytes of data sets, jobs that wait or run, requests a minute, records of ended jobs, posteriors; 0: any."""

    bytes: int
    jobs: int
    requests: int
    records: int
    posteriors: int


@dataclass(frozen=True)
class JobLimits:
    """Bounds of jobs; 0: any number.

    Parameters
    ----------
    open
        Jobs of the tenant that may wait or run at once.
    all_open
        The same of all tenants together.
    ended
        Records of ended jobs that the tenant keeps; the oldest are removed first.

    """

    open: int = 0
    all_open: int = 0
    ended: int = 0


class Quotas:
    """Everybody's quota, and those of tenants that have another.

    Parameters
    ----------
    settings
        The settings `quota_*` are everybody's, `quotas` what differs.

    Raises
    ------
    SettingsError
        When `quotas` cannot be read.

    """

    def __init__(self, settings: Settings) -> None:
        self._everybodys = Quota(
            settings.quota_bytes,
            settings.quota_jobs,
            settings.quota_requests,
            settings.quota_records,
            settings.quota_posteriors,
        )
        self._others: dict[str, Quota] = {}
        for part in filter(None, settings.quotas.split()):
            tenant, _, told = part.partition("=")
            found = [_ONE.fullmatch(one) for one in told.split(",")]
            if not is_tenant_name(tenant) or not all(found) or tenant in self._others:
                remedy = "Write it as tenant=bytes:5000000000,jobs:20 other=requests:600, each tenant once."
                raise SettingsError(f"GLLE_QUOTAS: {part!r} cannot be read. {remedy}")
            self._others[tenant] = replace(self._everybodys, **{one[1]: int(one[2]) for one in found if one})

    def of(self, tenant: str) -> Quota:
        """Return a tenant's quota."""
        return self._others.get(tenant, self._everybodys)


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


def too_many_jobs_overall(allowed: int) -> ProblemError:
    """Return the refusal of a job beyond those of all tenants that wait or run."""
    return refuse(
        "too-many-jobs",
        503,
        f"{allowed:,} jobs wait or run; the service accepts no more (GLLE_MAX_JOBS).",
        "Send the request again after Retry-After; more workers end jobs faster.",
        allowed=allowed,
        retry_after=JOB_SECONDS,
    )


def too_many_posteriors(tenant: str | None, allowed: int) -> ProblemError:
    """Return the refusal of a fit whose posterior would be one too many."""
    detail = f"Tenant {tenant} has {allowed:,} posteriors; no more are allowed."
    remedy = "Delete posteriors that are no longer needed: DELETE /v1/posteriors/{id}. Or raise GLLE_QUOTA_POSTERIORS."
    return _exceeded("posteriors", detail, remedy, BYTES_SECONDS, allowed=allowed)


def too_many_requests(tenant: str, allowed: int, seconds: int) -> ProblemError:
    """Return the refusal of a request that comes too early by so many seconds."""
    detail = f"Tenant {tenant} asks more than {allowed:,} times a minute; the next is taken in {seconds} s."
    remedy = "Wait as long as Retry-After says; ask for jobs with ?wait= instead of again and again."
    return _exceeded("requests", detail, remedy, seconds, allowed=allowed)


def _exceeded(quota: str, detail: str, remedy: str, retry_after: int, **details: Any) -> ProblemError:
    return refuse("quota-exceeded", 429, detail, remedy, quota=quota, retry_after=retry_after, **details)
