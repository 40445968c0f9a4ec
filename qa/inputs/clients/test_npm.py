"""Checks of generated clients on a machine without npm's registry, and the packages that the lock file pins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from qa.inputs.clients import __main__ as program
from qa.inputs.clients import npm, page

if TYPE_CHECKING:
    from pathlib import Path

LICENSES = {"MIT", "ISC", "BSD-2-Clause", "Apache-2.0", "Python-2.0", "(MIT OR CC0-1.0)"}
FAILING = '#!/bin/sh\n[ "$1" = --version ] && echo v20.19.0 && exit\necho "npm error code {code}" >&2\nexit 1\n'


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a node, and an npm that fails, first in the path; return a folder with a lock file."""
    for name in ("node", "npm"):
        (tmp_path / name).write_text(FAILING.format(code="ENOTFOUND"))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "package-lock.json").write_text("{}")
    return tmp_path


def test_the_lock_file_pins_licensed_packages_and_names_no_host() -> None:
    """Every package has an integrity hash, and a license for any use."""
    packages = json.loads((program.FOLDER / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    declared = json.loads((program.FOLDER / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert packages.pop("")["devDependencies"] == declared
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
        assert package["license"] in LICENSES, name


def test_no_registry_is_no_failure_unless_required(
    failing: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the registry the program says that TypeScript was not checked, and checks the Python client."""
    monkeypatch.setattr(program, "FOLDER", failing)
    monkeypatch.setattr(program, "check", lambda *pages: len(pages) - 1)
    assert program.main() == 0
    assert "SKIPPED: npm cannot reach its registry: ENOTFOUND." in capsys.readouterr().err
    monkeypatch.setenv("NPM", "required")
    assert program.main() == 1
    monkeypatch.setenv("NPM", "always")
    assert program.main() == 1


def test_without_npm_the_length_of_lines_is_still_checked(
    failing: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without npm, lint checks no types; it still fails for a long line."""
    monkeypatch.setattr(page, "FOLDER", failing)
    monkeypatch.setattr(page, "SCRIPTS", (failing,))
    (failing / "view.js").write_text(f"let short;\nconst text = '{'x' * 120}';\n")
    assert page.main() == 1
    assert f"{failing}/view.js:2: longer than 120 characters" in capsys.readouterr().err
    (failing / "view.js").write_text("let short;\n")
    assert page.main() == 0
    assert "SKIPPED" in capsys.readouterr().err


def test_another_failure_of_npm_is_one(failing: Path) -> None:
    """A lock file that npm refuses is an error, also where npm is optional."""
    (failing / "npm").write_text(FAILING.format(code="EUSAGE"))
    with pytest.raises(RuntimeError, match="EUSAGE"):
        npm.install(failing)
