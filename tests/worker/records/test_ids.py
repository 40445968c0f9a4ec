"""Isolation of tenants in the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worker.records import ids

if TYPE_CHECKING:
    from worker.stores import Stores

NAMES = st.text("ab0-", min_size=1, max_size=40).filter(ids.is_tenant_name) | st.just(ids.DEFAULT)
X = np.random.default_rng(0).normal(size=(50, 3))


@given(first=NAMES, second=NAMES, name=st.sampled_from(["glle:jobs", "glle:open", "glle:claim:c", "glle:once:x"]))
def test_no_two_tenants_share_a_name(first: str, second: str, name: str) -> None:
    """Redis keys and data set ids differ between any two tenants."""
    assert ids.is_tenant_name(first)
    assert (ids.tenant_key(name, first) == ids.tenant_key(name, second)) == (first == second)
    sha256 = "5" * 64
    assert (ids.dataset_id(sha256, first) == ids.dataset_id(sha256, second)) == (first == second)


def test_the_default_tenant_has_the_plain_names() -> None:
    """Its names are those of versions without tenants."""
    assert ids.tenant_key("glle:jobs", "default") == "glle:jobs"
    assert ids.dataset_id("ab" * 32, "default") == "ds_" + "ab" * 16


def test_a_claim_belongs_to_its_tenant(stores: Stores) -> None:
    """Equal claims of two tenants have separate jobs."""
    jobs = [
        stores.of(tenant).jobs.create(kind="advice", claim="c", posterior=None, spec={"dataset": "d"}, total=1)[0]
        for tenant in ("alice", "bob", "default", "alice")
    ]
    assert [job.tenant for job in jobs] == ["alice", "bob", "default", "alice"]
    assert len({job.id for job in jobs}) == 3
    for job in jobs:
        for tenant in ("alice", "bob", "default"):
            assert (stores.of(tenant).jobs.get(job.id) is not None) == (tenant == job.tenant)
        assert stores.jobs.get(job.id) == job  # workers read all jobs
