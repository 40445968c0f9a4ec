"""Changes of logic turn what they name, and nothing else."""

from __future__ import annotations

import pytest

from qa.mutations.changes import find_changes

SOURCE = '''
MODULE = 1 + 1


def f(a: int | None, b: int = 2) -> object:
    """Return a text."""
    {}
'''


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("return a < b", {"return (a >= b)"}),
        ("return a in (b, 1)", {"return (a not in (b, 1))"}),
        ("return a and b", {"return (a or b)"}),
        ("return not a", {"return (a)"}),
        ("return a if b else 3", {"return (3 if b else a)"}),
        ("return a * b - 1", {"return (a * b + 1)", "return (a / b) - 1"}),
        ('return "é" + f"{a}", a is None', {'return "é" + f"{a}", (a is not None)'}),
        ("return [1] + [2]", set()),
        ('return f"{a < b}"', set()),
    ],
)
def test_each_kind_is_changed_alone(statement: str, expected: set[str]) -> None:
    """Comparisons, and/or, negations, choices and signs of functions; texts, lists and the module stay."""
    source = SOURCE.format(statement)
    sources = {change.apply(source.encode()).decode() for change in find_changes(source.encode())}
    assert sources == {SOURCE.format(changed) for changed in expected}
