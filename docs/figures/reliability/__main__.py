"""Write the tables of docs/explanation/reliability.md from what `make chaos degraded test-hosts soak` left in out/.

    python -m docs.figures.reliability            # what is there in out/ takes the place of what was kept
    python -m docs.figures.reliability --page     # the tables alone, from what was kept

What is kept is `docs/figures/reliability/kept.json`: the tables as numbers, without the samples and logs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from docs.figures.methods.tables import put
from docs.figures.reliability import kept, tables

PAGE = Path(__file__).resolve().parents[2] / "explanation" / "reliability.md"


def main() -> None:
    """Read, keep and write."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.reliability", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the commands' reports")
    parser.add_argument("--page", action="store_true", help="write the page from what was kept")
    asked = parser.parse_args()
    told = kept.read()
    if not asked.page:
        told |= kept.taken(asked.out)
        kept.PATH.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    for name, table in tables.all_of(told).items():
        put(PAGE, name, table)


if __name__ == "__main__":
    main()
