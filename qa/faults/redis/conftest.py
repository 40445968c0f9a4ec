"""Marks of the topology tests, and a table of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


FIGURES: list[tuple[str, str]] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, because they take minutes and have a separate target."""
    for item in items:
        if "qa/faults/redis/" in item.path.as_posix():
            item.add_marker(pytest.mark.redis)
            item.add_marker(pytest.mark.timeout(400))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the measured figures."""
    width = max((len(name) for name, _ in FIGURES), default=0)
    for name, value in FIGURES:
        terminalreporter.write_line(f"{name:<{width}}  {value}")


@pytest.fixture
def figure() -> Callable[[str, object], None]:
    """Return a function that adds a figure to the final table."""
    return lambda name, value: FIGURES.append((name, f"{value:.1f} s" if isinstance(value, float) else str(value)))
