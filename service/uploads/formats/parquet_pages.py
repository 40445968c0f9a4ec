"""What the pages of a Parquet file say of themselves, read before any is unpacked: the footer may say something else.

The headers are thrift structs in its compact protocol, as the format's parquet.thrift has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

_MOST_PAGES = 2**16  # looking at one takes some ten microseconds
_MOST_HEADER = 2**16  # bytes; the least and the largest value stand in it
_MOST_DEPTH = 8  # of structs within structs
# Numbers of the fields of a PageHeader that are read here, and of the encoding in the three kinds of data header.
_UNPACKED, _PACKED = 2, 3
_ENCODINGS = {5: 2, 7: 2, 8: 4}
# Texts without their length beside them. One kind repeats the beginning of the one before, so that a few bytes a row
# are as long as the longest; neither can be unpacked as a dictionary, in which a text of many rows is there once.
_DELTA_TEXTS = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12  # kinds of a value


class PagesError(ValueError):
    """Pages that are none, or too many, or packed in a way that is not read."""


def unpacked_sizes(file: mmap, metadata: Any) -> Iterator[int]:
    """Yield the bytes that each page takes unpacked.

    Parameters
    ----------
    file
        The whole body.
    metadata
        Its footer, pyarrow's `FileMetaData`.

    Raises
    ------
    PagesError
        For a page that is none, for more than 65,536, and for texts told by their differences or lengths.

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
                    if told := _DELTA_TEXTS.get(_number(fields.get(kind), number)):
                        raise PagesError(f"a column of texts has the encoding {told}; PLAIN and dictionaries are read")
                unpacked, packed = _number(fields, _UNPACKED), _number(fields, _PACKED)
                if unpacked < 0 or packed < 0:
                    raise PagesError("a page without its sizes")
                yield unpacked
                place += length + packed


def _number(fields: Any, number: int) -> int:
    """Return an integer of a struct, -1 where there is none."""
    value = fields.get(number) if isinstance(fields, dict) else None
    return value if isinstance(value, int) else -1


def _struct(buffer: bytes) -> tuple[dict[int, Any], int]:
    """Return the integers and structs of a thrift struct by their numbers, and how many bytes it takes."""
    reader = _Compact(buffer)
    try:
        return reader.struct(0), reader.place
    except IndexError:
        raise PagesError("a page's header that has no end") from None


class _Compact:
    """Reads thrift's compact protocol."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        self.place = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Return the fields of a struct."""
        if depth > _MOST_DEPTH:
            raise PagesError("a page's header of very many levels")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._integer()
            fields[number] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        """Return an integer or a struct; pass over anything else."""
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
        raise PagesError("a page's header with what has no place there")  # lists, sets, maps: the format has none here

    def _integer(self) -> int:
        """Return a number that may be negative."""
        coded = self._varint()
        return (coded >> 1) ^ -(coded & 1)

    def _varint(self) -> int:
        """Return a number of seven bits a byte."""
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
