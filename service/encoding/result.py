"""Responses with named arrays as JSON, npy, npz, CSV or Arrow: content negotiation, slices, ETags, 304, byte ranges.

A slice of an axis, `?points=` or `?draws=`, is `a:b` as in Python (half open, negative from the end), or a list.
Positions outside the axis are refused, not clipped. An empty slice is refused, too.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from fastapi import Query
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.encoding import arrays as encode
from service.encoding.arrays import CSV, JSON, NPY, NPZ, SHEET_CSV, AbortableResponse, Array, ResultTable, Stack
from service.encoding.media_types import ARROW, ARROW_REMEDY, MediaType, has_arrow
from service.encoding.representations import ACCEPT_RANGES, RangedResponse, matches_strongly, matches_tag
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fastapi import Request

MAX_LISTED = 1000
_SLICE = re.compile(r"(-?\d{1,18})?:(-?\d{1,18})?")
_LIST = re.compile(r"-?\d{1,18}(,-?\d{1,18})*")

_SYNTAX = f"`a:b` as in Python, half open; or a comma-separated list of at most {MAX_LISTED:,} positions from 0."
Points = Annotated[str | None, Query(description=f"Only these points: {_SYNTAX}", examples=["0:100"])]
Draws = Annotated[str | None, Query(description=f"Only these of the draws, by position: {_SYNTAX}", examples=["0:8"])]
RESULT_MEDIA = (JSON, NPY, NPZ, ARROW, CSV)  # media types of a result with a main array
TABLES = frozenset({ARROW, CSV, SHEET_CSV})  # media types with a row for each point
SCALE_HEADER = "Glle-Scale"  # the scale of the draws, also if the request said auto or the body is binary
NOTES_HEADER = "Glle-Notes"  # codes of the warnings about a calibrated scale of draws
_MAX_INLINE_BYTES = 2**17  # fewer bytes take less than a millisecond, and are encoded on the event loop
_YEAR = "private, max-age=31536000, immutable"  # private, because a shared cache would serve clients without a key


@dataclass(frozen=True)
class Selection:
    """Positions that a request selects along an axis of an array, such as the points.

    `tag` identifies the positions in an ETag, and is empty if all are selected.
    """

    positions: Sequence[int]
    tag: str

    @classmethod
    def from_query(cls, text: str | None, size: int, name: str) -> Self:
        """Parse the query parameter `name`, such as ``0:100`` or ``3,5``, for an axis of length `size`; None means all.

        Raises `ProblemError` (``invalid-slice`` or ``slice-out-of-range``).
        """
        if text is None:
            return cls(range(size), "")
        if (bounds := _SLICE.fullmatch(text)) is not None:
            start = _position(bounds[1] or "0", size, name, last=size)
            stop = _position(bounds[2] or str(size), size, name, last=size)
            if start >= stop:
                raise _invalid(f"The slice ?{name}={text} is empty, because it ends before it begins.")
            is_whole = (start, stop) == (0, size)
            return cls(range(start, stop), "" if is_whole else f"{name}={start}:{stop}")
        if _LIST.fullmatch(text) is None:
            raise _invalid(f"?{name}={text[:50]!r} is neither a slice nor a list of positions.")
        numbers = text.split(",")
        if len(numbers) > MAX_LISTED:
            raise _invalid(f"?{name}= lists {len(numbers):,} positions; {MAX_LISTED:,} are allowed.")
        positions = [_position(number, size, name, last=size - 1) for number in numbers]
        return cls(positions, f"{name}={','.join(map(str, positions))}")

    def select(self, array: Array, axis: int = 0) -> Array:
        """Return the part of an array at these positions along `axis`: a view for a slice, a copy for a list."""
        lead = (slice(None),) * axis
        if isinstance(self.positions, range):
            return array[(*lead, slice(self.positions.start, self.positions.stop))]
        return np.take(array, self.positions, axis)

    def __len__(self) -> int:
        return len(self.positions)


def reject_slice(name: str, text: str | None) -> None:
    """Raise `ProblemError` if a request has the query parameter `name`, because the resource has no such axis."""
    if text is not None:
        detail = f"?{name}= was given, but this resource has no {name} to select from."
        raise refuse("not-sliceable", 422, detail, f"Leave ?{name}= out.")


def _position(text: str, size: int, name: str, *, last: int) -> int:
    position = int(text)
    if not -size <= position <= last:
        raise refuse(
            "slice-out-of-range",
            422,
            f"The position {position} in ?{name}= does not exist: there are {size:,} {name}.",
            f"Choose positions from 0 to {last}, or from {-size} to -1, which count from the end.",
            allowed=[0, last],
            size=size,
        )
    return position + size if position < 0 else position


def _invalid(detail: str) -> ProblemError:
    remedy = f"Give a:b with a below b, or a comma-separated list of at most {MAX_LISTED:,} positions."
    return refuse("invalid-slice", 422, detail, remedy)


@dataclass(frozen=True, kw_only=True)
class ArraysResult:
    """Named arrays to send, with metadata and, for CSV and Arrow, a table with a row for each point.

    Parameters
    ----------
    arrays
        Arrays that are converted to the requested dtype.
    stored
        Further arrays for npz, which keep their dtype.
    main
        Name of the only array that an npy response has.
    members
        Names and values of further members of the JSON object. If `has_names` is false, they are iterated only after
        the main array has been sent.
    has_names
        Whether the JSON object has all arrays by name: first `members`, then a member `arrays`, which maps each name to
        `shape`, `dtype` and `data`. Otherwise it has `shape`, `dtype` and `data` of the main array, then `members`.
    table
        Returns the table for CSV and Arrow.

    """

    arrays: Mapping[str, Array | Stack]
    stored: Mapping[str, Array | Stack] = field(default_factory=dict)
    main: str | None = None
    members: Iterable[tuple[str, Any]] = ()
    has_names: bool = False
    table: Callable[[], ResultTable] | None = None

    def response(self, media: str, dtype: str, headers: dict[str, str] | None = None) -> AbortableResponse:
        """Return the response that streams the result; raise `ProblemError` for values too large for float32."""
        if dtype == "float32":
            self._require_float32()
        if media == NPY:
            assert self.main is not None
            return encode.NpyResponse(Stack.from_array(self.arrays[self.main], dtype), headers)
        return AbortableResponse(self._pieces(media, dtype), media_type=_content_type(media), headers=headers)

    async def complete(self, media: str, dtype: str, headers: dict[str, str]) -> RangedResponse:
        """Return a response with its body in memory, for a small result.

        Raises `ProblemError` in the same cases as `response`.
        """
        if dtype == "float32":
            self._require_float32()
        main = self.arrays[self.main or ""]
        assert isinstance(main, np.ndarray)
        if media == NPY:
            values = np.ascontiguousarray(main, dtype if main.dtype.kind == "f" else None)
            body = encode.npy_header(values.dtype, values.shape) + values.tobytes()
            return RangedResponse(body, 200, headers | ACCEPT_RANGES, NPY)
        if main.nbytes <= _MAX_INLINE_BYTES:
            body = self._body(media, dtype)
        else:
            body = await run_in_threadpool(self._body, media, dtype)
        return RangedResponse(body, 200, headers, _content_type(media))

    def _body(self, media: str, dtype: str) -> bytes:
        pieces = self._pieces(media, dtype)
        return b"".join(piece.encode() if isinstance(piece, str) else piece for piece in pieces)

    def _require_float32(self) -> None:
        """Raise `ProblemError` (``float32-overflow``) if an array has values beyond the range of float32."""
        for array in self.arrays.values():
            encode.check_float32(array)

    def _pieces(self, media: str, dtype: str) -> Iterable[str | bytes | memoryview]:
        """Return an iterable over the body in a media type other than npy."""
        if media in TABLES:
            assert self.table is not None
            if media == ARROW:
                return encode.arrow_pieces(self.table())
            return encode.csv_pieces(self.table(), quotes_formulas=media == SHEET_CSV)
        stacks = {name: Stack.from_array(array, dtype) for name, array in self.arrays.items()}
        if media == NPZ:
            stacks |= {name: Stack.from_array(array) for name, array in self.stored.items()}
            return encode.npz_pieces(stacks)
        return encode.join_pieces(
            self._json_with_arrays(stacks) if self.has_names else self._flat(stacks[self.main or ""])
        )

    def _flat(self, main: Stack) -> Iterator[bytes | memoryview]:
        """Yield a JSON object with the array `main` as `shape`, `dtype` and `data`, and then all of `self.members`.

        A member that is an array becomes nested lists.
        """
        yield from main.json_object()
        for name, value in self.members:
            yield f",{json.dumps(name)}:".encode()
            if isinstance(value, np.ndarray):
                yield from Stack.from_array(value).json()
            else:
                yield json.dumps(value, allow_nan=False).encode()
        yield b"}"

    def _json_with_arrays(self, stacks: dict[str, Stack]) -> Iterator[bytes | memoryview]:
        """Yield a JSON object with all of `self.members`, and then with the arrays `stacks` as its member `arrays`.

        `arrays` maps the name of each array to an object with `shape`, `dtype` and `data`; it is left out if there are
        none.
        """
        text = json.dumps(dict(self.members), allow_nan=False).encode()
        yield text[:-1] if stacks else text
        separator = ',"arrays":{'
        for name, stack in stacks.items():
            yield f"{separator}{json.dumps(name)}:".encode()
            yield from stack.json_object()
            separator = "},"
        if stacks:
            yield b"}}}"


def named_arrays_response(
    request: Request, title: str, sha256: str, arrays: Mapping[str, Array], name: str | None, dtype: str
) -> Response:
    """Return all arrays of a resource as npz, or the array `name` as npy or JSON, or 304 if the client has them.

    `title` names the kind of the resource in messages, `sha256` is its digest for the ETag. Raises `ProblemError`
    (``no-such-array`` or ``not-acceptable``).
    """
    media = negotiate(request, (NPZ,) if name is None else (NPY, JSON))
    if name is not None and name not in arrays:
        remedy = f"Use one of {', '.join(arrays)}."
        raise refuse("no-such-array", 422, f"This {title} has no array {name!r}.", remedy)
    headers = immutable_headers(sha256, media, dtype, name or "arrays")
    result = ArraysResult(arrays=arrays if name is None else {name: arrays[name]}, main=name)
    return unless_current(request, headers, lambda: result.response(media, dtype, headers))


def _content_type(media: str) -> str:
    return media.replace(CSV, f"{CSV}; charset=utf-8; header=present")  # the parameter `header` is from RFC 4180


def negotiate(request: Request, offered: tuple[str, ...]) -> str:
    """Return the one of the `offered` media types that the Accept header prefers.

    If several are preferred equally, the one that is offered first wins. Arrow streams need pyarrow. CSV with the
    parameter ``formulas=quoted`` is `SHEET_CSV`. Raises `ProblemError` (``not-acceptable``).
    """
    return _negotiate(request.headers.get("accept", "*/*"), offered, has_arrow=has_arrow())


@lru_cache(256)
def _negotiate(accept: str, offered: tuple[str, ...], *, has_arrow: bool) -> str:
    accepted: list[tuple[float, MediaType]] = []
    for element in accept.split(","):
        media_type = MediaType.parse(element)
        try:
            accepted.append((-float(media_type.parameters.get("q", "1")), media_type))
        except ValueError:
            continue
    available = tuple(media for media in offered if media != ARROW or has_arrow)
    for rank, media_range in sorted(accepted, key=lambda item: item[0]):
        for media in available:
            if rank < 0 and media_range.kind in {media, media.partition("/")[0] + "/*", "*/*"}:
                return SHEET_CSV if media == CSV and media_range.parameters.get("formulas") == "quoted" else media
    raise refuse(
        "not-acceptable",
        406,
        f"The header Accept: {accept!r} names no media type that this resource has.",
        f"Accept one of {', '.join(available)}." + (f" For {ARROW}: {ARROW_REMEDY}." if available != offered else ""),
        offered=list(available),
    )


def unless_current(request: Request, headers: dict[str, str], respond: Callable[[], Response]) -> Response:
    """Return 304 if If-None-Match names the ETag in these headers, otherwise the response that `respond` makes."""
    return Response(status_code=304, headers=headers) if is_not_modified(request, headers) else respond()


def is_not_modified(request: Request, headers: dict[str, str]) -> bool:
    """Return whether If-None-Match names the ETag in these headers."""
    return matches_tag(request.headers.get("if-none-match", "").encode("latin-1"), headers["ETag"].encode())


def immutable_headers(sha256: str, media: str, dtype: str, slice_tag: str = "") -> dict[str, str]:
    """Return the ETag and caching headers of one representation of content that never changes.

    `sha256` is the digest of the content; `slice_tag` identifies a slice of it.
    """
    encoder = encode.JSON_ENCODER if media == JSON else ""  # equal strong ETags promise equal bytes
    tag = hashlib.sha256(" ".join(filter(None, (sha256, media, encoder, dtype, slice_tag))).encode()).hexdigest()[:32]
    return {"ETag": f'"{tag}"', "Cache-Control": _YEAR, "Vary": "Accept"}


def mutable_response(request: Request, body: str, **headers: str) -> Response:
    """Return 200 with a JSON body that clients must revalidate, because it may change, or 304 if the client has it."""
    tag = mutable_headers(body)
    return unless_current(request, tag | headers, lambda: Response(body, 200, tag | headers, JSON))


def changed_response(body: str) -> Response:
    """Return the response to a request that changed a resource: its new JSON, with the ETag for the next change."""
    return Response(body, 200, mutable_headers(body), JSON)


def require_match(request: Request, body: str) -> None:
    """Raise `ProblemError` (``changed-meanwhile``) if If-Match does not name the ETag of `body`, a resource as JSON."""
    if_match, tag = request.headers.get("if-match"), mutable_headers(body)["ETag"]
    if if_match is not None and not matches_strongly(if_match.encode("latin-1"), tag.encode()):
        detail = f"The resource has the ETag {tag}, which If-Match does not name: it was changed meanwhile."
        raise refuse(
            "changed-meanwhile", 412, detail, "Read it again, and send the change with its new ETag.", etag=tag
        )


def mutable_headers(body: str) -> dict[str, str]:
    """Return the headers of a JSON body that may change: its digest as ETag, and Cache-Control: no-cache."""
    return {"ETag": f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"', "Cache-Control": "no-cache"}


def scale_headers(scales: Sequence[float], notes: Sequence[dict[str, Any]] = ()) -> dict[str, str]:
    """Return the header Glle-Scale with the exact scales of draws, and Glle-Notes with the codes of `notes`.

    A header that would be empty is left out.
    """
    named = {SCALE_HEADER: ", ".join(repr(float(scale)) for scale in scales)} if scales else {}
    return named | ({NOTES_HEADER: ", ".join(note["code"] for note in notes)} if notes else {})
