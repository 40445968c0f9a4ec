"""`make -C qa hostile`: try handmade and randomly changed bodies on every parser of uploads.

All handmade bodies and the changed ones (mutants) are uploaded to a service. The exit code is 1 if an answer is no
client error, if time or memory is beyond the limits, or if a file is left over; a crash of the service ends the
program. Seed, reader and number determine a mutant; the report names them.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HOSTILE_SCALE", "16")  # before the settings are read

from qa.frame import say
from qa.inputs.hostile.case import KINDS, MAX_BYTES, MAX_SECONDS  # the scale is read at import
from qa.inputs.hostile.run import Service, table, upload_all

MAX_MEMORY = 6 * 2**30  # address space, so that unbounded memory ends this process instead of the machine


def main() -> int:
    """Try all bodies, and print a table and what went wrong; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m qa.inputs.hostile", description=__doc__)
    parser.add_argument("--seed", default="hostile", help="seed of the mutants, any word")
    parser.add_argument("--mutants", type=int, default=1000, help="mutants for each reader")
    parser.add_argument("--readers", nargs="+", choices=KINDS, default=list(KINDS))
    chosen = parser.parse_args()
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="glle-hostile-") as folder, Service(Path(folder)) as service:
        for reader in ("arrow", "parquet"):  # so that imports are not counted as memory of a case
            service.upload(reader, b"nothing")
        rows = {each: upload_all(service, each, chosen.seed, range(chosen.mutants)) for each in chosen.readers}
    say(table(rows))
    say(f"Allowed: {MAX_SECONDS:g} s of processor time, {MAX_BYTES / 2**20:.0f} MB.")
    bad = [line for row in rows.values() for line in row.bad]
    say(*bad[:50])
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
