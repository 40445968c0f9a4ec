"""Check that code and pages avoid words that hide their meaning: `python -m qa.vocabulary`.

Each word has a plain replacement. Identifiers count, too: `told_of` contains told.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
SUFFIXES = {".py", ".md", ".js", ".ts", ".html", ".yml", ".yaml", ".toml", ".sh", ""}
VENDORED = ("service/explorer/vendor/", "LICENSE", "qa/vocabulary.py", "qa/test_vocabulary.py")


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
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S607 # the git of the machine
    names = [name for name in listing.stdout.splitlines() if Path(name).suffix in SUFFIXES]
    count = 0
    for name in names:
        path = ROOT / name
        if name.startswith(VENDORED) or not path.is_file():
            continue
        for number, word, replacement in findings(path.read_text(encoding="utf-8")):
            sys.stdout.write(f"{name}:{number}: {word}: write {replacement}\n")
            count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
