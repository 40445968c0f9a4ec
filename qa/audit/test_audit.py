"""The audit distinguishes vulnerable, clean and unaudited packages, and an unreachable advisory service."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qa.audit.__main__ import main
from qa.audit.locks import LOCKS, Pin, locked, requirements, rounds

STANDIN = str(Path(__file__).with_name("standin.py"))


def command(does: str) -> tuple[str, ...]:
    """Return the command of the stand-in."""
    return sys.executable, STANDIN, does


def test_clean_pins_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """Every pin of every lock is audited, including other platforms' pins, which pip-audit alone skips."""
    assert main(command("clean")) == 0
    output = capsys.readouterr()
    assert (
        output.out == f"{len(locked(LOCKS))} pins, by pypi: {len(locked(LOCKS))} clean, 0 vulnerable, 0 not audited.\n"
    )
    assert output.err == ""


def test_vulnerability_exits_with_1_and_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """The report names the package, its lock files, its advisories and the fixed version, for each locked version."""
    assert main(command("vulnerable")) == 1
    output = capsys.readouterr()
    versions = sorted(pin.version for pin in locked(LOCKS) if pin.name == "numpy")
    lines = output.err.splitlines()
    assert len(versions) == 2
    assert [line.split()[0] for line in lines] == [f"numpy=={version}" for version in versions]
    for line in lines:
        assert "server.lock" in line
        assert line.endswith("PYSEC-1 CVE-1, fixed in 99: Too many dimensions.")
    assert " 2 vulnerable" in output.out


@pytest.mark.parametrize(
    ("does", "audit", "code"),
    [("no-network", "", 0), ("no-time", "", 0), ("not-now", "required", 1), ("knows-none", "", 0)],
)
def test_an_unreachable_service_is_reported_and_fails_if_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], does: str, audit: str, code: int
) -> None:
    """An index that knows no package counts as unreachable, although pip-audit exits with 0."""
    monkeypatch.setenv("AUDIT", audit)
    assert main(command(does)) == code
    output = capsys.readouterr()
    assert output.err.startswith("NOT AUDITED: no advisory service could be reached.\npypi: ")
    assert "\nosv: " in output.err
    assert output.out == ""


def test_second_service_is_queried_if_the_first_is_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer of the second service counts."""
    assert main(command("first-silent-vulnerable")) == 1
    assert "by osv" in capsys.readouterr().out


def test_skipped_package_is_not_clean(capsys: pytest.CaptureFixture[str]) -> None:
    """A skipped package fails the audit, although pip-audit exits with 0."""
    assert main(command("knows-not-all")) == 1
    output = capsys.readouterr()
    assert "was not audited: Dependency not found on PyPI" in output.err
    assert "1 not audited." in output.out


def test_failure_of_pip_audit_is_not_a_missing_network(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1 and the reason is printed."""
    assert main(command("broken")) == 1
    assert "does not contain a hash" in capsys.readouterr().err


def test_unknown_audit_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelled value does not switch the check off."""
    monkeypatch.setenv("AUDIT", "requierd")
    assert main(command("clean")) == 2


def test_rounds_contain_every_pin_once_with_all_hashes(tmp_path: Path) -> None:
    """Pins that differ in their markers, and pins of several locks, are included."""
    (tmp_path / "a.lock").write_text('a==1 ; python_version < "3" \\\n    --hash=sha256:1\na==2 --hash=sha256:2\n')
    (tmp_path / "b.lock").write_text("A==1 --hash=sha256:3\nb_c[d]==1 --hash=sha256:4\n")
    parts = rounds(locked(sorted(tmp_path.glob("*.lock"))))
    assert [list(part) for part in parts] == [[Pin("a", "1"), Pin("b-c", "1")], [Pin("a", "2")]]
    assert requirements(parts[0]) == "a==1 --hash=sha256:1 --hash=sha256:3\nb-c==1 --hash=sha256:4\n"


def test_entry_that_is_not_a_pin_is_an_error(tmp_path: Path) -> None:
    """A line that cannot be parsed is an error."""
    (tmp_path / "a.lock").write_text("a>=1 --hash=sha256:1\n")
    with pytest.raises(ValueError, match="a>=1"):
        locked([tmp_path / "a.lock"])
