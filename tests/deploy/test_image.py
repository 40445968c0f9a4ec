"""`deploy/image/slim.py` removes what the service never reads, and what remains still loads."""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import struct
import subprocess
import sys
from pathlib import Path, PurePath

import pytest

from tests.deploy.compose.engine import ROOT

SLIM = ROOT / "deploy" / "image" / "slim.py"
SITE = Path(str(importlib.util.find_spec("pyarrow").origin)).resolve().parents[1]  # type: ignore[union-attr] # locked
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the image is a Linux system")


def test_shared_objects_load_without_their_symbols(tmp_path: Path) -> None:
    """A library without its symbols is smaller and still computes; a second run changes nothing."""
    shutil.copytree(SITE / "kiwisolver", tmp_path / "kiwisolver")
    slim = [sys.executable, str(SLIM), str(tmp_path)]
    subprocess.run(slim, check=True)
    (library,) = tmp_path.rglob("_cext.*.so")
    content = library.read_bytes()
    assert len(content) < (SITE / library.relative_to(tmp_path)).stat().st_size
    assert struct.unpack_from("<Q", content, 40) == (0,)
    program = (
        "import kiwisolver as k; v = k.Variable('v'); s = k.Solver(); s.addConstraint(v == 3); s.updateVariables()"
    )
    command = [sys.executable, "-S", "-c", f"{program}; print(v.value(), k._cext.__file__)"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{SITE}"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["3.0", str(library)]
    subprocess.run(slim, check=True)
    assert library.read_bytes() == content


def test_equal_libraries_of_wheels_become_links(tmp_path: Path) -> None:
    """Equal libraries in folders of shared libraries become links to one; other equal files stay."""
    for name in ("a.libs/lib.so.1", "b.libs/lib.so.1", "c/lib.so.1"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"one library")
    (tmp_path / "b.libs/other.so.1").write_bytes(b"another library")  # no ELF file: it is not cut
    subprocess.run([sys.executable, str(SLIM), str(tmp_path)], check=True)
    assert [path.name for path in tmp_path.rglob("*.so*") if path.is_symlink()] == ["lib.so.1"]
    assert (tmp_path / "b.libs/lib.so.1").readlink() == Path("../a.libs/lib.so.1")
    assert (tmp_path / "b.libs/lib.so.1").read_bytes() == b"one library"
    assert (tmp_path / "b.libs/other.so.1").read_bytes() == b"another library"


def test_every_pattern_finds_files() -> None:
    """Each pattern of removed files matches an installed package; else the files would be in the image again."""
    slim = runpy.run_path(str(SLIM))
    packages = ("pyarrow", "numpy", "scipy", "sklearn", "openTSNE")
    files = [
        PurePath(folder, name)
        for package in (*packages, "pygments", "joblib")
        for folder, _, file_names in os.walk(SITE / package)
        for name in file_names
    ]
    folders = {parent for path in files for parent in path.parents}
    assert [pattern for pattern in slim["FOLDERS"] if not any(path.match(pattern) for path in folders)] == []
    assert [pattern for pattern in slim["FILES"] if not any(path.match(pattern) for path in files)] == []
