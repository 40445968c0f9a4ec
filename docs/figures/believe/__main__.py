"""Audit PCA and LLE of every law, and compare each statement with other samples: `make believe`.

`python -m docs.figures.believe --keep FILE` keeps the figures as JSON lines, and reads those that the file has already.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"

from docs.figures.believe.laws import KNOWN
from docs.figures.believe.measure import Row, measure
from docs.figures.believe.table import print_goals
from docs.figures.believe.unseen import UNSEEN


def main() -> None:
    """Measure every law and method, and print the goals of both groups of laws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["pca", "glle"])
    parser.add_argument("--keep", type=Path, default=Path("out/believe.jsonl"))
    options = parser.parse_args()
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    lines = options.keep.read_text(encoding="utf-8").splitlines() if options.keep.exists() else []
    kept: dict[tuple[str, str], Row] = {(row["law"], row["method"]): row for row in map(json.loads, lines)}
    for title, laws in (("known laws", KNOWN), ("unseen laws", UNSEEN)):
        for method in options.methods:
            rows = []
            for law in laws:
                if (row := kept.get((law.name, method))) is None:
                    row = measure(law, method)
                    with options.keep.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                rows.append(row)
            print_goals(f"{title}, {method}", rows)


if __name__ == "__main__":
    main()
