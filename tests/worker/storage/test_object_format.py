"""Layout of a stored object, and arrays that are read in slices."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from worker.records.cache_entry import Entry
from worker.storage.object_store import object_format
from worker.storage.object_store.object_format import CorruptObjectError, LazyArray, ObjectHead, Payload, pack_object

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = st.sampled_from([np.dtype(kind) for kind in ("<f8", "<f4", "<i8", "u1", "?", ">f8")])
ARRAYS = DTYPES.flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=5))
)
ENTRIES = st.dictionaries(st.text("abc", min_size=1, max_size=3), ARRAYS, max_size=4)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set blocks of 64 bytes, so that small arrays have several."""
    monkeypatch.setattr(object_format, "BLOCK", 64)


def raw_of(entry: Entry) -> bytes:
    """Encode an entry as an object."""
    return b"".join(pack_object("result:post_a:x", entry))


def read(raw: bytes) -> Entry:
    """Decode and verify an object, as the store does."""
    payload = Payload(raw, lambda start, stop: raw[start:stop], lambda: None)
    return Entry(
        payload.head.meta,
        {name: np.asarray(LazyArray(payload, payload.head.arrays[name])) for name in payload.head.arrays},
    )


@settings(max_examples=20)
@given(ENTRIES)
def test_encoding_and_decoding_restore_an_entry(arrays: dict[str, Array]) -> None:
    """Every bit of every shape and dtype is restored, in the order of the arrays."""
    entry = read(raw_of(Entry({"a": [1, "b"]}, arrays)))
    assert entry.meta == {"a": [1, "b"]}
    assert list(entry.arrays) == list(arrays)
    for name, array in arrays.items():
        decoded = entry.arrays[name]
        assert (decoded.dtype, decoded.shape, decoded.tobytes()) == (array.dtype, array.shape, array.tobytes())


@example({"a": np.array(0.0), "b": np.array(0.0)}, None)  # a payload of two blocks
@settings(max_examples=20)
@given(ENTRIES, st.data())
def test_a_torn_object_is_never_read(arrays: dict[str, Array], data: st.DataObject | None) -> None:
    """A cut or a flipped bit at any position is detected; also a cut between two blocks."""
    raw = raw_of(Entry({"a": 1}, arrays))
    place = len(raw) - object_format.BLOCK if data is None else data.draw(st.integers(0, len(raw) - 1))
    changed = bytearray(raw)
    changed[place] ^= 1 << (0 if data is None else data.draw(st.integers(0, 7)))
    for torn in (raw[:place], bytes(changed)):
        with pytest.raises(CorruptObjectError):
            read(torn)


def test_an_object_of_another_layout_is_not_read() -> None:
    """The magic bytes name the layout."""
    with pytest.raises(CorruptObjectError):
        ObjectHead.read(raw_of(Entry({}, {})).replace(b"GLLEOBJ1", b"GLLEOBJ2"))


class CountingObject:
    """An object that counts its reads."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.bytes = 0

    def read(self, start: int, stop: int) -> bytes:
        """Read bytes and count them."""
        self.bytes += stop - start
        return self.raw[start:stop]

    def array(self, name: str) -> Array:
        """Return a lazy array of the object."""
        payload = Payload(self.raw[: ObjectHead.read(self.raw).start], self.read, lambda: None)
        return cast("Array", LazyArray(payload, payload.head.arrays[name]))


@st.composite
def slices(draw: st.DrawFn, size: int) -> slice:
    """Return a non-empty slice of an axis."""
    start = draw(st.integers(0, size - 1))
    return slice(start, draw(st.integers(start + 1, size)))


def test_repeated_positions_are_repeated() -> None:
    """As many rows as lie between the first and the last position are not those rows."""
    array = np.arange(8.0).reshape(1, 4, 2)
    lazy = CountingObject(raw_of(Entry({}, {"x": array}))).array("x")
    np.testing.assert_array_equal(np.asarray(np.take(lazy, [1, 1, 3], 1)), array[:, [1, 1, 3]])
    np.testing.assert_array_equal(np.asarray(np.take(lazy[:1], [1, 1, 3], 1)), array[:, [1, 1, 3]])


@settings(max_examples=20)
@given(st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 3)), st.data())
def test_slices_equal_those_of_numpy(shape: tuple[int, int, int], data: st.DataObject) -> None:
    """Slices, index lists and single indices equal numpy's, for small and large rows."""
    array = np.random.default_rng(0).normal(size=shape)
    lazy = CountingObject(raw_of(Entry({}, {"x": array}))).array("x")
    first, second = data.draw(slices(shape[0])), data.draw(slices(shape[1]))
    places = data.draw(st.lists(st.integers(0, shape[1] - 1), min_size=1, max_size=4))
    for sliced, expected in (
        (lazy, array),
        (lazy[first], array[first]),
        (lazy[:, second][first], array[:, second][first]),
        (np.take(lazy, places, 1), np.take(array, places, 1)),
        (np.take(lazy[first], places, 1)[:, :1], np.take(array[first], places, 1)[:, :1]),
        (lazy[first][:, :, -1], array[first][:, :, -1]),
        (next(iter(lazy))[second], array[0][second]),
    ):
        assert sliced.shape == expected.shape
        np.testing.assert_array_equal(np.asarray(sliced), expected)
        assert np.asarray(sliced, np.float32).dtype == np.float32


def test_a_slice_reads_only_its_blocks() -> None:
    """Row slices and parts of large rows; blocks in memory are not read again."""
    array = np.arange(4000.0).reshape(10, 200, 2)
    counting = CountingObject(raw_of(Entry({}, {"x": array, "y": np.arange(4000.0)})))
    np.testing.assert_array_equal(np.asarray(counting.array("y")[100:110]), np.arange(100.0, 110.0))
    assert counting.bytes <= 3 * 64
    counting.bytes = 0
    lazy = counting.array("x")
    np.testing.assert_array_equal(np.asarray(lazy[:, 3:5]), array[:, 3:5])
    assert counting.bytes <= 10 * 2 * 64
    counting.bytes = 0
    np.testing.assert_array_equal(np.asarray(lazy[:, 3:5, 1]), array[:, 3:5, 1])
    assert counting.bytes == 0


def test_a_torn_block_is_detected_by_its_read() -> None:
    """Other blocks stay readable."""
    raw = bytearray(raw_of(Entry({}, {"x": np.arange(100.0)})))
    raw[-1] ^= 1
    lazy = CountingObject(bytes(raw)).array("x")
    assert np.asarray(lazy[:8]).tolist() == list(range(8))
    with pytest.raises(CorruptObjectError):
        np.asarray(lazy)
