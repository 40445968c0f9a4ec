"""Registry of the formats of uploaded tables: a format is a file in `formats` and a row of `FORMATS`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

from service.encoding.media_types import ARROW, ARROW_FILE, ARROW_REMEDY, PARQUET, MediaType, has_arrow
from service.uploads.formats.csv_table import read_csv
from service.uploads.formats.dialect import Declared
from service.uploads.formats.json_table import read_json
from service.uploads.formats.npy import read_npy, read_npz
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from glle_engine.tables.roles import ColumnRoles
    from glle_engine.tables.table import Table
    from service.uploads.limits import Limits

    Reader = Callable[..., Table]

# Text up to this size is parsed in the API process, in some milliseconds, which is as long as a fork takes.
MAX_SAFE_TEXT_BYTES = 2**16


@dataclass(frozen=True)
class Format:
    """Format of an uploaded table.

    Parameters
    ----------
    read
        Called with the body, an empty file for the values, the limits and the roles; returns the table.
    media
        Media types.
    suffixes, magic
        Ends of file names, and first bytes, by which the format is recognized.
    safe
        A body of at most this many bytes is read by the API process; a larger one is read by a process with limits.
    share
        A body may have ``max_body / share`` bytes, because reading it takes `share` times its bytes in memory.

    """

    read: Reader
    media: tuple[str, ...]
    suffixes: tuple[str, ...] = ()
    magic: bytes = b""
    safe: int = 0
    share: int = 1
    is_text: bool = False
    needs_arrow: bool = False
    needs_calamine: bool = False

    def max_bytes(self, max_body: int) -> int:
        """Return the largest number of bytes of a body of this format; `max_body` is the limit for all formats.

        The limit is ``max_body / share``. But if it would be less than `safe`, the size up to which the API process
        itself reads a body of this format, it is `safe`, or `max_body` if that is less.
        """
        return max_body if self.share == 1 else max(max_body // self.share, min(max_body, self.safe))


def _lazy(module: str, name: str) -> Reader:
    """Return the reader `name` of a module that is imported at the first body, because it needs an optional library."""

    def read(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles, **options: Any) -> Table:
        reader: Reader = getattr(import_module(f"service.uploads.formats.{module}"), name)
        return reader(file, out, limits, roles, **options)

    return read


XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_read_arrow = _lazy("arrow_table", "read_arrow")
_TEXT = Format(read_csv, ("text/csv",), (".csv",), safe=MAX_SAFE_TEXT_BYTES, is_text=True)
FORMATS = (
    # An npy body of any size is safe: only its header is parsed, and its values are mapped.
    Format(read_npy, ("application/x-npy", "application/vnd.numpy"), (".npy",), b"\x93NUMPY", safe=sys.maxsize),
    Format(read_npz, ("application/zip", "application/x-npz"), (".npz",), b"PK\3\4"),
    _TEXT,
    replace(_TEXT, media=("text/tab-separated-values",), suffixes=(".tsv",)),
    replace(_TEXT, media=("text/plain",), suffixes=(".txt",)),
    Format(_read_arrow, (ARROW,), (".arrows",), needs_arrow=True),
    Format(_read_arrow, (ARROW_FILE,), (".arrow", ".feather"), b"ARROW1", needs_arrow=True),
    Format(_lazy("arrow_table", "read_parquet"), (PARQUET,), (".parquet",), b"PAR1", needs_arrow=True),
    Format(_lazy("sheet_table", "read_sheet"), (XLSX,), (".xlsx",), needs_calamine=True),
    Format(read_json, ("application/json",), (".json",), safe=MAX_SAFE_TEXT_BYTES, share=128),
)
_BY_MEDIA = {media: each for each in FORMATS for media in each.media}
MEDIA_OF_SUFFIX = {suffix: each.media[0] for each in FORMATS for suffix in each.suffixes}
MEDIA_OF_MAGIC = {each.magic: each.media[0] for each in FORMATS if each.magic}


def format_of(content_type: str, dialect: Mapping[str, str] = MappingProxyType({})) -> Format:
    """Return the format of a Content-Type; the reader of a text format gets the declared dialect.

    The parameters of the Content-Type declare the dialect (`dialect.Declared`), and `dialect` overrides them.

    Raises
    ------
    ProblemError
        ``unsupported-media-type``, also if the library of the format is not installed.

    """
    media = MediaType.parse(content_type)
    kind = media.kind
    upload_format = _BY_MEDIA.get(kind)
    if upload_format is None:
        detail = (
            f"Content-Type {content_type!r} is not supported." if content_type else "The request has no Content-Type."
        )
        remedy = f"Set the header Content-Type to the format of the body, one of {', '.join(_BY_MEDIA)}."
        if "spreadsheet" in kind or "ms-excel" in kind:
            detail = f"Workbooks of the Content-Type {kind!r} are not supported, only .xlsx."
            remedy = "Save the workbook as .xlsx, or the sheet as CSV UTF-8."
        raise refuse("unsupported-media-type", 415, detail, remedy, supported=list(_BY_MEDIA))
    if upload_format.needs_arrow and not has_arrow():
        detail = f"Bodies of the Content-Type {kind!r} need pyarrow, which is not installed on the service."
        remedy = f"Send npy, npz, CSV or JSON; or ask the administrator to install it, {ARROW_REMEDY}."
        raise refuse("unsupported-media-type", 415, detail, remedy)
    if upload_format.needs_calamine and find_spec("python_calamine") is None:
        detail = "Excel workbooks need python-calamine, which is not installed on the service."
        remedy = (
            "Save the sheet as CSV UTF-8; or ask the administrator to install it, pip install 'glle-server[excel]'."
        )
        raise refuse("unsupported-media-type", 415, detail, remedy)
    if not upload_format.is_text:
        return upload_format
    parameters = {name: value.lower() for name, value in media.parameters.items()}
    declared = Declared.from_parameters({**parameters, **dialect})
    return replace(upload_format, read=partial(read_csv, declared=declared))
