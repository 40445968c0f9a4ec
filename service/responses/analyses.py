"""Response with the result of an analysis: all of it as JSON, arrays as npz, the main array as npy, or a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from service.encoding.arrays import CSV, JSON, NPY, NPZ, Array, Dtype, ResultTable, matrix_columns, with_ids
from service.encoding.media_types import ARROW
from service.encoding.result import (
    TABLES,
    ArraysResult,
    Selection,
    immutable_headers,
    negotiate,
    reject_slice,
    scale_headers,
    unless_current,
)
from service.schemas.analyses import embedding_links
from worker.analyses.audit import NEIGHBORS_PREFIX
from worker.analyses.embedding import MAP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastapi import Request
    from fastapi.responses import Response

    from worker.analyses.base import AnalysisSpec
    from worker.records.cache_entry import Entry
    from worker.stores import Stores

# Arrays of a summary with one row per draw. JSON has them as `spectrum`, where null stands for an unknown gap.
_SPECTRUM = ("eigenvalues", "relative_gaps", "agreement")


@dataclass(frozen=True)
class ResultQuery:
    """What a request for a result asks for: the headers of `request`, and its query parameters.

    `ids` returns the ids of the points, for a table, or None if they have none. `notes` are warnings about the scale of
    the draws. `is_partial` says that the job still runs: clients must not store such a result, because it will change.
    """

    request: Request
    dtype: Dtype
    points: str | None = None
    draws: str | None = None
    ids: Callable[[], Array | None] = lambda: None
    is_partial: bool = False
    notes: Sequence[dict[str, Any]] = ()


def media_types(spec: AnalysisSpec, entry: Entry) -> tuple[str, ...]:
    """Return the media types in which the result of an analysis is available, JSON first."""
    tables = (ARROW, CSV) if entry.arrays else ()
    return (JSON, *((NPZ,) if entry.arrays else ()), *((NPY,) if spec.main else ()), *tables)


def ids_of(stores: Stores, subject: str, spec: AnalysisSpec | None = None) -> Callable[[], Array | None]:
    """Return a function that, when called, returns the ids of a result's points, or None if the points have no ids.

    If the analysis `spec` names a data set, such as one with new points, these are the ids of that data set. Otherwise,
    and for draws, which have no `spec`, they are the ids of the posterior's data; `subject` is the posterior's id.
    """

    def read() -> Array | None:
        dataset = getattr(spec, "dataset", None)
        if dataset is None:
            record = stores.posteriors.get(subject)
            dataset = None if record is None else record.dataset
        return None if dataset is None else stores.datasets.ids_of(dataset)

    return read


def result_response(spec: AnalysisSpec, entry: Entry, query: ResultQuery) -> Response:
    """Return the response with a result, or a slice of it, in the negotiated media type, or 304.

    Raises `ProblemError`, for example ``not-acceptable``, ``float32-overflow`` or ``slice-out-of-range``.
    """
    media = negotiate(query.request, media_types(spec, entry))
    stored = {
        name: array for name, array in entry.arrays.items() if name in _SPECTRUM or name.startswith(NEIGHBORS_PREFIX)
    }
    arrays = {name: array for name, array in entry.arrays.items() if name not in stored and not name.startswith(MAP)}
    selected = _slice(spec, arrays, query)
    ids = query.ids() if media in TABLES else None
    tag = selected.tag if ids is None else f"{selected.tag} ids".strip()
    headers = immutable_headers(entry.meta["sha256"], media, query.dtype, tag)
    headers |= _scale_headers(spec, entry, query.notes)
    headers |= {"Cache-Control": "no-store"} if query.is_partial else {}
    members = {name: value for name, value in entry.meta.items() if name != "sha256"}
    if spec.kind == "comparison":
        members["rows"] = [
            {**row, "links": embedding_links(row["embedding"], members["dataset"]) if row["embedding"] else {}}
            for row in members["rows"]
        ]
    if spec.kind == "summary" and media == JSON:
        members["spectrum"] = {
            name: np.where(np.isnan(array), None, array).tolist()  # type: ignore[call-overload] # None makes objects
            for name, array in stored.items()
        }
    if spec.kind == "weights" and media not in {NPY, NPZ}:
        selected = replace(selected, arrays=_triples(selected))
    result = ArraysResult(
        arrays=selected.arrays,
        stored=stored,
        main=spec.main,
        members=members.items(),
        has_names=True,
        table=lambda: _table(spec, selected, query.dtype, ids),
    )
    return unless_current(query.request, headers, lambda: result.response(media, query.dtype, headers))


def _scale_headers(spec: AnalysisSpec, entry: Entry, notes: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return Glle-Scale for a summary or weights, and Glle-Notes if there are warnings about the calibrated scale."""
    if spec.kind == "weights":
        return scale_headers([entry.meta["scale"]], notes)
    if spec.kind == "summary":
        return scale_headers([entry.meta["scale"]], entry.meta.get("calibration", {}).get("notes", ()))
    return scale_headers((), entry.meta.get("notes", ())) if spec.kind == "calibration" else {}


@dataclass(frozen=True)
class _Slice:
    """The arrays of a result for the selected points and, for generated data, the selected draws."""

    arrays: dict[str, Array]
    points: Selection
    draws: Selection | None = None

    @property
    def tag(self) -> str:
        """Text that identifies the selection in the ETag; empty if everything is selected."""
        return " ".join(filter(None, (self.draws.tag if self.draws else "", self.points.tag)))


def _slice(spec: AnalysisSpec, arrays: dict[str, Array], query: ResultQuery) -> _Slice:
    """Return the parts of `arrays` that the query selects: some of the points, and of generated data some of the draws.

    Raises `ProblemError` if the query selects along an axis that the arrays do not have.
    """
    if spec.kind == "reconstructions":
        data = arrays["data"]
        draws = Selection.from_query(query.draws, data.shape[0], "draws")
        points = Selection.from_query(query.points, data.shape[1], "points")
        return _Slice({"data": points.select(draws.select(data), axis=1)}, points, draws)
    reject_slice("draws", query.draws)
    if not arrays:
        reject_slice("points", query.points)
        return _Slice({}, Selection.from_query(None, 0, "points"))
    points = Selection.from_query(query.points, len(next(iter(arrays.values()))), "points")
    return _Slice({name: points.select(array) for name, array in arrays.items()}, points)


def _triples(selected: _Slice) -> dict[str, Array]:
    """Return a sparse matrix of weights as three vectors of equal length: rows, columns and values."""
    weights, neighbors = selected.arrays["weights"], selected.arrays["neighbors"]
    rows = np.array(selected.points.positions, np.int64).repeat(weights.shape[1])
    return {"rows": rows, "columns": neighbors.reshape(-1), "values": weights.reshape(-1)}


def _table(spec: AnalysisSpec, selected: _Slice, dtype: Dtype, ids: Array | None) -> ResultTable:
    """Return a table with a row per point: ids, the number of the point, and the columns of each array.

    The column of a vector is `name`; a matrix has columns such as `name_1`, and an array with a matrix for each point
    has columns such as `name_1_2`. Weights have a row for each pair of a point and its neighbor.
    """
    if spec.kind == "weights":
        return ResultTable.from_columns({name[:-1]: array for name, array in selected.arrays.items()}, dtype)
    numbers = np.array(selected.points.positions, np.int64)
    if selected.draws is not None:
        return _generated_table(spec.to_dict()["first"], selected, numbers, dtype)
    columns = {"point": numbers}
    for name, array in selected.arrays.items():
        for indices in np.ndindex(array.shape[1:]):
            columns["_".join([name, *(str(index + 1) for index in indices)])] = array[(slice(None), *indices)]
    return ResultTable.from_columns(with_ids(columns, None if ids is None else selected.points.select(ids)), dtype)


def _generated_table(first: int, selected: _Slice, numbers: Array, dtype: Dtype) -> ResultTable:
    """Return a table with a row for each point of each generated data set, and columns draw, point, x1 to xd.

    `first` is the index of the first draw.
    """
    assert selected.draws is not None
    data = selected.arrays["data"]
    kinds = [("draw", np.dtype(np.uint64)), ("point", np.dtype(np.int64))]
    columns = [*kinds, *((f"x{i}", np.dtype(dtype)) for i in range(1, data.shape[2] + 1))]
    parts = (
        [np.full(len(numbers), first + draw, np.uint64), numbers, *matrix_columns(matrix, "x").values()]
        for draw, matrix in zip(selected.draws.positions, data, strict=True)
    )
    return ResultTable(columns, parts)
