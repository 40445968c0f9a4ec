"""Jobs: which fits are quick, and when a job ends."""

from __future__ import annotations

from typing import Any

import pytest

from worker.base.clock import now_ms
from worker.records.job import BATCH, Job, is_quick_fit


@pytest.mark.parametrize(
    ("n", "d", "changes", "is_quick"),
    [(5000, 100, {}, True), (5001, 3, {}, False), (5000, 101, {}, False), (500, 3, {"n_neighbors": 31}, False),
     (500, 3, {"variant": "published"}, False)],
)  # fmt: skip
def test_a_quick_fit_is_small_in_every_respect(n: int, d: int, changes: dict[str, Any], *, is_quick: bool) -> None:
    """Many points, features or neighbors, or EM, make a fit long."""
    assert is_quick_fit(n, d, {"n_neighbors": 30, "variant": "constrained", **changes}) == is_quick


def test_a_job_goes_on_at_the_rate_of_its_stage() -> None:
    """Four steps in six seconds leave nine seconds for six more."""
    job = Job(
        id="job_1", kind="fit", status="running", done=6, total=12, stage="draws", created="now", spec={}, touched=0,
        since=now_ms() - 6000, base=2, tenant="default", queue=BATCH,
    )  # fmt: skip
    assert job.eta == pytest.approx(9, abs=0.5)
