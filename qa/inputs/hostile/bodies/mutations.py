"""Mutations of valid bodies: bytes changed, removed, moved, repeated, or replaced by other numbers."""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from qa.inputs.hostile.bodies.npy import X, deflated, headed, named, saved
from qa.inputs.hostile.bodies.tables import frame, packed, streamed, with_words

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS = [
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
_MAX_CHANGES = 5


@lru_cache
def good(reader: str) -> list[bytes]:
    """Return valid bodies of a reader."""
    words = pa.array(["a", "b", None, "d", "e", "f"])
    labels = np.array(["a", "bc", "d", "e"])
    text = json.dumps({"data": X.tolist(), "names": ["a", "b", "c"], "labels": [1, 2, 3, 4.5], "color": [0, 1, 2, 3]})
    return {
        "npy": [
            saved(X),
            saved(X.astype(">f4")),
            saved(np.asfortranarray(X)),
            headed(repr({"descr": "<f8", "fortran_order": False, "shape": X.shape}), X.tobytes(), version=2),
        ],
        "npz": [
            deflated(data=saved(X), labels=saved(labels), color=saved(X[:, 0])),
            named("X.npy", "names.npy"),
            deflated(X=saved(X)),
        ],
        "csv": [b"x,y,l\n1,2,3\n-4e5,0.5,6\n", b'"a ""b""","c\nd"\n1,2\n', b"\xef\xbb\xbf1,2\r\n3,4\r\n\r\n5,6\r\n"],
        "json": [text.encode(), json.dumps(X.tolist()).encode(), b'{"data": [[1e5, -0.0]]}'],
        "arrow": [streamed(frame(y=range(6))), streamed(with_words(6, ["a", "b"])), streamed(frame(l=words))],
        "parquet": [
            packed(frame(y=range(6))),
            packed(with_words(6, ["a", "b"]), compression="zstd"),
            packed(frame(500), compression="gzip"),
            packed(frame(l=words), data_page_version="2.0"),
        ],
    }[reader]


def bodies(reader: str) -> st.SearchStrategy[bytes]:
    """Return a hypothesis strategy of a reader's bodies, each mutated a few times."""
    return st.builds(
        _changed, st.sampled_from(good(reader)), st.lists(_changes(good(reader)), min_size=1, max_size=_MAX_CHANGES)
    )


def _changed(body: bytes, changes: list[Callable[[bytes], bytes]]) -> bytes:
    for change in changes:
        body = change(body)
    return body


def _changes(others: list[bytes]) -> st.SearchStrategy[Callable[[bytes], bytes]]:
    """Return a strategy of mutations; positions are fractions of the length."""
    place = st.floats(0, 1, exclude_max=True)
    few = st.integers(1, 64)
    return st.one_of(
        st.builds(_put, place, st.binary(min_size=1, max_size=4)),
        st.builds(_put, place, st.sampled_from(_NUMBERS).flatmap(_as_bytes)),
        st.builds(_cut, place),
        st.builds(_lost, place, few),
        st.builds(_moved, place, place, few),
        st.builds(_doubled, place, few, st.integers(2, 500)),
        st.builds(_spliced, place, place, st.sampled_from(others)),
    )


def _as_bytes(value: int) -> st.SearchStrategy[bytes]:
    """Return the binary encodings of a number."""
    wide = struct.pack("<Q", value % 2**64)
    return st.sampled_from([wide, wide[:4], wide[:2], wide[::-1], wide[:4][::-1], str(value).encode()])


def _put(place: float, what: bytes) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        start = int(place * len(body))
        return body[:start] + what + body[start + len(what) :]

    return change


def _cut(place: float) -> Callable[[bytes], bytes]:
    return lambda body: body[: int(place * len(body))] or body


def _lost(place: float, length: int) -> Callable[[bytes], bytes]:
    return lambda body: body[: int(place * len(body))] + body[int(place * len(body)) + length :] or body


def _moved(place: float, to: float, length: int) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        start = int(place * len(body))
        return _put(to, body[start : start + length])(body)

    return change


def _doubled(place: float, length: int, times: int) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        start = int(place * len(body))
        return body[:start] + body[start : start + length] * times + body[start + length :]

    return change


def _spliced(place: float, other_place: float, other: bytes) -> Callable[[bytes], bytes]:
    return lambda body: body[: int(place * len(body))] + other[int(other_place * len(other)) :]
