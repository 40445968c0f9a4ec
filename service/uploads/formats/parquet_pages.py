"""Page headers of a Parquet file, read before any page is unpacked, because the footer may differ from them.

The headers are thrift structs in the compact protocol (the format's parquet.thrift).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

_MOST_PAGES = 2**16  # some 10 us each
_MOST_HEADER = 2**16  # bytes; it holds the least and the largest value
_MOST_DEPTH = 8  # of nested structs
# Field numbers of a PageHeader, and of the encoding in the three kinds of data header.
_UNPACKED, _PACKED = 2, 3
_ENCODINGS = {5: 2, 7: 2, 8: 4}
# Encodings of texts that can expand a few bytes to a long text in each row, and that cannot be read as a dictionary.
_DELTA_TEXTS = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12  # types of a value


class PagesError(ValueError):
    """Invalid pages, too many pages, or an unsupported encoding."""


def unpacked_sizes(file: mmap, metadata: Any) -> Iterator[int]:
    """Yield the unpacked size of each page in bytes.

    Parameters
    ----------
    file
        The whole body.
    metadata
        The footer, pyarrow's `FileMetaData`.

    Raises
    ------
    PagesError
        For an invalid page, for more than 65,536 pages, and for delta-encoded texts.

    """
    pages = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for column in range(row_group.num_columns):
            chunk = row_group.column(column)
            place = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < place:
                place = chunk.dictionary_page_offset
            end = place + chunk.total_compressed_size
            if place < 0 or end > len(file):
                raise PagesError("a column is not within the file")
            while place < end:
                pages += 1
                if pages > _MOST_PAGES:
                    raise PagesError(f"more than {_MOST_PAGES:,} pages")
                fields, length = _struct(file[place : place + _MOST_HEADER])
                for kind, number in _ENCODINGS.items():
                    if encoding := _DELTA_TEXTS.get(_number(fields.get(kind), number)):
                        raise PagesError(f"a column of texts has the encoding {encoding}; use PLAIN or a dictionary")
                unpacked, packed = _number(fields, _UNPACKED), _number(fields, _PACKED)
                if unpacked < 0 or packed < 0:
                    raise PagesError("a page without its sizes")
                yield unpacked
                place += length + packed


def _number(fields: Any, number: int) -> int:
    """Return an integer of a struct, or -1."""
    value = fields.get(number) if isinstance(fields, dict) else None
    return value if isinstance(value, int) else -1


def _struct(buffer: bytes) -> tuple[dict[int, Any], int]:
    """Return the integers and structs of a thrift struct by field number, and its length in bytes."""
    reader = _Compact(buffer)
    try:
        return reader.struct(0), reader.place
    except IndexError:
        raise PagesError("a page header without an end") from None


class _Compact:
    """Reader of thrift's compact protocol."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        self.place = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Return the fields of a struct."""
        if depth > _MOST_DEPTH:
            raise PagesError("a page header of too many levels")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._integer()
            fields[number] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        """Return an integer or a struct; skip other types."""
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if _BYTE < kind < _DOUBLE:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in {_BYTE, _DOUBLE, _BINARY}:
            size = {_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint()
            self.place += size
            return None
        raise PagesError("a page header with an unexpected type")  # the format has no lists, sets or maps in it

    def _integer(self) -> int:
        """Return a signed integer."""
        coded = self._varint()
        return (coded >> 1) ^ -(coded & 1)

    def _varint(self) -> int:
        """Return an unsigned integer of seven bits in each byte."""
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise PagesError("a number of more than 64 bits")

    def _byte(self) -> int:
        byte = self._buffer[self.place]
        self.place += 1
        return byte
