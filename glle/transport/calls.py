"""Requests and replies, without a network."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from glle.transport.sinks import FileSink, NpySink, NpzSink, Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/zip"
_IN_MEMORY_BYTES = 16 * 2**20

Dtype = Literal["float64", "float32"]


def _plain(value: Any) -> Any:
    """Return the Python value of a numpy scalar or array."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} of type {type(value).__name__} is no JSON value: give a number, a string or a list.")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(2**20):
        yield piece


@dataclass(frozen=True)
class Body:
    """Body of a request: Content-Type, an iterator over its bytes for each attempt, and its length if known."""

    media: str
    pieces: Callable[[], Iterator[bytes]]
    length: int | None = None

    @classmethod
    def of_json(cls, value: Any) -> Self:
        """Return a value as JSON; numpy's scalars and arrays become numbers and lists."""
        text = json.dumps(value, allow_nan=False, default=_plain).encode()
        return cls(JSON, lambda: iter([text]), len(text))

    @classmethod
    def of_file(cls, path: Path, media: str) -> Self:
        """Return the bytes of a file, read while they are sent."""

        def pieces() -> Iterator[bytes]:
            with path.open("rb") as file:
                yield from _pieces(file)

        return cls(media, pieces, path.stat().st_size)

    @classmethod
    def of_writer(cls, media: str, write: Callable[[IO[bytes]], object]) -> Self:
        """Return what a function writes to a file, which is on disk if it is large, before it is sent."""

        def pieces() -> Iterator[bytes]:
            with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
                write(file)
                file.seek(0)
                yield from _pieces(file)

        return cls(media, pieces)


@dataclass(frozen=True)
class Call:
    """One request.

    A POST is repeatable with an Idempotency-Key (`key`), or if its result is named by its content (`by_content`).
    `sink` makes the receiver of the body of a 200; other bodies are small, and bytes.
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Body | None = None
    accept: str = JSON
    key: str | None = None
    by_content: bool = False
    sink: Callable[[], Sink] | None = None

    @classmethod
    def command(cls, path: str, body: Any) -> Self:
        """Return a POST with a new Idempotency-Key."""
        return cls("POST", path, body=Body.of_json(body), key=uuid.uuid4().hex)

    @classmethod
    def by_content_of(cls, path: str, body: Any, query: Mapping[str, Any] | None = None) -> Self:
        """Return a POST whose result is named by its content, or that stores nothing."""
        body = body if isinstance(body, Body) else Body.of_json(body)
        return cls("POST", path, query or {}, body, by_content=True)

    @classmethod
    def npy(cls, path: str, query: Mapping[str, Any], out: str | Path | None = None) -> Self:
        """Return the GET of one array; with `out`, into that npy file."""
        sink = NpySink if out is None else partial(FileSink, Path(out))
        return cls("GET", path, query, accept=NPY, sink=sink)

    @classmethod
    def npz(cls, path: str, query: Mapping[str, Any] | None = None) -> Self:
        """Return the GET of several arrays."""
        return cls("GET", path, query or {}, accept=NPZ, sink=NpzSink)

    @property
    def is_repeatable(self) -> bool:
        """Whether two such requests have the effect of one."""
        return self.method != "POST" or self.key is not None or self.by_content


@dataclass(frozen=True)
class Reply:
    """Response: `body` is bytes, or the result of the call's sink."""

    status: int
    headers: Mapping[str, str]
    body: Any

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Failure:
    """Failed connection: not made, or broken later (`connected`)."""

    reason: str
    connected: bool = True


def path_of(kind: str, id_: str, *parts: str) -> str:
    """Return the path of a resource, or of something below it."""
    return "/".join(["/v1", kind, quote(id_, safe=""), *parts])
