"""Hostile bodies for `POST /v1/datasets`: what one is, what happened to it, and what must never happen."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from service.schemas.problems import MEDIA_TYPE
from service.uploads.limits import MAX_INFLATION_FACTOR
from service.uploads.registry import format_of

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "HOSTILE_SCALE"  # 1 in the tests; larger in `python -m qa.inputs.hostile`
SCALE = int(os.environ.get(VARIABLE, "1"))

MAX_BODY = SCALE * 2**20
MAX_INFLATED, MAX_JSON = MAX_INFLATION_FACTOR * MAX_BODY, format_of("application/json").max_bytes(MAX_BODY)
# A body is mapped as a file, as are its decompressed and stored forms. Text rows, number blocks and parsed JSON
# are held in memory besides.
MAX_BYTES = 2 * (MAX_BODY + MAX_INFLATED) + 24 * MAX_JSON + 64 * 2**20
MAX_SECONDS = 10.0  # processor time on a busy machine


NPY, NPZ, CSV, JSON = "application/x-npy", "application/zip", "text/csv", "application/json"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
KINDS = {"npy": NPY, "npz": NPZ, "csv": CSV, "json": JSON, "arrow": ARROW, "parquet": PARQUET}


_SLOW = {
    "the smallest cells, a million times",
    "one long label, many short ones",
    "line ends alone",
    "carriage returns alone",
    "very many columns",
    "words encoded by their differences",
    "very many members",
    "one wide letter, then numbers",
}


@dataclass(frozen=True)
class Attack:
    """A handmade body for the upload of a data set.

    Parameters
    ----------
    reader
        One of `KINDS`.
    name
        Description of the attack.
    build
        Function that returns the body, which may be large.
    query
        Query of the request.
    is_accepted
        Whether the body is valid and must be accepted; None if the reader may decide.

    """

    reader: str
    name: str
    build: Callable[[], bytes]
    query: dict[str, str] = field(default_factory=dict)
    is_accepted: bool | None = False

    @property
    def is_slow(self) -> bool:
        """Whether it takes a large part of a second to build or to read the body."""
        return self.name in _SLOW


@dataclass(frozen=True)
class Outcome:
    """What happened when a body was uploaded.

    Parameters
    ----------
    status, media, code
        HTTP status, Content-Type, and the code of the problem in the answer.
    seconds
        Processor time of the upload.
    peak
        Bytes of memory at the peak, beyond the memory before the upload.
    left
        Files that remain and belong to no data set.

    """

    status: int
    media: str
    code: str
    seconds: float
    peak: int
    left: list[str]


def faults(result: Outcome, *, is_accepted: bool | None = None) -> list[str]:
    """Return a text for each thing that is wrong with an outcome.

    `is_accepted` says whether the service has to accept the body; None if it may do either.
    """
    refused = 400 <= result.status < 500
    findings = []
    if not refused and result.status not in {200, 201}:
        findings.append(f"status {result.status} {result.code}")
    elif is_accepted is not None and is_accepted == refused:
        findings.append(f"{'refused' if refused else 'taken'}: {result.status} {result.code}")
    if refused and (result.media != MEDIA_TYPE or not result.code):
        findings.append(f"{result.media} for a problem")
    if result.seconds > MAX_SECONDS:
        findings.append(f"{result.seconds:.1f} s of processor time")
    if result.peak > MAX_BYTES:
        findings.append(f"{result.peak / 2**20:.0f} MB of memory")
    if result.left:
        findings.append(f"left behind: {result.left}")
    return findings
