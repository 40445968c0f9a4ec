"""Reports of pip-audit: clean, vulnerable and unaudited pins, kept apart.

It ends with 0 when it passed over every package, with 1 for a vulnerability as for a network that is not there, and its
report is the only proof that anything was looked at.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from qa.audit.locks import Pin, requirements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qa.audit.locks import Locked

PIP_AUDIT = (sys.executable, "-m", "pip_audit")
SERVICES = ("pypi", "osv")  # asked in this order, until one answers
# What it writes when the service, or the way to it, fails; anything else is a fault of the call or of the lock files.
NO_ANSWER = re.compile(
    r"Could not connect to|^requests\.exceptions\.|^pip_audit\._service\.\S*ServiceError", re.MULTILINE
)
SECONDS = 600.0


class UnreachableError(RuntimeError):
    """The advisory service gave no answer."""


class AuditError(RuntimeError):
    """pip-audit itself failed, and not for want of an answer."""


@dataclass
class AuditReport:
    """Findings about the pins."""

    clean: set[Pin] = field(default_factory=set)
    vulnerable: dict[Pin, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def read(self, report: str) -> None:
        """Take in a report of pip-audit, as JSON."""
        for one in json.loads(report)["dependencies"]:
            if "skip_reason" in one:
                self.skipped[one["name"]] = one["skip_reason"]
                continue
            pin = Pin(one["name"], one["version"])
            if one["vulns"]:
                self.vulnerable[pin] = [_described(vulnerability) for vulnerability in one["vulns"]]
            else:
                self.clean.add(pin)


def audit_report(service: str, parts: Sequence[dict[Pin, Locked]], command: Sequence[str] = PIP_AUDIT) -> AuditReport:
    """Return what an advisory service says of all parts.

    Raises
    ------
    UnreachableError
        When it gives no answer, or knows none of the packages: then something else answers in its place.
    AuditError
        When pip-audit fails by itself.

    """
    result = AuditReport()
    with tempfile.TemporaryDirectory() as folder:
        asked, report = Path(folder) / "requirements.txt", Path(folder) / "report.json"
        for part in parts:
            asked.write_text(requirements(part), encoding="utf-8")
            report.unlink(missing_ok=True)
            flags = ["--requirement", str(asked), "--require-hashes", "--disable-pip", "--output", str(report)]
            flags += ["--vulnerability-service", service, "--format", "json", "--progress-spinner=off"]
            ran = subprocess.run([*command, *flags], check=False, capture_output=True, text=True, timeout=SECONDS)
            if not report.exists():
                last = ran.stderr.strip().rpartition("\n")[2]
                kind = UnreachableError if NO_ANSWER.search(ran.stderr) else AuditError
                raise kind(f"{service}: {last or f'pip-audit ended with {ran.returncode} and said nothing'}")
            result.read(report.read_text(encoding="utf-8"))
    if result.skipped and not result.clean and not result.vulnerable:
        raise UnreachableError(f"{service}: it knows none of the packages: {next(iter(result.skipped.values()))}")
    return result


def _described(vulnerability: dict[str, object]) -> str:
    """Return a vulnerability in one line: its names, the versions without it, and what it is."""
    names = [vulnerability["id"], *_listed(vulnerability.get("aliases"))]
    without = ", ".join(map(str, _listed(vulnerability.get("fix_versions")))) or "no version"
    return f"{' '.join(map(str, names))}, mended in {without}: {str(vulnerability.get('description', ''))[:200]}"


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
