"""What a tenant may have at once, where it is decided."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError
from worker.storage.datasets import Table
from worker.tenancy.quotas import JobLimits, Quota, Quotas

if TYPE_CHECKING:
    from worker.stores import Stores

X = np.random.default_rng(0).normal(size=(50, 3))


def test_labels_count_too(stores: Stores) -> None:
    """A quota is of what the files take, not of the values alone."""
    here = stores.datasets.of("alice", 50_000)
    with pytest.raises(ProblemError, match="50,000 allowed"):
        here.add(Table(values=X, labels=np.array(["x" * 1000] * 50), source={}))
    here.add(Table(values=X, source={}))


def test_two_uploads_at_once_do_not_both_take_the_last_room(stores: Stores) -> None:
    """Of eight that fit one by one, one is stored."""
    here = stores.datasets.of("alice", 2500)

    def stored(shift: int) -> bool:
        try:
            return here.add(Table(values=X + shift, source={}))[1]
        except ProblemError as error:
            return error.problem.code != "quota-exceeded"

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(stored, range(8))) == 1


def test_a_job_counts_until_it_has_ended(stores: Stores) -> None:
    """Running and being cancelled it does, whatever its end it does not, and again when it is reopened."""
    jobs = stores.of("alice").jobs.of("alice", JobLimits(open=1))

    def create(claim: str) -> str:
        return jobs.create(kind="advice", claim=claim, posterior=None, spec={"dataset": "d"}, total=1)[0].id

    def is_full() -> bool:
        try:
            jobs.cancel(create("another"))
        except ProblemError as error:
            return error.problem.code == "quota-exceeded"
        return False

    one = create("one")
    stores.jobs.start(one)
    assert is_full()
    jobs.cancel(one)
    assert is_full()
    stores.jobs.succeed(one)
    assert not is_full()
    two = create("two")
    with pytest.raises(ProblemError, match="no more are allowed"):
        jobs.reopen(jobs.fetch(one))
    stores.jobs.start(two)
    stores.jobs.cancel(two)
    stores.jobs.finish_cancel(two)
    assert jobs.reopen(jobs.fetch(one))
    assert is_full()


def test_racing_jobs_do_not_pass_the_quota(stores: Stores) -> None:
    """Of sixteen at once three are made."""
    jobs = stores.jobs.of("alice", JobLimits(open=3))

    def made(number: int) -> bool:
        try:
            return jobs.create(kind="advice", claim=str(number), posterior=None, spec={"dataset": "d"}, total=1)[1]
        except ProblemError:
            return False

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(made, range(16))) == 3


def test_quotas_of_tenants_are_everybodys_but_for_what_is_told() -> None:
    """Each of the three by itself; a tenant that is not named has everybody's."""
    quotas = Quotas(Settings(quota_bytes=10, quota_jobs=2, quotas=" alice=jobs:0,requests:600  b-1=bytes:5000000000"))
    assert quotas.of("alice") == Quota(10, 0, 600, 10_000, 10_000)
    assert quotas.of("b-1") == Quota(5_000_000_000, 2, 0, 10_000, 10_000)
    assert quotas.of("carol") == Quota(10, 2, 0, 10_000, 10_000)


@pytest.mark.parametrize(
    "text",
    ["alice", "alice=", "alice=jobs", "alice=jobs:-1", "alice=draws:3", "A=jobs:1", "=jobs:1", "a=jobs:1 a=jobs:2"],
)
def test_quotas_that_cannot_be_read_keep_it_from_starting(text: str) -> None:
    """None of them is left out silently; the message shows how it is written."""
    with pytest.raises(SettingsError, match=r"GLLE_QUOTAS: .* cannot be read\. Write it as tenant="):
        Quotas(Settings(quotas=text))
