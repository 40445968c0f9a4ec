"""Quotas of tenants, and the refusals of requests beyond quotas and shares (`worker.records.shares`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import randint
from typing import TYPE_CHECKING, Any

from glle_engine.base.texts import Way
from worker.base.problems import refuse
from worker.base.settings import Settings, SettingsError, parse_size
from worker.records.ids import is_tenant_name
from worker.records.shares import MAX_DRAWS, MAX_JOBS, PART, SHARE, UNLIMITED, allowed_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.problems import ProblemError

BYTES_SECONDS = 60  # Retry-After if the user must delete something
SHARE_SECONDS = 1  # Retry-After of requests beyond a share; most requests take milliseconds
MAX_PAUSE = 30  # longest Retry-After of a job beyond the limit of open jobs
RECORD_BYTES = 2**13  # bytes that the quota allows for a posterior's record on average; most have some 3,000

ALL = "*"  # stands for all tenants in GLLE_QUOTAS
_COUNTS, _SIZES = "jobs|posteriors|requests|readers|draws", "bytes|records|incoming"
_LIMIT = re.compile(rf"(?:({_COUNTS}):(?=[0-9]{{1,18}}$)|({_SIZES}):)(.{{1,18}})")


@dataclass(frozen=True)
class Quota:
    """What a tenant may store and hold; 0 means no limit, None the tenant's share (`worker.records.shares`).

    Parameters
    ----------
    bytes, posteriors
        Bytes of files, and number of posteriors.
    records
        Bytes of the records of ended jobs; the oldest records are removed first.
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
    """Quotas of all tenants.

    Parameters
    ----------
    settings
        `quotas` has the limits that differ from the defaults of `Quota`, for all tenants (`*`) and for single tenants.
    has_others
        Returns whether there can be several tenants. A single tenant may hold everything.

    Raises
    ------
    SettingsError
        If `quotas` is malformed.

    """

    def __init__(self, settings: Settings, has_others: Callable[[], bool] = lambda: True) -> None:
        self._has_others = has_others
        self._has_tenants = settings.auth != "off"
        limits: dict[str, dict[str, int]] = {ALL: {}}
        for entry in settings.quotas.split():
            tenant, _, text = entry.partition("=")
            exceptions = _limits(text)
            if not exceptions or limits.get(tenant) or not (tenant == ALL or is_tenant_name(tenant)):
                remedy = "Write it as *=jobs:20,posteriors:500 alice=bytes:5GB: * is all tenants, each tenant once."
                raise SettingsError(f"GLLE_QUOTAS: {entry!r} cannot be read. {remedy}")
            limits[tenant] = exceptions
        self.default = Quota(**limits.pop(ALL))
        self._exceptions = {tenant: replace(self.default, **exceptions) for tenant, exceptions in limits.items()}

    def for_tenant(self, tenant: str) -> Quota:
        """Return a tenant's quota."""
        return self._exceptions.get(tenant, self.default)

    def limit(self, name: str, tenant: str) -> int:
        """Return what a tenant may hold, as for `worker.records.shares.may_hold`, by the name of a quota."""
        limit: int | None = getattr(self.for_tenant(tenant), name)
        if limit is not None:
            return limit
        return SHARE if self._has_tenants and self._has_others() else UNLIMITED


def _limits(text: str) -> dict[str, int]:
    """Parse limits such as ``jobs:20,bytes:5GB``; return no limits if one of them is malformed."""
    matches = [_LIMIT.fullmatch(limit) for limit in text.split(",")]
    try:
        return {match[1] or match[2]: parse_size(match[3]) for match in matches if match} if all(matches) else {}
    except ValueError:
        return {}


def too_many_bytes(tenant: str | None, nbytes: int, stored: int, allowed: int) -> ProblemError:
    """Return the error for a file beyond the quota of stored bytes."""
    return _quota_exceeded(
        "bytes",
        f"Tenant {tenant} stores {stored:,} bytes; {nbytes:,} more would exceed the {allowed:,} allowed.",
        f"Delete data sets, posteriors or results of jobs ({Way('delete-results')}) that are no longer needed, or ask "
        "the service's operator for a larger quota.",
        BYTES_SECONDS,
        allowed=allowed,
        used=stored,
    )


def too_many_jobs(tenant: str | None, limit: int) -> ProblemError:
    """Return the error for a job beyond a tenant's quota or share."""
    remedy = "Wait until one has ended, or cancel one."
    return _share_exceeded("jobs", tenant, "open jobs", limit, MAX_JOBS, remedy, _pause())


def too_many_jobs_overall(allowed: int) -> ProblemError:
    """Return the error for a job because all tenants together have too many jobs."""
    return refuse(
        "too-many-jobs",
        503,
        f"{allowed:,} jobs wait or run; the service accepts no more.",
        "Try again later; more workers end jobs faster.",
        allowed=allowed,
        retry_after=_pause(),
    )


def too_many_draws(tenant: str, limit: int) -> ProblemError:
    """Return the error for a single draw beyond a tenant's quota or share, or beyond the limit for all tenants."""
    remedy = "Try again later, or request many draws as one job."
    return _share_exceeded("draws", tenant, "waiting requests for draws", limit, MAX_DRAWS, remedy, _pause())


def too_many_requests(tenant: str, limit: int, total: int) -> ProblemError:
    """Return the error for a request beyond a tenant's quota or share of the requests in progress."""
    noun = "requests in progress in this API process"
    remedy = "Try again later, with fewer requests at the same time."
    return _share_exceeded("requests", tenant, noun, limit, total, remedy, SHARE_SECONDS)


def too_many_incoming_bytes(tenant: str, limit: int, total: int) -> ProblemError:
    """Return the error for a body beyond a tenant's quota or share of arriving bytes."""
    noun = "bytes of bodies that this API process receives"
    remedy = "Wait until your other uploads have ended, or send fewer bytes at the same time."
    return _share_exceeded("incoming", tenant, noun, limit, total, remedy, SHARE_SECONDS)


def _share_exceeded(
    quota: str, tenant: str | None, noun: str, limit: int, total: int, remedy: str, retry_after: int
) -> ProblemError:
    """Return the error for a request that exceeds a number in GLLE_QUOTAS, or a share of the total."""
    allowed = allowed_of(limit, total)
    detail = f"Tenant {tenant} has {allowed:,} {noun}; no more are allowed."
    if limit == SHARE:
        detail = f"Tenant {tenant} has its share of the {noun}: at most {PART} times what is free of {total:,}."
    return _quota_exceeded(quota, detail, remedy, retry_after, allowed=allowed)


def _pause() -> int:
    """Return a random Retry-After, so that clients that were refused together do not return together."""
    return randint(1, MAX_PAUSE)  # noqa: S311 # no secret


def too_many_posteriors(tenant: str | None, allowed: int) -> ProblemError:
    """Return the error for a new posterior when the tenant has as many posteriors as its quota allows."""
    detail = f"Tenant {tenant} has {allowed:,} posteriors; no more are allowed."
    return _quota_exceeded("posteriors", detail, f"{_DELETE_POSTERIORS}.", BYTES_SECONDS, allowed=allowed)


_DELETE_POSTERIORS = (
    f"Delete posteriors that are no longer needed ({Way('delete-posterior')}), or ask the administrator to raise "
    "posteriors in GLLE_QUOTAS"
)


def too_many_record_bytes(tenant: str | None, nbytes: int, allowed: int) -> ProblemError:
    """Return the error for a new posterior when the records of the tenant's posteriors exceed their bytes."""
    detail = f"The records of the posteriors of tenant {tenant} have {nbytes:,} bytes; {allowed:,} are allowed."
    remedy = f"{_DELETE_POSTERIORS}, each of which allows {RECORD_BYTES:,} bytes."
    return _quota_exceeded("posteriors", detail, remedy, BYTES_SECONDS, allowed=allowed, used=nbytes)


def _quota_exceeded(quota: str, detail: str, remedy: str, retry_after: int, **details: Any) -> ProblemError:
    return refuse("quota-exceeded", 429, detail, remedy, quota=quota, retry_after=retry_after, **details)
