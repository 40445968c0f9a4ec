"""`python -m qa.inputs.hostile.child FOLDER`: upload bodies from standard input in a process that may die.

A case is a line of JSON, {"reader", "query", "bytes"}, and the body; the answer is an `Outcome` as a line of JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from qa.inputs.hostile.service import Service, encoded

MAX_MEMORY = 6 * 2**30  # address space, so that unbounded memory ends this process instead of the machine


def main() -> None:
    """Answer cases until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Service(Path(sys.argv[1])) as service:
        for reader in ("arrow", "parquet"):  # so that imports are not counted as memory of a case
            service.upload(reader, b"nothing")
        while line := sys.stdin.buffer.readline():
            case = json.loads(line)
            body = sys.stdin.buffer.read(case["bytes"])
            result = service.upload(case["reader"], body, case["query"])
            if not service.accepts_a_valid_upload():
                raise SystemExit("the next good upload was refused")
            sys.stdout.buffer.write(encoded(result))
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
