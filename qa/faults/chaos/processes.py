"""Processes of a running `glle up`, listed from /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["API", "worker", "work-horse", "queue server", "cache server"]
KINDS: tuple[Kind, ...] = ("API", "worker", "work-horse", "queue server", "cache server")


@dataclass(frozen=True)
class Process:
    """A process; `parent` is the pid of its parent."""

    pid: int
    kind: Kind
    parent: int


def tree(head: int) -> list[Process]:
    """Return the processes below the head that have a known kind."""
    processes = []
    for child in _children(head):
        kind = _kind(child)
        if kind is None:
            continue
        processes.append(Process(child, kind, head))
        if kind == "worker":
            processes += [Process(horse, "work-horse", child) for horse in _children(child)]
    return processes


def marked(mark: str) -> dict[int, int]:
    """Return the parents by pid of all processes with `mark` in their environment, wherever they are in the tree."""
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                processes[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # ended meanwhile, or owned by another user
            continue
    return processes


def _children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kind(pid: int) -> Kind | None:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "serve" in line:
            return "API"
        if "worker" in line:
            return "worker"
        if "valkey-server" in line[0]:
            folder = Path(f"/proc/{pid}/cwd").readlink().name  # data/queue or data/cache
            return {"queue": "queue server", "cache": "cache server"}.get(folder)  # type: ignore[return-value] # one of the two folder names
    except OSError:  # ended meanwhile
        pass
    return None
