"""`python -m qa.inputs.hostile.child FOLDER`: uploads what comes on standard input, in a process that may die of it.

A case is a line of JSON, {"reader", "query", "bytes"}, and the body; the answer is a line of JSON, a `Outcome`.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from qa.inputs.hostile.service import Service, encoded

MOST_MEMORY = 6 * 2**30  # addresses of the whole process: so that what is not bounded ends here, and not the machine


def main() -> None:
    """Answer until there is no more."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Service(Path(sys.argv[1])) as service:
        for reader in ("arrow", "parquet"):  # what is imported once is no case's memory
            service.upload(reader, b"nothing")
        while line := sys.stdin.buffer.readline():
            case = json.loads(line)
            body = sys.stdin.buffer.read(case["bytes"])
            result = service.upload(case["reader"], body, case["query"])
            if not service.takes_a_good_one():
                raise SystemExit("the next good upload was refused")
            sys.stdout.buffer.write(encoded(result))
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
