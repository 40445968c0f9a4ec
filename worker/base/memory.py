"""Memory of this process and of its group, limits on it, and the shares that follow from it."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.base.settings import Settings

RESIDENT_SHARE = 8  # part of the memory that the posteriors of all workers may take
MIN_RESIDENT, MAX_RESIDENT = 2**26, 2**32  # bytes of posteriors of one worker
GROWTH = 3  # times the bytes of its posteriors, after which a sampler is replaced
PROGRAM_BYTES = 280 * 2**20  # head of a worker or an API with the engine; its children share these bytes
INTERACTIVE_BYTES = 192 * 2**20  # working memory of an interactive task


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


class _WorkLimit:
    """Limit of this process on working memory; 0: none."""

    bytes = 0
    is_set = False  # within `limited_work`


def limit_work(nbytes: int) -> None:
    """Limit the working memory of what runs within `limited_work` in this process, from now on."""
    _WorkLimit.bytes = nbytes


def work_limit() -> int:
    """Return the bytes of working memory that `limit_work` has set; 0: no limit."""
    return _WorkLimit.bytes


def raise_limit(pid: int, more: int) -> None:
    """Raise the memory limit of another process, if it has one, by `more` bytes (Linux)."""
    if more <= 0 or not hasattr(resource, "prlimit"):
        return
    with suppress(OSError):  # it has ended
        soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        if soft != resource.RLIM_INFINITY:
            resource.prlimit(pid, resource.RLIMIT_DATA, (soft + more, hard))


@contextmanager
def limited_work(untouched: int = 0, most: int | None = None) -> Iterator[Callable[[], bool]]:
    """Run work under the limit of `limit_work`; allocations beyond it raise MemoryError.

    `worker.base.problems.problem_of` turns that into a problem with the limit. Work within limited work shares its
    limit.

    Parameters
    ----------
    untouched
        Bytes that the work allocates and does not use, which take no memory.
    most
        A lower limit in its place, if given.

    Yields
    ------
    callable
        Whether the lower limit holds, which `raise_limit` ends.

    """
    limit = _WorkLimit.bytes if most is None else min(_WorkLimit.bytes, most)
    if _WorkLimit.is_set or not limit:
        yield lambda: False
        return
    _WorkLimit.is_set = True
    try:
        with limited_memory(limit + untouched):
            first = resource.getrlimit(resource.RLIMIT_DATA)
            yield lambda: limit < _WorkLimit.bytes and resource.getrlimit(resource.RLIMIT_DATA) == first
    finally:
        _WorkLimit.is_set = False


def offer_to_oom_killer() -> None:
    """Have the kernel kill this process first when the machine or its container has no memory left (Linux)."""
    with suppress(OSError):  # a container may mount /proc read-only
        Path("/proc/self/oom_score_adj").write_text("1000")


def count_oom_kills(root: Path = Path("/")) -> int:
    """Return the number of processes that the kernel of this machine has killed for memory; 0 if it does not say.

    Parameters
    ----------
    root
        Folder of ``proc``.

    """
    with suppress(OSError):  # only Linux has it
        for line in (root / "proc/vmstat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


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

    Each may run a long and an interactive task at once, and a sampler that has grown before it is replaced.
    """
    tasks = PROGRAM_BYTES + settings.workers * (settings.method_bytes + INTERACTIVE_BYTES)
    return tasks * RESIDENT_SHARE // (RESIDENT_SHARE - GROWTH)
