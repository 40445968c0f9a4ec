"""Jobs: which fits are quick."""

from __future__ import annotations

from typing import Any

import pytest

from worker.records.job import is_quick_fit


@pytest.mark.parametrize(
    ("n", "d", "changes", "is_quick"),
    [(5000, 100, {}, True), (5001, 3, {}, False), (5000, 101, {}, False), (500, 3, {"n_neighbors": 31}, False),
     (500, 3, {"variant": "published"}, False)],
)  # fmt: skip
def test_a_quick_fit_is_small_in_every_respect(n: int, d: int, changes: dict[str, Any], *, is_quick: bool) -> None:
    """Many points, features or neighbors, or EM, make a fit long."""
    assert is_quick_fit(n, d, {"n_neighbors": 30, "variant": "constrained", **changes}) == is_quick
