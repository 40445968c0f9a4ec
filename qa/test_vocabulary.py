"""The vocabulary check finds banned words, also inside identifiers, and nothing else."""

from __future__ import annotations

import pytest

from qa.vocabulary import findings


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("as told", 1), ("told_of = 1", 1), ("# Nobody waits", 1), ("a file of its own.", 1), ("a retold story", 0),
        ("neighbors of its own class", 0), ("as printed by `glle fit`", 0), ("mistoldX", 0), ("in hand", 0),
    ],
)  # fmt: skip
def test_banned_words_are_found(text: str, count: int) -> None:
    """In prose, comments and identifiers; a word that only contains a banned one is another word."""
    assert len(findings(text)) == count


def test_the_line_is_named() -> None:
    """Line numbers begin at 1."""
    assert findings("first\nlikewise\n") == [(2, "likewise", "also")]
