"""Readers of uploaded bodies: one a format, each returns a `Table` or refuses with the place and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from service.readers.csv_table import read_csv
from service.readers.json_table import read_json
from service.readers.npy import read_npy
from service.readers.shape import Limits
from worker.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.datasets import Table
    from worker.settings import Settings

__all__ = ["Limits", "Reader", "reader_of"]


@dataclass(frozen=True)
class Reader:
    """How a media type is read, and how long its body may be."""

    read: Callable[[IO[bytes], Limits, str | None], Table]
    cap: int


def reader_of(content_type: str, encoding: str, settings: Settings) -> Reader:
    """Return the reader of a Content-Type.

    Raises
    ------
    ProblemError
        ``unsupported-media-type``, with the list; a compressed body is one too.

    """
    readers = {
        "application/x-npy": Reader(read_npy, settings.max_body),
        "application/vnd.numpy": Reader(read_npy, settings.max_body),
        "text/csv": Reader(read_csv, settings.max_body),
        "application/json": Reader(read_json, settings.max_json),
    }
    kind = content_type.partition(";")[0].strip().lower()
    if encoding.lower() not in {"", "identity"}:
        raise refuse("unsupported-media-type", 415, f"The body is encoded with {encoding}.", "Send it uncompressed.")
    if kind not in readers:
        raise refuse(
            "unsupported-media-type",
            415,
            f"Content-Type {content_type!r} is not read here." if content_type else "There is no Content-Type.",
            f"Send one of {', '.join(readers)} and say so in Content-Type.",
            supported=list(readers),
        )
    return readers[kind]
