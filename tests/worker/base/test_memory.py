"""The memory limit of this process's control group, and the shares that follow from it."""

from __future__ import annotations

import os
import resource
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from worker.base import memory
from worker.base.memory import count_oom_kills, limited_memory, memory_limit, raise_limit, resident_limit
from worker.base.settings import Settings
from worker.execution.process_guard import LINUX

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MIB = 2**20
V1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"sys/fs/cgroup/memory.max": "3145728\n"}, 3 * 2**20),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4096\n"}, 4096),
        ("0::/a\n", {"sys/fs/cgroup/a/memory.max": "max\n"}, MACHINE),
        ("4:memory:/docker/x\n2:cpu:/y\n", {f"{V1}/memory.limit_in_bytes": "8192\n"}, 8192),
        ("4:cpu,memory:/x\n", {f"{V1}/x/memory.limit_in_bytes": "8192\n"}, 8192),
        ("4:memory:/\n0::/\n", {f"{V1}/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE),
        ("4:cpu:/x\n", {f"{V1}/x/memory.limit_in_bytes": "8192\n"}, MACHINE),
        (None, {}, MACHINE),
    ],
    ids=["v2", "v2 of a parent", "v2 without", "v1 in a container", "v1 on the host", "v1 without", "other", "none"],
)
def test_the_limit_is_the_least_of_the_groups_and_the_machine(
    tmp_path: Path, groups: str | None, files: dict[str, str], limit: int
) -> None:
    """Control groups of both versions are read, in a container and on the host."""
    for name, text in {**files, **({} if groups is None else {"proc/self/cgroup": groups})}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_limit(tmp_path) == limit


def test_the_limit_of_this_process_is_at_most_the_machine() -> None:
    """The real control groups of this process are read."""
    assert 2**26 < memory_limit() <= MACHINE


def test_workers_share_the_memory_of_their_posteriors(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers together may use an eighth of the memory; the limit of each worker is within bounds."""
    for total, workers, each in ((2**34, 2, 2**30), (3 * 2**30, 1, 3 * 2**27), (2**28, 4, 2**26), (2**40, 1, 2**32)):
        monkeypatch.setattr(memory, "memory_limit", lambda total=total: total)
        assert resident_limit(Settings(workers=workers)) == each


@pytest.mark.skipif(not LINUX, reason="private memory is counted on Linux")
def test_memory_is_limited_for_a_while() -> None:
    """An allocation beyond the limit fails, and a small one does not; after the context, the former limit is back."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited_memory(64 * MIB):
        assert np.ones(16 * MIB, np.uint8).all()
        with pytest.raises(MemoryError):
            np.ones(256 * MIB, np.uint8)
        with limited_memory(1024 * MIB), pytest.raises(MemoryError):  # the narrower limit stays
            np.ones(256 * MIB, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert np.ones(256 * MIB, np.uint8).all()


@pytest.mark.skipif(not LINUX, reason="only Linux limits another process")
def test_the_limit_of_another_process_is_raised() -> None:
    """The limit of a process grows by `extra` bytes; a process without a limit gets none, and no limit is lowered."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        try:
            hard = resource.prlimit(process.pid, resource.RLIMIT_DATA)[1]
            for before, extra, after in (
                (64 * MIB, MIB, 65 * MIB), (64 * MIB, -MIB, 64 * MIB), (64 * MIB, 0, 64 * MIB),
                (resource.RLIM_INFINITY, MIB, resource.RLIM_INFINITY),
            ):  # fmt: skip
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (before, hard))
                raise_limit(process.pid, extra)
                assert resource.prlimit(process.pid, resource.RLIMIT_DATA) == (after, hard)
        finally:
            process.kill()
    raise_limit(process.pid, MIB)  # it has ended


def test_processes_killed_for_memory_are_counted(tmp_path: Path) -> None:
    """The kernel's counter is read; without a counter, the number is 0."""
    assert count_oom_kills(tmp_path) == 0
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 12\noom_kill 3\noom_kill_other 7\n")
    assert count_oom_kills(tmp_path) == 3
