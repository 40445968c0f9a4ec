"""The audit distinguishes vulnerable, clean and unaudited packages, and an unreachable advisory service."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from qa.audit.__main__ import main, print_report
from qa.audit.advisories import AuditReport, Locked, Pin, read_pins, requirements, rounds

PINS = {Pin(name, "1"): Locked(frozenset({"server.lock"}), frozenset({"sha256:1"})) for name in ("a", "b")}
CLEAN = {"name": "b", "version": "1", "vulns": []}
NO_NETWORK = "requests.exceptions.ConnectionError: Failed to resolve"
NOT_NOW = "pip_audit._service.interface.ServiceError"
NO_HASH = "ERROR:pip_audit._cli:requirement idna==3.1 does not contain a hash"


def exit_code(*entries: Mapping[str, object]) -> int:
    """Return the exit code for a report of pip-audit."""
    report = AuditReport()
    report.read(json.dumps({"dependencies": entries}))
    return print_report(report, PINS, "pypi")


def failing(message: str) -> tuple[str, ...]:
    """Return a command that fails with a message, as pip-audit does."""
    return "/bin/sh", "-c", f"echo '{message}' >&2; exit 1"


def test_pins_are_clean_vulnerable_or_unaudited(capsys: pytest.CaptureFixture[str]) -> None:
    """A finding has the package, its locks, its advisories and the fixed version; a skipped package is a failure."""
    assert exit_code({**CLEAN, "name": "a"}, CLEAN) == 0
    assert capsys.readouterr() == ("2 pins, by pypi: 2 clean, 0 vulnerable, 0 not audited.\n", "")
    advisory = {"id": "PYSEC-1", "fix_versions": ["99"], "aliases": ["CVE-1"], "description": "Too many dimensions."}
    assert exit_code({"name": "a", "version": "1", "vulns": [advisory]}, CLEAN) == 1
    assert capsys.readouterr().err == "a==1 (server.lock): PYSEC-1 CVE-1, fixed in 99: Too many dimensions.\n"
    assert exit_code({"name": "a", "skip_reason": "Dependency not found on PyPI"}, CLEAN) == 1
    assert "a==1 was not audited: Dependency not found on PyPI" in capsys.readouterr().err


@pytest.mark.parametrize(("message", "mode", "code"), [(NO_NETWORK, "", 0), (NOT_NOW, "required", 1)])
def test_an_unreachable_service_is_reported_and_fails_if_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], message: str, mode: str, code: int
) -> None:
    """Both services are asked."""
    monkeypatch.setenv("AUDIT", mode)
    assert main(failing(message)) == code
    output = capsys.readouterr()
    assert output.err.startswith("NOT AUDITED: no advisory service could be reached.\npypi: ")
    assert "\nosv: " in output.err
    assert output.out == ""


def test_failures_of_pip_audit_and_misspelled_modes_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another failure than that of the network exits with 1; a misspelled mode does not switch the check off."""
    assert main(failing(NO_HASH)) == 1
    monkeypatch.setenv("AUDIT", "requierd")
    assert main(failing(NO_NETWORK)) == 2


def test_rounds_contain_every_pin_once_with_all_hashes(tmp_path: Path) -> None:
    """Pins that differ in their markers, and pins of several locks, are included."""
    (tmp_path / "a.lock").write_text('a==1 ; python_version < "3" \\\n    --hash=sha256:1\na==2 --hash=sha256:2\n')
    (tmp_path / "b.lock").write_text("A==1 --hash=sha256:3\nb_c[d]==1 --hash=sha256:4\n")
    parts = rounds(read_pins(sorted(tmp_path.glob("*.lock"))))
    assert [list(part) for part in parts] == [[Pin("a", "1"), Pin("b-c", "1")], [Pin("a", "2")]]
    assert requirements(parts[0]) == "a==1 --hash=sha256:1 --hash=sha256:3\nb-c==1 --hash=sha256:4\n"
    (tmp_path / "a.lock").write_text("a>=1 --hash=sha256:1\n")
    with pytest.raises(ValueError, match="a>=1"):
        read_pins([tmp_path / "a.lock"])
