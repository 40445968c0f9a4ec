"""The result of an analysis on the wire: JSON of everything, npz of its arrays, npy of the main one, or a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi.responses import Response

from service.encoding.arrays import (
    CSV,
    JSON,
    NPY,
    NPZ,
    Array,
    Dtype,
    Stack,
    check_float32,
    members_response,
    negotiate,
    npy_response,
    npz_response,
)
from service.encoding.arrow import ARROW
from service.encoding.selection import Selection, reject_slice
from service.encoding.tables import Table, matrix_columns, table_response
from service.responses.conditional import immutable_headers, is_not_modified, scale_header
from service.schemas.embeddings import embedding_links

if TYPE_CHECKING:
    from fastapi import Request

    from worker.analyses.base import AnalysisSpec
    from worker.storage.array_cache import Entry

# Of a summary, a row a draw. In JSON they are its `spectrum`, where null says that a gap is not known.
_SPECTRUM = ("eigenvalues", "relative_gaps", "agreement")


@dataclass(frozen=True)
class ResultQuery:
    """How a result is asked for: negotiation and validators in the request, the rest in the query."""

    request: Request
    dtype: Dtype
    points: str | None = None
    draws: str | None = None


def offered(spec: AnalysisSpec, entry: Entry) -> tuple[str, ...]:
    """Return the media types of a result."""
    tables = (ARROW, CSV) if entry.arrays else ()
    return (JSON, *((NPZ,) if entry.arrays else ()), *((NPY,) if spec.main else ()), *tables)


def result_response(spec: AnalysisSpec, entry: Entry, wanted: ResultQuery) -> Response:
    """Return a result, or what is wanted of it, in one of the media types it is offered in; 304 to who has it.

    Raises
    ------
    ProblemError
        ``not-acceptable``, ``float32-overflow``, ``slice-out-of-range`` and the like.

    """
    media = negotiate(wanted.request, offered(spec, entry))
    spectrum = {name: entry.arrays[name] for name in _SPECTRUM if name in entry.arrays}
    whole = {name: array for name, array in entry.arrays.items() if name not in spectrum}
    part = _chosen(spec, whole, wanted)
    headers = immutable_headers(entry.meta["sha256"], media, wanted.dtype, part.tag)
    if spec.kind == "summary":
        headers |= scale_header(entry.meta["scale"])
    if is_not_modified(wanted.request, headers):
        return Response(status_code=304, headers=headers)
    if wanted.dtype == "float32":
        for array in part.arrays.values():
            check_float32(array)
    if media in {CSV, ARROW}:
        return table_response(_table(spec, part, wanted.dtype), media, headers)
    stacks = {name: Stack.of(array, wanted.dtype) for name, array in part.arrays.items()}
    if media == NPY:
        assert spec.main is not None
        return npy_response(stacks[spec.main], headers)
    if media == NPZ:
        return npz_response({**stacks, **{name: Stack.of(array) for name, array in spectrum.items()}}, headers)
    told = {name: value for name, value in entry.meta.items() if name != "sha256"}
    if spec.kind == "comparison":
        told["rows"] = [_linked(row, told["dataset"]) for row in told["rows"]]
    if spectrum:
        told["spectrum"] = {name: _with_nulls(array) for name, array in spectrum.items()}
    return members_response(told, stacks, headers)


@dataclass(frozen=True)
class _Part:
    """The arrays of some of the points and, of generated data, of some of the draws."""

    arrays: dict[str, Array]
    points: Selection
    draws: Selection | None = None

    @property
    def tag(self) -> str:
        """Which they are, for the ETag."""
        return " ".join(filter(None, (self.draws.tag if self.draws else "", self.points.tag)))


def _chosen(spec: AnalysisSpec, arrays: dict[str, Array], wanted: ResultQuery) -> _Part:
    """Return what is wanted of the arrays."""
    if spec.kind == "reconstructions":
        data = arrays["data"]
        draws = Selection.of(wanted.draws, data.shape[0], "draws")
        points = Selection.of(wanted.points, data.shape[1], "points")
        return _Part({"data": points.take(draws.take(data), axis=1)}, points, draws)
    reject_slice("draws", wanted.draws)
    if not arrays:
        reject_slice("points", wanted.points)
        return _Part({}, Selection.of(None, 0, "points"))
    points = Selection.of(wanted.points, len(next(iter(arrays.values()))), "points")
    return _Part({name: points.take(array) for name, array in arrays.items()}, points)


def _table(spec: AnalysisSpec, part: _Part, dtype: Dtype) -> Table:
    """Return a row a point: its number, `name` of a vector, `name_1` of a matrix, `name_1_2` of a matrix a point."""
    numbers = np.array(part.points.positions, np.int64)
    if part.draws is not None:
        return _generated(spec.to_dict()["first"], part, numbers, dtype)
    columns = {"point": numbers}
    for name, array in part.arrays.items():
        for place in np.ndindex(array.shape[1:]):
            columns["_".join([name, *(str(index + 1) for index in place)])] = array[(slice(None), *place)]
    return Table.of(columns, dtype)


def _generated(first: int, part: _Part, numbers: Array, dtype: Dtype) -> Table:
    """Return a row for each point of each data set: draw, point, x1 to xd."""
    assert part.draws is not None
    data = part.arrays["data"]
    kinds = [("draw", np.dtype(np.uint64)), ("point", np.dtype(np.int64))]
    columns = [*kinds, *((f"x{i}", np.dtype(dtype)) for i in range(1, data.shape[2] + 1))]
    parts = (
        [np.full(len(numbers), first + draw, np.uint64), numbers, *matrix_columns(matrix, "x").values()]
        for draw, matrix in zip(part.draws.positions, data, strict=True)
    )
    return Table(columns, parts)


def _linked(row: dict[str, Any], dataset: str) -> dict[str, Any]:
    """Return a row of a comparison with the links of its embedding, where there is one."""
    return {**row, "links": embedding_links(row["embedding"], dataset) if row["embedding"] else {}}


def _with_nulls(array: Array) -> list[Any]:
    """Return a small array as lists, NaN as None."""
    return np.where(np.isnan(array), None, array).tolist()  # type: ignore[no-any-return, call-overload] # None makes it an array of objects
