"""The file of a backup: a plain tar of npy and JSON files, told and sealed by its last member, the manifest.

    README.txt                     how to read it without glle
    datasets/<id>.json, .npy, ...  data sets, as they lie in the data folder
    posteriors.jsonl               a line a posterior: id, record, calibration
    embeddings.jsonl               a line an embedding: id, record, until when it is kept
    jobs.jsonl                     a line a job that has ended: id, record, until when it is kept
    keys.json                      with `--keys`: the bearer keys' digests
    cache.jsonl, cache/<i>.npy     with `--arrays`: the entries of the array cache
    manifest.json                  versions, counts, bytes and SHA-256 of every other member

It is not compressed, because floating-point numbers hardly are: so nothing in it takes more room than it has in the
file. It is written piece by piece and read piece by piece.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import tempfile
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

import glle_engine
from worker.base.clock import now_iso
from worker.base.problems import refuse
from worker.base.versions import check_schema, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import SupportsWrite

    from worker.base.problems import ProblemError

PIECE = 2**20
LINE = 64 * 2**20  # bytes of one record; a job of ten thousand draws takes some hundred thousand
MANIFEST = "manifest.json"
README = "README.txt"
_NAMES = re.compile(
    r"README\.txt|keys\.json|(posteriors|embeddings|jobs|cache)\.jsonl|cache/[0-9]{1,9}\.npy"
    r"|datasets/ds_[0-9a-f]{32}(\.json|(\.labels|\.color|\.coordinates)?\.npy)"
)
_README = """A backup of glle (`glle restore` reads it). Without glle:
datasets/*.npy: numpy.load. datasets/*.json: their records. *.jsonl: a JSON object a line.
manifest.json: bytes and SHA-256 of every other file; `tar xf` and `sha256sum` are enough to check them.
"""


class Writer:
    """Writes an archive.

    Parameters
    ----------
    file
        Takes bytes in order; nothing is sought.

    """

    def __init__(self, file: SupportsWrite[bytes]) -> None:
        # GNU's format: sizes beyond 8 GB, and no header that has to be looked for elsewhere.
        self._tar = tarfile.open(fileobj=cast("IO[bytes]", file), mode="w|", format=tarfile.GNU_FORMAT)  # noqa: SIM115 # closed by `seal`
        self._members: dict[str, dict[str, Any]] = {}
        self.add(README, io.BytesIO(_README.encode()), len(_README))

    def add(self, name: str, source: IO[bytes], size: int) -> None:
        """Add a member of `size` bytes, which are read from `source` as they are written."""
        assert _NAMES.fullmatch(name), name
        assert name not in self._members, name
        hashing = _Hashing(source)
        self._tar.addfile(_header(name, size), hashing)
        self._members[name] = {"bytes": size, "sha256": hashing.found.hexdigest()}

    @contextmanager
    def lines(self, name: str) -> Iterator[Callable[[dict[str, Any]], None]]:
        """Add a member of JSON lines: yields what writes one; they are put together in a temporary file."""
        with tempfile.TemporaryFile() as file:

            def write(told: dict[str, Any]) -> None:
                file.write(json.dumps(told, allow_nan=False).encode() + b"\n")

            yield write
            size = file.tell()
            file.seek(0)
            self.add(name, file, size)

    def seal(self, **facts: Any) -> None:
        """Write the manifest, and the end."""
        told = {
            "backup": "glle",
            "glle": glle_engine.__version__,
            "numbers": glle_engine.NUMBERS,
            "created": now_iso(),
            **facts,
            "members": self._members,
        }
        text = json.dumps(stamp(told), indent=1, allow_nan=False).encode()
        self._tar.addfile(_header(MANIFEST, len(text)), io.BytesIO(text))
        self._tar.close()


class _Hashing:
    """A file that is read once, and the digest of what was read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.found = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        piece = self._source.read(size)
        self.found.update(piece)
        return piece


class Archive:
    """An archive that was looked through from end to end: what it says of itself is so.

    Parameters
    ----------
    file
        Readable and seekable.

    Attributes
    ----------
    manifest : dict
        What it says of itself.

    Raises
    ------
    ProblemError
        ``backup-unreadable``: no archive of glle, cut off, changed, or with members that have no place in one.
        ``written-by-newer-version``.

    """

    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 # closed with its file
            self._infos = self._looked_through()
        except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(f"{type(error).__name__}: {error}") from error
        except (RecursionError, OverflowError) as error:
            raise damaged(f"{type(error).__name__}: {error}") from error

    def _looked_through(self) -> dict[str, tarfile.TarInfo]:
        """Return the members by name, each compared with the manifest."""
        infos: dict[str, tarfile.TarInfo] = {}
        found: dict[str, dict[str, Any]] = {}
        for info in self._tar:
            if MANIFEST in infos or info.name in infos or not info.isreg() or info.issparse():
                raise damaged(f"{info.name!r} is no member of a backup")
            if info.name != MANIFEST:
                if not _NAMES.fullmatch(info.name):
                    raise damaged(f"{info.name!r} is no member of a backup")
                found[info.name] = {"bytes": info.size, "sha256": self._digest(info)}
            infos[info.name] = info
        if MANIFEST not in infos:
            raise damaged("it has no manifest, so its end is missing")
        told = json.loads(self._file(infos.pop(MANIFEST)).read())
        if not isinstance(told, dict) or told.get("backup") != "glle":
            raise damaged("its manifest is not of glle")
        self.manifest = check_schema("The backup", told)
        if not all(isinstance(self.manifest[name], str) for name in ("glle", "numbers", "created")) or not all(
            isinstance(count, int) for count in self.manifest["counts"].values()
        ):
            raise damaged("its manifest is not of glle")
        if (listed := self.manifest["members"]) != found:
            names = sorted(name for name in {*listed, *found} if listed.get(name) != found.get(name))
            raise damaged(f"{len(names)} members are not as the manifest says: {', '.join(names[:5])}")
        return infos

    def _digest(self, info: tarfile.TarInfo) -> str:
        file, sha256, read = self._file(info), hashlib.sha256(), 0
        while piece := file.read(PIECE):
            sha256.update(piece)
            read += len(piece)
        if read != info.size:
            raise damaged(f"{info.name!r} is cut off")
        return sha256.hexdigest()

    def _file(self, info: tarfile.TarInfo) -> IO[bytes]:
        file = self._tar.extractfile(info)
        assert file is not None
        return file

    def __contains__(self, name: str) -> bool:
        """Say whether there is a member of this name."""
        return name in self._infos

    def names(self, prefix: str, suffix: str) -> list[str]:
        """Return the names of members that begin and end so."""
        return sorted(name for name in self._infos if name.startswith(prefix) and name.endswith(suffix))

    def open(self, name: str) -> IO[bytes]:
        """Return a member to read from."""
        return self._file(self._infos[name])

    def size(self, name: str) -> int:
        """Return the bytes of a member."""
        return self._infos[name].size

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a member of JSON lines; none where it is not there."""
        if name not in self:
            return
        with self.open(name) as file:
            while line := file.readline(LINE):
                try:
                    told = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise damaged(f"a line of {name} is no JSON") from error
                if not isinstance(told, dict):
                    raise damaged(f"a line of {name} is no object")
                yield told


def damaged(why: str) -> ProblemError:
    """Return the refusal of a file that is no whole backup."""
    remedy = "Nothing was changed. Take another backup, or fetch this one again."
    return refuse("backup-unreadable", 422, f"This is no backup of glle that can be relied on: {why}.", remedy)


def _header(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"{name}")
    info.size, info.mode, info.mtime = size, 0o600, int(time.time())
    return info
