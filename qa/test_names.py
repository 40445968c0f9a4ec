"""The check of names finds participles, repeated class names and `MOST_`, and nothing else."""

from __future__ import annotations

import pytest

from qa.names import findings


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("worker/a.py", "def sealed(): ..."),
        ("worker/a.py", "class A:\n    async def _calibrated(self): ..."),
        ("service/explorer/js/a.js", "export function placed(embedding) {"),
        ("service/explorer/js/a.js", "const quoted = (value) => value;"),
        ("docs/figures/a.py", "def outer():\n    def found(): ..."),
        ("glle_engine/a.py", "MOST_POINTS = 3"),
    ],
)
def test_bad_names_are_found(path: str, source: str) -> None:
    """Of functions on every level, in every language, and of limits."""
    (found,) = findings({path: source})
    assert found.startswith(f"{path}:{1 + source.count(chr(10))}: ")


@pytest.mark.parametrize(
    "source",
    [
        "def seal(): ...",
        "def need(): ...",
        "def sealed_archive(): ...",
        "def embed(): ...",
        "class A:\n    @cached_property\n    def transposed(self): ...",
        "sealed = 1",
        "const quoted = value;",
    ],
)
def test_good_names_pass(source: str) -> None:
    """Verbs, nouns, properties and variables."""
    path = "service/a.js" if source.startswith("const") else "service/a.py"
    assert findings({path: source}) == []


def test_a_class_has_one_module() -> None:
    """Private classes and programs beside the product may repeat a name."""
    repeated = "class Cost:\n    ..."
    assert len(findings({"worker/a.py": repeated, "glle_engine/b.py": repeated})) == 2
    assert findings({"worker/a.py": repeated, "bench/b.py": repeated}) == []
    assert findings({"worker/a.py": "class _Cost: ...", "glle_engine/b.py": "class _Cost: ..."}) == []
