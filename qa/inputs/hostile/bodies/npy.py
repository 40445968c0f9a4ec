"""Hostile npy and npz bodies."""

from __future__ import annotations

import io
import signal
import struct
import zipfile
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from qa.inputs.hostile.case import MAX_BODY, MAX_INFLATED, Attack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

X = np.arange(12.0).reshape(4, 3)
MAGIC = b"\x93NUMPY"
_HEAD = "{{'descr': {}, 'fortran_order': {}, 'shape': {}}}"


def npy_of(array: Any, *, allow_pickle: bool = False) -> bytes:
    """Return the bytes that `numpy.save` writes."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def npy_with_header(text: str, values: bytes = b"", *, announced: int | None = None, version: int = 1) -> bytes:
    """Return an npy file with the header `text`; `announced` is the length that the file states for the header."""
    encoded = text.encode("latin-1") + b"\n"
    length = (len(encoded) if announced is None else announced).to_bytes(2 if version == 1 else 4, "little")
    return MAGIC + bytes([version, 0]) + length + encoded + values


def npy_of_shape(shape: str, descr: str = "'<f8'", order: str = "False", values: bytes = b"") -> bytes:
    """Return an npy file whose header has the texts `shape`, `descr` and `order`, which may be invalid."""
    return npy_with_header(_HEAD.format(descr, order, shape), values)


class Payload:
    """Object that ends the process when it is unpickled, which must never happen."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Let unpickling call `os._exit`."""
        return signal.raise_signal, (signal.SIGKILL,)


def npy_attacks() -> Iterator[Attack]:
    """Yield hostile npy bodies, and some valid ones at the limits."""

    def npy(name: str, body: bytes, *, is_accepted: bool | None = False) -> Attack:
        return Attack("npy", name, lambda: body, {}, is_accepted)

    for shape in (f"({2**31}, {2**31})", f"({2**32}, {2**32 + 1})", f"({2**62}, 4)", f"({2**63}, 0)", "(4, 2**60)"):
        yield npy(f"the shape {shape}", npy_of_shape(shape, values=X.tobytes()))
    for shape in ("(-4, -3)", "(4, -3)", "(4.0, 3.0)", "(True, 12)", "('4', 3)", "4", "()", "((4, 3),)", "[4, 3]"):
        yield npy(f"the shape {shape}", npy_of_shape(shape, values=X.tobytes()))
    yield npy("a thousand dimensions", npy_of_shape("(" + "1," * 1000 + ")", values=bytes(8)))
    yield npy("Fortran that is no truth", npy_of_shape("(4, 3)", order="'yes'", values=X.tobytes()))
    dtypes = ("'|O'", "('<f8', (3,))", "[('a', '|O')]", "'V2147483647'", "'<U500000000'", "'S0'", "'f8' * 9", "None")
    for descr in dtypes:
        yield npy(f"the dtype {descr}", npy_of_shape("(4, 3)", descr, values=X.tobytes()))
    yield npy("the dtype of 16 bytes", npy_of_shape("(1, 6)", "'<f16'", values=X.tobytes()), is_accepted=True)
    for length in (2**32 - 1, 2**31, MAX_BODY - 2**11, 10_001):
        filled = b" " * (MAX_BODY - 2**11)
        yield npy(f"a header of {length:,} bytes", npy_with_header("{}", filled, announced=length, version=2))
    for name, text in {
        "tuples": "(" * 4000 + ")" * 4000,
        "lists": "[" * 4900,
        "signs": "-" * 9000 + "1",
        "not": "not " * 2000 + "1",
        "sums": "1" + "+1" * 4500,
        "powers": "9" + "**9" * 2000,
        "attributes": "a" + ".a" * 4000,
        "calls": "a" + "()" * 4000,
        "lambdas": "lambda:" * 1200 + "0",
        "comparisons": "1" + "<1" * 4000,
        "strings": "''" * 4000,
        "an escape": "'\\N{" + "A" * 5000 + "}'",
        "a call": "__import__('os')._exit(66)",
        "dictionaries": "{1:" * 3000,
        "a byte of zero": "{\0}",
        "a formatted string": "f'{" * 2000,
    }.items():
        yield npy(f"a header of {name}", npy_with_header(text, X.tobytes()))
    yield npy("a pickle", npy_of(np.array([[Payload()]], object), allow_pickle=True))
    yield npy("a pickle and nothing else", b"\x80\x04\x95cos\n_exit\n(I66\ntR.")
    yield npy("version 3", npy_with_header(_HEAD.format("'<f8'", "False", "(4, 3)"), X.tobytes(), version=3))
    yield npy("NaN everywhere", npy_of(np.full((1000, 1000), np.nan)))
    rows = MAX_BODY // 1000 - 1
    yield npy("a byte a value", npy_of_shape(f"({rows}, 1000)", "'|u1'", values=bytes(1000 * rows)), is_accepted=True)
    yield npy("longer than is allowed", npy_of(np.zeros((MAX_BODY // 8, 1))))


def zip_of(*members: tuple[str | zipfile.ZipInfo, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip file of members (name, bytes), compressed by the method `packing`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packing) as archive:
        for name, body in members:
            archive.writestr(name, body)
    return buffer.getvalue()


def deflate(**members: bytes) -> bytes:
    """Return a compressed zip file, whose members are the keyword arguments with the suffix .npy."""
    return zip_of(*((name + ".npy", body) for name, body in members.items()), packing=zipfile.ZIP_DEFLATED)


def npz_of_names(*names: str) -> bytes:
    """Return a zip file with an array under each of the given names."""
    return zip_of(*((zipfile.ZipInfo(name), npy_of(X)) for name in names))


def lying(body: bytes, place: int, length: int, value: int) -> bytes:
    """Return a zip file in which the field at `place` of the directory's first record is `value`."""
    start = body.index(b"PK\1\2") + place
    return body[:start] + value.to_bytes(length, "little") + body[start + length :]


def overlapping(count: int) -> bytes:
    """Return a zip file with many members that share the same bytes."""
    kernel = npy_of(np.zeros((1000, 100)))
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packed.compress(kernel) + packed.flush()
    crc, sizes = zlib.crc32(kernel), (len(data), len(kernel))
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 33, crc, *sizes, 8, 0) + b"data.npy" + data
    records = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 33, crc, *sizes, 8, 0, 0, 0, 0, 0, 0)
        + f"m{i:03}.npy".encode()
        for i in range(count)
    )
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(records), len(local), 0)
    return local + records + end


def npz_with_symlink() -> bytes:
    """Return a zip file with a member marked as a symbolic link."""
    link = zipfile.ZipInfo("data.npy")
    link.external_attr = 0o120777 << 16
    return zip_of((link, b"/etc/passwd"))


def zip64(body: bytes) -> bytes:
    """Return a zip file with a 64-bit directory that announces a huge size."""
    place = body.rindex(b"PK\5\6")
    huge = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 2**62, 2**62, 2**62, 0)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, place, 1)
    return body[:place] + huge + locator + body[place:]


def npz_attacks() -> Iterator[Attack]:
    """Yield hostile npz bodies, and some valid ones at the limits."""

    def npz(name: str, build: Callable[[], bytes], *, is_accepted: bool | None = False) -> Attack:
        return Attack("npz", name, build, {}, is_accepted)

    good, zeros = deflate(data=npy_of(X)), bytes(MAX_INFLATED)
    long_text = npy_of_shape("(1,)", f"'<U{MAX_INFLATED // 16}'", values=zeros[: MAX_INFLATED // 4])
    long_head = npy_with_header("{}", zeros[: MAX_INFLATED // 2], announced=2**32 - 1, version=2)
    no_letter, half_pair = (npy_of_shape("(1,)", "'<U1'", values=code) for code in (b"\xff" * 4, b"\0\xd8\0\0"))
    pickled = npy_of(np.array([Payload()] * 4, object), allow_pickle=True)
    row, column = npy_of(X[:1]), npy_of(X[:, :1])
    members: dict[str, Callable[[], dict[str, bytes]]] = {
        "a bomb": lambda: {"data": npy_of(np.zeros((MAX_INFLATED // 4, 1)))},
        "a bomb within a bomb": lambda: {"data": deflate(data=zeros)},
        "a bomb of bytes": lambda: {"data": npy_of(np.zeros((MAX_INFLATED // 500, 400), np.uint8))},
        "names without end": lambda: {"data": npy_of(X), "names": npy_of(np.full(MAX_INFLATED // 9, "ab"))},
        "labels of no letters there are": lambda: {"data": row, "labels": no_letter},
        "names of no letters there are": lambda: {"data": column, "names": no_letter},
        "half a surrogate pair as a label": lambda: {"data": row, "labels": half_pair},
        "a header of four gigabytes": lambda: {"data": long_head},
        "a label's header of four gigabytes": lambda: {"data": npy_of(X), "labels": long_head},
        "very many members": lambda: {f"m{i}": b"" for i in range(5000)},
        "a pickle": lambda: {"data": npy_of(np.array([[Payload()]], object), allow_pickle=True)},
        "a pickle as labels": lambda: {"data": npy_of(X), "labels": pickled},
    }
    for name, build in members.items():
        yield npz(name, lambda build=build: deflate(**build()))  # type: ignore[misc] # binds the loop variable
    yield npz("one name without end", lambda: deflate(data=column, names=long_text), is_accepted=True)
    yield npz("one label without end", lambda: deflate(data=row, labels=long_text), is_accepted=True)
    yield npz("members of which many are one", partial(overlapping, 1000))
    yield npz("members that overlap, few", partial(overlapping, 30))
    paths = ("../data", "/etc/data", "..\\data", "a/../../data", "C:data", "data\n", "\u202e")
    for path in paths:
        yield npz(f"the path {path!r}", partial(npz_of_names, path + ".npy"), is_accepted=True)
    yield npz("a path with a byte of zero", lambda: npz_of_names("dataX.npy").replace(b"dataX", b"dat\0X"))
    yield npz("a folder", partial(npz_of_names, "data.npy/"))
    yield npz("a member twice", lambda: npz_of_names("data.npy", "dat2.npy").replace(b"dat2", b"data"))
    yield npz("a link", npz_with_symlink)
    yield npz("a directory of 64 bits", partial(zip64, good))
    for size in (0, 7, 2**31, 2**32 - 1):
        yield npz(f"the unpacked size {size}", partial(lying, good, 24, 4, size), is_accepted=None)
    for method in (1, 9, 12, 14, 93, 99):
        yield npz(f"the packing {method}", partial(lying, good, 10, 2, method))
    yield npz("encrypted", partial(lying, good, 8, 2, 1))
    yield npz("ends without end", lambda: b"PK\5\6" * 2**20)
