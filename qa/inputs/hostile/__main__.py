"""`make -C qa hostile`: every upload parser against handmade and generated bodies, at large caps.

The exit code is 1 if an answer is not a client problem, a process died or hung, time or memory exceeded the caps, or
a file remained.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("HOSTILE_SCALE", "16")  # before the settings are read

from qa.inputs.hostile.bodies.caps import MAX_BYTES, MAX_SECONDS  # the scale is read at import
from qa.inputs.hostile.case import KINDS
from qa.inputs.hostile.run import Victim, attack, table


def main() -> int:
    """Run the bodies and print the table."""
    parser = argparse.ArgumentParser(prog="python -m qa.inputs.hostile", description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="number of generated bodies for each reader")
    parser.add_argument("--readers", nargs="+", choices=KINDS, default=list(KINDS))
    chosen = parser.parse_args()
    with Victim() as victim:
        rows = {reader: attack(victim, reader, chosen.examples) for reader in chosen.readers}
    print(table(rows))  # noqa: T201 # the command's output
    print(f"Allowed: {MAX_SECONDS:g} s of processor time, {MAX_BYTES / 2**20:.0f} MB.")  # noqa: T201
    bad = [line for row in rows.values() for line in row.bad]
    print(*bad[:50], sep="\n")  # noqa: T201
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
