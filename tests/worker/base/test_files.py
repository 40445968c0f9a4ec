"""Files on disk: durable before the response, and readable only by their owner."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine.posterior import npz
from glle_engine.tables.table import Table
from worker.base.files import make_folder, temporary
from worker.storage.datasets import DatasetStore
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings

X = np.random.default_rng(0).normal(size=(50, 3))
TABLE = Table(values=X, source={"kind": "test"}, labels=np.array(["a"] * 50), names=["x", "y", "z"])


@pytest.fixture
def _umask() -> Iterator[None]:
    """Set the usual umask, which makes a new file readable by everyone."""
    before = os.umask(0o022)
    yield
    os.umask(before)


class Trace:
    """Order in which files reach the disk: fsyncs and renames, by inode and name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[str, str]] = []
        fsync, replace = os.fsync, Path.replace

        def traced_fsync(descriptor: int) -> None:
            fsync(descriptor)
            kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
            self.steps.append((f"fsync {kind}", str(Path(f"/proc/self/fd/{descriptor}").readlink())))

        def traced_replace(path: Path, target: Path) -> Path:
            self.steps.append(("rename", str(path)))
            return replace(path, target)

        patch.setattr(os, "fsync", traced_fsync)
        patch.setattr(Path, "replace", traced_replace)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="names of descriptors are read from /proc")
def test_content_then_name_then_record_are_written(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename follows the fsync of its file and precedes the fsync of its folder; the record is written last."""
    trace, create = Trace(monkeypatch), DatasetStore.create

    def traced_create(self: DatasetStore, *arguments: Any, **options: Any) -> bool:
        trace.steps.append(("record", ""))
        return create(self, *arguments, **options)

    monkeypatch.setattr(DatasetStore, "create", traced_create)
    stores.datasets.add(TABLE)
    renames = [(index, path) for index, (step, path) in enumerate(trace.steps) if step == "rename"]
    assert len(renames) == 2
    for index, path in renames:
        assert ("fsync file", path) in trace.steps[:index]
        assert trace.steps[index + 1] == ("fsync folder", str(Path(path).parent))
    assert trace.steps[-1][0] == "record"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="names of descriptors are read from /proc")
def test_a_saved_posterior_is_written_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut its name belongs to the old or the new content."""
    trace = Trace(monkeypatch)
    npz.save(tmp_path / "posterior.npz", {"version": 1}, {"X": X})
    (_, path), _ = trace.steps
    assert trace.steps == [("fsync file", path), ("rename", path)]


@pytest.mark.usefixtures("_umask")
def test_only_the_owner_can_read_files_and_folders(settings: Settings, tmp_path: Path) -> None:
    """With any umask, data sets and their parent folders are private."""
    data = tmp_path / "deep" / "data"
    with contextlib.closing(Stores.connect(replace(settings, data_dir=str(data)))) as stores:
        stores.datasets.add(TABLE)
    exposed = [path for path in (tmp_path / "deep").rglob("*") if path.stat().st_mode & 0o077]
    assert exposed == []
    assert not (tmp_path / "deep").stat().st_mode & 0o077


def test_a_folder_and_its_parents_are_created_durably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new name is synced in its parent folder, so that no published file loses its path."""
    trace = Trace(monkeypatch)
    make_folder(tmp_path / "a" / "b")
    assert trace.steps == [("fsync folder", str(tmp_path)), ("fsync folder", str(tmp_path / "a"))]
    make_folder(tmp_path / "a" / "b")  # exists already
    assert len(trace.steps) == 2
    with temporary(tmp_path / "a" / "b") as file:
        file.write(b"x")
        file.publish(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"x"
