"""Processes as the kernel shows them."""

from __future__ import annotations

from pathlib import Path


def children(pid: int, name: str = "") -> list[int]:
    """Return the pids of the children of a process, or of those with a name; none of a missing process."""
    try:
        pids = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in pids if not name or name_of(child) == name]


def name_of(pid: int) -> str:
    """Return the name of a process; empty for a missing process."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def command_line(pid: int) -> str:
    """Return the command line of a process; empty for a missing process, or one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""
