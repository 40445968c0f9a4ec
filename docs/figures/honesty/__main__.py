"""Measure, print every row, write the tables of docs/explanation/honesty.md, and draw docs/images/honesty.png."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from docs.figures.honesty.picture import picture
from docs.figures.honesty.rows import HEAD, Row, judge, read
from docs.figures.honesty.settings import settings
from docs.figures.honesty.table import by_candidate, by_setting, render
from docs.figures.methods.tables import put

ROWS = Path(__file__).with_name("rows.jsonl")
PAGE = Path("docs/explanation/honesty.md")


def main() -> None:
    """Print the rows, then write the tables and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=40, help="of the truth, beside the one that is the data")
    parser.add_argument("--data", type=int, default=3, help="samples of a setting that serve as the data")
    parser.add_argument("--rows", type=Path, default=ROWS, help="file of the rows")
    parser.add_argument("--settings", nargs="+", metavar="WORD", help="only settings whose names contain a word")
    parser.add_argument("--again", action="store_true", help="use the rows in the file")
    options = parser.parse_args()
    if not options.again:
        print(HEAD)
        words = options.settings or [""]
        with options.rows.open("w", encoding="utf-8") as file:
            for setting in (one for one in settings() if any(word in one.name for word in words)):
                start = time.process_time()
                for row in judge(setting, samples=options.samples, data=options.data):
                    print(row.line, flush=True)
                    values = json.loads(json.dumps(asdict(row)), parse_float=lambda text: round(float(text), 4))
                    file.write(json.dumps(values) + "\n")
                    file.flush()
                print(f"<!-- {time.process_time() - start:.0f} s of processor time -->", flush=True)
    if options.settings:
        return  # the page has all settings
    rows = read_rows(options.rows)
    for name, table in render(rows).items():
        put(PAGE, name, table)
    print(by_setting(rows), by_candidate(rows), sep="\n\n")
    picture(rows, Path("docs/images/honesty.png"))


def read_rows(path: Path = ROWS) -> list[Row]:
    """Return the rows of a file."""
    return [read(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
