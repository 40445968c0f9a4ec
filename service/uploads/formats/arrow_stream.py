"""Arrow streams and files: check every message before any is decoded, because a compressed one may be a bomb."""

from __future__ import annotations

import mmap
import os
import struct
from typing import IO, TYPE_CHECKING, Any

from service.uploads.disk_array import check_inflated
from service.uploads.formats.arrow_columns import Columns, check_size, malformed_as, read_columns
from worker.base.problems import refuse

if TYPE_CHECKING:
    from service.uploads.column_roles import ColumnRoles
    from service.uploads.limits import Limits
    from worker.storage.datasets import Table

_MOST_BATCHES = 2**16  # 0.1 ms each, even if empty
# Field numbers in the format's flatbuffers (format/Message.fbs).
_MESSAGE_HEADER, _BATCH_LENGTH, _BATCH_BUFFERS, _BATCH_COMPRESSION, _DICTIONARY_DATA = 2, 0, 2, 3, 1
_FILE_MARK, _OLD_MARK = b"ARROW1\0\0", b"FEA1"


def read_arrow(file: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of an Arrow stream, or of an Arrow file (Feather), which is a stream between two marks.

    Raises
    ------
    ProblemError
        ``malformed-arrow``, ``inflated-too-large``, ``missing-value`` and ``not-finite`` with row and column, and
        others.

    """
    import pyarrow as pa  # noqa: PLC0415 # an extra

    mark = os.pread(file.fileno(), len(_FILE_MARK), 0)
    if mark.startswith(_OLD_MARK):
        remedy = "Write it with pandas' to_feather or pyarrow.feather.write_feather(version=2), or send Parquet."
        raise refuse("malformed-arrow", 422, "The body is a Feather file of version 1.", remedy)
    start = len(_FILE_MARK) if mark == _FILE_MARK else 0
    remedy = "Write it with pyarrow.ipc.new_stream, or with pandas' to_feather."
    with malformed_as("malformed-arrow", "an Arrow stream", remedy):
        mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).slice(start)
        with pa.ipc.open_stream(mapped) as stream:
            schema = stream.schema
        check_size(max(1, _rows(mapped, limits)), Columns.of(schema, roles, limits), limits)
        return read_columns(
            file, schema, roles, limits, lambda _: iter(pa.ipc.open_stream(mapped)), "feather" if start else "arrow"
        )


def _rows(mapped: Any, limits: Limits) -> int:
    """Return the number of rows in the message headers; raise a problem if the buffers are large unpacked."""
    import pyarrow as pa  # noqa: PLC0415 # an extra

    rows = batches = unpacked = 0
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
            unpacked += _unpacked(head, table, memoryview(message.body))
            check_inflated("The Arrow stream", unpacked, limits)
        place = _field(head, table, _BATCH_LENGTH)
        length = struct.unpack_from("<q", head, place)[0] if place else 0
        if length < 0:
            raise ValueError(f"a batch of {length} rows")
        rows += length if message.type == "record batch" else 0
    return rows


def _unpacked(head: memoryview, table: int, body: memoryview) -> int:
    """Return the bytes of the buffers of a compressed batch, each of which begins with its unpacked length."""
    if not (place := _field(head, table, _BATCH_BUFFERS)):
        return 0
    vector = _follow(head, place)
    total = 0
    for number in range(struct.unpack_from("<I", head, vector)[0]):
        offset, length = struct.unpack_from("<qq", head, vector + 4 + 16 * number)
        if length == 0:
            continue
        if offset < 0 or length < 8 or offset + length > len(body):
            raise ValueError("a buffer is not within its batch")
        size = struct.unpack_from("<q", body, offset)[0]
        if size < -1:
            raise ValueError(f"a buffer of {size} bytes")
        total += length if size == -1 else size
    return total


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
