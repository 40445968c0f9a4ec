"""Columns of Arrow streams and Parquet files: read features block by block, refuse nulls with their rows."""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from service.uploads.column_roles import MAX_LISTED, MOST_IDS, IdCheck, Layout, categorical, column_list, option
from service.uploads.disk_array import NO_MEMORY, DiskArray, check_inflated
from service.uploads.id_columns import Ids, id_text
from service.uploads.label_columns import MOST_LABEL, Labels, label_array, missing_labels
from service.uploads.limits import check_names
from worker.base.problems import ProblemError, refuse
from worker.storage.datasets import Table
from worker.storage.validation import EXACT, REMEDIES, BadRows, bad_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from service.uploads.column_roles import ColumnRoles
    from service.uploads.limits import Limits

    Array = np.ndarray[Any, np.dtype[Any]]

BLOCK_VALUES = 2**20  # converted at a time: 8 MB


@contextlib.contextmanager
def malformed_as(code: str, noun: str, remedy: str) -> Iterator[None]:
    """Raise the errors of pyarrow about an invalid body as a problem."""
    import pyarrow as pa  # noqa: PLC0415 # an extra

    try:
        yield
    except MemoryError:  # pyarrow's is also an ArrowException
        raise
    except (pa.ArrowException, ValueError, struct.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the body
            raise
        if NO_MEMORY in str(error):
            raise MemoryError from None
        raise refuse(code, 422, f"The body is not {noun}: {str(error)[:200]}.", remedy) from None


@dataclass(frozen=True)
class Columns:
    """Columns of a schema with their roles; `categories` are those of each one-hot column.

    Parameters
    ----------
    kinds
        Kind of each column: f, i or u as in numpy, b for bool, s for text, or an empty string.
    kept
        Columns with the name of an id, whose values are those of features.

    """

    layout: Layout
    kinds: list[str]
    dtype: np.dtype[Any]
    categories: dict[int, list[str]] = field(default_factory=dict)
    kept: frozenset[int] = frozenset()

    @classmethod
    def of(cls, schema: pa.Schema, roles: ColumnRoles, limits: Limits, kept: frozenset[int] = frozenset()) -> Columns:
        """Return the columns of a schema.

        Raises
        ------
        ProblemError
            ``unsupported-column``, ``no-such-column``, ``invalid-names``.

        """
        import pyarrow as pa  # noqa: PLC0415 # an extra

        names = list(schema.names)
        if not (roles.features or roles.ignore):
            apart = sum(name is not None for name in (roles.label, roles.color)) + len(roles.id)
            limits.check((1, max(0, len(names) - apart)))
        check_names(names, len(names))
        layout = Layout.of(names, len(names), roles, kept)
        limits.check((1, len(layout.features)))
        types = [schema.field(column).type for column in range(len(names))]
        kinds = [_kind(kind) for kind in types]
        _require_features(layout, types, kinds)
        if layout.color is not None and kinds[layout.color] in {"", "s"}:
            raise _unsuitable(names[layout.color], types[layout.color], "color", "numbers")
        if layout.label is not None and not kinds[layout.label]:
            raise _unsuitable(names[layout.label], types[layout.label], "label", "texts or numbers")
        single = all(pa.types.is_float32(types[column]) for column in layout.features)
        return cls(layout, kinds, np.dtype("<f4" if single else "<f8"), kept=kept)

    @property
    def width(self) -> int:
        """Number of columns in the file."""
        return len(self.kinds)

    @property
    def numbers(self) -> list[int]:
        """Positions of the columns of finite numbers."""
        one_hot = set(self.layout.one_hot)
        numbers = [column for column in self.layout.features if column not in one_hot]
        return numbers if self.layout.color is None else [*numbers, self.layout.color]

    @property
    def features(self) -> int:
        """Number of features, with those of the categories."""
        return sum(len(self.categories.get(column, [""])) for column in self.layout.features)


class NotIdsError(Exception):
    """Columns with the name of an id that hold none."""

    def __init__(self, columns: set[int]) -> None:
        super().__init__(columns)
        self.columns = columns


def read_columns(
    file: IO[bytes],
    schema: pa.Schema,
    roles: ColumnRoles,
    limits: Limits,
    batches: Callable[[Columns], Iterator[pa.RecordBatch]],
    source: str,
) -> Table:
    """Return the table of record batches; `batches` begins a pass over them.

    Columns that turn out to hold no ids are features in a second pass.
    """
    size = os.fstat(file.fileno()).st_size
    kept: frozenset[int] = frozenset()
    while True:
        columns = Columns.of(schema, roles, limits, kept)
        if columns.layout.one_hot:
            columns = replace(columns, categories=_categories(columns, batches(columns), limits))
        try:
            return table_of(file, columns, batches(columns), limits, source=source)
        except NotIdsError as error:
            kept |= error.columns
            os.ftruncate(file.fileno(), size)


def table_of(
    file: IO[bytes], columns: Columns, batches: Iterator[pa.RecordBatch], limits: Limits, *, source: str
) -> Table:
    """Return the table of record batches, with its values unpacked behind the body."""
    layout, features = columns.layout, columns.features
    limits.check((1, features))
    names = layout.feature_names(columns.categories)
    check_names(names, features)
    disk_array = DiskArray(file, columns.dtype, features)
    color: list[Array] = []
    labels, ids = _LabelColumn(layout.label, columns), Ids()
    checks = {column: IdCheck() for column in layout.candidates}
    bad, first, count = BadRows(), None, 0
    blocks = _blocks(batches, max(1, BLOCK_VALUES // max(1, columns.width, features)))
    for block in blocks:
        limits.check((count + block.num_rows, features))
        check_inflated("The table", (count + block.num_rows) * features * columns.dtype.itemsize, limits)
        if not_ids := _not_ids(block, checks, columns, count):
            with contextlib.suppress(ProblemError, ValueError, OSError):  # the second pass raises it
                for later in blocks:
                    not_ids |= _not_ids(later, checks, columns, count)
            raise NotIdsError(not_ids)
        faults = _faults(block, columns)
        if faults.any():
            first = first or _problem(block, columns, faults, count)
            bad.add(count + np.flatnonzero(faults.any(axis=1)))
        if first is None:
            matrix = np.column_stack([_feature(block, column, columns, count) for column in layout.features])
            disk_array.write(np.ascontiguousarray(matrix).reshape(-1).view(np.uint8).data)
            if layout.color is not None:
                color.append(_numbers(block, layout.color).astype(np.float64))
            labels.add(block, count)
            ids.add(_id_texts(block, column, columns, count) for column in layout.id_columns[:MOST_IDS])
        count += block.num_rows
    if first is not None:
        raise bad.annotate(first)
    limits.check((count, features))
    found = labels.array()
    kept = (layout.no_id_notice(column) for column in sorted(columns.kept))
    notices = [*kept, *missing_labels(found), *ids.notices()]
    return Table(
        values=disk_array.values(),
        names=names,
        labels=found,
        color=np.concatenate(color) if color else None,
        ids=ids.array(),
        source={"kind": "upload", "format": source, **layout.source(notices)},
    )


def _blocks(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield valid batches in slices of at most so many rows."""
    for batch in batches:
        batch.validate(full=True)  # an invalid batch may point outside the body
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


class _LabelColumn:
    """Collector of the labels of record batches, or of none."""

    def __init__(self, column: int | None, columns: Columns) -> None:
        self._column = column
        self._kind = "" if column is None else columns.kinds[column]
        self._texts = Labels()
        self._numbers: list[Any] = []

    def add(self, block: pa.RecordBatch, start: int) -> None:
        """Add the labels of a block."""
        if self._kind == "s":
            self._texts.add(_texts(block.column(self._column), start))
        elif self._kind:
            self._numbers += block.column(self._column).to_pylist()

    def array(self) -> Array | None:
        """Return the labels, or None without a column."""
        if self._column is None:
            return None
        return self._texts.array() if self._kind == "s" else label_array(self._numbers)


def check_size(rows: int, columns: Columns, limits: Limits) -> None:
    """Raise a problem if the table is too large, before it is unpacked."""
    limits.check((rows, columns.features))
    check_inflated("The table", rows * columns.features * columns.dtype.itemsize, limits)


def _categories(columns: Columns, batches: Iterator[pa.RecordBatch], limits: Limits) -> dict[int, list[str]]:
    """Return the sorted categories of the one-hot columns, by a pass over all batches."""
    layout = columns.layout
    found: dict[int, set[str]] = {column: set() for column in layout.one_hot}
    features, count = len(layout.features) - len(found), 0
    for block in _blocks(batches, max(1, BLOCK_VALUES // columns.width)):
        for column, categories in found.items():
            before = len(categories)
            categories.update(_category_texts(block, column, columns, count))
            features += len(categories) - before
            limits.check((1, features))
        count += block.num_rows
    limits.check((count, len(layout.features)))
    return {column: sorted(categories) for column, categories in found.items()}


def _category_texts(block: pa.RecordBatch, column: int, columns: Columns, start: int) -> list[str]:
    """Return the categories of the rows as text; refuse a missing one."""
    null = _is_null(block.column(column))
    if null.any():
        row = start + int(np.flatnonzero(null)[0])
        name = columns.layout.name(column)
        remedy = f"Fill the value in, remove its row, or leave the column out with {option('ignore', [name])}."
        raise bad_value("missing-value", "null", row, column, names=columns.layout.names, remedy=remedy)
    if columns.kinds[column] == "s":
        return _texts(block.column(column), start)
    return [str(value) for value in block.column(column).to_pylist()]


def _feature(block: pa.RecordBatch, column: int, columns: Columns, start: int) -> Array:
    """Return a column of numbers, or the zeros and ones of its categories. Shape (rows,) or (rows, categories)."""
    if column not in columns.categories:
        return _numbers(block, column).astype(columns.dtype)
    codes = {category: code for code, category in enumerate(columns.categories[column])}
    ones = np.zeros((block.num_rows, len(codes)), columns.dtype)
    ones[np.arange(block.num_rows), [codes[text] for text in _category_texts(block, column, columns, start)]] = 1
    return ones


def _not_ids(block: pa.RecordBatch, checks: dict[int, IdCheck], columns: Columns, start: int) -> set[int]:
    """Return the candidates whose rows are no ids, and remove their checks."""
    not_ids = {
        column for column, check in checks.items() if not _are_ids(block, column, check, columns.kinds[column], start)
    }
    for column in not_ids:
        del checks[column]
    return not_ids


def _are_ids(block: pa.RecordBatch, column: int, check: IdCheck, kind: str, start: int) -> bool:
    """Return whether the rows of a candidate column continue its ids."""
    array = block.column(column)
    if kind not in {"i", "u", "s"} or _is_null(array).any():
        return False
    return check.add(_texts(array, start) if kind == "s" else array.to_pylist())


def _id_texts(block: pa.RecordBatch, column: int, columns: Columns, start: int) -> list[str]:
    """Return the ids of the rows as text."""
    array = block.column(column)
    return _texts(array, start, "id") if columns.kinds[column] == "s" else [id_text(v) for v in array.to_pylist()]


def _faults(block: pa.RecordBatch, columns: Columns) -> Array:
    """Return the mask of features and colors that are missing, not finite or not exact. Shape (rows, columns)."""
    faults = np.zeros((block.num_rows, columns.width), bool)
    for column in columns.numbers:
        values = _numbers(block, column)
        inexact = (values > EXACT) | (values < -EXACT) if values.dtype.kind in "iu" else ~np.isfinite(values)
        faults[:, column] = _is_null(block.column(column)) | inexact
    label = columns.layout.label
    if label is not None and columns.kinds[label] == "f":
        faults[:, label] = np.isinf(_numbers(block, label))  # NaN is a missing label
    return faults


def _problem(block: pa.RecordBatch, columns: Columns, faults: Array, start: int) -> ProblemError:
    """Return the problem of the first bad cell."""
    row, column = (int(i) for i in np.argwhere(faults)[0])
    value = block.column(column)[row].as_py()
    code = "missing-value" if value is None else "inexact-integer" if isinstance(value, int) else "not-finite"
    text = "null" if value is None else str(value)[:50]
    remedy, options = REMEDIES[code], {}
    if code != "inexact-integer" and column in columns.layout.features:
        name = columns.layout.name(column)
        options = {"options": {"ignore": [name]}}
        remedy = f"Fill the value in, remove its row, or leave the column out with {option('ignore', [name])}."
    error = bad_value(code, text, start + row, column, names=columns.layout.names, remedy=remedy)
    return ProblemError(replace(error.problem, details={**error.problem.details, **options}))


def _numbers(block: pa.RecordBatch, column: int) -> Array:
    """Return a column of numbers, with zero for null."""
    array = block.column(column)
    if array.null_count:
        array = array.fill_null(False if _kind(array.type) == "b" else 0)  # the value of a null
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


def _texts(array: pa.Array, start: int, noun: str = "label") -> list[str]:
    """Return a column of texts; the rows of a dictionary share one string object."""
    import pyarrow as pa  # noqa: PLC0415 # an extra
    from pyarrow import compute  # noqa: PLC0415 # an extra

    rows = None
    if pa.types.is_dictionary(array.type):
        indices = array.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        used, rows = np.unique(indices, return_inverse=True)
        array = array.dictionary.take(pa.array(used, mask=used < 0))
    if (compute.max(compute.utf8_length(array)).as_py() or 0) > MOST_LABEL:
        detail = f"A text of the {noun}s in row {start + 1} or later has more than {MOST_LABEL:,} characters."
        raise refuse(f"{noun}-too-long", 422, detail, f"Use shorter {noun}s.", allowed=MOST_LABEL)
    texts: list[str] = [text or "" for text in array.to_pylist()]  # a missing label is empty
    return texts if rows is None else [texts[row] for row in rows]


def _is_null(array: pa.Array) -> Array:
    """Return the mask of null values, directly or by a null entry of the dictionary."""
    import pyarrow as pa  # noqa: PLC0415 # an extra
    from pyarrow import compute  # noqa: PLC0415 # an extra

    null = array.is_null()
    if pa.types.is_dictionary(array.type):
        null = compute.fill_null(array.dictionary.is_null().take(array.indices), fill_value=True)
    mask: Array = null.to_numpy(zero_copy_only=False)
    return mask


def _kind(kind: pa.DataType) -> str:
    """Return numpy's kind f, i, u or b, or s for text, or an empty string."""
    import pyarrow as pa  # noqa: PLC0415 # an extra

    if pa.types.is_floating(kind):
        return "f"
    if pa.types.is_integer(kind):
        return "i" if pa.types.is_signed_integer(kind) else "u"
    if pa.types.is_boolean(kind):
        return "b"
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "s" if pa.types.is_string(value) or pa.types.is_large_string(value) else ""


def _require_features(layout: Layout, types: list[Any], kinds: list[str]) -> None:
    """Raise a problem that names all features whose values are no numbers, with the options for their kinds."""
    others = [at for at in layout.features if not kinds[at]]
    one_hot = set(layout.one_hot)
    texts = [at for at in layout.features if kinds[at] == "s" and at not in one_hot]
    if not (refused := sorted([*others, *texts])):
        return
    name, kind = layout.name(refused[0]), types[refused[0]]
    if len(refused) == 1 and others:
        raise _unsupported(name, kind)
    listed = [f"{layout.name(at)!r} of type {types[at]}" for at in refused[:MAX_LISTED]]
    listed += [f"{len(refused) - MAX_LISTED:,} more"] if len(refused) > MAX_LISTED else []
    is_one = len(refused) == 1
    subject = (
        f"The column {listed[0]} is not a feature." if is_one else f"The columns {', '.join(listed)} are no features."
    )
    details = {"column": name, "type": str(kind)}
    if not others:
        raise categorical("unsupported-column", layout, texts, subject, **details)
    columns, ignore = column_list(layout, refused), [layout.name(at) for at in refused[:MAX_LISTED]]
    apart, words = [[layout.name(at) for at in positions[:MAX_LISTED]] for positions in (others, texts)]
    options = {"ignore": ignore, **({"one_hot": words} if words else {})}
    remedy = f"Leave them out with {option('ignore', ignore)}"
    if words:
        remedy += f", or make a feature of each category with {option('one_hot', words)}&{option('ignore', apart)[1:]}"
    raise refuse("unsupported-column", 422, subject, f"{remedy}.", **details, options=options, columns=columns)


def _unsuitable(name: str, kind: Any, role: str, values: str) -> ProblemError:
    """Return the problem of a column that has a role for other values."""
    detail = f"The column {name!r} of type {kind} cannot be the {role}, which has {values}."
    return refuse(
        "unsupported-column", 422, detail, "Name another column, or cast this one.", column=name, type=str(kind)
    )


def _unsupported(name: str, kind: Any) -> ProblemError:
    return refuse(
        "unsupported-column",
        422,
        f"The column {name!r} of type {kind} is not a feature.",
        f"Leave it out with {option('ignore', [name])}, or cast it to float64.",
        column=name,
        type=str(kind),
        options={"ignore": [name]},
    )
