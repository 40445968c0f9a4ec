"""Small bodies that would exhaust the memory of their reader, although all sizes that they declare are small."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import numpy as np

_CONTINUATION = b"\xff\xff\xff\xff"
_STRUCT, _NULL = 13, 1  # field types (format/Schema.fbs)


def arrow_schema_bomb(width: int, depth: int, padding: int) -> bytes:
    """Return an Arrow stream whose schema nests `width` fields in each field, `depth` levels deep.

    The fields of a level share their bytes, so the body is small, but a reader expands it to `width**depth` fields. The
    verifier of flatbuffers allows eight tables for each byte, so `padding` bytes are added.
    """
    flat = _Flat()
    flat.table("message", [("short", 4), ("byte", 1), ("to", "schema")])
    flat.table("schema", [("short", 0), ("to", "fields")])
    flat.vector("fields", ["field 0"])
    for level in range(depth + 1):
        is_leaf = level == depth
        type_code = _NULL if is_leaf else _STRUCT
        children: list[tuple[str, int | str]] = [] if is_leaf else [("none", 0), ("to", f"children {level}")]
        flat.table(f"field {level}", [("to", "name"), ("byte", 1), ("byte", type_code), ("to", "type"), *children])
        if not is_leaf:
            flat.vector(f"children {level}", [f"field {level + 1}"] * width)
    flat.table("type", [])
    flat.text("name", b"x")
    metadata = flat.bytes() + bytes(padding)
    metadata += bytes(-len(metadata) % 8)
    return _CONTINUATION + struct.pack("<i", len(metadata)) + metadata + _CONTINUATION + bytes(4)


def parquet_footer_bomb(columns: int) -> bytes:
    """Return a Parquet file without rows whose footer has very many columns of a few bytes each."""
    root = b"\x48\x01s\x15" + varint(2 * columns) + b"\0"
    leaf = b"\x15\x0a\x25\x00\x18\x01x\0"
    footer = b"\x15\x02\x19\xfc" + varint(columns + 1) + root + leaf * columns + b"\x16\x00\x19\x0c\0"
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def npz_labels_bomb(points: int) -> bytes:
    """Return an npz file with labels of 1,000 characters (4,000 bytes each), deflated once and repeated.

    `points` is a multiple of 1,000, because the repeated block has as many labels.
    """
    block = np.full(1000, "a" * 1000)
    head = io.BytesIO()
    shape = {"descr": block.dtype.str, "fortran_order": False, "shape": (points,)}
    np.lib.format.write_array_header_1_0(head, shape)
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    start = packer.compress(head.getvalue()) + packer.flush(zlib.Z_FULL_FLUSH)
    repeated = packer.compress(block.tobytes()) + packer.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before it
    packed = start + repeated * (points // len(block)) + packer.flush()
    crc = zlib.crc32(head.getvalue())
    for _ in range(points // len(block)):
        crc = zlib.crc32(block.data, crc)
    data = io.BytesIO()
    np.savez_compressed(data, data=np.zeros((points, 1)))
    return _append(data.getvalue(), b"labels.npy", packed, crc, len(head.getvalue()) + points * block.itemsize)


def _append(archive: bytes, name: bytes, packed: bytes, crc: int, size: int) -> bytes:
    """Return the zip file `archive`, which has one member, with a second member whose bytes are deflated already."""
    (start,) = struct.unpack("<I", archive[-6:-2])
    common = struct.pack("<5H3I2H", 20, 0, zipfile.ZIP_DEFLATED, 0, 33, crc, len(packed), size, len(name), 0)
    record = b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<3H2I", 0, 0, 0, 0, start) + name
    directory = archive[start:-22] + record
    place = start + 30 + len(name) + len(packed)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 2, 2, len(directory), place, 0)
    return archive[:start] + b"PK\3\4" + common + name + packed + directory + end


class _Flat:
    """Writer of a flatbuffer in which several offsets may point to the same table, vector or text."""

    def __init__(self) -> None:
        self._buffer = bytearray(4)
        self._places: dict[str, int] = {}
        self._offsets: list[tuple[int, str]] = [(0, "message")]

    def table(self, name: str, fields: list[tuple[str, int | str]]) -> None:
        """Append a table of four-byte numbers, and of offsets to the objects with the given names."""
        slots = [0 if kind == "none" else 4 + 4 * number for number, (kind, _) in enumerate(fields)]
        layout = struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), 4 + 4 * len(slots), *slots)
        layout += bytes(-len(layout) % 4)
        self._buffer += layout
        self._places[name] = len(self._buffer)
        self._buffer += struct.pack("<i", len(layout))
        for _, value in fields:
            if isinstance(value, str):
                self._offsets.append((len(self._buffer), value))
                value = 0  # noqa: PLW2901 # a placeholder until the offset is known
            self._buffer += struct.pack("<I", value)

    def vector(self, name: str, names: list[str]) -> None:
        """Append a vector of offsets to the objects with the given names."""
        self._places[name] = len(self._buffer)
        self._buffer += struct.pack("<I", len(names))
        for each in names:
            self._offsets.append((len(self._buffer), each))
            self._buffer += bytes(4)

    def text(self, name: str, text: bytes) -> None:
        """Append a text, to which offsets refer by `name`."""
        self._places[name] = len(self._buffer)
        self._buffer += struct.pack("<I", len(text)) + text + bytes(4 - len(text) % 4)

    def bytes(self) -> bytes:
        """Return the finished flatbuffer."""
        for place, name in self._offsets:
            struct.pack_into("<I", self._buffer, place, self._places[name] - place)
        return bytes(self._buffer)


def varint(value: int, length: int = 0) -> bytes:
    """Return a number as a varint (seven bits in each byte), padded to a minimum length in bytes."""
    encoded = bytearray()
    while value > 127 or len(encoded) + 1 < length:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
