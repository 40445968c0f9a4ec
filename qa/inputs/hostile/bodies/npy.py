"""Hostile npy and npz bodies."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from qa.inputs.hostile.bodies.caps import MAX_BODY, MAX_INFLATED
from qa.inputs.hostile.case import Attack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

X = np.arange(12.0).reshape(4, 3)
MAGIC = b"\x93NUMPY"
_HEAD = "{{'descr': {}, 'fortran_order': {}, 'shape': {}}}"


def saved(array: Any, *, allow_pickle: bool = False) -> bytes:
    """Return the output of numpy.save."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def headed(text: str, values: bytes = b"", *, announced: int | None = None, version: int = 1) -> bytes:
    """Return an npy file with a handwritten header, which may announce another length."""
    encoded = text.encode("latin-1") + b"\n"
    length = (len(encoded) if announced is None else announced).to_bytes(2 if version == 1 else 4, "little")
    return MAGIC + bytes([version, 0]) + length + encoded + values


def shaped(shape: str, descr: str = "'<f8'", order: str = "False", values: bytes = b"") -> bytes:
    """Return an npy file with this shape and dtype, as text."""
    return headed(_HEAD.format(descr, order, shape), values)


class Payload:
    """Marker object that ends the process when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a call that ends the process."""
        import os  # noqa: PLC0415 # referenced only by the pickle

        return os._exit, (66,)


def npy_attacks() -> Iterator[Attack]:
    """Yield npy bodies."""

    def npy(name: str, body: bytes, *, is_accepted: bool | None = False) -> Attack:
        return Attack("npy", name, lambda: body, {}, is_accepted)

    for shape in (f"({2**31}, {2**31})", f"({2**32}, {2**32 + 1})", f"({2**62}, 4)", f"({2**63}, 0)", "(4, 2**60)"):
        yield npy(f"the shape {shape}", shaped(shape, values=X.tobytes()))
    for shape in ("(-4, -3)", "(4, -3)", "(4.0, 3.0)", "(True, 12)", "('4', 3)", "4", "()", "((4, 3),)", "[4, 3]"):
        yield npy(f"the shape {shape}", shaped(shape, values=X.tobytes()))
    yield npy("a thousand dimensions", shaped("(" + "1," * 1000 + ")", values=bytes(8)))
    yield npy("Fortran that is no truth", shaped("(4, 3)", order="'yes'", values=X.tobytes()))
    for descr in ("'|O'", "'O'", "('<f8', (3,))", "[('a', '<f8')]", "[('a', '|O')]", "'V2147483647'", "'<U500000000'"):
        yield npy(f"the dtype {descr}", shaped("(4, 3)", descr, values=X.tobytes()))
    for descr in (
        "'M8[ns]'",
        "'<c16'",
        "'S0'",
        "'<f16'",
        "'>f8, <f4'",
        "'f8' * 9",
        "None",
        "{'names': [], 'formats': []}",
    ):
        yield npy(f"the dtype {descr}", shaped("(1, 6)", descr, values=X.tobytes()), is_accepted=descr == "'<f16'")
    for length in (2**32 - 1, 2**31, MAX_BODY - 2**11, 10_001):
        filled = b" " * (MAX_BODY - 2**11)
        yield npy(f"a header of {length:,} bytes", headed("{}", filled, announced=length, version=2))
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
        yield npy(f"a header of {name}", headed(text, X.tobytes()))
    yield npy("a pickle", saved(np.array([[Payload()]], object), allow_pickle=True))
    yield npy("a pickle and nothing else", b"\x80\x04\x95cos\n_exit\n(I66\ntR.")
    yield npy("a version that is none", headed("{}", version=1).replace(MAGIC + b"\1", MAGIC + b"\7"))
    yield npy("version 3", headed(_HEAD.format("'<f8'", "False", "(4, 3)"), X.tobytes(), version=3))
    yield npy("values of half a byte less", saved(X)[:-1])
    yield npy("fewer values than are announced", shaped("(1000000, 3)", values=X.tobytes()))
    yield npy("NaN everywhere", saved(np.full((1000, 1000), np.nan)))
    yield npy(
        "a byte a value",
        shaped(f"({MAX_BODY // 1000 - 1}, 1000)", "'|u1'", values=bytes(1000 * (MAX_BODY // 1000 - 1))),
        is_accepted=True,
    )
    yield npy("longer than is allowed", saved(np.zeros((MAX_BODY // 8, 1))))


def deflated(**members: bytes) -> bytes:
    """Return a zip file with these bytes by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name + ".npy", body)
    return buffer.getvalue()


def named(*names: str) -> bytes:
    """Return a zip file whose members have these names, each an array."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), saved(X))
    return buffer.getvalue()


def lying(body: bytes, place: int, length: int, value: int, *, of: bytes = b"PK\1\2") -> bytes:
    """Return a zip file with a changed field in the first record with this mark."""
    start = body.index(of) + place
    return body[:start] + value.to_bytes(length, "little") + body[start + length :]


def overlapping(count: int) -> bytes:
    """Return a zip file with many members that share the same bytes."""
    kernel = saved(np.zeros((1000, 100)))
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


def symlinked() -> bytes:
    """Return a zip file with a member marked as a symbolic link."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("data.npy")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return buffer.getvalue()


def zip64(body: bytes) -> bytes:
    """Return a zip file with a 64-bit directory that announces a huge size."""
    place = body.rindex(b"PK\5\6")
    huge = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 2**62, 2**62, 2**62, 0)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, place, 1)
    return body[:place] + huge + locator + body[place:]


def npz_attacks() -> Iterator[Attack]:
    """Yield npz bodies."""

    def npz(name: str, build: Callable[[], bytes], *, is_accepted: bool | None = False, **query: str) -> Attack:
        return Attack("npz", name, build, query, is_accepted)

    good = deflated(data=saved(X))
    zeros = bytes(MAX_INFLATED)
    yield npz("a bomb", lambda: deflated(data=saved(np.zeros((MAX_INFLATED // 4, 1)))))
    yield npz("a bomb within a bomb", lambda: deflated(data=deflated(data=zeros)))
    yield npz("a bomb of bytes", lambda: deflated(data=saved(np.zeros((MAX_INFLATED // 500, 400), np.uint8))))
    yield npz("names without end", lambda: deflated(data=saved(X), names=saved(np.full(MAX_INFLATED // 9, "ab"))))
    yield npz(
        "one name without end",
        lambda: deflated(
            data=saved(X[:, :1]), names=shaped("(1,)", f"'<U{MAX_INFLATED // 16}'", values=bytes(MAX_INFLATED // 4))
        ),
        is_accepted=True,
    )
    yield npz(
        "one label without end",
        lambda: deflated(
            data=saved(X[:1]), labels=shaped("(1,)", f"'<U{MAX_INFLATED // 16}'", values=bytes(MAX_INFLATED // 4))
        ),
        is_accepted=True,
    )
    yield npz(
        "labels of no letters there are",
        lambda: deflated(data=saved(X[:1]), labels=shaped("(1,)", "'<U1'", values=b"\xff" * 4)),
    )
    yield npz(
        "names of no letters there are",
        lambda: deflated(data=saved(X[:, :1]), names=shaped("(1,)", "'<U1'", values=b"\xff" * 4)),
    )
    yield npz(
        "half a surrogate pair as a label",
        lambda: deflated(data=saved(X[:1]), labels=shaped("(1,)", "'<U1'", values=b"\0\xd8\0\0")),
    )
    yield npz(
        "a header of four gigabytes",
        lambda: deflated(data=headed("{}", zeros[: MAX_INFLATED // 2], announced=2**32 - 1, version=2)),
    )
    yield npz(
        "a label's header of four gigabytes",
        lambda: deflated(
            data=saved(X), labels=headed("{}", zeros[: MAX_INFLATED // 2], announced=2**32 - 1, version=2)
        ),
    )
    yield npz("members of which many are one", lambda: overlapping(1000))
    yield npz("members that overlap, few", lambda: overlapping(30))
    yield npz("very many members", lambda: deflated(**{f"m{i}": b"" for i in range(5000)}))
    yield npz("a pickle", lambda: deflated(data=saved(np.array([[Payload()]], object), allow_pickle=True)))
    yield npz(
        "a pickle as labels",
        lambda: deflated(data=saved(X), labels=saved(np.array([Payload()] * 4, object), allow_pickle=True)),
    )
    for path in (
        "../data.npy",
        "/etc/data.npy",
        "..\\data.npy",
        "a/../../data.npy",
        "C:data.npy",
        "data\n.npy",
        "\u202e.npy",
    ):
        yield npz(f"the path {path!r}", lambda path=path: named(path), is_accepted=True)  # type: ignore[misc] # binds the loop variable
    yield npz("a path with a byte of zero", lambda: named("dataX.npy").replace(b"dataX", b"dat\0X"))
    yield npz("a folder", lambda: named("data.npy/"))
    yield npz("a member twice", _twice)
    yield npz("a link", symlinked)
    yield npz("a directory of 64 bits", lambda: zip64(good))
    for name, place, length in (
        ("packed size", 20, 4),
        ("unpacked size", 24, 4),
        ("check sum", 16, 4),
        ("offset", 42, 4),
    ):
        for value in (0, 7, 2**31, 2**32 - 1):
            yield npz(
                f"a record's {name} of {value}",
                lambda p=place, n=length, v=value: lying(good, p, n, v),  # type: ignore[misc] # binds the loop variable
                is_accepted=None,
            )
    for name, place, length in (
        ("length of a name", 28, 2),
        ("length of more", 30, 2),
        ("length of a comment", 32, 2),
        ("disk", 34, 2),
    ):
        yield npz(f"a record's {name} of 65,535", lambda p=place, n=length: lying(good, p, n, 65_535), is_accepted=None)  # type: ignore[misc] # binds the loop variable
    for name, place, length in (("packed size", 18, 4), ("unpacked size", 22, 4), ("length of a name", 26, 2)):
        yield npz(
            f"a member's own {name} lies",
            lambda p=place, n=length: lying(good, p, n, 60_000, of=b"PK\3\4"),  # type: ignore[misc] # binds the loop variable
            is_accepted=None,
        )
    for name, place, length in (("count", 10, 2), ("size", 12, 4), ("offset", 16, 4), ("comment", 20, 2)):
        yield npz(
            f"the directory's {name} lies",
            lambda p=place, n=length: lying(good, p, n, 60_000, of=b"PK\5\6"),  # type: ignore[misc] # binds the loop variable
            is_accepted=None,
        )
    for method in (1, 9, 12, 14, 93, 99):
        yield npz(f"the packing {method}", lambda m=method: lying(good, 10, 2, m))  # type: ignore[misc] # binds the loop variable
    yield npz("encrypted", lambda: lying(good, 8, 2, 1))
    yield npz("nothing but an end", lambda: b"PK\5\6" + bytes(18))
    yield npz("ends without end", lambda: b"PK\5\6" * 2**20)
    yield npz("no zip", lambda: b"PK\3\4" + bytes(1000))


def _twice() -> bytes:
    """Return a zip file with a repeated member."""
    return named("data.npy", "dat2.npy").replace(b"dat2", b"data")
