"""Registry of the readers of uploaded bodies, one for each format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING

from service.encoding.arrow import ARROW, ARROW_FILE, PARQUET, REMEDY, has_arrow
from service.uploads.column_roles import ColumnRoles
from service.uploads.formats.arrow_table import read_arrow, read_parquet
from service.uploads.formats.csv_table import read_csv
from service.uploads.formats.dialect import Declared
from service.uploads.formats.json_table import read_json
from service.uploads.formats.npy import read_npy
from service.uploads.formats.npz import read_npz
from service.uploads.limits import Limits
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.settings import Settings
    from worker.storage.datasets import Table

# Bytes of text that Python's and numpy's parsers read in some milliseconds, which is also the time of a fork.
_SAFE_TEXT = 2**16
_JSON_SHARE = 128  # JSON takes many times its bytes in memory
TEXT = ("text/csv", "text/tab-separated-values", "text/plain")

__all__ = ["ColumnRoles", "Limits", "Reader", "reader_of"]


@dataclass(frozen=True)
class Reader:
    """Reader of a media type, and the most bytes of its body.

    Parameters
    ----------
    read
        Called with the body, an empty file for the values, the limits and the roles.
    safe
        Bytes up to which the API process reads a body; a process with limits reads a larger one.

    """

    read: Callable[[IO[bytes], IO[bytes], Limits, ColumnRoles], Table]
    cap: int
    safe: int = 0


def max_json(settings: Settings) -> int:
    """Return the bytes of a JSON body: a part of `max_body`, or all of one that an API process may read."""
    return max(settings.max_body // _JSON_SHARE, min(settings.max_body, _SAFE_TEXT))


def reader_of(content_type: str, settings: Settings) -> Reader:
    """Return the reader of a Content-Type; tables of text have the parameters of `dialect.Declared`.

    Raises
    ------
    ProblemError
        ``unsupported-media-type``, also for Arrow without pyarrow.

    """
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    cap = settings.max_body
    readers = {
        "application/x-npy": Reader(read_npy, cap, cap),  # it parses the header alone, and maps the rest
        "application/vnd.numpy": Reader(read_npy, cap, cap),
        "application/zip": Reader(read_npz, cap),
        "application/x-npz": Reader(read_npz, cap),
        **dict.fromkeys(TEXT, Reader(read_csv, cap, _SAFE_TEXT)),
        ARROW: Reader(read_arrow, cap),
        ARROW_FILE: Reader(read_arrow, cap),
        PARQUET: Reader(read_parquet, cap),
        "application/json": Reader(read_json, max_json(settings), _SAFE_TEXT),
    }
    if kind in {ARROW, ARROW_FILE, PARQUET} and not has_arrow():
        detail = f"Content-Type {kind!r} needs pyarrow, which is not installed."
        remedy = f"Install it for the API, {REMEDY}, or send npy, npz, CSV or JSON."
        raise refuse("unsupported-media-type", 415, detail, remedy)
    if kind not in readers:
        detail = (
            f"Content-Type {content_type!r} is not supported." if content_type else "The request has no Content-Type."
        )
        remedy = f"Send one of {', '.join(readers)}, with its Content-Type."
        if "spreadsheet" in kind or "ms-excel" in kind:
            detail = f"Content-Type {kind!r} is that of a workbook."
            remedy = "Save the sheet as CSV UTF-8, and send it as text/csv."
        raise refuse("unsupported-media-type", 415, detail, remedy, supported=list(readers))
    if kind not in TEXT:
        return readers[kind]
    pairs = (parameter.partition("=") for parameter in parameters)
    declared = Declared.of({name.strip(): value.strip().strip('"') for name, _, value in pairs})
    return Reader(partial(read_csv, declared=declared), cap, _SAFE_TEXT)
