"""Quotas of tenants, and the refusals of requests beyond them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import randint
from typing import TYPE_CHECKING, Any

from worker.base.problems import refuse
from worker.base.settings import Settings, SettingsError, parse_size
from worker.records.ids import is_tenant_name

if TYPE_CHECKING:
    from worker.base.problems import ProblemError

MAX_JOBS = 10_000  # open jobs of all tenants
BYTES_SECONDS = 60  # Retry-After, if a user must delete something
MAX_PAUSE = 30  # seconds of the Retry-After of a job beyond the open ones
RECORD_BYTES = 2**13  # of a record, on average, that the quota of posteriors allows; that of a fit has some 3,000

ALL = "*"  # instead of a tenant
_LIMIT = re.compile(r"(?:(jobs|posteriors):(?=[0-9]{1,18}$)|(bytes|records):)(.{1,18})")


@dataclass(frozen=True)
class Quota:
    """Bytes of files, open jobs, bytes of ended jobs' records, posteriors; 0: no limit.

    Of the records of ended jobs the oldest are removed first.
    """

    bytes: int = 0
    jobs: int = 0
    records: int = 64 * 2**20  # some 35,000 records
    posteriors: int = 10_000


class Quotas:
    """Quotas of all tenants.

    Parameters
    ----------
    settings
        `quotas` has those that differ from the defaults of `Quota`: of all tenants (`*`), and of single ones.

    Raises
    ------
    SettingsError
        If `quotas` is malformed.

    """

    def __init__(self, settings: Settings) -> None:
        limits: dict[str, dict[str, int]] = {ALL: {}}
        for part in settings.quotas.split():
            tenant, _, text = part.partition("=")
            own = _limits(text)
            if not own or limits.get(tenant) or not (tenant == ALL or is_tenant_name(tenant)):
                remedy = "Write it as *=jobs:20,posteriors:500 alice=bytes:5GB: * is all tenants, each tenant once."
                raise SettingsError(f"GLLE_QUOTAS: {part!r} cannot be read. {remedy}")
            limits[tenant] = own
        self.default = Quota(**limits.pop(ALL))
        self._exceptions = {tenant: replace(self.default, **own) for tenant, own in limits.items()}

    def of(self, tenant: str) -> Quota:
        """Return a tenant's quota."""
        return self._exceptions.get(tenant, self.default)


def _limits(text: str) -> dict[str, int]:
    """Return limits such as ``jobs:20,bytes:5GB``; none if one cannot be read."""
    matches = [_LIMIT.fullmatch(limit) for limit in text.split(",")]
    try:
        return {match[1] or match[2]: parse_size(match[3]) for match in matches if match} if all(matches) else {}
    except ValueError:
        return {}


def too_many_bytes(tenant: str | None, nbytes: int, stored: int, allowed: int) -> ProblemError:
    """Return the refusal of a file."""
    return _quota_exceeded(
        "bytes",
        f"Tenant {tenant} stores {stored:,} bytes; {nbytes:,} more would exceed the {allowed:,} allowed.",
        "Delete data sets, posteriors or results of jobs (DELETE /v1/jobs/{id}?record=true) that are no longer needed, "
        "or ask the service's operator for a larger quota.",
        BYTES_SECONDS,
        allowed=allowed,
        used=stored,
    )


def too_many_jobs(tenant: str | None, allowed: int) -> ProblemError:
    """Return the refusal of a tenant's job."""
    detail = f"Tenant {tenant} has {allowed:,} open jobs; no more are allowed."
    remedy = "Wait until one has ended, or cancel one: GET /v1/jobs lists them."
    return _quota_exceeded("jobs", detail, remedy, _pause(), allowed=allowed)


def too_many_jobs_overall(allowed: int) -> ProblemError:
    """Return the refusal of a job because of all tenants' jobs."""
    return refuse(
        "too-many-jobs",
        503,
        f"{allowed:,} jobs wait or run; the service accepts no more.",
        "Send the request again after Retry-After; more workers end jobs faster.",
        allowed=allowed,
        retry_after=_pause(),
    )


def _pause() -> int:
    """Return a random Retry-After, so that clients which are refused at once do not return together."""
    return randint(1, MAX_PAUSE)  # noqa: S311 # no secret


def too_many_posteriors(tenant: str | None, allowed: int) -> ProblemError:
    """Return the refusal of a fit."""
    detail = f"Tenant {tenant} has {allowed:,} posteriors; no more are allowed."
    remedy = (
        "Delete posteriors that are no longer needed: DELETE /v1/posteriors/{id}. Or raise `posteriors` in GLLE_QUOTAS."
    )
    return _quota_exceeded("posteriors", detail, remedy, BYTES_SECONDS, allowed=allowed)


def too_many_record_bytes(tenant: str | None, nbytes: int, allowed: int) -> ProblemError:
    """Return the refusal of a posterior because of the bytes of the records of others."""
    detail = f"The records of the posteriors of tenant {tenant} have {nbytes:,} bytes; {allowed:,} are allowed."
    remedy = (
        "Delete posteriors that are no longer needed: DELETE /v1/posteriors/{id}. Or raise posteriors in GLLE_QUOTAS, "
        f"each of which allows {RECORD_BYTES:,} bytes."
    )
    return _quota_exceeded("posteriors", detail, remedy, BYTES_SECONDS, allowed=allowed, used=nbytes)


def _quota_exceeded(quota: str, detail: str, remedy: str, retry_after: int, **details: Any) -> ProblemError:
    return refuse("quota-exceeded", 429, detail, remedy, quota=quota, retry_after=retry_after, **details)
