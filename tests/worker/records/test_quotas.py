"""Quotas of tenants: bytes, jobs and requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError
from worker.records.quotas import Quota, Quotas

if TYPE_CHECKING:
    from worker.stores import Stores

X = np.random.default_rng(0).normal(size=(50, 3))


def test_a_job_counts_until_it_has_ended(stores: Stores) -> None:
    """Running, cancelling and reopened jobs count, ended ones do not."""
    jobs = stores.of("alice").jobs.of("alice", Quota(jobs=1))

    def create(claim: str) -> str:
        return jobs.create(kind="advice", claim=claim, posterior=None, spec={"dataset": "d"}, total=1)[0].id

    def is_full() -> bool:
        try:
            jobs.cancel(create("another"))
        except ProblemError as error:
            return error.problem.code == "quota-exceeded"
        return False

    first = create("one")
    stores.jobs.start(first)
    assert is_full()
    jobs.cancel(first)
    assert is_full()
    stores.jobs.succeed(first)
    assert not is_full()
    second = create("two")
    with pytest.raises(ProblemError, match="no more are allowed"):
        jobs.reopen(jobs.fetch(first))
    stores.jobs.start(second)
    stores.jobs.cancel(second)
    stores.jobs.finish_cancel(second)
    assert jobs.reopen(jobs.fetch(first))
    assert is_full()


def test_concurrent_jobs_respect_the_quota(stores: Stores) -> None:
    """Of sixteen concurrent jobs three are created."""
    jobs = stores.jobs.of("alice", Quota(jobs=3))

    def is_created(number: int) -> bool:
        try:
            return jobs.create(kind="advice", claim=str(number), posterior=None, spec={"dataset": "d"}, total=1)[1]
        except ProblemError:
            return False

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(is_created, range(16))) == 3


def test_quotas_of_a_tenant_override_the_default() -> None:
    """Each quota has a separate default, which applies to tenants without an entry."""
    quotas = Quotas(Settings(quotas=" alice=jobs:0,requests:600  *=bytes:10,jobs:2 b-1=bytes:5GB"))
    assert quotas.of("alice") == Quota(10, 0, 600, 2**26, 10_000)
    assert quotas.of("b-1") == Quota(5_000_000_000, 2, 0, 2**26, 10_000)
    assert quotas.of("carol") == Quota(10, 2, 0, 2**26, 10_000)


@pytest.mark.parametrize(
    "text",
    [
        "alice",
        "alice=",
        "alice=jobs",
        "alice=jobs:-1",
        "alice=draws:3",
        "A=jobs:1",
        "=jobs:1",
        "a=jobs:1 a=jobs:2",
        "*=jobs:1 *=jobs:2",
        "a=bytes:many",
        "a=bytes:5PB",
        "a=jobs:1MB",
        "a=jobs:1,",
        "a=jobs:٣",
        "**=jobs:1",
    ],
)
def test_an_invalid_quota_prevents_the_start(text: str) -> None:
    """No entry is ignored silently; the message shows the syntax."""
    with pytest.raises(SettingsError, match=r"GLLE_QUOTAS: .* cannot be read\. Write it as \*="):
        Quotas(Settings(quotas=text))
