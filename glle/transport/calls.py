"""Requests and replies, and how their bodies are written and read; nothing here uses the network."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, Self
from urllib.parse import quote

import numpy as np

from glle_engine.base.texts import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/zip"
_IN_MEMORY_BYTES = 16 * 2**20  # larger bodies are on disk until they are sent or read

Array = np.ndarray[Any, np.dtype[Any]]
Dtype = Literal["float64", "float32"]


def _plain(value: Any) -> Any:
    """Return the Python value of a numpy scalar or array, for `json.dumps`; raise TypeError for other objects."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if callable(value):
        raise TypeError(f"{value!r} is a function, and a service knows methods by name: use glle.audit for functions.")
    raise TypeError(f"{value!r} of type {type(value).__name__} is not a JSON value: give a number, a string or a list.")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(2**20):
        yield piece


@dataclass(frozen=True)
class Body:
    """Body of a request: the Content-Type, a function that yields the bytes in pieces, and the length if known.

    `pieces` is called again when a request is repeated.
    """

    media: str
    pieces: Callable[[], Iterator[bytes]]
    length: int | None = None

    @classmethod
    def of_json(cls, value: Any) -> Self:
        """Return the body with a value as JSON; scalars and arrays of numpy become numbers and lists."""
        text = json.dumps(value, allow_nan=False, default=_plain).encode()
        return cls(JSON, lambda: iter([text]), len(text))

    @classmethod
    def of_file(cls, path: Path, media: str) -> Self:
        """Return the body with the bytes of a file, which are read while they are sent."""

        def pieces() -> Iterator[bytes]:
            with path.open("rb") as file:
                yield from _pieces(file)

        return cls(media, pieces, path.stat().st_size)

    @classmethod
    def of_writer(cls, media: str, write: Callable[[IO[bytes]], object]) -> Self:
        """Return a body whose bytes `write` writes to a temporary file, which is kept in memory up to 16 MiB."""

        def pieces() -> Iterator[bytes]:
            with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
                write(file)
                file.seek(0)
                yield from _pieces(file)

        return cls(media, pieces)


@dataclass(frozen=True)
class Call:
    """One request, which is safe to repeat.

    The id of what a POST creates is determined by the content of the request, so that a repeated POST finds what the
    first one created. The body of a response with status 200 is written to a temporary file, or to the file `out`, and
    `read` reads a value from that file.
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Body | None = None
    accept: str = JSON
    read: Callable[[Any], Any] | None = None
    out: Path | None = None

    @classmethod
    def post(cls, path: str, body: Any, query: Mapping[str, Any] | None = None) -> Self:
        """Return a POST of a body, or of a value that is sent as JSON."""
        return cls("POST", path, query or {}, body if isinstance(body, Body) else Body.of_json(body))

    @classmethod
    def npy(cls, path: str, query: Mapping[str, Any] | None = None, out: str | Path | None = None) -> Self:
        """Return a GET of one array; with `out`, the array is written to that npy file and memory-mapped."""
        if out is None:
            return cls("GET", path, query or {}, accept=NPY, read=_read_npy)
        read = partial(np.load, mmap_mode="r", allow_pickle=False)
        return cls("GET", path, query or {}, accept=NPY, read=read, out=Path(out))

    @classmethod
    def npz(cls, path: str, query: Mapping[str, Any] | None = None) -> Self:
        """Return a GET whose reply is a dictionary of arrays by name."""
        return cls("GET", path, query or {}, accept=NPZ, read=_read_npz)

    @contextmanager
    def destination(self) -> Iterator[IO[bytes]]:
        """Yield a file to write the response's body to, so that large bodies are never in memory twice.

        When the context ends without an error, the complete body replaces the file `out`.
        """
        if self.out is None:
            with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
                yield file
            return
        with TemporaryDirectory(prefix=self.out.name, dir=self.out.parent) as folder:
            partial_file = Path(folder, self.out.name)
            with partial_file.open("wb") as file:
                yield file
            partial_file.replace(self.out)


def _read_npy(file: IO[bytes]) -> Array:
    array: Array = np.load(file, allow_pickle=False)
    if file.read(1):
        raise ValueError(
            f"The service sent more bytes than an array of shape {array.shape} and dtype {array.dtype} has. Call "
            "again; if the error persists, check that no proxy changes the responses."
        )
    return array


def _read_npz(file: IO[bytes]) -> dict[str, Array]:
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


class Members(dict[str, Any]):
    """JSON object as a dictionary whose members are also attributes: ``audit.groups.names``."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"There is no member {name!r}. The members are {', '.join(self) or 'none'}.")


def _members(values: dict[str, Any]) -> Members:
    """Return a JSON object of a response as `Members`, with messages for users of Python.

    The response has each message (`detail`, `remedy` or `message`) also in parts. From these parts, the message is
    written again with options and calls in Python's spelling: `n_neighbors=10` in place of "n_neighbors": 10.
    """
    for name in ("detail", "remedy", "message"):
        if f"{name}_parts" in values:
            values[name] = Text.from_json(values[f"{name}_parts"])
    return Members(values)


class Reply(NamedTuple):
    """Response; `body` has the bytes, or the value that `Call.read` has read from them."""

    status: int
    headers: Mapping[str, str]
    body: Any

    def json(self) -> Any:
        """Return the value of a JSON body, with objects as `Members` (dictionaries whose members are also attributes).

        Messages of the service name options as Python does, such as `n_neighbors=10`.
        """
        return json.loads(self.body, object_hook=_members)


def path_of(kind: str, id_: str, *parts: str) -> str:
    """Return the URL path of a resource, such as /v1/jobs/ID, followed by the `parts`."""
    return "/".join(["/v1", kind, quote(id_, safe=""), *parts])
