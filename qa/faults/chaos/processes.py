"""Processes of a running `glle up`, listed from /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.system.conftest import children, name_of

Kind = Literal[
    "API", "worker", "sampler", "quick RQ worker", "batch RQ worker", "work-horse", "queue server", "cache server"
]
RESIDENTS: dict[str, Kind] = {
    "glle-sampler": "sampler", "glle-quick": "quick RQ worker", "glle-batch": "batch RQ worker",
}  # by their comm  # fmt: skip
SHORT_LIVED: tuple[Kind, ...] = ("work-horse",)


@dataclass(frozen=True)
class Process:
    """A process; `parent` is the pid of its parent."""

    pid: int
    kind: Kind
    parent: int

    @property
    def is_busy(self) -> bool:
        """Return whether it computes at this moment."""
        return "R" in _status(self.pid)


def tree(head: int) -> list[Process]:
    """Return the processes below the head that have a known kind.

    A worker has a sampler and two RQ workers, whose children are the work-horses. Every other child of a worker is a
    work-horse too.
    """
    processes = []
    for child in children(head):
        kind = _kind(child)
        if kind is None:
            continue
        processes.append(Process(child, kind, head))
        if kind == "worker":
            processes += _below_worker(child)
    return processes


def without_residents(processes: list[Process]) -> list[str]:
    """Return what each worker lacks of its sampler and its RQ workers."""
    workers = [process.pid for process in processes if process.kind == "worker"]
    found = {(process.parent, process.kind) for process in processes}
    return [f"worker {pid}: no {kind}" for pid in workers for kind in RESIDENTS.values() if (pid, kind) not in found]


def _below_worker(worker: int) -> list[Process]:
    processes = []
    for child in children(worker):
        kind = RESIDENTS.get(name_of(child), "work-horse")
        processes.append(Process(child, kind, worker))
        if kind in {"quick RQ worker", "batch RQ worker"}:
            processes += [Process(horse, "work-horse", child) for horse in children(child)]
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


def _status(pid: int) -> str:
    """Return the states of a process's threads, such as R for running."""
    states = ""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states += stat.read_text().rpartition(")")[2].split()[0]
        except OSError:  # ended meanwhile
            continue
    return states


def _kind(pid: int) -> Kind | None:
    name = name_of(pid)
    if name.startswith("glle-api"):
        return "API"
    if name.startswith("glle-worker"):
        return "worker"
    try:
        if name == "valkey-server":
            folder = Path(f"/proc/{pid}/cwd").readlink().name  # data/queue or data/cache
            return {"queue": "queue server", "cache": "cache server"}.get(folder)  # type: ignore[return-value] # one of the two folder names
    except OSError:  # ended meanwhile
        pass
    return None
