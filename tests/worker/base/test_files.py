"""Files on disk: durable before the response, and readable only by their owner."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine.posterior import npz
from glle_engine.tables.table import Table
from worker.base.files import make_folder, sync_folder, temporary
from worker.base.settings import Settings
from worker.operations.embedded_redis import queue_server
from worker.storage.datasets import DatasetStore
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

X = np.random.default_rng(0).normal(size=(50, 3))
TABLE = Table(values=X, source={"kind": "test"}, labels=np.array(["a"] * 50), names=["x", "y", "z"])
IMAGE_BYTES = 32 * 2**20


@pytest.fixture
def _umask() -> Iterator[None]:
    """Set the usual umask, which makes a new file readable by everyone."""
    before = os.umask(0o022)
    yield
    os.umask(before)


class Disk:
    """A mounted ext4 image with a simulated power cut, which keeps only bytes written to the device.

    Parameters
    ----------
    folder
        Folder of the image and its mount points.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._image = folder / "disk.img"
        self.root = folder / "disk"
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount(self._image, self.root)

    @contextlib.contextmanager
    def after_power_cut(self) -> Iterator[Path]:
        """Yield the root of the file system after a restart."""
        copy, root = self._folder / "copy.img", self._folder / "copy"
        shutil.copyfile(self._image, copy)  # excludes pages that the kernel has not written yet
        self._mount(copy, root)
        try:
            yield root
        finally:
            _run("umount", str(root))

    def close(self) -> None:
        """Unmount the image."""
        _run("umount", str(self.root))

    @staticmethod
    def _mount(image: Path, root: Path) -> None:
        root.mkdir(exist_ok=True)
        _run("mount", "-o", "loop,commit=300", str(image), str(root))  # no journal commit by time during the test


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Return a disk with a simulated power cut; it needs root and loop devices."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a loop device needs root and mkfs.ext4")
    try:
        image = Disk(tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device can be mounted: {error.stderr!r}")
    yield image
    image.close()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def _deployment(root: Path) -> Iterator[Stores]:
    """Yield the stores of a data folder, with the embedded server of its records."""
    settings = Settings(data_dir=str(root / "data"))
    server = queue_server(settings)
    server.spawn()
    try:
        server.wait()
        with contextlib.closing(
            Stores.connect(replace(settings, redis_url=server.url, cache_url=server.url))
        ) as stores:
            yield stores
    finally:
        server.stop()


def test_a_stored_data_set_survives_a_power_cut(disk: Disk) -> None:
    """Record, name, values and labels, and a deletion, are on the device when the calls return.

    A saved posterior has the old or the new content, although its name may be on the device first.
    """
    with _deployment(disk.root) as before:
        deleted, _ = before.datasets.add(replace(TABLE, values=X + 1))
        os.sync()
        assert before.datasets.delete(deleted.id)
        dataset = before.datasets.rename(before.datasets.add(TABLE)[0].id, {"name": "sheet"})
        npz.save(disk.root / "posterior.npz", {"version": 1}, {"X": X})
        sync_folder(disk.root)
        with disk.after_power_cut() as root, _deployment(root) as after:
            assert after.datasets.get(deleted.id) is None
            assert after.datasets.get(dataset.id) == dataset
            np.testing.assert_array_equal(after.datasets.values(dataset.id), X)
            assert after.datasets.load_extras(dataset)["labels"].tolist() == ["a"] * 50
            head, arrays = npz.load(root / "posterior.npz")
            assert head == {"version": 1}
            np.testing.assert_array_equal(arrays["X"], X)


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
