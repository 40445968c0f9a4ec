"""Check that code and pages avoid words that hide their meaning: `python -m qa.vocabulary`.

Each word has a plain replacement. Identifiers count, too: `told_of` contains told.
"""

from __future__ import annotations

import re
import sys

from qa.frame import say, tracked_files

REPLACEMENTS = {  # "of its own class" and "as printed by the command" are plain
    r"told": "reported, returned, stated, logged",
    r"whoever": "the client, the caller, the user",
    r"nobody": "no client, no worker",
    r"likewise": "also",
    r"at hand": "resident, in memory",
    r"of (?:its|their) own(?! \w)": "separate",
    r"lets in": "authenticates",
    r"as printed(?! by)": "as published",
    r"looked after": "maintained",
}
WORDS = re.compile(rf"(?<![a-zA-Z])(?:{'|'.join(f'({word})' for word in REPLACEMENTS)})(?![a-zA-Z])", re.IGNORECASE)
EXEMPT = {"LICENSE", "qa/vocabulary.py", "qa/test_language.py"}


def findings(text: str) -> list[tuple[int, str, str]]:
    """Return (line number, word, replacement) of every banned word in a text."""
    replacements = list(REPLACEMENTS.values())
    lines = enumerate(text.splitlines(), start=1)
    return [
        (number, match[0].lower(), replacements[(match.lastindex or 1) - 1])
        for number, line in lines
        for match in WORDS.finditer(line)
    ]


def main() -> int:
    """Print each finding with its replacement; return 1 if there is one."""
    found = [
        f"{name}:{number}: {word}: write {replacement}"
        for name, content in tracked_files().items()
        if name not in EXEMPT
        for number, word, replacement in findings(content)
    ]
    say(*found)
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
