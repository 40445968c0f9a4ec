"""The result of an analysis on the wire: JSON of everything, npz of its arrays, npy of the main one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from service.arrays import (
    JSON,
    NPY,
    NPZ,
    Array,
    Dtype,
    Stack,
    check_float32,
    members_response,
    npy_response,
    npz_response,
)

if TYPE_CHECKING:
    from fastapi.responses import StreamingResponse

    from worker.analyses import AnalysisSpec
    from worker.cache import Entry

# Of a summary, a row a draw. In JSON they are its `spectrum`, where null says that a gap is not known.
_SPECTRUM = ("eigenvalues", "relative_gaps", "agreement")


def offered(spec: AnalysisSpec, entry: Entry) -> tuple[str, ...]:
    """Return the media types of a result."""
    return (JSON, *((NPZ,) if entry.arrays else ()), *((NPY,) if spec.main else ()))


def result_response(
    spec: AnalysisSpec, entry: Entry, media: str, dtype: Dtype, headers: dict[str, str] | None = None
) -> StreamingResponse:
    """Return a result in one of the media types it is offered in.

    Raises
    ------
    ProblemError
        ``float32-overflow``.

    """
    spectrum = {name: entry.arrays[name] for name in _SPECTRUM if name in entry.arrays}
    arrays = {name: array for name, array in entry.arrays.items() if name not in spectrum}
    if dtype == "float32":
        for array in arrays.values():
            check_float32(array)
    stacks = {name: Stack.of(array, dtype) for name, array in arrays.items()}
    if media == NPY:
        assert spec.main is not None
        return npy_response(stacks[spec.main], headers)
    if media == NPZ:
        return npz_response({**stacks, **{name: Stack.of(array) for name, array in spectrum.items()}}, headers)
    told = {name: value for name, value in entry.meta.items() if name != "sha256"}
    if spectrum:
        told["spectrum"] = {name: _with_nulls(array) for name, array in spectrum.items()}
    return members_response(told, stacks, headers)


def _with_nulls(array: Array) -> list[Any]:
    """Return a small array as lists, NaN as None."""
    return np.where(np.isnan(array), None, array).tolist()  # type: ignore[no-any-return, call-overload] # None makes it an array of objects
