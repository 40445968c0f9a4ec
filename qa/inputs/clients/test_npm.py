"""Licences and hashes of the lock file of npm."""

from __future__ import annotations

import json

from qa.inputs.clients.__main__ import PUBLISHED

LICENCES = {"MIT", "ISC", "BSD-2-Clause", "Apache-2.0", "Python-2.0", "(MIT OR CC0-1.0)"}


def test_the_lock_file_pins_licensed_packages_and_names_no_host() -> None:
    """Every package has an integrity hash, and a licence for any use."""
    packages = json.loads((PUBLISHED / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    declared = json.loads((PUBLISHED / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert packages.pop("")["devDependencies"] == declared
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
        assert package["license"] in LICENCES, name
