"""Arrow IPC streams: check every message before any is decoded, because a compressed one may be a bomb."""

from __future__ import annotations

import mmap
import struct
from typing import IO, TYPE_CHECKING, Any

from service.uploads.formats.arrow_columns import Columns, check_size, malformed_as, table_of
from worker.base.problems import refuse

if TYPE_CHECKING:
    from service.uploads.label_columns import LabelColumns
    from service.uploads.limits import Limits
    from worker.storage.datasets import Table

_MOST_BATCHES = 2**16  # 0.1 ms each, even if empty
# Field numbers in the format's flatbuffers (format/Message.fbs).
_MESSAGE_HEADER, _BATCH_LENGTH, _BATCH_COMPRESSION, _DICTIONARY_DATA = 2, 0, 3, 1


def read_arrow(file: IO[bytes], limits: Limits, label_columns: LabelColumns) -> Table:
    """Return the table of an Arrow stream.

    Raises
    ------
    ProblemError
        ``malformed-arrow``, ``compressed-arrow``, ``missing-value`` and ``not-finite`` with row and column, and others.

    """
    import pyarrow as pa  # noqa: PLC0415 # an extra

    remedy = "Write it with pyarrow.ipc.new_stream; a Feather file is another format."
    with malformed_as("malformed-arrow", "an Arrow stream", remedy):
        mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        with pa.ipc.open_stream(mapped) as stream:
            columns = Columns.of(stream.schema, label_columns, limits)
            check_size(max(1, _rows(mapped)), columns, limits)
            return table_of(file, columns, iter(stream), limits, source="arrow")


def _rows(mapped: Any) -> int:
    """Return the number of rows in the message headers; raise a problem if a message is compressed."""
    import pyarrow as pa  # noqa: PLC0415 # an extra

    rows = batches = 0
    for message in pa.ipc.MessageReader.open_stream(mapped):
        if message.type not in {"record batch", "dictionary"}:
            continue
        batches += 1
        if batches > _MOST_BATCHES:
            detail = f"The Arrow stream has more than {_MOST_BATCHES:,} batches."
            raise refuse("too-many-batches", 422, detail, "Write larger batches.", allowed=_MOST_BATCHES)
        head = memoryview(message.metadata)
        table = _table(head, _field(head, _follow(head, 0), _MESSAGE_HEADER))
        if message.type == "dictionary":
            table = _table(head, _field(head, table, _DICTIONARY_DATA))
        if _field(head, table, _BATCH_COMPRESSION):
            raise refuse(
                "compressed-arrow",
                422,
                "The Arrow stream is compressed.",
                "Write it without compression (pyarrow's default), or send Parquet.",
            )
        place = _field(head, table, _BATCH_LENGTH)
        length = struct.unpack_from("<q", head, place)[0] if place else 0
        if length < 0:
            raise ValueError(f"a batch of {length} rows")
        rows += length if message.type == "record batch" else 0
    return rows


def _follow(head: memoryview, place: int) -> int:
    """Return the position that the offset at `place` points to."""
    return place + int(struct.unpack_from("<I", head, place)[0])


def _field(head: memoryview, table: int, number: int) -> int:
    """Return the position of a table's field, or 0 if it is absent."""
    layout = table - int(struct.unpack_from("<i", head, table)[0])
    slot = 4 + 2 * number
    if slot >= struct.unpack_from("<H", head, layout)[0]:
        return 0
    offset = int(struct.unpack_from("<H", head, layout + slot)[0])
    return table + offset if offset else 0


def _table(head: memoryview, place: int) -> int:
    """Return the position of the table that a field points to."""
    if place == 0:
        raise ValueError("a message without its header")
    return _follow(head, place)
