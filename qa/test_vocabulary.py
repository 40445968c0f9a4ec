"""The vocabulary check finds banned words, also inside identifiers, and nothing else."""

from __future__ import annotations

import pytest

from qa.vocabulary import findings


@pytest.mark.parametrize(
    "text", ["as told", "told_of = 1", "# Nobody waits", "a file of its own.", "`calibration_told`"]
)
def test_banned_words_are_found(text: str) -> None:
    """In prose, comments and identifiers."""
    assert len(findings(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "a retold story",
        "neighbors of its own class",
        "as printed by `glle fit`",
        "mistoldX",
        "its own file",
        "printed",
        "the host",
        "in hand",
    ],
)
def test_other_words_pass(text: str) -> None:
    """A word that only contains a banned one is another word."""
    assert findings(text) == []


def test_the_line_is_named() -> None:
    """Line numbers begin at 1."""
    assert findings("first\nlikewise\n") == [(2, "likewise", "also")]
