"""JSON bodies: ``[[...], ...]``, or ``{"data": [[...], ...]}`` with any of `names`, `labels`, `colors` and `ids`."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.arrays import EXACT
from glle_engine.tables.roles import MAX_ID_COLUMNS
from glle_engine.tables.row_texts import Ids, label_array
from glle_engine.tables.table import FILL, build_table, check_names
from service.uploads.uploaded import uploaded
from worker.base.problems import ProblemError, refuse
from worker.storage.validation import REMEDIES, BadRows, bad_value

if TYPE_CHECKING:
    from glle_engine.base.validation import Missing
    from glle_engine.tables.roles import ColumnRoles
    from glle_engine.tables.table import Table
    from service.uploads.limits import Limits

_MEMBERS = {"data", "names", "labels", "colors", "ids"}


def read_json(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of a JSON body, which is in memory; `out` is not used.

    Raises
    ------
    ProblemError
        ``malformed-json``, ``bad-cell`` or ``not-finite`` with the row and the column (from 1), and others.

    """
    del out
    roles.require_none(
        "a JSON body has no named columns.",
        'Leave the option out; send labels and colors as the members "labels" and "colors".',
    )
    try:
        body = json.load(file, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        remedy = "Send a JSON array of arrays of numbers."
        raise refuse("malformed-json", 422, f"The body is not valid JSON: {str(error)[:200]}.", remedy) from None
    members = body if isinstance(body, dict) else {"data": body}
    if unknown := sorted(set(members) - _MEMBERS):
        raise _malformed_json(f"The JSON object has the member {unknown[0][:50]!r}, which is not known.")
    return table_of(members, limits, roles.missing)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object; raise ValueError for a repeated one, of which only the last would count."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the member {repeated[:50]!r} occurs several times")
    return members


def table_of(members: dict[str, Any], limits: Limits, missing: Missing | None = None) -> Table:
    """Return the table in the members of a JSON object, "data" and others; raise `ProblemError` if one is malformed."""
    rows, names, labels, colors, ids = map(members.get, ("data", "names", "labels", "colors", "ids"))
    if not isinstance(rows, list):
        raise _malformed_json('The JSON object has no member "data" with an array of rows.')
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise _malformed_json('"names" is not an array of strings.')
    limits.check(_shape(rows))
    features = len(rows[0])
    check_names(names, features)
    values = np.array(_rows(rows, features, names, missing), np.float64)
    table = build_table(
        values,
        names,
        labels=None if labels is None else _labels(labels, len(rows)),
        ids=None if ids is None else Ids(_id_columns(ids, len(rows))),
        colors=None if colors is None else _colors(colors, len(rows)),
        missing=missing,
    )
    return uploaded(table, "json")


def _shape(value: Any) -> tuple[int, ...]:
    """Return the shape of nested lists, judged by the first element of each list."""
    shape: tuple[int, ...] = ()
    while isinstance(value, list):
        shape += (len(value),)
        value = value[0] if value else None
    return shape


def _rows(rows: list[Any], features: int, names: list[str] | None, missing: Missing | None) -> list[list[float | None]]:
    """Return the rows if all are valid; else raise `ProblemError` with the first bad value and a count of bad rows."""
    first: ProblemError | None = None
    bad = BadRows()
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != features:
            flaw = f"has {len(row)} values" if isinstance(row, list) else "is not an array"
            detail = f"Row {number + 1}, counted from 1, {flaw}, but the first row has {features} values."
            remedy = "Send rows with the same number of values."
            ragged = refuse("ragged-row", 422, detail, remedy, row=number + 1)
            raise bad.annotate(first) if first else ragged
        for column, value in enumerate(row):
            if not _is_exact(value) and (missing is None or not _is_missing(value)):
                first = first or _bad_value(value, number, column, names)
                bad.add([number])
                break
    if first is not None:
        raise bad.annotate(first)
    return rows


def _bad_value(value: Any, row: int, column: int, names: list[str] | None) -> ProblemError:
    """Return the error for a value that is no number, or not finite, or an integer that float64 cannot hold."""
    code = {int: "inexact-integer", float: "not-finite"}.get(type(value), "bad-cell")
    shown = json.dumps(value) if code == "bad-cell" else str(value)
    if isinstance(value, list | dict):
        shown = "an array" if isinstance(value, list) else "an object"
    remedy = REMEDIES.get(code, "Send a number, or remove the row.")
    if _is_missing(value):
        remedy = FILL + "."
    return bad_value(code, shown, row, column, names=names, remedy=remedy)


def _labels(labels: Any, points: int) -> np.ndarray[Any, Any]:
    if not isinstance(labels, list) or len(labels) != points:
        flaw = f"has {len(labels)} values" if isinstance(labels, list) else "is not an array"
        raise _malformed_json(f'"labels" {flaw}; it needs {points} values, one for each point.')
    present = [value for value in labels if value is not None]  # null is a missing label
    if all(isinstance(value, str) for value in present) or all(map(_is_exact, present)):
        return label_array(labels)
    raise _malformed_json('"labels" must be strings, or finite numbers (integers to 2^53), or null if missing.')


def _colors(colors: Any, points: int) -> np.ndarray[Any, Any]:
    if not isinstance(colors, list) or len(colors) != points:
        flaw = f"has {len(colors)} values" if isinstance(colors, list) else "is not an array"
        raise _malformed_json(f'"colors" {flaw}; it needs {points} finite numbers, one for each point.')
    if not all(map(_is_exact, colors)):
        row = next(row for row, value in enumerate(colors) if not _is_exact(value))
        raise _malformed_json(
            f'"colors" has a value in row {row + 1}, counted from 1, that is not a finite number (integers to 2^53).'
        )
    return np.array(colors, np.float64)


def _id_columns(ids: Any, points: int) -> list[list[Any]]:
    """Return the columns of the ids in a JSON body, which are a list of ids, or a list of rows of several ids."""
    rows = ids if isinstance(ids, list) and all(isinstance(row, list) for row in ids) else None
    rows = [[value] for value in ids] if rows is None and isinstance(ids, list) else rows
    if (
        rows is None
        or len(rows) != points
        or not 1 <= len(rows[0]) <= MAX_ID_COLUMNS
        or len({len(row) for row in rows}) > 1
    ):
        raise _malformed_json(
            f'"ids" is neither an array of {points} ids, one for each point, nor of {points} rows of 1 to '
            f"{MAX_ID_COLUMNS} ids."
        )
    if any(type(value) not in {str, int, type(None)} for row in rows for value in row):
        raise _malformed_json('"ids" must be strings or integers, or null if missing.')
    return [list(column) for column in zip(*rows, strict=True)]


def _is_exact(value: Any) -> bool:
    """Return whether a value is a number that float64 represents exactly."""
    return abs(value) <= EXACT if type(value) is int else type(value) is float and math.isfinite(value)


def _is_missing(value: Any) -> bool:
    """Return whether a value is null or NaN."""
    return value is None or value != value  # noqa: PLR0124 # NaN


def _malformed_json(detail: str) -> ProblemError:
    members = '"names": [...], "labels": [...], "colors": [...], "ids": [...]'
    return refuse("malformed-json", 422, detail, f'Send [[...], ...], or {{"data": [[...], ...], {members}}}.')
