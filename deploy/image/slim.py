"""Remove the files that the service never reads from an environment: `python slim.py FOLDER`.

The removed parts are tests, sources and headers for compilers, optional libraries and data that the service does not
import, and the symbol tables of shared objects.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import sys
from pathlib import Path

FOLDERS = (
    *("tests", "joblib/test", "pyarrow/include", "numpy/_core/include"),
    # Data of examples.
    *("sklearn/datasets/data", "sklearn/datasets/images"),
)
FILES = (
    # Sources, headers, stubs and static libraries, for compilers and type checkers.
    *("*.pyx", "*.pxd", "*.pxi", "*.pyi", "*.h", "*.hpp", "*.c", "*.cc", "*.cpp", "*.tp", "*.a"),
    # Arrow's network protocol, its S3 client (an object store uses obstore), and scipy's reader of Matrix Market files.
    *("pyarrow/libarrow_flight.so*", "pyarrow/libarrow_python_flight.so*", "pyarrow/_flight.*"),
    *("pyarrow/libarrow_s3.so*", "pyarrow/_s3fs.*", "scipy/io/_fast_matrix_market/_fmm_core.*"),
    # Copies of pyarrow/libarrow_python.so.NUMBER under the names that a linker uses.
    *("pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.*.*"),
    "pygments/lexers/[!_]*.py",  # consoles show no source code
)


def drop_symbols(path: Path) -> int:
    """Cut the end of a 64-bit ELF file that no segment includes; return the removed bytes.

    The dynamic loader reads segments only. The section headers, symbol tables and debug information after the last
    segment serve linkers and debuggers. `strip` also moves segments, which breaks libraries that patchelf has changed.
    See elf(5).
    """
    content = path.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return 0
    (start,) = struct.unpack_from("<Q", content, 32)
    size, number = struct.unpack_from("<HH", content, 54)
    end = start + size * number
    for header in range(start, end, size):
        offset, _, _, length = struct.unpack_from("<QQQQ", content, header + 8)
        end = max(end, offset + length)
    if end >= len(content):
        return 0
    kept = bytearray(content[:end])
    struct.pack_into("<Q", kept, 40, 0)  # no section headers
    struct.pack_into("<HHH", kept, 58, 0, 0, 0)
    path.write_bytes(kept)
    return len(content) - end


def slim(folder: Path) -> None:
    """Remove the files below a folder, and cut its shared objects."""
    for pattern in FOLDERS:
        for path in [path for path in folder.rglob(pattern) if path.is_dir()]:
            shutil.rmtree(path, ignore_errors=True)  # inside another one
    for pattern in FILES:
        for path in folder.rglob(pattern):
            path.unlink()
    first: dict[bytes, Path] = {}
    for path in sorted(path for path in folder.rglob("*.so*") if path.is_file() and not path.is_symlink()):
        drop_symbols(path)
        # numpy and scipy have the same run-time libraries of Fortran.
        same = first.setdefault(hashlib.sha256(path.read_bytes()).digest(), path)
        if same is not path and path.parent.suffix == ".libs":
            path.unlink()
            path.symlink_to(os.path.relpath(same, path.parent))


if __name__ == "__main__":
    slim(Path(sys.argv[1]))
