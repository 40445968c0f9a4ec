"""Size limits of the attacked service, and the allowed cost of a body."""

from __future__ import annotations

import os

from service.uploads.limits import INFLATION
from service.uploads.registry import format_of

VARIABLE = "HOSTILE_SCALE"  # 1 in the tests; larger in `python -m qa.inputs.hostile`
SCALE = int(os.environ.get(VARIABLE, "1"))

MAX_BODY = SCALE * 2**20
MAX_INFLATED, MAX_JSON = INFLATION * MAX_BODY, format_of("application/json").max_bytes(MAX_BODY)
# A body is mapped as a file, as are its decompressed and stored forms. Text rows, number blocks and parsed JSON
# are held in memory besides.
MAX_BYTES = 2 * (MAX_BODY + MAX_INFLATED) + 24 * MAX_JSON + 64 * 2**20
MAX_SECONDS = 10.0  # processor time on a busy machine
