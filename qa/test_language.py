"""The checks of names and words find what they should, and nothing else."""

from __future__ import annotations

import pytest

from qa import names, vocabulary


@pytest.mark.parametrize(
    ("path", "source", "is_bad"),
    [
        ("worker/a.py", "def sealed(): ...", True),
        ("worker/a.py", "class A:\n    async def _calibrated(self): ...", True),
        ("service/explorer/js/a.js", "export function placed(embedding) {", True),
        ("service/explorer/js/a.js", "const quoted = (value) => value;", True),
        ("docs/figures/a.py", "def outer():\n    def found(): ...", True),
        ("glle_engine/a.py", "MOST_POINTS = 3", True),
        ("service/a.py", "def seal(): ...", False),
        ("service/a.py", "def need(): ...", False),
        ("service/a.py", "def sealed_archive(): ...", False),
        ("service/a.py", "def embed(): ...", False),
        ("service/a.py", "class A:\n    @cached_property\n    def transposed(self): ...", False),
        ("service/a.py", "sealed = 1", False),
        ("service/a.js", "const quoted = value;", False),
    ],
)
def test_bare_participles_and_other_limits_are_found(path: str, source: str, *, is_bad: bool) -> None:
    """In functions on every level and in every language; verbs, nouns, properties and variables pass."""
    found = names.findings({path: source})
    assert len(found) == is_bad
    assert all(line.startswith(f"{path}:{1 + source.count(chr(10))}: ") for line in found)


def test_a_class_has_one_module() -> None:
    """Private classes and programs beside the product may repeat a name."""
    repeated = "class Cost:\n    ..."
    for sources, count in (
        ({"worker/a.py": repeated, "glle_engine/b.py": repeated}, 2),
        ({"worker/a.py": repeated, "bench/b.py": repeated}, 0),
        ({"worker/a.py": "class _Cost: ...", "glle_engine/b.py": "class _Cost: ..."}, 0),
    ):
        assert len(names.findings(sources)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("as told", 1), ("told_of = 1", 1), ("# Nobody waits", 1), ("a file of its own.", 1), ("a retold story", 0),
        ("neighbors of its own class", 0), ("as printed by `glle fit`", 0), ("mistoldX", 0), ("in hand", 0),
    ],
)  # fmt: skip
def test_banned_words_are_found(text: str, count: int) -> None:
    """In prose, comments and identifiers, with the line; a word that only contains a banned one is another word."""
    assert [line for line, *_ in vocabulary.findings(f"first\n{text}\n")] == [2] * count
