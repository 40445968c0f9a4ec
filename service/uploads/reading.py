"""Read one upload: write its body to disk under a limit, unpack its layers, then parse its table.

A layer is a Content-Encoding, a compressed file, or a form with one file. Layers are unpacked by a reader process,
because a small body may unpack to far too many bytes.
"""

from __future__ import annotations

import gzip
import mmap
import os
import zlib
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from email.parser import BytesHeaderParser
from functools import partial
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

from starlette.concurrency import run_in_threadpool

from glle_engine import GlleError
from glle_engine.tables.foreign import HEAD_BYTES as FOREIGN_HEAD
from glle_engine.tables.foreign import WORKBOOK, ForeignFile, foreign_file
from glle_engine.tables.roles import ColumnRoles
from service.encoding.media_types import MediaType
from service.uploads.limits import Limits, check_inflated
from service.uploads.registry import MEDIA_OF_MAGIC, MEDIA_OF_SUFFIX, XLSX, format_of
from worker.base.disk import disk_reserve, free_bytes, require_room, temporary_file
from worker.base.files import make_folder
from worker.base.problems import Problem, ProblemError, refuse
from worker.records.quotas import too_many_incoming_bytes
from worker.records.shares import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from email.message import Message

    from fastapi import Request

    from glle_engine.tables.table import Table
    from worker.base.settings import Settings
    from worker.records.shares import Share
    from worker.storage.datasets import DatasetStore

_BUFFER = 2**20
_REMEDY = "Send npy instead of CSV or JSON, fewer rows or float32; or ask the administrator to raise GLLE_MAX_BODY."
MULTIPART = "multipart/form-data"
MAX_LAYERS = 3
DIALECT_FIELDS = ("header", "delimiter", "decimal", "charset", "sheet")
LIST_FIELDS = ("features", "id", "ignore", "one_hot")
FIELDS = ("labels", "colors", *LIST_FIELDS, "missing", *DIALECT_FIELDS)
_CODINGS = ("gzip", "x-gzip")
_GZIP_TYPES = ("application/gzip", "application/x-gzip")
# Types that browsers send for files that they do not know, or for every table.
_VAGUE = {"", "application/octet-stream", "text/plain", "application/vnd.ms-excel", "application/x-zip-compressed"}
_PIECE = 2**20
_LINE_END = b"\r\n"
_MAX_PARTS, _MAX_HEAD, _MAX_FIELD = 1000, 2**13, 2**16  # parts of a form, bytes of a part's head, bytes of a field


class IncomingBytes:
    """The bytes of an arriving body, which count against its tenant from the first byte until the body has been read.

    Each API process may fill an equal part of the disk's free space, of which a tenant gets a share
    (`worker.records.shares`). If a tenant sends several bodies at once, their bytes also count against its quota of
    stored bytes. A single body may exceed that quota while it arrives: it may repeat stored data, which take no
    further room. New data are checked against the quota when they are stored.

    Parameters
    ----------
    share
        Counts the bytes of all tenants' bodies in this API process.
    datasets
        The data sets of the tenant.
    folder
        Folder of the temporary file to which the body is written.
    processes
        Number of API processes that share the disk.

    """

    def __init__(self, share: Share, datasets: DatasetStore, tenant: str, folder: Path, processes: int) -> None:
        self._share = share
        self._datasets = datasets
        self._tenant = tenant
        self._folder = folder
        self._processes = processes
        self._count = 0

    def require(self, nbytes: int) -> None:
        """Raise `ProblemError` (``quota-exceeded`` or ``storage-full``) unless `nbytes` more bytes may arrive.

        Call this in a thread, because it asks the disk and Redis.
        """
        require_room(self._folder, nbytes)
        held, limit = self._share.held[self._tenant], self._share.limit(self._tenant)
        if limit != UNLIMITED:
            room = max(0, free_bytes(self._folder) - disk_reserve(self._folder)) // self._processes
            self._share.total = room + self._share.used
            if not self._share.allows(self._tenant, nbytes):
                raise too_many_incoming_bytes(self._tenant, limit, self._share.total)
        if held > self._count:
            self._datasets.require_room(held + nbytes)

    def write(self, file: IO[bytes], data: bytes) -> None:
        """Write bytes that have arrived to the file of the body; call this in a thread, because it blocks.

        Raises `ProblemError` (``quota-exceeded`` or ``storage-full``) if the tenant or the disk has no room for them.
        """
        self.require(len(data))
        file.write(data)

    def add(self, nbytes: int) -> None:
        """Count bytes that have arrived."""
        self._count += nbytes
        self._share.add(self._tenant, nbytes)

    def release(self) -> None:
        """Stop counting the bytes of the body, which has been read or refused."""
        self.add(-self._count)


@asynccontextmanager
async def receive_body(request: Request, folder: Path, cap: int, incoming: IncomingBytes) -> AsyncIterator[IO[bytes]]:
    """Write the body of a request to a temporary file in `folder`, and yield the file, positioned at its start.

    `cap` is the largest allowed number of bytes. The disk keeps its reserve of free bytes (`worker.base.disk`).

    Raises
    ------
    ProblemError
        ``body-too-large``, ``quota-exceeded`` or ``storage-full``, by the Content-Length or while the body arrives; or
        ``empty-body``.

    """
    length = int(request.headers.get("content-length") or 0)
    check_size(length, cap)
    await run_in_threadpool(incoming.require, length)
    await run_in_threadpool(make_folder, folder)
    with temporary_file(folder) as file:
        try:
            size = 0
            buffer = bytearray()
            async for chunk in request.stream():
                size += len(chunk)
                if size > cap:
                    raise _too_large(f"The body has more than {cap:,} bytes", cap)
                incoming.add(len(chunk))
                buffer += chunk
                if len(buffer) >= _BUFFER:
                    await run_in_threadpool(incoming.write, file, bytes(buffer))
                    buffer.clear()
            await run_in_threadpool(file.write, bytes(buffer))
            if size == 0:
                remedy = "Send the table as the body of the request."
                raise refuse("empty-body", 422, "The request has no body.", remedy)
            await run_in_threadpool(file.seek, 0)
            yield file
        finally:
            incoming.release()


def check_size(size: int, cap: int) -> None:
    """Raise `ProblemError` (``body-too-large``) if the `size` of a body is above `cap` bytes."""
    if size > cap:
        raise _too_large(f"The body has {size:,} bytes", cap)


def _too_large(detail: str, cap: int) -> ProblemError:
    return refuse("body-too-large", 413, f"{detail}; {cap:,} are allowed.", _REMEDY, allowed=cap)


@dataclass(frozen=True)
class Upload:
    """How to read the table in a body, from the headers and options of a request.

    All fields can be written as JSON, which a reader process gets.

    Parameters
    ----------
    content_type, encoding
        Headers of the request.
    options
        Roles of the columns and dialect of a text, from the query and from the fields of a form.
    limits
        Limits of the service.
    folder
        Folder of temporary files.

    """

    content_type: str
    encoding: str
    options: dict[str, Any]
    limits: Limits
    folder: str

    source: ClassVar[str] = "upload"

    @classmethod
    def from_headers(cls, content_type: str, encoding: str, options: dict[str, Any], settings: Settings) -> Self:
        """Return the upload that headers describe; raise `ProblemError` if their format or compression is unknown."""
        folder = str(Path(settings.data_dir) / "incoming")
        upload = cls(content_type, encoding, options, Limits.from_settings(settings), folder)
        upload._check()
        return upload

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Return the upload that its JSON describes."""
        return cls(**{**fields, "limits": Limits(**fields["limits"])})

    @property
    def cap(self) -> int:
        """The largest number of bytes that the body may have."""
        return self.limits.body if self._is_packed else format_of(self.content_type).max_bytes(self.limits.body)

    @property
    def label(self) -> str:
        """Media type of the body, for messages."""
        return self.media.kind

    def is_safe(self, file: IO[bytes]) -> bool:
        """Return whether the API process may read the body itself, because the body is small and simple."""
        # Unpacking may need much memory, and so may `missing`, which computes medians to fill in missing values.
        if self._is_packed or self.options.get("missing"):
            return False
        return os.fstat(file.fileno()).st_size <= format_of(self.content_type).safe

    def read(self, file: IO[bytes], out: IO[bytes], layers: int = MAX_LAYERS) -> Table:
        """Return the table in a body; the values of the table may be mapped from `out`, which must be an empty file.

        `layers` is how many compressions and forms may still be unpacked.

        Raises
        ------
        ProblemError
            The problems of the formats, ``unsupported-media-type``, ``body-too-large``.

        """
        if not self._is_packed:
            chosen = {name: self.options[name] for name in DIALECT_FIELDS if self.options.get(name)}
            chosen_format = format_of(self.content_type, chosen)
            if chosen_format.needs_calamine and "sheet" in chosen:
                chosen_format = replace(chosen_format, read=partial(chosen_format.read, sheet=chosen.pop("sheet")))
            if misplaced := [name for name in chosen if name == "sheet" or not chosen_format.is_text]:
                name = misplaced[0]
                required = "an Excel workbook" if name == "sheet" else "a table of text, such as CSV"
                detail = f"?{name}= applies only to {required}, but the body is {self.media.kind}."
                raise refuse(f"{name}-not-here", 422, detail, f"Leave ?{name}= out, or send {required}.")
            check_size(os.fstat(file.fileno()).st_size, chosen_format.max_bytes(self.limits.body))
            try:
                return chosen_format.read(file, out, self.limits, ColumnRoles.from_options(self.options))
            except (GlleError, ProblemError) as error:
                problem = error if isinstance(error, ProblemError) else ProblemError(Problem.from_engine(error))
                raise _foreign_problem(file, problem, chosen_format.media) from None
        if not layers:
            detail = f"The body is compressed, or a form within a form, more than {MAX_LAYERS} times."
            raise refuse("unsupported-media-type", 415, detail, "Send the file compressed once, by gzip.")
        with temporary_file(Path(self.folder)) as unpacked:
            upload = self.unpack(file, unpacked)
            unpacked.seek(0)
            return upload.read(unpacked, out, layers - 1)

    def unpack(self, file: IO[bytes], out: IO[bytes]) -> Upload:
        """Write the content of the body's outermost layer (a compression, or a form) to `out`.

        Returns the `Upload` that says how to read the content in `out`: its media type, further compressions, and the
        options, to which a form adds its fields.

        Raises
        ------
        ProblemError
            ``inflated-too-large``, ``malformed-gzip``, ``malformed-multipart``, and for an unknown coding
            ``unsupported-media-type``.

        """
        self._check()
        if self._coding:
            file.seek(0)
            head = _write(_inflate(file), out, self.limits.body)
            if self._codings:
                return replace(self, encoding=", ".join(self._codings[:-1]))
            return replace(self, content_type=_media_of(head))
        body = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start, end, part_head, fields = _file_of(body, _boundary(self.media))
        pieces = (body[offset : min(end, offset + _PIECE)] for offset in range(start, end, _PIECE))
        head = _write(pieces, out, self.limits.body)
        content_type, encoding = _packing_of(part_head)
        lists = {name: [*self.options.get(name, ()), *fields[name]] for name in LIST_FIELDS if name in fields}
        options = {**self.options, **fields, **lists}
        return replace(self, content_type=content_type or _media_of(head), encoding=encoding, options=options)

    @property
    def media(self) -> MediaType:
        """Media type of the body."""
        return MediaType.parse(self.content_type)

    @property
    def _codings(self) -> list[str]:
        """Values of Content-Encoding in the order in which they were applied, without `identity`."""
        codings = [word.strip().lower() for word in self.encoding.split(",")]
        return [word for word in codings if word not in {"", "identity"}]

    @property
    def _coding(self) -> str:
        """Compression of the body's outermost layer, such as gzip; an empty string if that layer is not compressed."""
        if self._codings:
            return self._codings[-1]
        return "gzip" if self.media.kind in _GZIP_TYPES else ""

    @property
    def _is_packed(self) -> bool:
        """Whether the body is compressed, or a form with a file."""
        return bool(self._coding) or self.media.kind == MULTIPART

    def _check(self) -> None:
        """Raise `ProblemError` for an unknown compression or format, or a format whose library is not installed."""
        if not self._is_packed:
            format_of(self.content_type)
        coding = self._coding
        if coding and coding not in _CODINGS:
            detail = f"The body has the Content-Encoding {self.encoding[:100]!r}, which is not supported."
            remedy = "Send the body uncompressed, or compressed with the header Content-Encoding: gzip."
            raise refuse("unsupported-media-type", 415, detail, remedy)


def _write(pieces: Iterable[bytes], out: IO[bytes], cap: int) -> bytes:
    """Write pieces to `out`, and return the first bytes; raise `ProblemError` for no bytes, and beyond `cap` bytes."""
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
        detail = f"The body cannot be unpacked by gzip: {str(error)[:200].rstrip('.')}."
        remedy = "Compress the file again with gzip, and send the whole file."
        raise refuse("malformed-gzip", 422, detail, remedy) from None


def _boundary(form: MediaType) -> bytes:
    """Return the boundary between the parts of a form."""
    boundary = form.parameters.get("boundary", "")
    if not 0 < len(boundary) <= 70 or not boundary.isascii():
        flaw = f"has the boundary {boundary[:100]!r}, which is not valid" if boundary else "has no boundary"
        raise _malformed_form(f"the header Content-Type {flaw}")
    return b"--" + boundary.encode()


def _file_of(body: mmap.mmap, delimiter: bytes) -> tuple[int, int, Message, dict[str, Any]]:
    """Return start, end and headers of the only file in the body of a form, and the form's other fields by name."""
    fields: dict[str, Any] = {}
    files: list[tuple[int, int, Message]] = []
    for start, end, head in _parts(body, delimiter):
        name = _parameter(head, "name")
        if _parameter(head, "filename") or name in {"file", "data"}:
            files.append((start, end, head))
        elif name not in FIELDS:
            detail = f"The form has the field {name[:50]!r}, which is not known."
            remedy = f"Send one file in a field named file, and any of the fields {', '.join(FIELDS)}."
            raise refuse("unknown-field", 422, detail, remedy, field=name[:50])
        elif end - start > _MAX_FIELD:
            raise _malformed_form(f"the field {name!r} has {end - start:,} bytes; {_MAX_FIELD:,} are allowed")
        elif value := body[start:end].decode("utf-8", "replace").strip():
            if name in LIST_FIELDS:
                fields.setdefault(name, []).append(value)
            else:
                fields[name] = value
    if len(files) != 1:
        detail = f"The form has {len(files)} files, but one is read."
        raise refuse("invalid-form", 422, detail, "Send exactly one file, in a field named file.")
    return *files[0], fields


def _packing_of(head: Message) -> tuple[str, str]:
    """Return Content-Type and Content-Encoding of a form's file, judged by its part's headers and its file name.

    If these do not tell the type, the Content-Type is empty, and the caller judges by the first bytes (`_media_of`).
    """
    path = PurePath(_parameter(head, "filename").lower())
    encoding = "gzip" if path.suffix == ".gz" else ""
    content_type = str(head["content-type"] or "")  # for bytes above 127 the parser returns an object instead of text
    if not encoding and MediaType.parse(content_type).kind not in _VAGUE:
        return content_type, ""
    media = MEDIA_OF_SUFFIX.get((path.with_suffix("") if encoding else path).suffix, "")
    return (media, encoding) if media or not encoding else (f"application/{encoding}", "")


def _parts(body: mmap.mmap, delimiter: bytes) -> Iterator[tuple[int, int, Message]]:
    """Yield the parts of a multipart form: start and end of the content within the body, and the headers."""
    if body[: len(delimiter)] == delimiter:
        place = len(delimiter)
    elif (place := body.find(_LINE_END + delimiter)) >= 0:
        place += len(_LINE_END + delimiter)
    else:
        raise _malformed_form("the boundary that the header Content-Type names does not occur in the body")
    for _ in range(_MAX_PARTS):
        if body[place : place + 2] == b"--":
            return
        line = body.find(_LINE_END, place, place + 80)
        start = body.find(_LINE_END + _LINE_END, line, line + _MAX_HEAD) if line >= 0 else -1
        end = body.find(_LINE_END + delimiter, start + 2) if start >= 0 else -1
        if end < 0:
            raise _malformed_form("the last part is cut off, without a boundary after it")
        head = BytesHeaderParser().parsebytes(body[line + 2 : start + 4])
        yield min(start + 4, end), end, head
        place = end + len(_LINE_END + delimiter)
    raise _malformed_form(f"it has more parts than the {_MAX_PARTS:,} that are allowed")


def _parameter(head: Message, name: str) -> str:
    """Return a parameter of a part's Content-Disposition, or an empty string."""
    value = head.get_param(name, "", header="content-disposition")
    return value if isinstance(value, str) else str(value[-1])


def _media_of(head: bytes) -> str:
    """Return the media type of a file, judged by its first bytes; text that does not begin like JSON counts as CSV."""
    for magic, media in MEDIA_OF_MAGIC.items():
        if head.startswith(magic):
            return media
    return "application/json" if head.lstrip()[:1] in {b"[", b"{"} else "text/csv"


def _foreign_problem(file: IO[bytes], problem: ProblemError, media: tuple[str, ...]) -> ProblemError:
    """Return the error to raise for a body that could not be read: `problem`, or a better one.

    If the first bytes of the body show that it has another format than the one by which it was read, the better error
    names this format. `media` are the media types of the format by which the body was read.
    """
    # Other statuses do not mean that the body has another format: a table beyond a limit, for example, gets 413.
    if problem.problem.status != 422:
        return problem
    head = os.pread(file.fileno(), FOREIGN_HEAD, 0)
    foreign = foreign_file(head, file)
    if foreign == WORKBOOK and XLSX in media:
        return problem
    if foreign is None:
        media_of_body = next((known for magic, known in MEDIA_OF_MAGIC.items() if head.startswith(magic)), None)
        if media_of_body is None or media_of_body in media or media[0] == XLSX:
            return problem
        foreign = ForeignFile(f"a file of the type {media_of_body}", "Send it with this Content-Type.")
    return ProblemError(replace(problem.problem, detail=f"The body is {foreign.noun}.", remedy=foreign.remedy))


def _malformed_form(reason: str) -> ProblemError:
    remedy = "Send a form whose parts are complete, with one file in a field named file."
    return refuse("malformed-multipart", 422, f"The body cannot be read as a form: {reason}.", remedy)
