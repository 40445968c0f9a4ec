"""Hostile Arrow streams and Parquet files."""

from __future__ import annotations

import io
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from qa.inputs.hostile.bodies.bombs import varint
from qa.inputs.hostile.bodies.npy import Payload
from qa.inputs.hostile.case import MAX_BODY, MAX_INFLATED, Attack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LONG = "\N{GRINNING FACE}" * (MAX_BODY // 64)
_PLACES = 1 + 2 * 2**32  # adjacent offsets of the second and third one-letter text


def arrow_stream(table: Any, **options: Any) -> bytes:
    """Return a table of pyarrow as an Arrow stream with one batch; `options` are those of pyarrow's writer."""
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def parquet_file(table: Any, **options: Any) -> bytes:
    """Return a table of pyarrow as a Parquet file; `options` are those of pyarrow's writer."""
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, **options)
    return buffer.getvalue()


def frame(rows: int = 6, **columns: Any) -> Any:
    """Return a table of pyarrow with a feature `x` and the given columns."""
    return pa.table({"x": np.arange(float(rows)), **columns})


def with_words(rows: int, words: list[Any]) -> Any:
    """Return a table with a dictionary-encoded column of labels, which has the first of `words` in every row."""
    labels = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(words, pa.string()))
    return frame(rows, l=labels)


def patch(body: bytes, old: int, new: int, form: str = "<q", *, which: int = 0) -> bytes:
    """Return a body in which the bytes of the number `old`, packed as `form`, are those of `new`.

    If the bytes occur several times, the occurrence number `which`, from 0, is replaced.
    """
    place = -1
    for _ in range(which + 1):
        place = body.index(struct.pack(form, old), place + 1)
    return body[:place] + struct.pack(form, new) + body[place + struct.calcsize(form) :]


def zigzag(value: int, length: int = 0) -> bytes:
    """Return a signed number in thrift's compact encoding, padded to a minimum length in bytes."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1, length)


def lying(body: bytes, old: int, new: int) -> bytes:
    """Return a Parquet file with every occurrence of a number in its footer replaced."""
    (length,) = struct.unpack("<I", body[-8:-4])
    footer, was = body[-8 - length : -8], zigzag(old)
    assert was in footer
    return body[: -8 - length] + footer.replace(was, zigzag(new, len(was))) + body[-8:]


def arrow_attacks() -> Iterator[Attack]:
    """Yield hostile Arrow streams, and some valid ones at the limits."""

    def arrow(name: str, build: Callable[[], bytes], *, is_accepted: bool | None = False, **query: str) -> Attack:
        return Attack("arrow", name, build, query, is_accepted)

    words, utf8 = pa.array(["a", "b", "c", "d", "e", "f"]), (b"zzzz", b"\xff\xfe\xfd\xfc")
    yield arrow("one long word, many rows", lambda: arrow_stream(with_words(MAX_BODY // 32, [_LONG])), labels="l")
    yield arrow("a word that is none", lambda: arrow_stream(with_words(6, [None])), labels="l", is_accepted=True)
    yield arrow("a long label", lambda: arrow_stream(frame(1, l=[_LONG])), labels="l")
    yield arrow("a very long name", lambda: arrow_stream(pa.table({_LONG: np.zeros(6)})))
    yield arrow(
        "half a surrogate pair as a name", lambda: arrow_stream(frame(zz=np.zeros(6))).replace(b"zz", b"\xed\xa0")
    )
    yield arrow("labels that are no UTF-8", lambda: arrow_stream(frame(1, l=["zzzz"])).replace(*utf8), labels="l")
    yield arrow("a byte of zero in a label", lambda: arrow_stream(frame(1, l=["a\0"])), labels="l")
    yield arrow("very many columns", lambda: arrow_stream(pa.table({f"c{i}": [0.0] for i in range(20_000)})))
    yield arrow("structs within structs", lambda: arrow_stream(frame(1, s=pa.nulls(1, _nest(60)))))
    with_text = arrow_stream(frame(6, l=words))
    for value in (-1, 2**31, 2**62, 2**63 - 1, 5, 7):
        for which in range(2):
            yield arrow(
                f"{value} for a length, the {which}th", partial(patch, arrow_stream(frame()), 6, value, which=which)
            )
        yield arrow(f"{value} for a buffer", partial(patch, arrow_stream(frame()), 48, value))
        place = partial(patch, with_text, _PLACES, 1 + (value % 2**31 << 32))
        yield arrow(f"{value} for a place in a text", place, labels="l", is_accepted=None)
        yield arrow(f"{value} for a message's length", partial(_message, value & 0xFFFFFFFF))
    outside = partial(patch, arrow_stream(_place(77_777)), 77_777, 2**30, "<i")
    yield arrow("a place outside of the dictionary", outside, labels="l")
    yield arrow("compressed", lambda: arrow_stream(frame(200_000), compression="zstd"), is_accepted=True)
    yield arrow("nulls alone", lambda: arrow_stream(pa.table({"x": pa.nulls(MAX_BODY // 32, pa.float64())})))
    yield arrow("an extension that is a pickle", _pickle, is_accepted=True)  # read as a plain column, never unpickled
    yield arrow("a file without its end", lambda: b"ARROW1\0\0" + arrow_stream(frame()))
    yield arrow("a file of the first version", lambda: b"FEA1" + arrow_stream(frame()))
    yield arrow("a stream that goes on", lambda: arrow_stream(frame()) + b"\xff" * 10_000, is_accepted=True)


def parquet_attacks() -> Iterator[Attack]:
    """Yield hostile Parquet files, and some valid ones at the limits."""

    def pq(name: str, build: Callable[[], bytes], *, is_accepted: bool | None = False, **query: str) -> Attack:
        return Attack("parquet", name, build, query, is_accepted)

    rows, page = MAX_INFLATED // 2, 2**31 - 1
    zeros = pa.table({"x": np.zeros(rows, np.int8)})
    whole = {"data_page_size": page, "use_dictionary": False, "max_rows_per_page": page, "row_group_size": rows}
    for compression in ("snappy", "gzip", "zstd", "brotli", "lz4"):
        yield pq(f"a bomb by {compression}", partial(parquet_file, zeros, compression=compression))
    for name, options in (("one page", whole), ("pages", {})):
        build = partial(_understate, parquet_file(zeros, compression="zstd", **options), rows)
        yield pq(f"{name} of which the footer tells little", build, is_accepted=None)
    yield pq("one long word, many rows", lambda: parquet_file(with_words(MAX_BODY // 32, [_LONG])), labels="l")
    schemaless = lambda: parquet_file(with_words(MAX_BODY // 32, [_LONG]), store_schema=False)  # noqa: E731 # a body
    yield pq("one long word, many rows, by a schema that knows no dictionaries", schemaless, labels="l")
    coded: dict[str, tuple[str, Any, bool]] = {
        "words": ("DELTA_BYTE_ARRAY", frame(2000, l=[_LONG[:8192]] * 2000), False),
        "lengths of words": ("DELTA_LENGTH_BYTE_ARRAY", frame(6, l=list("abcdef")), True),
    }
    for name, (coding, of_words, is_accepted) in coded.items():
        build = partial(parquet_file, of_words, use_dictionary=False, column_encoding={"l": coding, "x": "PLAIN"})
        yield pq(f"{name} encoded by their differences", build, is_accepted=is_accepted, labels="l")
    many, plain = parquet_file(frame(4096)), parquet_file(frame(4096), use_dictionary=False, compression=None)
    for value in (-1, 0, 5, 7, 2**31, 2**62):
        yield pq(f"{value} rows of 4,096", partial(lying, many, 4096, value), is_accepted=None)
    for value in (-1, 2**31, 2**62):
        yield pq(f"{value} for a column's place", partial(lying, plain, 4, value))
    for length in (0, 2**31, 2**32 - 1):
        footer = struct.pack("<I", length) + b"PAR1"
        yield pq(f"a footer of {length:,} bytes", lambda footer=footer: parquet_file(frame())[:-8] + footer)  # type: ignore[misc] # binds the loop variable
    yield pq("encrypted", lambda: parquet_file(frame())[:-4] + b"PARE")
    yield pq("a footer of lists without end", partial(_footer, b"\x19" * 2**16))
    yield pq("a footer of structs without end", partial(_footer, b"\x1c" * 2**18))
    yield pq("a footer of zeros", partial(_footer, bytes(2**20)))
    yield pq("a footer of a list of 2^31", partial(_footer, b"\x15\x02\x19\xfc" + b"\xff\xff\xff\xff\x07" + bytes(100)))
    yield pq(
        "very many columns", lambda: parquet_file(pa.table({f"c{i}": [0.0] for i in range(5000)})), is_accepted=None
    )
    yield pq("very many groups of rows", lambda: parquet_file(frame(3000), row_group_size=1), is_accepted=True)
    yield pq("structs within structs", lambda: parquet_file(frame(1, s=pa.nulls(1, _nest(60)))))
    yield pq("a schema that is no Arrow", lambda: parquet_file(frame(), store_schema=True).replace(b"/////", b"AAAAA"))
    foreign = parquet_file(frame(1, l=["zzzz"]), compression=None).replace(b"zzzz", b"\xff\xfe\xfd\xfc")
    yield pq("labels that are no UTF-8", lambda: foreign, labels="l")
    yield pq("a label by a path", lambda: parquet_file(frame(1, l=[{"a": "b"}])), labels="l.a")
    yield pq("nulls alone", lambda: parquet_file(pa.table({"x": pa.nulls(900_000, pa.float64())})))


def _nest(depth: int) -> Any:
    """Return an array of structs that are nested `depth` levels deep."""
    arrow_type: Any = pa.float64()
    for _ in range(depth):
        arrow_type = pa.struct([("s", arrow_type)])
    return arrow_type


def _message(length: int) -> bytes:
    """Return an Arrow stream whose first message states the wrong `length`."""
    body = arrow_stream(frame())
    return body[:4] + struct.pack("<I", length) + body[8:]


def _place(place: int) -> Any:
    """Return a table whose labels all refer to the entry number `place` of a long dictionary."""
    words = pa.array([str(i) for i in range(place + 1)])
    return frame(6, l=pa.DictionaryArray.from_arrays(pa.array(np.full(6, place, np.int32)), words))


def _pickle() -> bytes:
    """Return a stream with an extension type that older versions of pyarrow unpickled."""
    import pickle  # noqa: PLC0415 # only written, never read

    names = (b"ARROW:extension:name", b"ARROW:extension:metadata")
    metadata = dict(zip(names, (b"arrow.py_extension_type", pickle.dumps(Payload())), strict=True))
    schema = pa.schema([pa.field("x", pa.float64(), metadata=metadata)])
    return arrow_stream(pa.table([np.arange(6.0)], schema=schema))


def _footer(content: bytes) -> bytes:
    """Return a Parquet file that consists of the bytes `content` as its footer."""
    return b"PAR1" + content + struct.pack("<I", len(content)) + b"PAR1"


def _understate(body: bytes, rows: int) -> bytes:
    """Return a Parquet file of `rows` zeros whose footer states only a hundred rows."""
    metadata = parquet.read_metadata(io.BytesIO(body)).row_group(0)
    for old, new in ((rows, 100), (metadata.total_byte_size, 800)):
        body = lying(body, old, new)
    return body
