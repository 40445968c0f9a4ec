"""Arrays in requests and answers."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import httpx

NPY = {"accept": "application/x-npy"}
UPLOAD = {"content-type": "application/x-npy"}

Array = np.ndarray[Any, np.dtype[Any]]


def to_npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    """Return the npy file of an array."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def from_npy(body: bytes) -> Array:
    """Return the array of an npy file."""
    array: Array = np.load(io.BytesIO(body), allow_pickle=False)
    return array


def get_array(client: httpx.Client, path: str, **query: Any) -> Array:
    """Return the array that GET of the path answers; the status must be 200."""
    answer = client.get(path, headers=NPY, params=query or None)
    assert answer.status_code == 200, answer.text
    return from_npy(answer.content)
