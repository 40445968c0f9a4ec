"""Points that came within a request: they are kept in the record of its job, and go with it."""

from __future__ import annotations

import base64
import io
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

POINTS, IS_INLINE = "inline", "is_inline"  # fields of the record: the points, and that there are some


def inline_fields(points: Array | None) -> dict[str, str]:
    """Return the fields of a job's record for its points (m, d), none where it has none.

    They are text, because records are; packed they take some tenth more than the request did.
    """
    if points is None:
        return {}
    buffer = io.BytesIO()
    np.save(buffer, points, allow_pickle=False)
    return {POINTS: base64.b64encode(zlib.compress(buffer.getvalue())).decode(), IS_INLINE: "1"}


def inline_points(raw: bytes | str) -> Array:
    """Return the points of a record."""
    array: Array = np.load(io.BytesIO(zlib.decompress(base64.b64decode(raw))), allow_pickle=False)
    return array
