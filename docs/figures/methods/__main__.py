"""Measure every method, and write the tables and pictures of docs/reference/methods.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from docs.figures.methods import picture, rows, tables
from glle_engine.methods import METHODS

DOCS = Path(__file__).resolve().parents[2]
KEPT = DOCS.parent / "out" / "methods"


def compare(methods: list[str]) -> None:
    """Measure the given methods on all data sets, and store the rows; stored rows of other methods stay."""
    path = KEPT / "compare.jsonl"
    results = [row for row in rows.read_rows(path) if row.method not in methods or row.data not in rows.SETS]
    for method in methods:
        rows.warm(METHODS[method])
        for name in rows.SETS:
            row = rows.judge(name, METHODS[method])
            results.append(row)
            outcome = row.refused or " ".join(f"{score}={value:.4g}" for score, value in row.scores.items())
            print(f"{row.method} {row.data} n={row.n} {row.seconds:.3f} s: {outcome}", flush=True)
        rows.keep(results, path)


def write() -> None:
    """Write the tables between the markers of the page, and the pictures, from the stored rows."""
    page, images = DOCS / "reference" / "methods.md", DOCS / "images"
    tables.put(page, "methods", tables.listing())
    tables.put(page, "scores", tables.score_listing())
    if measured := rows.read_rows(KEPT / "compare.jsonl"):
        tables.put(page, "overview", tables.overview(measured))
        for name in rows.SETS:
            picture.multiples(measured, name, images / f"methods-{name.replace('_', '-')}.png")


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-only", action="store_true", help="measure nothing")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), help="which to compare")
    options = parser.parse_args()
    if not options.write_only:
        compare(options.methods)
    write()


if __name__ == "__main__":
    main()
