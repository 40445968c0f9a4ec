"""Quotas of tenants, and the refusals of requests beyond them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from worker.base.problems import refuse
from worker.base.settings import Settings, SettingsError
from worker.records.tenants import is_tenant_name

if TYPE_CHECKING:
    from worker.base.problems import ProblemError

BYTES_SECONDS = 60  # Retry-After, if a user must delete something

_LIMIT = re.compile(r"(bytes|jobs|requests|records|posteriors):([0-9]{1,18})")


@dataclass(frozen=True)
class Quota:
    """Bytes of data sets, open jobs, requests per minute, records of ended jobs, posteriors; 0: no limit."""

    bytes: int
    jobs: int
    requests: int
    records: int
    posteriors: int


@dataclass(frozen=True)
class JobLimits:
    """Limits of jobs; 0: no limit.

    Parameters
    ----------
    open
        Open jobs of the tenant.
    all_open
        Open jobs of all tenants.
    ended
        Records of ended jobs of the tenant; the oldest are removed first.

    """

    open: int = 0
    all_open: int = 0
    ended: int = 0


class Quotas:
    """Quotas of all tenants.

    Parameters
    ----------
    settings
        `quota_*` is the default quota, `quotas` the exceptions.

    Raises
    ------
    SettingsError
        If `quotas` is malformed.

    """

    def __init__(self, settings: Settings) -> None:
        self._default = Quota(
            settings.quota_bytes,
            settings.quota_jobs,
            settings.quota_requests,
            settings.quota_records,
            settings.quota_posteriors,
        )
        self._exceptions: dict[str, Quota] = {}
        for part in filter(None, settings.quotas.split()):
            tenant, _, limits = part.partition("=")
            matches = [_LIMIT.fullmatch(limit) for limit in limits.split(",")]
            if not is_tenant_name(tenant) or not all(matches) or tenant in self._exceptions:
                remedy = "Write it as tenant=bytes:5000000000,jobs:20 other=requests:600, each tenant once."
                raise SettingsError(f"GLLE_QUOTAS: {part!r} cannot be read. {remedy}")
            self._exceptions[tenant] = replace(self._default, **{match[1]: int(match[2]) for match in matches if match})

    def of(self, tenant: str) -> Quota:
        """Return a tenant's quota."""
        return self._exceptions.get(tenant, self._default)


def too_many_bytes(tenant: str | None, nbytes: int, stored: int, allowed: int) -> ProblemError:
    """Return the refusal of a data set."""
    return _exceeded(
        "bytes",
        f"Tenant {tenant} stores {stored:,} bytes; {nbytes:,} more would exceed the {allowed:,} allowed.",
        "Delete data sets that are no longer needed, or ask the service's operator for a larger quota.",
        BYTES_SECONDS,
        allowed=allowed,
        used=stored,
    )


def too_many_jobs(tenant: str | None, allowed: int, seconds: int) -> ProblemError:
    """Return the refusal of a tenant's job; one of its jobs has ended in about `seconds`."""
    detail = f"Tenant {tenant} has {allowed:,} open jobs; no more are allowed."
    remedy = "Wait until one has ended, or cancel one: GET /v1/jobs lists them."
    return _exceeded("jobs", detail, remedy, seconds, allowed=allowed)


def too_many_jobs_overall(allowed: int, seconds: int) -> ProblemError:
    """Return the refusal of a job because of all tenants' jobs; one of them has ended in about `seconds`."""
    return refuse(
        "too-many-jobs",
        503,
        f"{allowed:,} jobs wait or run; the service accepts no more (GLLE_MAX_JOBS).",
        "Send the request again after Retry-After; more workers end jobs faster.",
        allowed=allowed,
        retry_after=seconds,
    )


def too_many_posteriors(tenant: str | None, allowed: int) -> ProblemError:
    """Return the refusal of a fit."""
    detail = f"Tenant {tenant} has {allowed:,} posteriors; no more are allowed."
    remedy = "Delete posteriors that are no longer needed: DELETE /v1/posteriors/{id}. Or raise GLLE_QUOTA_POSTERIORS."
    return _exceeded("posteriors", detail, remedy, BYTES_SECONDS, allowed=allowed)


def too_many_requests(tenant: str, allowed: int, seconds: int) -> ProblemError:
    """Return the refusal of a request; the next one is accepted in `seconds`."""
    detail = f"Tenant {tenant} sends more than {allowed:,} requests a minute; the next is accepted in {seconds} s."
    remedy = "Wait as long as Retry-After says; wait for jobs with ?wait= instead of polling."
    return _exceeded("requests", detail, remedy, seconds, allowed=allowed)


def _exceeded(quota: str, detail: str, remedy: str, retry_after: int, **details: Any) -> ProblemError:
    return refuse("quota-exceeded", 429, detail, remedy, quota=quota, retry_after=retry_after, **details)
