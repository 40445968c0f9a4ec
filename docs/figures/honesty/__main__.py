"""Measure, print every row and the tables of docs/explanation/honesty.md, and draw docs/images/honesty.png."""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from docs.figures.honesty.picture import picture
from docs.figures.honesty.rows import HEAD, Row, judge
from docs.figures.honesty.settings import settings
from docs.figures.honesty.table import tables


def main() -> None:
    """Print the rows, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--draws", type=int, default=80)
    parser.add_argument("--laws", nargs="+", default=["isotropic", "tangent"], choices=["isotropic", "tangent"])
    parser.add_argument("--rows", type=Path, default=Path("out/honesty.jsonl"), help="file of the rows")
    parser.add_argument("--again", action="store_true", help="use the rows in the file")
    options = parser.parse_args()
    if not options.again:
        options.rows.parent.mkdir(parents=True, exist_ok=True)
        print(HEAD)
        with options.rows.open("w", encoding="utf-8") as file:
            for setting in settings():
                for law in options.laws:
                    for row in judge(setting, law, options.replicates, options.draws):
                        print(row.line, flush=True)
                        file.write(json.dumps(asdict(row)) + "\n")
                        file.flush()
    rows = [Row(**json.loads(line)) for line in options.rows.read_text(encoding="utf-8").splitlines()]
    print(tables(rows))
    picture(rows, Path("docs/images/honesty.png"))


if __name__ == "__main__":
    main()
