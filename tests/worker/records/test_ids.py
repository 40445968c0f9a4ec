"""Isolation of tenants in the stores."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worker.records import ids

NAMES = st.from_regex("[ab0][ab0-]{0,3}", fullmatch=True) | st.just(ids.DEFAULT)
X = np.random.default_rng(0).normal(size=(50, 3))


@given(first=NAMES, second=NAMES, name=st.sampled_from(["glle:jobs", "glle:open", "glle:claim:c", "glle:once:x"]))
def test_no_two_tenants_share_a_name(first: str, second: str, name: str) -> None:
    """Redis keys and data set ids differ between any two tenants."""
    assert ids.is_tenant_name(first)
    assert (ids.tenant_key(name, first) == ids.tenant_key(name, second)) == (first == second)
    sha256 = "5" * 64
    assert (ids.dataset_id(sha256, first) == ids.dataset_id(sha256, second)) == (first == second)
    assert ids.tenant_key(name, ids.DEFAULT) == name


def test_an_id_of_another_kind_is_named() -> None:
    """The remedy names both kinds; an id of the right kind, or of none, has no remedy."""
    assert ids.other_kind("job_1", "datasets") == "Give the id of a data set: job_1 is the id of a job."
    assert [ids.other_kind(each, "datasets") for each in ("ds_1", "iris")] == ["", ""]
