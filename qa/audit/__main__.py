"""`make -C qa audit`: look up known vulnerabilities of every package that a lock file pins, for every platform.

The exit code is 1 if a package has a known vulnerability or was not looked up. If no advisory service answers, it is 0
with a message on stderr, or 1 with AUDIT=required in the environment.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from qa.audit.advisories import (
    LOCKS,
    PIP_AUDIT,
    SERVICES,
    AuditError,
    UnreachableError,
    audit_report,
    read_pins,
    rounds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qa.audit.advisories import AuditReport, Locked, Pin

AUDIT = ("optional", "required")


def main(command: Sequence[str] = PIP_AUDIT) -> int:
    """Run pip-audit (`command`) on all pins, print its findings and return the exit code."""
    mode = os.environ.get("AUDIT") or "optional"
    if mode not in AUDIT:
        _print_error(f"AUDIT={mode!r} is unknown. Use one of {', '.join(AUDIT)}.")
        return 2
    pins = read_pins(LOCKS)
    silent = []
    for service in SERVICES:
        try:
            return print_report(audit_report(service, rounds(pins), command), pins, service)
        except UnreachableError as error:
            silent.append(str(error))
        except AuditError as error:
            _print_error(f"The audit failed: {error}")
            return 1
    _print_error("NOT AUDITED: no advisory service could be reached.", *silent)
    _print_error(f"The {len(pins)} pins are unchecked. Run the audit with network access. AUDIT={mode}.")
    return int(mode == "required")


def print_report(result: AuditReport, pins: dict[Pin, Locked], service: str) -> int:
    """Print the findings of an advisory service; return 1 unless every pin was looked up and has no vulnerability."""
    for pin, vulnerabilities in sorted(result.vulnerable.items()):
        where = pins[pin].locks if pin in pins else ()
        _print_error(*(f"{pin} ({', '.join(sorted(where))}): {vulnerability}" for vulnerability in vulnerabilities))
    unaudited = sorted(set(pins) - result.clean - set(result.vulnerable))
    reasons = {pin: result.skipped.get(pin.name, "it is missing from the report") for pin in unaudited}
    _print_error(*(f"{pin} was not audited: {reason}" for pin, reason in reasons.items()))
    counts = f"{len(result.clean)} clean, {len(result.vulnerable)} vulnerable, {len(unaudited)} not audited"
    print(f"{len(pins)} pins, by {service}: {counts}.")  # noqa: T201 # the command's output
    return int(bool(result.vulnerable or unaudited))


def _print_error(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m qa.audit", description=__doc__).parse_args()
    sys.exit(main())
