"""Write the tables of docs/explanation/reliability.md from the reports of `make -C qa chaos degraded hosts soak`.

    python -m docs.figures.reliability            # reports in out/ replace the stored ones
    python -m docs.figures.reliability --page     # write the tables from the stored reports

`docs/figures/reliability/kept.json` stores the numbers of the tables, without samples and logs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from docs.figures.methods.tables import put
from docs.figures.reliability import kept, tables

PAGE = Path(__file__).resolve().parents[2] / "explanation" / "reliability.md"


def main() -> None:
    """Read the reports, store them, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.reliability", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the commands' reports")
    parser.add_argument("--page", action="store_true", help="write the page from the stored reports")
    options = parser.parse_args()
    reports = kept.read()
    if not options.page:
        reports |= kept.excerpts(options.out)
        kept.PATH.write_text(json.dumps(reports, indent=1) + "\n", "utf-8")
    for name, table in tables.render(reports).items():
        put(PAGE, name, table)


if __name__ == "__main__":
    main()
