"""The backup script copies all files that a data folder leads to, and refuses a folder that no service has used."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.deploy.compose.engine import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "queue/appendonlydir/appendonly.aof.manifest": "file appendonly.aof.1.incr.aof seq 1 type i",
    "queue/appendonlydir/appendonly.aof.1.incr.aof": "log",
    "objects/data/mark/records.json": "{}",
    "objects/data/0a/file": "content",
}


def back_up(data: Path, copy: Path) -> subprocess.CompletedProcess[str]:
    """Run the backup script; return its completed process."""
    command = ["/bin/sh", str(ROOT / "deploy" / "backup.sh"), str(data), str(copy)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with the files of a service's data folder."""
    for path, content in FILES.items():
        file = tmp_path / "data" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return tmp_path / "data"


@pytest.mark.parametrize(
    "linked", ["", ".", "objects", "objects/data", "objects/data/0a", "queue", "queue/appendonlydir"]
)
def test_links_are_followed(data: Path, tmp_path: Path, linked: str) -> None:
    """The copy has all files and no link, whichever folder is a link to another disk."""
    if linked:
        (data / linked).rename(tmp_path / "elsewhere")
        (data / linked).symlink_to(tmp_path / "elsewhere")
    copy = tmp_path / "copy"
    done = back_up(data, copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert not [path for path in copy.rglob("*") if path.is_symlink()]
    assert {str(path.relative_to(copy)): path.read_text() for path in copy.rglob("*") if path.is_file()} == FILES


@pytest.mark.parametrize("broken", ["queue/appendonlydir", "queue/appendonlydir/appendonly.aof.manifest", "objects"])
def test_a_folder_that_lacks_a_half_is_refused(data: Path, tmp_path: Path, broken: str) -> None:
    """Without the queue's log, or with a link to a disk that is not mounted, the script fails and copies nothing."""
    (data / broken).rename(tmp_path / "elsewhere")
    if broken == "objects":
        (data / broken).symlink_to(tmp_path / "nowhere")
    done = back_up(data, tmp_path / "copy")
    assert done.returncode != 0
    assert done.stderr.startswith("backup.sh: ")
    assert not (tmp_path / "copy").exists()


def test_a_link_to_nothing_inside_is_an_error(data: Path, tmp_path: Path) -> None:
    """A link without a target makes the exit code nonzero, because the copy is not complete."""
    (data / "objects/data/1b").symlink_to(tmp_path / "nowhere")
    assert back_up(data, tmp_path / "copy").returncode != 0
