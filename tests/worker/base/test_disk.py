"""One writer keeps the reserve of the disk."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.conftest import refusal
from worker.base import disk
from worker.base.files import temporary
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 2**20
SIZE, FREE = 80 * MIB, 11 * MIB  # of the disk, with a reserve of 10 MiB


@pytest.fixture(autouse=True)
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report a small disk to this process; each file has its space."""

    def report(_: int) -> Any:
        return SimpleNamespace(f_blocks=SIZE // 4096, f_bavail=FREE // 4096, f_frsize=4096)

    monkeypatch.setattr(os, "fstatvfs", report)
    monkeypatch.setattr(os, "statvfs", report)


def write_unnamed(folder: Path, nbytes: int) -> int:
    """Write a file without a name; return its size."""
    with disk.temporary_file(folder) as file:
        file.write(bytes(nbytes))
        file.flush()
        return os.fstat(file.fileno()).st_size


def extend(folder: Path, nbytes: int) -> int:
    """Extend a file, map it, and write to it; return its size."""
    with disk.temporary_file(folder) as file:
        file.truncate(nbytes)
        np.memmap(file, np.uint8, "r+")[:] = 1
        status = os.fstat(file.fileno())
        assert 512 * status.st_blocks >= nbytes  # no hole is left
        return status.st_size


def write_named(folder: Path, nbytes: int) -> int:
    """Write a file that keeps its name; return its size."""
    with temporary(folder, keep_reserve=True) as file:
        file.write(bytes(nbytes))
        file.publish(folder / "named")
    return (folder / "named").stat().st_size


@pytest.mark.parametrize("write", [write_unnamed, extend, write_named])
def test_a_write_leaves_the_reserve(tmp_path: Path, write: Callable[[Path, int], int]) -> None:
    """A write that would use the reserve writes nothing, and the error has the numbers; a smaller write succeeds."""
    assert write(tmp_path, MIB) == MIB
    with pytest.raises(ProblemError) as caught:
        write(tmp_path, MIB + 1)
    problem = caught.value.problem
    assert (problem.code, problem.details["free"], problem.details["reserve"]) == ("storage-full", FREE, SIZE // 8)
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_size > MIB] == []


def test_room_is_required_of_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    """The disk of the nearest existing parent folder counts."""
    disk.require_room(tmp_path / "a/b", MIB)
    assert refusal(disk.require_room, tmp_path / "a/b", MIB + 1).code == "storage-full"
