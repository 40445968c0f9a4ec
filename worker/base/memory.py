"""Memory of this process and of its group, limits on it, and the shares that follow from it."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings

RESIDENT_SHARE = 8  # part of the memory that the posteriors of all workers may take
MIN_RESIDENT, MAX_RESIDENT = 2**26, 2**32  # bytes of posteriors of one worker
GROWTH = 3  # times the bytes of its posteriors, after which a sampler is replaced
PROGRAM_BYTES = 280 * 2**20  # of the head of a worker or of an API, with the engine; its children share them
QUICK_BYTES = 192 * 2**20  # of a task of at most 2,000 points


def resident_bytes() -> int:
    """Return the bytes of memory that this process uses."""
    return _pages(1) * resource.getpagesize()


def limit_memory(more: int) -> None:
    """Limit this process for ever to `more` bytes of private memory beyond those that it has."""
    if private := _private_bytes():
        resource.setrlimit(resource.RLIMIT_DATA, (private + more, private + more))


@contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Limit this process to `more` bytes of private memory beyond those that it has; then remove the limit.

    Allocations beyond it raise MemoryError.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    private = _private_bytes()
    limits = [limit for limit in (soft, hard, private + more) if limit != resource.RLIM_INFINITY]
    if private:
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _private_bytes() -> int:
    return _pages(5) * resource.getpagesize()  # only Linux has statm, and counts private memory by RLIMIT_DATA


def _pages(column: int) -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[column])
    except OSError:
        return 0


def memory_limit(root: Path = Path("/")) -> int:
    """Return the bytes of memory of this process's control group (version 2 or 1) or, without one, of the machine.

    Parameters
    ----------
    root
        Folder of ``proc`` and ``sys``.

    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    groups = ""
    with suppress(OSError):  # only Linux has control groups
        groups = (root / "proc/self/cgroup").read_text()
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        group = Path(path.lstrip("/"))
        for each in (group, *group.parents):  # a container sees its own group as the root
            with suppress(OSError, ValueError):  # ``max``: no limit
                limits.append(int((root / "sys/fs/cgroup" / folder / each / name).read_text()))
    return min(limits)


def resident_limit(settings: Settings) -> int:
    """Return the bytes of posteriors that a worker keeps in memory: its part of an eighth of the memory."""
    return min(MAX_RESIDENT, max(MIN_RESIDENT, memory_limit() // RESIDENT_SHARE // settings.workers))


def worker_need(settings: Settings) -> int:
    """Return the bytes of memory that the workers of a container or machine need.

    Each may run a long and a quick task at once, and a sampler that has grown before it is replaced.
    """
    tasks = PROGRAM_BYTES + settings.workers * (settings.method_bytes + QUICK_BYTES)
    return tasks * RESIDENT_SHARE // (RESIDENT_SHARE - GROWTH)
