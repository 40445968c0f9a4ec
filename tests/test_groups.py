"""With `--dist loadgroup`, the tests of a file run in one process, as those of a service do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def test_xdist_knows_the_groups(request: pytest.FixtureRequest) -> None:
    """The id that xdist schedules by ends with the group; a pytest that ignores it starts each service twice."""
    is_grouped = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith("@tests/test_groups.py") == is_grouped
