"""Result of named arrays, encoded as JSON, npy, npz, CSV or Arrow, with strong ETags, 304 and byte ranges."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.encoding import arrays as encode
from service.encoding.aborted import AbortableResponse
from service.encoding.arrays import CSV, JSON, NPY, NPZ, Array, Stack
from service.encoding.arrow import ARROW, REMEDY, has_arrow
from service.encoding.compression import matches_tag
from service.encoding.ranges import ACCEPT_RANGES, RangedResponse
from service.encoding.tables import ResultTable, table_pieces
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fastapi import Request

MEDIA = (JSON, NPY, NPZ, ARROW, CSV)  # of a result with a main array
SCALE_HEADER = "Glle-Scale"  # for requests with scale=auto and for binary bodies
NOTES_HEADER = "Glle-Notes"  # for scale=auto
_INLINE_BYTES = 2**17  # of values that are encoded in less than a millisecond, on the event loop
_YEAR = "private, max-age=31536000, immutable"  # private, because a shared cache would serve clients without a key


@dataclass(frozen=True, kw_only=True)
class ArraysResult:
    """Named arrays with metadata, and a table with a row for each point.

    Parameters
    ----------
    arrays
        Arrays that the requested dtype converts.
    stored
        Further arrays of npz, in their own dtype.
    main
        Name of the array of npy.
    members
        Members of JSON: beside `arrays` by their names; without `has_names` behind shape, dtype and data of the main
        array, and read after these are sent.
    table
        Returns the table of CSV and Arrow.

    """

    arrays: Mapping[str, Array | Stack]
    stored: Mapping[str, Array | Stack] = field(default_factory=dict)
    main: str | None = None
    members: Iterable[tuple[str, Any]] = ()
    has_names: bool = False
    table: Callable[[], ResultTable] | None = None

    def response(self, media: str, dtype: str, headers: dict[str, str] | None = None) -> AbortableResponse:
        """Return the result in a media type, or raise ``float32-overflow``."""
        if dtype == "float32":
            self._require_float32()
        if media == NPY:
            assert self.main is not None
            return encode.NpyResponse(Stack.of(self.arrays[self.main], dtype), headers)
        return AbortableResponse(self._pieces(media, dtype), media_type=_content_type(media), headers=headers)

    async def complete(self, media: str, dtype: str, headers: dict[str, str]) -> RangedResponse:
        """Return a result with a small main array as a complete response; raises as `response`."""
        if dtype == "float32":
            self._require_float32()
        main = self.arrays[self.main or ""]
        assert isinstance(main, np.ndarray)
        if media == NPY:
            return RangedResponse(encode.npy_bytes(main, dtype), 200, headers | ACCEPT_RANGES, NPY)
        if main.nbytes <= _INLINE_BYTES:
            body = self._body(media, dtype)
        else:
            body = await run_in_threadpool(self._body, media, dtype)
        return RangedResponse(body, 200, headers, _content_type(media))

    def _body(self, media: str, dtype: str) -> bytes:
        pieces = self._pieces(media, dtype)
        return b"".join(piece.encode() if isinstance(piece, str) else piece for piece in pieces)

    def _require_float32(self) -> None:
        """Raise ``float32-overflow`` if an array has values beyond its range."""
        for array in self.arrays.values():
            encode.check_float32(array)

    def _pieces(self, media: str, dtype: str) -> Iterable[str | bytes | memoryview]:
        """Yield the body in a media type other than npy."""
        if media in {CSV, ARROW}:
            assert self.table is not None
            return table_pieces(self.table(), media)
        stacks = {name: Stack.of(array, dtype) for name, array in self.arrays.items()}
        if media == NPZ:
            stacks |= {name: Stack.of(array) for name, array in self.stored.items()}
            return encode.npz_pieces(stacks)
        return encode.join_pieces(
            self._json_with_arrays(stacks) if self.has_names else self._flat(stacks[self.main or ""])
        )

    def _flat(self, main: Stack) -> Iterator[bytes | memoryview]:
        """Yield ``{"shape", "dtype", "data"}`` and the members; arrays among them become lists."""
        yield from main.json_object()
        for name, value in self.members:
            yield f",{json.dumps(name)}:".encode()
            if isinstance(value, np.ndarray):
                yield from Stack.of(value).json()
            else:
                yield json.dumps(value, allow_nan=False).encode()
        yield b"}"

    def _json_with_arrays(self, stacks: dict[str, Stack]) -> Iterator[bytes | memoryview]:
        """Yield the members and, if there are arrays, ``"arrays": {name: {"shape", "dtype", "data"}}``."""
        text = json.dumps(dict(self.members), allow_nan=False).encode()
        yield text[:-1] if stacks else text
        separator = ',"arrays":{'
        for name, stack in stacks.items():
            yield f"{separator}{json.dumps(name)}:".encode()
            yield from stack.json_object()
            separator = "},"
        if stacks:
            yield b"}}}"


def _content_type(media: str) -> str:
    return f"{CSV}; charset=utf-8; header=present" if media == CSV else media  # RFC 4180 has the parameter `header`


def negotiate(request: Request, offered: tuple[str, ...]) -> str:
    """Return the offered media type that the Accept header prefers, or raise ``not-acceptable``.

    The first one offered breaks ties. Arrow streams need pyarrow.
    """
    return _negotiate(request.headers.get("accept", "*/*"), offered, has_arrow=has_arrow())


@lru_cache(256)
def _negotiate(accept: str, offered: tuple[str, ...], *, has_arrow: bool) -> str:
    accepted: list[tuple[float, str]] = []
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            accepted.append((-float(quality), kind))
        except ValueError:
            continue
    available = tuple(media for media in offered if media != ARROW or has_arrow)
    for rank, kind in sorted(accepted, key=lambda item: item[0]):
        for media in available:
            if rank < 0 and kind in {media, media.partition("/")[0] + "/*", "*/*"}:
                return media
    raise refuse(
        "not-acceptable",
        406,
        f"The Accept header {accept!r} names no available media type.",
        f"Accept one of {', '.join(available)}." + (f" For {ARROW}: {REMEDY}." if available != offered else ""),
        offered=list(available),
    )


def unless_current(request: Request, headers: dict[str, str], respond: Callable[[], Response]) -> Response:
    """Return 304 if If-None-Match names the ETag of these headers, else the response."""
    return Response(status_code=304, headers=headers) if is_not_modified(request, headers) else respond()


def is_not_modified(request: Request, headers: dict[str, str]) -> bool:
    """Return whether If-None-Match names the ETag of these headers."""
    return matches_tag(request.headers.get("if-none-match", "").encode("latin-1"), headers["ETag"].encode())


def immutable_headers(sha256: str, media: str, dtype: str, part: str = "") -> dict[str, str]:
    """Return the headers of one representation of content with this digest; `part` identifies a slice."""
    encoder = encode.JSON_ENCODER if media == JSON else ""  # equal strong ETags promise equal bytes
    tag = hashlib.sha256(" ".join(filter(None, (sha256, media, encoder, dtype, part))).encode()).hexdigest()[:32]
    return {"ETag": f'"{tag}"', "Cache-Control": _YEAR, "Vary": "Accept"}


def mutable_response(request: Request, body: str, **headers: str) -> Response:
    """Return a JSON body to be revalidated at each use, whose ETag is its digest, or 304."""
    tag = {"ETag": f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
    return unless_current(request, tag | headers, lambda: Response(body, 200, tag | headers, JSON))


def scale_headers(scales: Sequence[float], notes: Sequence[dict[str, str]] = ()) -> dict[str, str]:
    """Return the headers with the scales of draws, exact to the last bit, and with codes of doubts about them."""
    named = {SCALE_HEADER: ", ".join(repr(float(scale)) for scale in scales)} if scales else {}
    return named | ({NOTES_HEADER: ", ".join(note["code"] for note in notes)} if notes else {})
