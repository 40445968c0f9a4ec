"""Size limits of the attacked service, and the allowed cost of a body."""

from __future__ import annotations

import os

VARIABLE = "HOSTILE_SCALE"  # 1 in the tests; `python -m qa.inputs.hostile` takes more
SCALE = int(os.environ.get(VARIABLE, "1"))

MAX_BODY, MAX_INFLATED, MAX_JSON = SCALE * 2**20, SCALE * 2**21, SCALE * 2**16
# A body is mapped as a file is, what it unpacks to as well, and again as it is stored; rows of text, blocks of numbers
# and what JSON parses to are held besides.
MOST_BYTES = 2 * (MAX_BODY + MAX_INFLATED) + 24 * MAX_JSON + 64 * 2**20
MOST_SECONDS = 10.0  # of processor time, on a machine that is busy with other things
