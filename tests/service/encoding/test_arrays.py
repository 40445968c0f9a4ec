"""Arrays in responses."""

from __future__ import annotations

import asyncio
import io
import json
import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fastapi import Request

from service.encoding import arrays
from service.encoding.arrays import _PIECE_BYTES, JSON, NPY, NPZ, NpyResponse, Stack, check_float32
from service.encoding.result import ArraysResult, negotiate
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator


def stacked(whole: np.ndarray[Any, Any], axes: int, dtype: str = "float64") -> Stack:
    """Return an array as a stack with `axes` leading axes."""
    lead, trail = whole.shape[:axes], whole.shape[axes:]
    return Stack(lead, trail, np.dtype(dtype), list(whole.reshape(math.prod(lead), *trail)))


@pytest.mark.parametrize("axes", [0, 1, 2])
@pytest.mark.parametrize("shape", [(2, 3, 7, 2), (1, 1, 1, 1), (2, 1, 5, 3), (3, 2, 0, 2)])
def test_every_representation_is_the_array(axes: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """npy, npz and JSON of a stack equal those of the array, for any size of pieces."""
    monkeypatch.setattr(arrays, "_PIECE_BYTES", 40)
    monkeypatch.setattr(arrays, "_JSON_VALUES", 5)
    whole = np.random.default_rng(0).normal(size=shape[-axes - 2 :])
    expected = whole.reshape(shape[2 - axes :])
    stack = stacked(expected, axes)
    buffer = io.BytesIO()
    np.save(buffer, expected)
    assert stack.npy_header() + b"".join(stack.pieces()) == buffer.getvalue()
    assert json.loads(b"".join(stack.json())) == expected.tolist()
    packed = b"".join(arrays.npz_pieces({"x": stack, "y": Stack.of(np.arange(3))}))
    with np.load(io.BytesIO(packed)) as loaded:
        np.testing.assert_array_equal(loaded["x"], expected)
        np.testing.assert_array_equal(loaded["y"], np.arange(3))


def test_float32_is_rounded_once() -> None:
    """float32 of float64 is the nearest one; integers stay."""
    values = np.array([[0.1, 1 / 3]])
    stack = Stack.of(values, "float32")
    assert b"".join(stack.pieces()) == values.astype(np.float32).tobytes()
    assert np.array(json.loads(b"".join(stack.json())), np.float32).tobytes() == values.astype(np.float32).tobytes()
    assert Stack.of(np.arange(3), "float32").dtype == np.int64


def test_text_labels_travel_without_pickle() -> None:
    """An array of strings loads without pickle."""
    labels = np.array(["ü", "bb"])
    packed = b"".join(arrays.npz_pieces({"labels": Stack.of(labels)}))
    with np.load(io.BytesIO(packed), allow_pickle=False) as loaded:
        assert loaded["labels"].tolist() == labels.tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_json_of_nan_is_an_error_never_null(value: float, dtype: str) -> None:
    """A non-finite value aborts the response, in any block."""
    values = np.zeros((arrays._JSON_VALUES + 1, 1), dtype)
    values[-1] = value
    with pytest.raises(ValueError, match="JSON compliant"):
        b"".join(Stack.of(values).json())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_json_reads_back_to_the_same_bits(dtype: str) -> None:
    """Random bit patterns, subnormal numbers and signed zeros come back as the same doubles."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**64, 40_000, np.uint64).view(dtype)
    edges = [0.0, -0.0, 5e-324, np.finfo(dtype).max, np.finfo(dtype).tiny, 1e-7, 1e16, 1e22, 0.1]
    with np.errstate(under="ignore"):
        values = np.concatenate([bits[np.isfinite(bits)], np.array(edges).astype(dtype)])
    read = np.array(json.loads(b"".join(Stack.of(values).json())))
    assert read.tobytes() == values.astype(np.float64).tobytes()


@pytest.mark.parametrize(
    "values",
    [
        np.arange(-3, 4),
        np.array([[2**64 - 1, 0]], np.uint64),
        np.array([True, False]),
        np.array(["ü", 'quote"', "\ud800"]),
        np.arange(12.0).reshape(6, 2)[::-2, ::-1],
    ],
    ids=["integers", "unsigned", "booleans", "texts", "views"],
)
def test_json_of_other_arrays_is_their_list(values: np.ndarray[Any, Any]) -> None:
    """Integers, booleans, texts and views that are not contiguous become lists."""
    assert json.loads(b"".join(Stack.of(values).json())) == values.tolist()


def test_json_is_sent_in_few_pieces_of_bounded_size() -> None:
    """A small response is one piece; pieces of a large one stay near a megabyte."""

    async def pieces(values: np.ndarray[Any, Any], *more: tuple[str, Any]) -> list[bytes]:
        response = ArraysResult(arrays={"x": values}, main="x", members=more).response(JSON, "")
        return [bytes(piece) async for piece in response.body_iterator]  # type: ignore[arg-type] # bytes alone

    large = np.random.default_rng(2).normal(size=(200_000, 2))
    (small,) = asyncio.run(pieces(large[:5000], ("color", large[:5000, 0]), ("names", ["a", None])))
    assert json.loads(small)["color"] == large[:5000, 0].tolist()
    assert json.loads(small)["names"] == ["a", None]
    parts = asyncio.run(pieces(large))
    assert json.loads(b"".join(parts))["data"] == large.tolist()
    assert len(parts) > 5
    assert max(map(len, parts)) < 1.5 * arrays._PIECE_BYTES


def test_matrices_in_memory_are_sent_without_a_thread() -> None:
    """The event loop reads them piece by piece; a thread reads others. The bytes are the same."""
    values = np.arange(6.0 * _PIECE_BYTES / 8).reshape(6, -1, 2)
    threads: list[int] = []

    def matrices() -> Iterator[np.ndarray[Any, Any]]:
        for matrix in values:
            threads.append(threading.get_ident())
            yield matrix

    async def sent(*, is_resident: bool) -> bytes:
        stack = Stack((6,), values.shape[1:], values.dtype, matrices(), is_resident=is_resident)
        return b"".join(
            [memoryview(part) async for part in NpyResponse(stack).body_iterator if not isinstance(part, str)]
        )

    bodies = [asyncio.run(sent(is_resident=is_resident)) for is_resident in (True, False)]
    np.testing.assert_array_equal(np.load(io.BytesIO(bodies[0])), values)
    assert bodies[0] == bodies[1]
    assert set(threads[:6]) == {threading.get_ident()}
    assert threading.get_ident() not in threads[6:]


def test_float32_overflow_is_refused() -> None:
    """A value beyond float32 is a problem, not an infinity."""
    check_float32(np.array([[3e38]]))
    with pytest.raises(ProblemError, match="float32"):
        check_float32(np.array([[0.0], [1e39]]))


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, JSON),
        ("*/*", JSON),
        ("application/x-npy", NPY),
        ("application/zip, application/json;q=0.5", NPZ),
        ("application/json;q=0.5, application/x-npy;q=0.9", NPY),
        ("text/html, application/*;q=0.1", JSON),
        ("APPLICATION/X-NPY", NPY),
        ("application/json;q=oops, application/x-npy", NPY),
    ],
)
def test_negotiation(accept: str | None, expected: str) -> None:
    """The best accepted type wins; the first offered type breaks ties."""
    assert negotiate(request(accept), (JSON, NPY, NPZ)) == expected


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "", "image/*"])
def test_nothing_acceptable_is_406_with_the_list(accept: str) -> None:
    """The problem lists the offered types."""
    with pytest.raises(ProblemError) as caught:
        negotiate(request(accept), (JSON, NPY))
    assert caught.value.problem.status == 406
    assert caught.value.problem.details == {"offered": [JSON, NPY]}


def request(accept: str | None) -> Request:
    """Return a request with this Accept header."""
    headers = [] if accept is None else [(b"accept", accept.encode())]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})
