"""Arrow IPC streams: every message is looked at before any is decoded, because a compressed one may be a bomb."""

from __future__ import annotations

import mmap
import struct
from typing import IO, TYPE_CHECKING, Any

from service.uploads.disk_array import NO_MEMORY
from service.uploads.formats.arrow_columns import Columns, check_size, table_of
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from service.uploads.label_columns import Apart
    from service.uploads.limits import Limits
    from worker.storage.datasets import Table

_MOST_BATCHES = 2**16  # each takes a tenth of a millisecond, however short it is
# Of the format's flatbuffers (format/Message.fbs): number of the fields that are read here.
_MESSAGE_HEADER, _BATCH_LENGTH, _BATCH_COMPRESSION, _DICTIONARY_DATA = 2, 0, 3, 1


def read_arrow(file: IO[bytes], limits: Limits, apart: Apart) -> Table:
    """Return the table of an Arrow stream.

    Raises
    ------
    ProblemError
        ``malformed-arrow``, ``compressed-arrow``, ``missing-value`` and ``not-finite`` with row and column, and others.

    """
    import pyarrow as pa  # noqa: PLC0415 # an extra

    try:
        mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        with pa.ipc.open_stream(mapped) as stream:
            columns = Columns.of(stream.schema, apart, limits)
            check_size(max(1, _rows(mapped)), columns, limits)
            return table_of(file, columns, iter(stream), limits, source="arrow")
    except MemoryError:  # pyarrow's is an ArrowException, too
        raise
    except (pa.ArrowException, ValueError, struct.error) as error:
        raise _malformed(str(error)) from None
    except OSError as error:
        if error.errno is not None:  # of the disk, and not of the stream
            raise
        raise _malformed(str(error)) from None


def _rows(mapped: Any) -> int:
    """Return how many rows the messages announce; refuse those that are compressed."""
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
                "Write it without compression (the default of pyarrow), or send Parquet.",
            )
        place = _field(head, table, _BATCH_LENGTH)
        length = struct.unpack_from("<q", head, place)[0] if place else 0
        if length < 0:
            raise _malformed(f"a batch of {length} rows")
        rows += length if message.type == "record batch" else 0
    return rows


def _follow(head: memoryview, place: int) -> int:
    """Return the place that an offset at a place leads to."""
    return place + int(struct.unpack_from("<I", head, place)[0])


def _field(head: memoryview, table: int, number: int) -> int:
    """Return the place of a table's field, 0 when it has none."""
    layout = table - int(struct.unpack_from("<i", head, table)[0])
    slot = 4 + 2 * number
    if slot >= struct.unpack_from("<H", head, layout)[0]:
        return 0
    offset = int(struct.unpack_from("<H", head, layout + slot)[0])
    return table + offset if offset else 0


def _table(head: memoryview, place: int) -> int:
    """Return the place of the table that a field leads to."""
    if place == 0:
        raise _malformed("a message without its header")
    return _follow(head, place)


def _malformed(reason: str) -> ProblemError:
    if NO_MEMORY in reason:
        raise MemoryError
    return refuse(
        "malformed-arrow",
        422,
        f"The body is no Arrow stream: {reason[:200]}.",
        "Send what pyarrow.ipc.new_stream writes; a file (Feather) is another format.",
    )
