"""Pins of the lock files, for every platform, in rounds that pip-audit accepts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


@dataclass(frozen=True, order=True)
class Pin:
    """A package of one version; its name is normalised."""

    name: str
    version: str

    def __str__(self) -> str:
        """Return the pin as a requirement."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Locked:
    """Lock files that contain a pin, and the hashes of its files."""

    locks: frozenset[str]
    hashes: frozenset[str]


def locked(locks: list[Path]) -> dict[Pin, Locked]:
    """Return all pins, also those for other platforms and Python versions.

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
    """Split pins into parts with one version of each package, as pip-audit requires."""
    parts: list[dict[Pin, Locked]] = []
    for pin in sorted(pins):
        free = next((part for part in parts if all(other.name != pin.name for other in part)), None)
        if free is None:
            parts.append(free := {})
        free[pin] = pins[pin]
    return parts


def requirements(part: dict[Pin, Locked]) -> str:
    """Return a part as a requirements file without markers, because pip-audit skips packages for other platforms."""
    lines = (f"{pin} {' '.join(f'--hash={one}' for one in sorted(at.hashes))}" for pin, at in part.items())
    return "\n".join(lines) + "\n"
