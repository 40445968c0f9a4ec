"""`make coverage`: print how many lines and branches of each package the tests ran."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from qa.frame import align, say

DEPTH = 2  # folders of a path that name a package


def main(report: Path) -> None:
    """Print a table with a row for each package, from the JSON report of coverage.py."""
    keys = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(keys))
    for name, file in json.loads(report.read_bytes())["files"].items():
        folders = Path(name).parent.parts
        for package in {"/".join(folders[:DEPTH]), folders[0], "all"}:
            sums[package] = [total + file["summary"][key] for total, key in zip(sums[package], keys, strict=True)]
    rows = [
        (package, lines, f"{covered / max(lines, 1):.1%}", branches, f"{taken / max(branches, 1):.1%}")
        for package, (lines, covered, branches, taken) in sorted(sums.items())
    ]
    say(align([("package", "lines", "covered", "branches", "covered"), *rows]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
