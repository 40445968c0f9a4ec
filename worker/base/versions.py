"""Versions of stored data: one schema version for all records and files, one numerics version for all results.

Another version of the program may have written a record, before, during or after an upgrade. A reader refuses a schema
newer than `SCHEMA` or older than `OLDEST_SCHEMA`, and changes nothing. Cache keys and queue names carry the schema, so
two versions run side by side; the queue name also carries the numerics version `glle_engine.NUMBERS`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from glle_engine import NUMBERS, __version__
from worker.base.numerics import is_of_this_version, kind_of, own_numbers
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.problems import ProblemError

SCHEMA = 2  # of records in Redis, files, cache entries and backups; docs/how-to/upgrades.md lists the releases
OLDEST_SCHEMA = 1  # the oldest schema whose records this version reads
MEMBER = "format"  # member of a record with its schema; absent in schema 1
FIRST_NUMBERS = "0.1.0"  # of records without numerics version
FIRST_QUEUE = "glle"
_SHORT = "-short"  # ending of the queue of short tasks

Record = dict[str, Any]
T = TypeVar("T")


def stamp(record: Record) -> Record:
    """Add the schema to a record; schema 1 has no member, so that its records stay as they are."""
    return record if SCHEMA == 1 else {**record, MEMBER: SCHEMA}


def dump_record(record: Record) -> str:
    """Return a record as JSON with its schema."""
    return json.dumps(stamp(record), allow_nan=False)


def check_schema(name: str, record: Record) -> Record:
    """Return a record without its schema member.

    Parameters
    ----------
    name
        The record's name in a refusal.

    Raises
    ------
    ProblemError
        ``written-by-newer-version``, ``written-by-older-version``, ``record-unreadable``.

    """
    record = dict(record)
    schema = _parse_schema(record.pop(MEMBER, 1))
    if schema is None:
        raise unreadable(name)
    if not OLDEST_SCHEMA <= schema <= SCHEMA:
        raise _other_schema(name, schema)
    return record


def load_record(name: str, raw: str | bytes, convert: Callable[[Record], T]) -> T:
    """Return a converted JSON record; raises as `check_schema`."""
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


def versioned(key: str) -> str:
    """Return a Redis key that only this schema uses."""
    return key if SCHEMA == 1 else f"v{SCHEMA}:{key}"


def queue_name(numbers: str = NUMBERS) -> str:
    """Return the queue of the workers with this schema and these numerics (`worker.base.numerics`)."""
    is_first = SCHEMA == 1 and numbers == FIRST_NUMBERS
    return FIRST_QUEUE if is_first else f"{FIRST_QUEUE}-{SCHEMA}-{numbers}"


def short_queue(queue: str) -> str:
    """Return the queue of the short tasks of the same workers, which executors run (`worker.execution.executor`)."""
    return long_queue(queue) + _SHORT


def is_short(queue: str) -> bool:
    """Return whether a queue has short tasks."""
    return queue.endswith(_SHORT)


def long_queue(queue: str) -> str:
    """Return the queue of the long tasks of the same workers."""
    return queue.removesuffix(_SHORT)


def numbers_of_queue(name: str) -> str | None:
    """Return the numerics of a queue's workers, None for a queue of another version."""
    name = long_queue(name)
    if name == queue_name():
        return NUMBERS
    numbers = name.split("-", 2)[-1]
    is_own = is_of_this_version(numbers) and kind_of(numbers) and name == queue_name(numbers)
    return numbers if is_own else None


def require_own_numbers(name: str, numbers: str) -> None:
    """Raise ``other-numbers`` unless this process computes the bits that `numbers` names."""
    if numbers != own_numbers():
        raise _other_numbers(name, numbers, own_numbers())


def require_own_version(name: str, numbers: str) -> None:
    """Raise ``other-numbers`` if `numbers` is of another version, of whatever numerics kind."""
    if not is_of_this_version(numbers):
        raise _other_numbers(name, numbers, NUMBERS)


def unreadable(name: str) -> ProblemError:
    """Return the refusal of a damaged record."""
    remedy = "It was not changed. Restore it from a backup (`glle restore`), or delete it."
    return refuse("record-unreadable", 500, f"{name} is damaged, or of another program.", remedy)


def _other_schema(name: str, schema: int) -> ProblemError:
    is_newer = schema > SCHEMA
    return refuse(
        "written-by-newer-version" if is_newer else "written-by-older-version",
        503,
        f"{name} has schema {schema}; this version, glle {__version__}, reads schemas {OLDEST_SCHEMA} to {SCHEMA}.",
        "Finish the upgrade: run the newer version on this machine too (docs/how-to/upgrades.md). Nothing was changed."
        if is_newer
        else "Run a version that reads both schemas first (docs/how-to/upgrades.md lists them). Nothing was changed.",
        format=schema,
        oldest=OLDEST_SCHEMA,
        newest=SCHEMA,
    )


def _other_numbers(name: str, numbers: str, own: str) -> ProblemError:
    return refuse(
        "other-numbers",
        409,
        f"{name} has numerics version {numbers}; this version is {own}, whose results differ in bits.",
        "Send the original request again with the same data set and parameters: the result gets another id. "
        "Cached results stay readable.",
        numbers=numbers,
        own=own,
    )


def _parse_schema(value: object) -> int | None:
    """Return a schema as an integer, or None if it is not one; Redis hashes hold text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0 else None
