"""Read the pins of the lock files, run pip-audit on them, and read its report.

The exit code of pip-audit does not tell enough: it is 0 even if every package was skipped, and 1 for a vulnerability as
for a missing network. Only the report proves that a package was looked up. pip-audit accepts one version of a package
at a time, so packages that are pinned in several versions need several runs.
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

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PIP_AUDIT = (sys.executable, "-m", "pip_audit")
SERVICES = ("pypi", "osv")  # in this order, until one answers
# stderr of pip-audit if the service or the network fails; other errors are faults of the call or of the lock files
NO_ANSWER = re.compile(
    r"Could not connect to|^requests\.exceptions\.|^pip_audit\._service\.\S*ServiceError", re.MULTILINE
)
SECONDS = 600.0


@dataclass(frozen=True, order=True)
class Pin:
    """A package with its version; the name is normalized, as on PyPI."""

    name: str
    version: str

    def __str__(self) -> str:
        """Return the pin as a requirement."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Locked:
    """Where a pin is locked: names of the lock files, and the hashes of the package's files."""

    locks: frozenset[str]
    hashes: frozenset[str]


def read_pins(locks: list[Path]) -> dict[Pin, Locked]:
    """Return the pins of all lock files, also those for other platforms and Python versions.

    Raises
    ------
    ValueError
        If an entry is not a pin with hashes.

    """
    pins: dict[Pin, Locked] = {}
    for lock in locks:
        for entry in lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            if not entry.strip():
                continue
            read = re.match(r"([\w.-]+)(?:\[[^]]*])?==([^\s;]+)", entry)
            hashes = frozenset(re.findall(r"--hash=(\S+)", entry))
            if read is None or not hashes:
                raise ValueError(f"{lock.name} has an entry that is not a pin with hashes: {entry[:80]}")
            pin = Pin(re.sub(r"[-_.]+", "-", read[1]).lower(), read[2])
            before = pins.get(pin, Locked(frozenset(), frozenset()))
            pins[pin] = Locked(before.locks | {lock.name}, before.hashes | hashes)
    return pins


def rounds(pins: dict[Pin, Locked]) -> list[dict[Pin, Locked]]:
    """Split the pins into parts for one run of pip-audit each, with at most one version of each package."""
    parts: list[dict[Pin, Locked]] = []
    for pin in sorted(pins):
        free = next((part for part in parts if all(other.name != pin.name for other in part)), None)
        if free is None:
            parts.append(free := {})
        free[pin] = pins[pin]
    return parts


def requirements(part: dict[Pin, Locked]) -> str:
    """Return pins as a requirements file without environment markers, by which pip-audit would skip packages."""
    lines = (f"{pin} {' '.join(f'--hash={one}' for one in sorted(locked.hashes))}" for pin, locked in part.items())
    return "\n".join(lines) + "\n"


class UnreachableError(RuntimeError):
    """The advisory service did not answer."""


class AuditError(RuntimeError):
    """pip-audit failed for another reason than a missing answer."""


@dataclass
class AuditReport:
    """What pip-audit found about the pins.

    `vulnerable` has a line for each vulnerability of a pin, `skipped` the reason by the name of the package.
    """

    clean: set[Pin] = field(default_factory=set)
    vulnerable: dict[Pin, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def read(self, report: str) -> None:
        """Add the findings of a JSON report of pip-audit."""
        for entry in json.loads(report)["dependencies"]:
            if "skip_reason" in entry:
                self.skipped[entry["name"]] = entry["skip_reason"]
                continue
            pin = Pin(entry["name"], entry["version"])
            if entry["vulns"]:
                self.vulnerable[pin] = [_describe(vulnerability) for vulnerability in entry["vulns"]]
            else:
                self.clean.add(pin)


def audit_report(service: str, parts: Sequence[dict[Pin, Locked]], command: Sequence[str] = PIP_AUDIT) -> AuditReport:
    """Run pip-audit on each part with an advisory service ("pypi" or "osv"), and return all findings.

    Raises
    ------
    UnreachableError
        If the service does not answer, or knows none of the packages, as a mirror of PyPI may.
    AuditError
        If pip-audit fails for another reason.

    """
    result = AuditReport()
    with tempfile.TemporaryDirectory() as folder:
        pinned, report = Path(folder) / "requirements.txt", Path(folder) / "report.json"
        for part in parts:
            pinned.write_text(requirements(part), encoding="utf-8")
            report.unlink(missing_ok=True)
            flags = ["--requirement", str(pinned), "--require-hashes", "--disable-pip", "--output", str(report)]
            flags += ["--vulnerability-service", service, "--format", "json", "--progress-spinner=off"]
            completed = subprocess.run([*command, *flags], check=False, capture_output=True, text=True, timeout=SECONDS)
            if not report.exists():
                last = completed.stderr.strip().rpartition("\n")[2]
                error_class = UnreachableError if NO_ANSWER.search(completed.stderr) else AuditError
                raise error_class(
                    f"{service}: {last or f'pip-audit exited with {completed.returncode} without a message'}"
                )
            result.read(report.read_text(encoding="utf-8"))
    if result.skipped and not result.clean and not result.vulnerable:
        raise UnreachableError(f"{service}: it knows none of the packages: {next(iter(result.skipped.values()))}")
    return result


def _describe(vulnerability: dict[str, object]) -> str:
    """Describe a vulnerability in one line: its ids, the versions without it, and the beginning of its description."""
    names = [vulnerability["id"], *_as_list(vulnerability.get("aliases"))]
    without = ", ".join(map(str, _as_list(vulnerability.get("fix_versions")))) or "no version"
    return f"{' '.join(map(str, names))}, fixed in {without}: {str(vulnerability.get('description', ''))[:200]}"


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
