"""Measure and limit the memory of this process, and divide the memory of a machine or container among workers.

The kernel limits the memory of a task, on Linux, in the task's own process:

- The process begins with `limit_work`, called with `GLLE_METHOD_BYTES` (`worker.execution.worker.begin_work_horse`).
- The task runs within `limited_work` (`worker.execution.tasks`), which sets RLIMIT_DATA to the memory in use, plus that
  limit, or plus `INTERACTIVE_BYTES` for an interactive task if that is less. Some 6 KB for each point of the data set
  are added: a solver of draws allocates them, but never writes to them.
- The worker raises the limit of an interactive task that goes on as a batch task after some seconds (`raise_limit`).
- Beyond the limit an allocation raises MemoryError. An interactive task then starts again as a batch task; any other
  job fails with a problem that names the limit.
"""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.base.settings import Settings

RESIDENT_SHARE = 8  # posteriors that all workers keep in memory may take the machine's memory divided by this number
MIN_RESIDENT, MAX_RESIDENT = 2**26, 2**32  # lower and upper limit on the bytes of posteriors that one worker keeps
# A sampler, the process that answers requests for single draws, is replaced when its memory has grown by this multiple
# of the bytes of posteriors that it may keep.
GROWTH = 3
# Memory of the parent process of a worker or an API, with the engine, which the child processes share.
PROGRAM_BYTES = 280 * 2**20
# Limit on the working memory of an interactive task; a task that needs more is repeated as a batch task.
INTERACTIVE_BYTES = 192 * 2**20


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if the system does not report it."""
    return _pages(1) * resource.getpagesize()


def limit_memory(extra: int) -> None:
    """Limit this process, until it ends, to `extra` bytes of private memory beyond what it uses now."""
    if private := _private_bytes():
        resource.setrlimit(resource.RLIMIT_DATA, (private + extra, private + extra))


@contextmanager
def limited_memory(extra: int) -> Iterator[None]:
    """Limit this process to `extra` bytes of private memory beyond what it has, while the context lasts.

    Allocations beyond the limit raise MemoryError.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    private = _private_bytes()
    limits = [limit for limit in (soft, hard, private + extra) if limit != resource.RLIM_INFINITY]
    if private:
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class _WorkLimit:
    """Limit on the working memory of this process in bytes, for `limited_work`; 0 means no limit."""

    bytes = 0
    is_set = False  # whether `limited_work` has set the limit


def limit_work(nbytes: int) -> None:
    """Set the limit on working memory, in bytes, that `limited_work` applies in this process from now on.

    The limit is the setting GLLE_METHOD_BYTES. Each work-horse (RQ's process for one task) sets it before its task
    (`worker.execution.worker.begin_work_horse`), and the sampler sets it at its start.
    """
    _WorkLimit.bytes = nbytes


def work_limit() -> int:
    """Return the limit on working memory in bytes that `limit_work` has set; 0 means no limit."""
    return _WorkLimit.bytes


def raise_limit(pid: int, extra: int) -> None:
    """Raise the memory limit of process `pid`, if the process has a limit, by `extra` bytes (Linux only).

    The worker raises the limit of an interactive task that takes longer than 5 s and goes on as a batch task.
    """
    if extra <= 0 or not hasattr(resource, "prlimit"):
        return
    with suppress(OSError):  # the process has ended
        soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        if soft != resource.RLIM_INFINITY:
            resource.prlimit(pid, resource.RLIMIT_DATA, (soft + extra, hard))


@contextmanager
def limited_work(untouched: int = 0, max_bytes: int | None = None) -> Iterator[Callable[[], bool]]:
    """Limit the working memory of this process, during the context, to the bytes that `limit_work` has set.

    Allocations beyond the limit raise MemoryError, which `worker.base.problems.problem_of` turns into a problem that
    names the limit. A nested context changes nothing: the limit of the outer context stays.

    Parameters
    ----------
    untouched
        Bytes that the work allocates but never touches. They take no memory, so they are added to the limit.
    max_bytes
        Limit for this context, if it is lower than the limit of `limit_work`.

    Yields
    ------
    callable
        Returns whether `max_bytes` is the limit now, so that work which runs out of memory may succeed without it.
        False if the limit of `limit_work` is not higher, and after another process has raised the limit by
        `raise_limit`.

    """
    limit = _WorkLimit.bytes if max_bytes is None else min(_WorkLimit.bytes, max_bytes)
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
    """Ask the kernel to kill this process first when the machine or container runs out of memory (Linux only)."""
    with suppress(OSError):  # a container may mount /proc read-only
        Path("/proc/self/oom_score_adj").write_text("1000")


def count_oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel of this machine has killed for lack of memory; 0 where it reports none.

    Parameters
    ----------
    root
        Root of the file system that has ``proc``.

    """
    with suppress(OSError):  # only Linux has it
        for line in (root / "proc/vmstat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def _private_bytes() -> int:
    # Field 5 of /proc/self/statm: data and stack, which RLIMIT_DATA limits. 0 if the system is not Linux.
    return _pages(5) * resource.getpagesize()


def _pages(column: int) -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[column])
    except OSError:
        return 0


def memory_limit(root: Path = Path("/")) -> int:
    """Return the bytes of memory for this process: the lowest limit of its control groups, or the machine's memory.

    Control groups of versions 1 and 2 are read.

    Parameters
    ----------
    root
        Root of the file system that has ``proc`` and ``sys``.

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
        # The limits of parent groups hold, too. In a container, `group` may be the path on the host, while the mounted
        # tree begins at the container's own group: then only the last of the parents, the root of the tree, exists.
        for each in (group, *group.parents):
            with suppress(OSError, ValueError):  # ``max``: no limit
                limits.append(int((root / "sys/fs/cgroup" / folder / each / name).read_text()))
    return min(limits)


def resident_limit(settings: Settings) -> int:
    """Return how many bytes of posteriors each worker may keep in memory.

    All workers together may use an eighth of the memory. The limit of each worker is between `MIN_RESIDENT` and
    `MAX_RESIDENT`.
    """
    return min(MAX_RESIDENT, max(MIN_RESIDENT, memory_limit() // RESIDENT_SHARE // settings.workers))


def worker_need(settings: Settings) -> int:
    """Return the bytes of memory that the workers of a container or machine need.

    Each worker may run a long and an interactive task at once, while its sampler (the process that answers requests for
    single draws) has grown to the size at which it is replaced.
    """
    tasks = PROGRAM_BYTES + settings.workers * (settings.method_bytes + INTERACTIVE_BYTES)
    return tasks * RESIDENT_SHARE // (RESIDENT_SHARE - GROWTH)
