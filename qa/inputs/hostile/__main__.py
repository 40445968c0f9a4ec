"""`make -C qa hostile`: every reader against bodies made by hand and bodies made by chance, at large caps.

It ends with 1 where an answer is no problem of the client's, something died or hung, took more time or memory than the
caps account for, or left a file.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("HOSTILE_SCALE", "16")  # before anything reads it

from qa.inputs.hostile.bodies.caps import MOST_BYTES, MOST_SECONDS  # the scale holds from its import on
from qa.inputs.hostile.case import KINDS
from qa.inputs.hostile.run import Victim, attacked, table


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(prog="python -m qa.inputs.hostile", description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="bodies by chance of each reader")
    parser.add_argument("--readers", nargs="+", choices=KINDS, default=list(KINDS))
    chosen = parser.parse_args()
    with Victim() as victim:
        rows = {reader: attacked(victim, reader, chosen.examples) for reader in chosen.readers}
    print(table(rows))  # noqa: T201 # the command's output
    print(f"Allowed: {MOST_SECONDS:g} s of processor time, {MOST_BYTES / 2**20:.0f} MB.")  # noqa: T201
    bad = [line for row in rows.values() for line in row.bad]
    print(*bad[:50], sep="\n")  # noqa: T201
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
