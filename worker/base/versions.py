"""Two versions of stored data: `SCHEMA`, the format of records and files, and `NUMBERS`, the engine's results.

Before an upgrade that changes one of the two versions, all jobs must have ended. A reader refuses a record with another
schema and leaves the record as it is. Cache keys contain both versions, so that entries of another version are never
read.
"""

from __future__ import annotations

import json
import platform
import socket
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy  # type: ignore[import-untyped, unused-ignore] # typed where its stubs are installed

from glle_engine import NUMBERS, __version__
from glle_engine.base.texts import Way
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.problems import ProblemError

SCHEMA = 7  # version of records in Redis, files and cache entries
MEMBER = "format"  # member of a record that names the schema version

Record = dict[str, Any]
T = TypeVar("T")


def stamp(record: Record) -> Record:
    """Return a copy of a record with the schema version as its member ``format``."""
    return {**record, MEMBER: SCHEMA}


def dump_record(record: Record) -> str:
    """Return a record as JSON, with the schema version as its member ``format``."""
    return json.dumps(stamp(record), allow_nan=False)


def check_schema(name: str, record: Record) -> Record:
    """Require that a record has the schema `SCHEMA`; return a copy of the record without the member ``format``.

    Parameters
    ----------
    name
        Name of the record in error messages, such as "The record of job job_1".

    Raises
    ------
    ProblemError
        ``other-schema`` for another schema; ``record-unreadable`` if there is no valid schema version.

    """
    record = dict(record)
    schema = _parse_schema(record.pop(MEMBER, None))
    if schema is None:
        raise unreadable(name)
    if schema != SCHEMA:
        raise other_schema(name, schema)
    return record


def load_record(name: str, raw: str | bytes, convert: Callable[[Record], T]) -> T:
    """Parse a record from JSON, check its schema, and return `convert(record)`.

    Raises `ProblemError`: ``other-schema`` for another schema; ``record-unreadable`` if `raw` is not JSON, or not a
    record that `convert` accepts.
    """
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise unreadable(name) from error
    if not isinstance(record, dict):
        raise unreadable(name)
    record = check_schema(name, record)
    try:
        return convert(record)
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(name) from error


def versioned_key(key: str) -> str:
    """Return a Redis key with the schema version as a prefix, so that other versions never read its value."""
    return f"v{SCHEMA}:{key}"


def provenance() -> dict[str, str]:
    """Return the versions of the software, the processor's architecture and the host name, for a posterior's record."""
    return {
        "engine": __version__,
        "numbers": NUMBERS,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "host": socket.gethostname(),
    }


def require_numbers(posterior: str, numbers: str) -> None:
    """Raise the `ProblemError` ``other-numbers`` if a posterior was fitted by an engine that computes other numbers.

    `numbers` is the version of numerical results of the engine that fitted the posterior, from the posterior's record.
    Results of two engines are equal in all bits only if these versions are equal; the present version is `NUMBERS`.
    """
    if numbers != NUMBERS:
        raise refuse(
            "other-numbers",
            409,
            f"Posterior {posterior} was fitted by an engine whose results have version {numbers}; the results of this "
            f"deployment have version {NUMBERS}, so that draws would differ in bits.",
            f"Delete the posterior ({Way('delete-posterior', posterior)}) and fit it again.",
            numbers=numbers,
            own=NUMBERS,
        )


def unreadable(name: str) -> ProblemError:
    """Return the error ``record-unreadable`` for a damaged record; `name` is such as "The record of job job_1"."""
    remedy = "It was not changed. Restore a backup, or delete the record."
    return refuse("record-unreadable", 500, f"{name} is damaged, or another program wrote it.", remedy)


def other_schema(name: str, schema: int | str) -> ProblemError:
    """Return the error ``other-schema`` for a record that a version of glle with another schema has written.

    `name` is how the message names the record, such as "The record of job job_1".
    """
    return refuse(
        "other-schema",
        503,
        f"{name} has schema {schema}; this version, glle {__version__}, reads schema {SCHEMA}. Nothing was changed.",
        "Run the version that wrote the data. To upgrade, drain the deployment and use the conversion that the "
        "changelog names (docs/how-to/storage.md); without one, begin with another data folder and queue, and upload "
        "the data again.",
        format=schema,
        own=SCHEMA,
    )


def _parse_schema(value: object) -> int | None:
    """Return a schema version as an integer, or None for an invalid value; in Redis hashes the version is text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0 else None
