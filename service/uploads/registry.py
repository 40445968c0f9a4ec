"""Registry of the readers of uploaded bodies, one for each format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING

from service.encoding.arrow import ARROW, PARQUET, REMEDY, has_arrow
from service.uploads.formats.arrow_stream import read_arrow
from service.uploads.formats.csv_table import read_csv
from service.uploads.formats.json_table import read_json
from service.uploads.formats.npy import read_npy
from service.uploads.formats.npz import read_npz
from service.uploads.formats.parquet import read_parquet
from service.uploads.label_columns import LabelColumns
from service.uploads.limits import Limits
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.settings import Settings
    from worker.storage.datasets import Table

# Bytes of text that Python's and numpy's parsers read in some milliseconds, which is also the time of a fork.
_SAFE_TEXT = 2**16

__all__ = ["LabelColumns", "Limits", "Reader", "reader_of"]


@dataclass(frozen=True)
class Reader:
    """Reader of a media type, and the most bytes of its body.

    Parameters
    ----------
    safe
        Bytes up to which the API process reads a body; a process with limits reads a larger one.

    """

    read: Callable[[IO[bytes], Limits, LabelColumns], Table]
    cap: int
    safe: int = 0


def reader_of(content_type: str, encoding: str, settings: Settings) -> Reader:
    """Return the reader of a Content-Type; CSV has the parameter `header` (RFC 4180).

    Raises
    ------
    ProblemError
        ``unsupported-media-type``, also for a Content-Encoding and for Arrow without pyarrow.

    """
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    headers = {"header=present": True, "header=absent": False}
    header = next((headers[parameter] for parameter in parameters if parameter in headers), None)
    readers = {
        "application/x-npy": Reader(
            read_npy, settings.max_body, settings.max_body
        ),  # it parses the header alone, and maps the rest
        "application/vnd.numpy": Reader(read_npy, settings.max_body, settings.max_body),
        "application/zip": Reader(read_npz, settings.max_body),
        "application/x-npz": Reader(read_npz, settings.max_body),
        "text/csv": Reader(partial(read_csv, header=header), settings.max_body, _SAFE_TEXT),
        ARROW: Reader(read_arrow, settings.max_body),
        PARQUET: Reader(read_parquet, settings.max_body),
        "application/json": Reader(read_json, settings.max_json, _SAFE_TEXT),
    }
    if encoding.lower() not in {"", "identity"}:
        raise refuse(
            "unsupported-media-type", 415, f"The body has Content-Encoding {encoding}.", "Send it uncompressed."
        )
    if kind in {ARROW, PARQUET} and not has_arrow():
        detail = f"Content-Type {kind!r} needs pyarrow, which is not installed."
        remedy = f"Install it for the API, {REMEDY}, or send npy, npz, CSV or JSON."
        raise refuse("unsupported-media-type", 415, detail, remedy)
    if kind not in readers:
        raise refuse(
            "unsupported-media-type",
            415,
            f"Content-Type {content_type!r} is not supported." if content_type else "The request has no Content-Type.",
            f"Send one of {', '.join(readers)}, with its Content-Type.",
            supported=list(readers),
        )
    return readers[kind]
