"""Quotas: limits of each tenant, set by GLLE_QUOTAS, and the errors for requests beyond a limit.

Where no number is set, some limits are the tenant's share of what is free (`worker.records.shares`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import randint
from typing import TYPE_CHECKING, Any

from glle_engine.base.texts import Way
from worker.base.problems import refuse
from worker.base.settings import Settings, SettingsError, parse_size
from worker.records.ids import is_tenant_name
from worker.records.shares import MAX_DRAWS, MAX_JOBS, SHARE, SHARE_FACTOR, UNLIMITED, allowed_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.problems import ProblemError

FULL_RETRY_SECONDS = 60  # Retry-After of a request that succeeds only after the user has deleted something
# Retry-After of a request that exceeds its tenant's share: most requests take milliseconds, so others have soon ended.
SHARE_RETRY_SECONDS = 1
MAX_JOB_RETRY_SECONDS = 30  # longest Retry-After of a job beyond the limit of open jobs
RECORD_BYTES = 2**13  # bytes that the quota allows for a posterior's record on average; most have some 3,000

ALL_TENANTS = "*"  # stands for all tenants in GLLE_QUOTAS
_COUNTS, _SIZES = "jobs|posteriors|requests|readers|draws", "bytes|records|incoming"
_LIMIT = re.compile(rf"(?:({_COUNTS}):(?=[0-9]{{1,18}}$)|({_SIZES}):)(.{{1,18}})")


@dataclass(frozen=True)
class Quota:
    """Limits of a tenant: 0 means no limit, and None the tenant's share of what is free (`worker.records.shares`).

    Parameters
    ----------
    bytes, posteriors
        Bytes of files, and number of posteriors.
    records
        Bytes of the records of ended jobs; beyond the limit, the oldest records are removed.
    jobs, draws
        Open jobs, and waiting requests for single draws.
    requests, incoming, readers
        In each API process: requests in progress, bytes of arriving bodies, and processes that read uploads.

    """

    bytes: int = 0
    jobs: int | None = None
    records: int = 64 * 2**20  # some 35,000 records
    posteriors: int = 10_000
    requests: int | None = None
    incoming: int | None = None
    readers: int | None = None
    draws: int | None = None


class Quotas:
    """The limits of all tenants, as the setting `quotas` (GLLE_QUOTAS) has them.

    Parameters
    ----------
    settings
        The setting `quotas` has limits that replace the defaults of `Quota`, for all tenants (`*`) or for single ones.
    has_others
        Returns whether there can be several tenants, which needs API keys. A single tenant may hold everything.

    Raises
    ------
    SettingsError
        If `quotas` is malformed.

    """

    def __init__(self, settings: Settings, has_others: Callable[[], bool] = lambda: True) -> None:
        self._has_others = has_others
        self._has_tenants = settings.auth != "off"
        limits: dict[str, dict[str, int]] = {ALL_TENANTS: {}}
        for entry in settings.quotas.split():
            tenant, _, text = entry.partition("=")
            exceptions = _limits(text)
            if not exceptions or limits.get(tenant) or not (tenant == ALL_TENANTS or is_tenant_name(tenant)):
                remedy = (
                    "Write, for example, *=jobs:20,posteriors:500 alice=bytes:5GB, with * for all tenants, and name "
                )
                remedy += "each tenant once."
                raise SettingsError(f"The entry {entry!r} of GLLE_QUOTAS is not valid. {remedy}")
            limits[tenant] = exceptions
        self.default = Quota(**limits.pop(ALL_TENANTS))
        self._exceptions = {tenant: replace(self.default, **exceptions) for tenant, exceptions in limits.items()}

    def for_tenant(self, tenant: str) -> Quota:
        """Return the limits of a tenant: its own entry in the settings, or else the limits of all tenants."""
        return self._exceptions.get(tenant, self.default)

    def limit(self, name: str, tenant: str) -> int:
        """Return a limit of a tenant, by the name of a field of `Quota`, such as ``jobs``.

        If no number is set, return `SHARE` (-1), the tenant's share of what is free; or `UNLIMITED` (0) if the service
        can have only one tenant.
        """
        limit: int | None = getattr(self.for_tenant(tenant), name)
        if limit is not None:
            return limit
        return SHARE if self._has_tenants and self._has_others() else UNLIMITED


def _limits(text: str) -> dict[str, int]:
    """Parse limits such as ``jobs:20,bytes:5GB`` into a mapping; return an empty mapping if a limit is malformed."""
    matches = [_LIMIT.fullmatch(limit) for limit in text.split(",")]
    try:
        return {match[1] or match[2]: parse_size(match[3]) for match in matches if match} if all(matches) else {}
    except ValueError:
        return {}


def too_many_bytes(tenant: str | None, nbytes: int, stored: int, allowed: int) -> ProblemError:
    """Return the error for a new file of `nbytes` bytes that does not fit into a tenant's quota.

    The tenant stores `stored` bytes already, and may store `allowed` bytes.
    """
    return _quota_exceeded(
        "bytes",
        f"Tenant {tenant} stores {stored:,} bytes; {nbytes:,} more would exceed the {allowed:,} allowed.",
        f"Delete data sets, posteriors or results of jobs ({Way('delete-results')}) that are no longer needed, or ask "
        "the service's operator for a larger quota.",
        FULL_RETRY_SECONDS,
        allowed=allowed,
        used=stored,
    )


def too_many_jobs(tenant: str | None, limit: int) -> ProblemError:
    """Return the error for a new job that would exceed the tenant's quota or share of open jobs."""
    remedy = f"Wait until a job has ended, or cancel one ({Way('cancel-job')})."
    return _share_exceeded("jobs", tenant, "open jobs", limit, MAX_JOBS, remedy, _pause())


def too_many_jobs_overall(allowed: int) -> ProblemError:
    """Return the error for a new job when all tenants together already have `allowed` jobs that wait or run."""
    return refuse(
        "too-many-jobs",
        503,
        f"{allowed:,} jobs are waiting or running; the service accepts no more.",
        "Try again later, or ask the administrator to start more workers.",
        allowed=allowed,
        retry_after=_pause(),
    )


def too_many_draws(tenant: str, limit: int) -> ProblemError:
    """Return the error for a draw request when too many requests of the tenant, or of all tenants, are waiting."""
    remedy = "Try again later, or request many draws as one job."
    return _share_exceeded("draws", tenant, "waiting requests for draws", limit, MAX_DRAWS, remedy, _pause())


def too_many_requests(tenant: str, limit: int, total: int) -> ProblemError:
    """Return the error for a request that would exceed the tenant's quota or share of requests in progress."""
    noun = "requests in progress in this API process"
    remedy = "Try again later, with fewer requests at the same time."
    return _share_exceeded("requests", tenant, noun, limit, total, remedy, SHARE_RETRY_SECONDS)


def too_many_incoming_bytes(tenant: str, limit: int, total: int) -> ProblemError:
    """Return the error for a body that would exceed the tenant's quota or share of bytes that arrive at once."""
    noun = "bytes of bodies that this API process receives"
    remedy = "Wait until your other uploads have ended, or send fewer bytes at the same time."
    return _share_exceeded("incoming", tenant, noun, limit, total, remedy, SHARE_RETRY_SECONDS)


def _share_exceeded(
    quota: str, tenant: str | None, noun: str, limit: int, total: int, remedy: str, retry_after: int
) -> ProblemError:
    """Return the error ``quota-exceeded`` for a tenant that has reached its limit, for example of open jobs.

    Parameters
    ----------
    quota
        Name of the limit in GLLE_QUOTAS, such as ``jobs``.
    noun
        What the tenant holds, in the plural, for the message.
    limit
        The tenant's limit: a number from GLLE_QUOTAS; or `SHARE` if none is set, so that the limit depends on how much
        is free.
    total
        How much all tenants together may hold.

    """
    allowed = allowed_of(limit, total)
    detail = f"Tenant {tenant} has {allowed:,} {noun}; no more are allowed."
    if limit == SHARE:
        detail = (
            f"Tenant {tenant} already has its share of the {total:,} {noun}, which is {SHARE_FACTOR} times as many "
        )
        detail += "as are left free for others."
    return _quota_exceeded(quota, detail, remedy, retry_after, allowed=allowed)


def _pause() -> int:
    """Return a random Retry-After in seconds, so that clients that are refused together do not all return together."""
    return randint(1, MAX_JOB_RETRY_SECONDS)  # noqa: S311 # no secret


def too_many_posteriors(tenant: str | None, allowed: int) -> ProblemError:
    """Return the error for a new posterior when the tenant already has the `allowed` number of posteriors."""
    detail = f"Tenant {tenant} has {allowed:,} posteriors; no more are allowed."
    return _quota_exceeded("posteriors", detail, f"{_DELETE_POSTERIORS}.", FULL_RETRY_SECONDS, allowed=allowed)


_DELETE_POSTERIORS = (
    f"Delete posteriors that are no longer needed ({Way('delete-posterior')}), or ask the administrator to raise "
    "posteriors in GLLE_QUOTAS"
)


def too_many_record_bytes(tenant: str | None, nbytes: int, allowed: int) -> ProblemError:
    """Return the error for a new posterior when the tenant's posterior records exceed the `allowed` bytes."""
    detail = f"The posterior records of tenant {tenant} take {nbytes:,} bytes; {allowed:,} bytes are allowed."
    remedy = f"{_DELETE_POSTERIORS}; each posterior in the quota allows {RECORD_BYTES:,} bytes of records."
    return _quota_exceeded("posteriors", detail, remedy, FULL_RETRY_SECONDS, allowed=allowed, used=nbytes)


def _quota_exceeded(quota: str, detail: str, remedy: str, retry_after: int, **details: Any) -> ProblemError:
    return refuse("quota-exceeded", 429, detail, remedy, quota=quota, retry_after=retry_after, **details)
