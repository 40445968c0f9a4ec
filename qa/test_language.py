"""The checks of names and words find what they should, and nothing else."""

from __future__ import annotations

from qa import names, vocabulary

BAD = {
    "worker/a.py": "class A:\n    async def _calibrated(self): ...",
    "service/explorer/js/a.js": "export function placed(embedding) {\nconst quoted = (value) => value;",
    "docs/figures/a.py": "def outer():\n    def found(): ...",
    "glle_engine/a.py": "MOST_POINTS = 3",
}
GOOD = {
    "service/a.py": "def seal(): ...\ndef need(): ...\ndef sealed_archive(): ...\ndef embed(): ...\nsealed = 1",
    "service/b.py": "class B:\n    @cached_property\n    def transposed(self): ...",
    "service/c.js": "const quoted = value;",
}


def test_names_are_found() -> None:
    """Participles in functions on every level and in every language, other limits, and classes of one name."""
    found = names.findings(BAD | GOOD)
    assert [line.rsplit(": ", 2)[1] for line in found] == ["_calibrated", "placed", "quoted", "found", "MOST_POINTS"]
    repeated = "class Cost:\n    ..."
    assert len(names.findings({"worker/a.py": repeated, "glle_engine/b.py": repeated})) == 2
    assert names.findings({"worker/a.py": repeated, "bench/b.py": repeated}) == []


def test_banned_words_are_found() -> None:
    """In prose, comments and identifiers, with the line; a word that only contains a banned one is another word."""
    bad = ["as told", "told_of = 1", "# Nobody waits", "a file of its own."]
    good = ["a retold story", "neighbors of its own class", "as printed by `glle fit`", "mistoldX", "in hand"]
    assert [line for line, *_ in vocabulary.findings("\n".join([*good, *bad]))] == [6, 7, 8, 9]
