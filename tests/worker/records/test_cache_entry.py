"""The bytes of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from worker.records.cache_entry import ALIGNMENT_BYTES, Entry, entry_parts, parse_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
ARRAYS: Arrays = {
    "strided": np.arange(20.0).reshape(4, 5)[:, ::2],
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "flags": np.array([True, False]),
    "large": np.random.default_rng(0).normal(size=70_001),
}
DTYPES = st.one_of(
    st_numpy.boolean_dtypes(),
    st_numpy.integer_dtypes(),
    st_numpy.unsigned_integer_dtypes(),
    st_numpy.floating_dtypes(),
    st_numpy.complex_number_dtypes(),
    st_numpy.unicode_string_dtypes(min_len=1, max_len=5),
)
NAMED = st.dictionaries(
    st.text(max_size=5), st_numpy.arrays(DTYPES, st_numpy.array_shapes(min_dims=0, min_side=0, max_side=5)), max_size=4
)


def written(meta: dict[str, Any], arrays: Arrays) -> bytes:
    """Return the bytes of an entry."""
    return b"".join(entry_parts(Entry(meta, arrays)))


def require_equal(entry: Entry | None, meta: dict[str, Any], arrays: Mapping[str, Any]) -> None:
    """Compare names in their order, dtypes, shapes and bits."""
    assert entry is not None
    assert (entry.meta, list(entry.arrays)) == (meta, list(arrays))
    for name, array in arrays.items():
        stored = entry.arrays[name]
        assert (stored.dtype, stored.shape, stored.tobytes()) == (array.dtype, array.shape, array.tobytes()), name


@settings(max_examples=60)
@given(arrays=NAMED, word=st.text(max_size=100))
def test_every_array_comes_back(arrays: Arrays, word: str) -> None:
    """An entry comes back whatever its arrays and metadata are."""
    meta = {"word": word, "more": [1, None, 0.1 + 0.2]}
    require_equal(parse_entry(memoryview(written(meta, arrays))), meta, arrays)


def test_the_arrays_of_an_entry_are_aligned_read_only_views() -> None:
    """The arrays are read without a copy, whatever their sizes and memory orders are."""
    data = memoryview(written({"a": 1}, ARRAYS))
    entry = parse_entry(data)
    require_equal(entry, {"a": 1}, ARRAYS)
    whole = np.frombuffer(data, np.uint8)
    for name, array in entry.arrays.items():
        if array.size:
            assert np.shares_memory(array, whole), name
            offset = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
            assert offset % ALIGNMENT_BYTES == 0, name
            assert not array.flags.writeable, name
    assert len(data) % ALIGNMENT_BYTES == 0


def test_metadata_must_be_finite() -> None:
    """NaN in the metadata is an error, and does not become null."""
    with pytest.raises(ValueError, match="JSON compliant"):
        entry_parts(Entry({"x": float("nan")}, {}))


@pytest.mark.parametrize("size", [0, 4, 50, -1 - ALIGNMENT_BYTES])
def test_short_bytes_are_no_entry(size: int) -> None:
    """Bytes that end within the head or within an array are an error."""
    with pytest.raises(ValueError, match=r"."):
        parse_entry(memoryview(written({"a": 1}, {"x": np.arange(30.0)})[:size]))
