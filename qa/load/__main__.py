"""`python -m qa.load`: put a load on a running service and print a summary."""

from __future__ import annotations

import argparse
import sys

from qa.load.ledger import percentiles
from qa.load.running import Load, run


def main() -> int:
    """Run the load; return 1 if an answer was wrong or an error."""
    parser = argparse.ArgumentParser(prog="python -m qa.load", description=__doc__)
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    urls = options.pop("url")
    ledger = run(Load(**options), urls)
    print(f"{ledger.requests} requests, {ledger.received} arrays, {len(ledger.jobs)} jobs")  # noqa: T201 # the command's output
    for operation in ledger.operations():
        seconds = ledger.seconds(operation)
        label = "  ".join(f"{name} {1000 * value:.0f} ms" for name, value in percentiles(seconds).items())
        print(f"{operation:18} {len(seconds):6}  {label}")  # noqa: T201
    for fault in (*ledger.faults, *ledger.errors()):
        print(fault)  # noqa: T201
    return 1 if ledger.faults or ledger.errors() else 0


if __name__ == "__main__":
    sys.exit(main())
