"""`make -C qa audit`: the known vulnerabilities of everything that the lock files pin, for every platform.

It ends with 1 where there is one, and where a package was not looked at. Where no advisory service can be reached it
says so on stderr and ends with 0; with AUDIT=required in the environment, with 1.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from qa.audit.advisories import PIP_AUDIT, SERVICES, AuditError, AuditReport, UnreachableError, audit_report
from qa.audit.locks import LOCKS, Locked, Pin, locked, rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

AUDIT = ("optional", "required")


def main(command: Sequence[str] = PIP_AUDIT) -> int:
    """Run the audit, print its report and return the exit code."""
    wanted = os.environ.get("AUDIT") or "optional"
    if wanted not in AUDIT:
        _loudly(f"AUDIT is {wanted!r}: one of {', '.join(AUDIT)}.")
        return 2
    pins = locked(LOCKS)
    silent = []
    for service in SERVICES:
        try:
            return judged(audit_report(service, rounds(pins), command), pins, service)
        except UnreachableError as error:
            silent.append(str(error))
        except AuditError as error:
            _loudly(f"The audit failed: {error}")
            return 1
    _loudly("NOT AUDITED: no advisory service could be reached.", *silent)
    _loudly(f"Nothing is known of the {len(pins)} pins; run it where one can be reached. AUDIT={wanted}.")
    return int(wanted == "required")


def judged(result: AuditReport, pins: dict[Pin, Locked], service: str) -> int:
    """Print the report; return 1 unless every pin was audited and is clean."""
    for pin, vulnerabilities in sorted(result.vulnerable.items()):
        where = pins.get(pin, Locked(frozenset(), frozenset())).locks
        _loudly(*(f"{pin} ({', '.join(sorted(where))}): {one}" for one in vulnerabilities))
    unasked = sorted(set(pins) - result.clean - set(result.vulnerable))
    _loudly(*(f"{pin} was not looked at: {result.skipped.get(pin.name, 'no word of it')}" for pin in unasked))
    counts = f"{len(result.clean)} clean, {len(result.vulnerable)} vulnerable, {len(unasked)} not looked at"
    print(f"{len(pins)} pins, by {service}: {counts}.")  # noqa: T201 # the command's output
    return int(bool(result.vulnerable or unasked))


def _loudly(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
