"""Packed bodies: compressed ones and multipart forms, unpacked one layer at a time under a limit.

A layer is a Content-Encoding, a compressed file, or a form with one file. A reader process unpacks it, because a body
may be a bomb.
"""

from __future__ import annotations

import gzip
import mmap
import zlib
from dataclasses import dataclass, field, replace
from email.message import Message
from email.parser import BytesHeaderParser
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any

from service.encoding.arrow import REMEDY, has_arrow
from service.uploads.limits import check_inflated
from service.uploads.registry import MEDIA_OF_MAGIC, MEDIA_OF_SUFFIX, format_of
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MULTIPART = "multipart/form-data"
MAX_LAYERS = 3
CODING_OF_SUFFIX = {".gz": "gzip", ".zst": "zstd"}
DIALECT_FIELDS = ("header", "delimiter", "decimal", "charset")
LIST_FIELDS = ("features", "id", "ignore", "one_hot")
FIELDS = ("label", "color", *LIST_FIELDS, *DIALECT_FIELDS)
_CODINGS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_CODING_OF_TYPE = {"application/gzip": "gzip", "application/x-gzip": "gzip", "application/zstd": "zstd"}
# Types that browsers give to files they do not know, or to every table.
_VAGUE = {"", "application/octet-stream", "text/plain", "application/vnd.ms-excel", "application/x-zip-compressed"}
_PIECE = 2**20
_MAX_PARTS, _MAX_HEAD, _MAX_FIELD = 1000, 2**13, 2**16  # parts, and bytes of a part's head and of a field
_LINE = b"\r\n"


@dataclass(frozen=True)
class Packing:
    """Content-Type and Content-Encoding of a body, and the fields of the form it came in."""

    content_type: str
    encoding: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Media type without its parameters."""
        return self.content_type.partition(";")[0].strip().lower()

    @property
    def codings(self) -> list[str]:
        """Codings in the order in which they were applied."""
        codings = [word.strip().lower() for word in self.encoding.split(",")]
        return [word for word in codings if word not in {"", "identity"}]

    @property
    def is_packed(self) -> bool:
        """Return whether a layer is left to unpack."""
        return bool(self.codings) or self.kind in {MULTIPART, *_CODING_OF_TYPE}

    def check(self) -> None:
        """Raise ``unsupported-media-type`` for an unknown coding or format, or one without its library."""
        coding = self._coding
        if not self.is_packed:
            format_of(self.content_type)
        if coding and coding not in _CODINGS:
            detail = f"The body has Content-Encoding {self.encoding[:100]}."
            raise refuse("unsupported-media-type", 415, detail, "Send it uncompressed, or compressed by gzip or zstd.")
        if coding and _CODINGS[coding] == "zstd" and not has_arrow():
            detail = "A body compressed by zstd needs pyarrow, which is not installed."
            remedy = f"Install it for the API, {REMEDY}, or compress by gzip."
            raise refuse("unsupported-media-type", 415, detail, remedy)

    @property
    def _coding(self) -> str:
        """Coding of the outermost layer, or an empty string."""
        return self.codings[-1] if self.codings else _CODING_OF_TYPE.get(self.kind, "")

    def unpack(self, file: IO[bytes], out: IO[bytes], cap: int) -> Packing:
        """Write the outermost layer's content to `out`; return the packing of the content, with the fields so far.

        Raises
        ------
        ProblemError
            ``inflated-too-large``, ``malformed-gzip``, ``malformed-zstd``, ``malformed-multipart``.

        """
        if coding := self._coding:
            file.seek(0)
            pieces = _inflate(file) if _CODINGS[coding] == "gzip" else _decompress(file)
            head = _write(pieces, out, cap)
            if self.codings:
                return replace(self, encoding=", ".join(self.codings[:-1]))
            return replace(self, content_type=_media_of(head))
        body = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start, end, packing = _file_of(body, _boundary(self.content_type))
        head = _write((body[at : min(end, at + _PIECE)] for at in range(start, end, _PIECE)), out, cap)
        return replace(
            packing,
            content_type=packing.content_type or _media_of(head),
            fields={**self.fields, **packing.fields},
        )


def _write(pieces: Iterable[bytes], out: IO[bytes], cap: int) -> bytes:
    """Write pieces under the limit; return the first bytes."""
    head, size = b"", 0
    for piece in pieces:
        size += len(piece)
        check_inflated("The body", size, cap)
        head = head or piece[:_MAX_HEAD]
        out.write(piece)
    if not size:
        raise refuse("empty-body", 422, "The file is empty.", "Send a table with at least one row.")
    return head


def _inflate(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip file of one or more members, in pieces."""
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while piece := stream.read(_PIECE):
                yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _bad_coding("gzip", error) from None


def _decompress(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a zstd file, in pieces."""
    import pyarrow as pa  # noqa: PLC0415 # an extra

    try:
        with pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd") as stream:
            while piece := stream.read(_PIECE):
                yield piece
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the body
            raise
        raise _bad_coding("zstd", error) from None


def _bad_coding(name: str, error: Exception) -> ProblemError:
    detail = f"The body is not a {name} file: {str(error)[:200].rstrip('.')}."
    return refuse(f"malformed-{name}", 422, detail, f"Write it again with {name}, and send the whole file.")


def _boundary(content_type: str) -> bytes:
    """Return the delimiter of the parts."""
    head = Message()
    head["content-type"] = content_type
    boundary = head.get_param("boundary")
    if not isinstance(boundary, str) or not 0 < len(boundary) <= 70 or not boundary.isascii():
        raise _malformed_form("its Content-Type has no boundary")
    return b"--" + boundary.encode()


def _file_of(body: mmap.mmap, delimiter: bytes) -> tuple[int, int, Packing]:
    """Return start and end of the form's file, and its packing with the other fields."""
    fields: dict[str, Any] = {}
    files: list[tuple[int, int, Message]] = []
    for start, end, head in _parts(body, delimiter):
        name = _parameter(head, "name")
        if _parameter(head, "filename") or name in {"file", "data"}:
            files.append((start, end, head))
        elif name not in FIELDS:
            detail = f"The form has a field {name[:50]!r}."
            remedy = f"Send one file, and any of the fields {', '.join(FIELDS)}."
            raise refuse("unknown-field", 422, detail, remedy, field=name[:50])
        elif end - start > _MAX_FIELD:
            raise _malformed_form(f"its field {name!r} has {end - start:,} bytes")
        elif value := body[start:end].decode("utf-8", "replace").strip():
            if name in LIST_FIELDS:
                fields.setdefault(name, []).append(value)
            else:
                fields[name] = value
    if len(files) != 1:
        detail = f"The form has {len(files)} files."
        raise refuse("invalid-form", 422, detail, "Send one file in a field named file, as by curl -F file=@data.csv.")
    start, end, head = files[0]
    path = PurePath(_parameter(head, "filename").lower())
    encoding = CODING_OF_SUFFIX.get(path.suffix, "")
    kind = head.get_content_type() if head["content-type"] else ""
    if encoding or kind in _VAGUE:
        suffix = (path.with_suffix("") if encoding else path).suffix
        content_type = MEDIA_OF_SUFFIX.get(suffix, "")
    else:
        content_type = head["content-type"]
    if encoding and not content_type:
        content_type = f"application/{encoding}"  # sniffed when it is unpacked
        encoding = ""
    return start, end, Packing(content_type, encoding, fields)


def _parts(body: mmap.mmap, delimiter: bytes) -> Iterator[tuple[int, int, Message]]:
    """Yield start, end and head of each part of a form."""
    if body[: len(delimiter)] == delimiter:
        place = len(delimiter)
    elif (place := body.find(_LINE + delimiter)) >= 0:
        place += len(_LINE + delimiter)
    else:
        raise _malformed_form("its boundary is not in the body")
    for _ in range(_MAX_PARTS):
        if body[place : place + 2] == b"--":
            return
        line = body.find(_LINE, place, place + 80)
        start = body.find(_LINE + _LINE, line, line + _MAX_HEAD) if line >= 0 else -1
        end = body.find(_LINE + delimiter, start + 2) if start >= 0 else -1
        if end < 0:
            raise _malformed_form("a part is cut")
        head = BytesHeaderParser().parsebytes(body[line + 2 : start + 4])
        yield min(start + 4, end), end, head
        place = end + len(_LINE + delimiter)
    raise _malformed_form(f"it has more than {_MAX_PARTS:,} parts")


def _parameter(head: Message, name: str) -> str:
    """Return a parameter of a part's Content-Disposition, or an empty string."""
    value = head.get_param(name, "", header="content-disposition")
    return value if isinstance(value, str) else str(value[-1])


def _media_of(head: bytes) -> str:
    """Return the media type of a file by its first bytes; text that is no JSON is a table of text."""
    for magic, kind in MEDIA_OF_MAGIC.items():
        if head.startswith(magic):
            return kind
    return "application/json" if head.lstrip()[:1] in {b"[", b"{"} else "text/csv"


def _malformed_form(reason: str) -> ProblemError:
    remedy = "Send it as multipart/form-data with one file, as by curl -F file=@data.csv."
    return refuse("malformed-multipart", 422, f"The body is not a form: {reason}.", remedy)
