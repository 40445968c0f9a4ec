"""Readers of uploaded bodies: one a format, each returns a `Table` or refuses with the place and the remedy."""

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
from service.uploads.label_columns import Apart
from service.uploads.limits import Limits
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.settings import Settings
    from worker.storage.datasets import Table

# Of text, which numpy's and Python's own parsers read in some milliseconds; a process of its own takes as long to fork.
_SAFE_TEXT = 2**16

__all__ = ["Apart", "Limits", "Reader", "reader_of"]


@dataclass(frozen=True)
class Reader:
    """How a media type is read, and how long its body may be.

    Parameters
    ----------
    safe
        Bytes up to which a body is read by the API process itself; a larger one is read by a process with limits.

    """

    read: Callable[[IO[bytes], Limits, Apart], Table]
    cap: int
    safe: int = 0


def reader_of(content_type: str, encoding: str, settings: Settings) -> Reader:
    """Return the reader of a Content-Type; of CSV its parameter `header` is heeded (RFC 4180).

    Raises
    ------
    ProblemError
        ``unsupported-media-type``, with the list; a compressed body is one too, and Arrow without pyarrow.

    """
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    header = {"header=present": True, "header=absent": False}
    headed = next((header[parameter] for parameter in parameters if parameter in header), None)
    readers = {
        "application/x-npy": Reader(read_npy, settings.max_body, settings.max_body),  # a header, and a map of the rest
        "application/vnd.numpy": Reader(read_npy, settings.max_body, settings.max_body),
        "application/zip": Reader(read_npz, settings.max_body),
        "application/x-npz": Reader(read_npz, settings.max_body),
        "text/csv": Reader(partial(read_csv, header=headed), settings.max_body, _SAFE_TEXT),
        ARROW: Reader(read_arrow, settings.max_body),
        PARQUET: Reader(read_parquet, settings.max_body),
        "application/json": Reader(read_json, settings.max_json, _SAFE_TEXT),
    }
    if encoding.lower() not in {"", "identity"}:
        raise refuse("unsupported-media-type", 415, f"The body is encoded with {encoding}.", "Send it uncompressed.")
    if kind in {ARROW, PARQUET} and not has_arrow():
        detail = f"Content-Type {kind!r} is not read here: pyarrow is not installed."
        remedy = f"Install it where the API runs, {REMEDY}, or send npy, npz, CSV or JSON."
        raise refuse("unsupported-media-type", 415, detail, remedy)
    if kind not in readers:
        raise refuse(
            "unsupported-media-type",
            415,
            f"Content-Type {content_type!r} is not read here." if content_type else "There is no Content-Type.",
            f"Send one of {', '.join(readers)} and say so in Content-Type.",
            supported=list(readers),
        )
    return readers[kind]
