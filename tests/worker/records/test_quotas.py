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


def test_concurrent_jobs_respect_the_quota(stores: Stores) -> None:
    """Of sixteen concurrent jobs three are created; a job that has ended makes room."""
    jobs = stores.jobs.for_tenant("alice", Quota(jobs=3))

    def is_created(number: int) -> bool:
        try:
            return jobs.create(kind="audit", claim=str(number), posterior=None, spec={"dataset": "d"}, total=1)[1]
        except ProblemError:
            return False

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(is_created, range(16))) == 3
    ended = stores.jobs.sample_open(1)[0]
    jobs.start(ended)
    jobs.succeed(ended)
    assert is_created(16)
    assert not is_created(17)


def test_quotas_of_a_tenant_override_the_default() -> None:
    """What a tenant's entry does not name is as for all tenants (`*`), or else the default."""
    quotas = Quotas(Settings(quotas=" alice=jobs:0,posteriors:600  *=bytes:10,jobs:2 b-1=bytes:5GB"))
    assert quotas.for_tenant("alice") == Quota(10, 0, 2**26, 600)
    assert quotas.for_tenant("b-1") == Quota(5_000_000_000, 2, 2**26, 10_000)
    assert quotas.for_tenant("carol") == Quota(10, 2, 2**26, 10_000)
    held = Quotas(Settings(quotas="a=requests:9,draws:8,incoming:1MB,readers:1")).for_tenant("a")
    assert (held.requests, held.draws, held.incoming, held.readers, held.jobs) == (9, 8, 1_000_000, 1, None)


@pytest.mark.parametrize(
    "text",
    [
        "alice",
        "alice=jobs:-1",
        "alice=fits:3",
        "alice=draws:3MB",
        "A=jobs:1",
        "=jobs:1",
        "a=jobs:1 a=jobs:2",
        "*=jobs:1 *=jobs:2",
        "a=bytes:5PB",
        "a=jobs:1MB",
        "a=jobs:1,",
        "a=jobs:٣",
    ],
)
def test_an_invalid_quota_prevents_the_start(text: str) -> None:
    """No entry that cannot be read is ignored; the message shows the syntax."""
    with pytest.raises(SettingsError, match=r"of GLLE_QUOTAS is not valid\. Write, for example, \*="):
        Quotas(Settings(quotas=text))
