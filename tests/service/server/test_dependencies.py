"""Installed packages: pinned by hashes, under permissive licenses."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Parts of a license expression, or the words of older packages. MPL: only changes of its files must be published.
ALLOWED = re.compile(
    r"(MIT|MIT-0|MIT-CMU|MIT License|0BSD|BSD|BSD License|BSD-[23]-Clause|3-Clause BSD License|BSD 3-Clause.*"
    r"|Apache-2\.0|Apache( 2\.0| Software License)?|LLVM-exception|PSF-2\.0|Python Software Foundation License|Zlib"
    r"|CC0-1\.0|ISC License \(ISCL\)|MPL-2\.0|Mozilla Public License 2\.0 \(MPL 2\.0\))"
)

# Licenses that the wheels do not name, by the manifest of the sources.
STATED = {"geoindex-rs": "MIT OR Apache-2.0"}


def licenses(name: str) -> list[str]:
    """Return the licenses of an installed package."""
    if name in STATED:
        return parts(STATED[name])
    result = metadata.metadata(name)
    if "License-Expression" in result:
        return parts(result["License-Expression"])
    classifiers = [text for text in result.get_all("Classifier") or [] if text.startswith("License ::")]
    classifiers = [text.rpartition(" :: ")[2] for text in classifiers]
    names = [text for text in classifiers if text not in {"OSI Approved", "DFSG approved"}]
    return names or parts(str(result.json.get("license", "")).partition("\n")[0])


def parts(expression: str) -> list[str]:
    """Return the licenses of an expression."""
    return [name.strip("()") for name in re.split(r" (?:AND|OR|WITH) ", expression)]


def test_every_license_is_permissive() -> None:
    """All packages locked for service, tests and development, as far as this platform installs them."""
    lock = (ROOT / "requirements/dev.lock").read_text(encoding="utf-8")
    names = set(re.findall(r"^([\w.-]+)(?:\[.*\])?==", lock, re.MULTILINE))
    installed = {re.sub(r"[-_.]+", "-", names.metadata["Name"]).lower() for names in metadata.distributions()}
    assert len(names & installed) > 60
    fields = {name: licenses(name) for name in names & installed}
    assert {
        name: classifiers for name, classifiers in fields.items() if not all(map(ALLOWED.fullmatch, classifiers))
    } == {}
