"""npm without a registry, and lock files without one in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from qa.inputs.clients import __main__ as program
from qa.inputs.clients import npm

if TYPE_CHECKING:
    from pathlib import Path

LICENCES = {"MIT", "ISC", "BSD-2-Clause", "Apache-2.0", "Python-2.0", "(MIT OR CC0-1.0)"}
LOCKED = [program.PUBLISHED, *(program.FOLDER / name for name in program.GENERATORS)]
FAILING = '#!/bin/sh\n[ "$1" = --version ] && echo v20.19.0 && exit\necho "npm error code {code}" >&2\nexit 1\n'


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a node and an npm that fails first in the path; return a folder with a lock file."""
    for name in ("node", "npm"):
        (tmp_path / name).write_text(FAILING.format(code="ENOTFOUND"))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "package-lock.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("folder", LOCKED, ids=lambda folder: folder.name)
def test_lock_files_pin_licensed_packages_and_name_no_host(folder: Path) -> None:
    """Every package has an integrity hash, and a licence for any use."""
    packages = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    declared = json.loads((folder / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert packages.pop("")["devDependencies"] == declared
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
        assert package["license"] in LICENCES, name


def test_no_registry_is_no_failure_unless_required(
    failing: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program says that nothing was checked."""
    monkeypatch.setattr(program, "PUBLISHED", failing)
    assert program.main(["published"]) == 0
    assert "SKIPPED: npm cannot reach its registry: ENOTFOUND." in capsys.readouterr().err
    monkeypatch.setenv("NPM", "required")
    assert program.main(["published"]) == 1
    monkeypatch.setenv("NPM", "always")
    assert program.main(["published"]) == 1


def test_another_failure_of_npm_is_one(failing: Path) -> None:
    """A lock file that does not fit is a fault of the change."""
    (failing / "npm").write_text(FAILING.format(code="EUSAGE"))
    with pytest.raises(RuntimeError, match="EUSAGE"):
        npm.install(failing)


def test_missing_or_old_node_is_named(failing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are the machine's, not the change's."""
    (failing / "node").write_text("#!/bin/sh\necho v18.20.0\n")
    with pytest.raises(npm.UnavailableError, match=r"node is v18\.20\.0; 20\.19 or newer"):
        npm.install(failing)
    monkeypatch.setenv("PATH", str(failing / "empty"))
    with pytest.raises(npm.UnavailableError, match="not installed"):
        npm.install(failing)


def test_installed_packages_are_kept(failing: Path) -> None:
    """While the lock file is the one that they were installed from."""
    modules = failing / "node_modules"
    modules.mkdir()
    (modules / ".lock-sha256").write_text(npm._digest(failing))
    npm.install(failing)
    (failing / "package-lock.json").write_text("{ }")
    with pytest.raises(npm.UnavailableError):
        npm.install(failing)
