"""`/v1/datasets`: upload, list, read back, delete."""

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import redis
from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine import manifolds
from service.encoding.arrays import (
    CSV,
    JSON,
    NPY,
    NPZ,
    Dtype,
    NpyResponse,
    Stack,
    check_float32,
    json_response,
    negotiate,
    npz_response,
)
from service.encoding.arrow import ARROW, PARQUET
from service.encoding.selection import Points, Selection
from service.encoding.tables import Table as Columns
from service.encoding.tables import matrix_columns, table_response
from service.responses.conditional import RANGE_RESPONSES, immutable_headers, is_not_modified
from service.schemas.labels import PATCH_BODY, NameFilter, NamingIn, TagFilter
from service.schemas.problems import documented
from service.schemas.resources import DatasetOut, DatasetPage, SyntheticIn
from service.submission.dependencies import Here, delete_posterior_of
from service.submission.idempotency import IN_USE, Answers, Key, content_digest, remembered
from service.submission.pagination import Cursor, Limit, listed, position
from service.submission.validation import require_dataset
from service.uploads.registry import Apart, Limits, reader_of
from service.uploads.spool import received
from worker.base.problems import refuse
from worker.records.labels import is_called
from worker.storage.datasets import Array, Dataset, Table
from worker.storage.disk_space import require_room
from worker.stores import Stores

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

_MEDIA = (JSON, NPY, NPZ, ARROW, CSV)
_BODIES = {
    **{media: {"schema": {"type": "string", "format": "binary"}} for media in (NPY, NPZ, ARROW, PARQUET)},
    "text/csv": {"schema": {"type": "string"}, "example": "x,y,z\n1.0,2.0,3.0\n"},
    "application/json": {
        "schema": {"type": ["array", "object"]},
        "example": {"data": [[1.0, 2.0], [3.0, 4.0]], "names": ["x", "y"], "labels": ["a", "b"], "color": [0.5, 2.0]},
    },
}
_CREATED: dict[int | str, dict[str, Any]] = {
    200: {"model": DatasetOut, "description": "Known already: the same content is the same data set."},
    201: {"model": DatasetOut, "description": "Stored."},
}


@router.post(
    "",
    summary="Upload a data set",
    status_code=201,
    response_model=DatasetOut,
    responses={
        **_CREATED,
        **documented(
            _409=IN_USE,
            _413="Longer than GLLE_MAX_BODY (JSON: GLLE_MAX_JSON).",
            _415="Not npy, npz, CSV, Arrow, Parquet or JSON; or pyarrow is not installed.",
            _422="Not a finite matrix: the row and the column are named.",
            _507="The disk is full, but for GLLE_DISK_RESERVE.",
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": _BODIES}},
)
async def upload(
    request: Request,
    here: Here,
    label: Annotated[
        str | None, Query(description="Column of labels: its name, in CSV also its number from 0, in npz a member.")
    ] = None,
    color: Annotated[str | None, Query(description="Column of numbers to colour the points by, likewise.")] = None,
    key: Key = None,
) -> Response:
    """Store an (n, d) matrix, one point a row, named by its content.

    Any real dtype will do (float32 stays float32, all else becomes float64). CSV may begin with a header of names. npz
    has the points as `data`, and may have `labels`, `color`, `coordinates` and `names`; in Arrow and Parquet the
    columns of numbers are the features. Missing values, NaN and infinity are refused with row and column, never
    dropped: the details count the rows that have one, and list the first 20.
    """
    kind, processes = request.headers.get("content-type", ""), request.app.state.readers
    reader = reader_of(kind, request.headers.get("content-encoding", ""), here.settings)
    incoming = Path(here.settings.data_dir) / "incoming"
    async with received(request, incoming, reader.cap, here.settings.disk_reserve) as file:
        is_safe = os.fstat(file.fileno()).st_size <= reader.safe
        read = reader.read if is_safe else partial(processes.read, kind)

        def stored() -> tuple[Dataset, bool]:
            return _added(here, read(file, Limits.of(here.settings), Apart(label, color)))

        asked = await run_in_threadpool(_upload_asked, request, file) if key is not None else ("", "")
        async with contextlib.nullcontext() if is_safe else processes.turn():
            return _stored(*await run_in_threadpool(remembered, here, key, asked, stored, _answers(here)))


@router.post(
    "/synthetic",
    summary="Make a synthetic data set",
    status_code=201,
    response_model=DatasetOut,
    responses={
        **_CREATED,
        **documented(
            _409=IN_USE,
            _413="Body too long.",
            _415="Not JSON.",
            _422="A value out of range.",
            _507="The disk is full, but for GLLE_DISK_RESERVE.",
        ),
    },
)
def synthetic(body: SyntheticIn, here: Here, key: Key = None) -> Response:
    """Sample one of the sheets of the literature; the true coordinates are kept with it."""
    Limits.of(here.settings).check((body.n, 3))

    def sampled() -> tuple[Dataset, bool]:
        sheet = manifolds.make(body.name, body.n, noise=body.noise, seed=body.seed)
        source = {"kind": "synthetic", **body.model_dump()}
        return _added(here, Table(values=sheet.X, coordinates=sheet.coordinates, source=source))

    asked = ("POST /v1/datasets/synthetic", body.model_dump())
    return _stored(*remembered(here, key, asked, sampled, _answers(here)))


@router.get("", summary="List data sets", response_model=DatasetPage, responses=documented(_422="Bad cursor."))
async def list_datasets(
    request: Request, here: Here, tag: TagFilter, name: NameFilter = None, limit: Limit = 20, cursor: Cursor = None
) -> Response:
    """List the data sets, the newest first; all, or those of a name and of tags.

    A page looks at 1,000 records at most: with a filter it may be short, or empty, and `next` goes on.
    """
    found = here.datasets.newest(position(cursor))
    called = ((at, one if is_called(one, name, tag) else None) for at, one in found)
    return await listed(
        request, called, limit, lambda items, at: DatasetPage(items=list(map(DatasetOut.of, items)), next=at)
    )


@router.get("/{id}", summary="Describe a data set", responses=documented(_404="None."))
def get_dataset(id: str, here: Here) -> DatasetOut:  # noqa: A002 # the name in the path
    """Tell shape, dtype, names and origin of a data set."""
    return DatasetOut.of(require_dataset(here, id))


@router.get(
    "/{id}/data",
    summary="Read a data set back",
    response_class=Response,
    responses={
        200: {"description": "The values.", "content": {media: {} for media in _MEDIA}},
        **RANGE_RESPONSES,
        **documented(
            _404="No such data set.",
            _406="No offered type is accepted.",
            _416="A Range behind the last byte.",
            _422="Beyond float32, or a slice that is out of range.",
        ),
    },
)
def get_data(
    id: str,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    dtype: Annotated[Dtype | None, Query(description="Convert the values; as stored unless told.")] = None,
    points: Points = None,
) -> Response:
    """Return the values, as stored or converted; immutable, with a strong ETag. npy answers Range.

    JSON and npz have the labels, colours and true coordinates that there are beside the values; CSV and Arrow, a row a
    point, the columns `label` and `color`; npy the values alone.
    """
    dataset = require_dataset(here, id)
    media = negotiate(request, _MEDIA)
    chosen = Selection.of(points, dataset.n, "points")
    headers = immutable_headers(dataset.sha256, media, dtype or dataset.dtype, chosen.tag)
    if is_not_modified(request, headers):
        return Response(status_code=304, headers=headers)
    values = chosen.take(here.datasets.values(id))
    if dtype == "float32" and values.dtype != np.float32:
        check_float32(values)
    stack = Stack.of(values, dtype)
    if media == NPY:
        return NpyResponse(stack, headers)
    beside = {name: chosen.take(array) for name, array in here.datasets.beside(dataset).items()}
    if media in {CSV, ARROW}:
        return table_response(_table(dataset, values, beside, dtype), media, headers)
    if media == NPZ:
        named = {} if dataset.names is None else {"names": np.array(dataset.names, np.str_)}
        return npz_response(
            {"data": stack, **{name: Stack.of(array) for name, array in (beside | named).items()}}, headers
        )
    more = [("names", dataset.names), *((name, array.tolist()) for name, array in beside.items())]
    return json_response(stack, more, headers)


@router.patch(
    "/{id}",
    summary="Name and tag a data set",
    responses=documented(
        _404="No such data set.", _413="Body too long.", _415="Not JSON.", _422="Too long, too many, or not known."
    ),
    openapi_extra=PATCH_BODY,
)
def rename_dataset(id: str, body: NamingIn, here: Here) -> DatasetOut:  # noqa: A002 # the name in the path
    """Give a name and tags by a JSON merge patch: null takes away, what is absent stays, tags are replaced as a whole.

    They are no part of the content: id and ETags stay.
    """
    return DatasetOut.of(here.datasets.rename(id, body.changes()))


@router.delete(
    "/{id}",
    summary="Delete a data set",
    status_code=204,
    responses=documented(_404="No such data set.", _409="Posteriors were fitted on it."),
)
def delete_dataset(
    id: str,  # noqa: A002 # the name in the path
    here: Here,
    *,
    force: Annotated[bool, Query(description="Delete its posteriors and their draws too.")] = False,
) -> Response:
    """Delete a data set.

    One that posteriors were fitted on is kept, because an evicted posterior is fitted again from it; with
    `force` the posteriors go with it.
    """
    require_dataset(here, id)
    posteriors = here.posteriors.of_dataset(id)
    if posteriors and not force:
        raise refuse(
            "dataset-in-use",
            409,
            f"{len(posteriors)} posteriors were fitted on data set {id}.",
            "Delete them first, or delete all with ?force=true.",
            posteriors=posteriors[:100],
        )
    _delete_posteriors(here, posteriors)
    here.datasets.delete(id)
    _delete_posteriors(here, here.posteriors.of_dataset(id))  # those whose fits ended meanwhile; no more can come
    here.cache.forget(id)
    return Response(status_code=204)


def _delete_posteriors(here: Stores, ids: list[str]) -> None:
    for id_ in ids:
        if (record := here.posteriors.get(id_)) is not None:
            delete_posterior_of(here, record)


def _table(dataset: Dataset, values: Array, beside: dict[str, Array], dtype: Dtype | None) -> Columns:
    """Return the values by their names, or x1 to xd, then `label` and `color`."""
    columns = matrix_columns(values, "x", dataset.names)
    kinds = [np.dtype(dtype or values.dtype)] * len(columns)
    for name, array in (("label", beside.get("labels")), ("color", beside.get("color"))):
        if array is not None:
            while name in columns:  # a feature has it
                name += "_"  # noqa: PLW2901 # until none has
            columns[name] = array
            kinds.append(array.dtype)  # as it is: dtype is of the values
    return Columns(list(zip(columns, kinds, strict=True)), [list(columns.values())])


def _upload_asked(request: Request, file: IO[bytes]) -> tuple[str, Any]:
    """Return what must be the same of two uploads with one key: how the bytes are to be read, and the bytes."""
    how = {name: request.headers.get(name, "") for name in ("content-type", "content-encoding")}
    return f"POST /v1/datasets?{request.url.query}", {**how, "sha256": content_digest(file)}


def _answers(here: Stores) -> Answers[tuple[Dataset, bool]]:
    """Return how a data set and whether it was new are remembered: as its id, and a word for what was known."""

    def recall(name: str) -> tuple[Dataset, bool] | None:
        id_, _, known = name.partition(" ")
        found = here.datasets.get(id_)
        return None if found is None else (found, not known)

    return Answers(name=lambda made: made[0].id if made[1] else f"{made[0].id} known", recall=recall)


def _added(here: Stores, table: Table) -> tuple[Dataset, bool]:
    """Store a table, and begin to note what will be cached about it; return its record and whether it is new."""
    require_room(Path(here.settings.data_dir), 8 * table.values.size, here.settings.disk_reserve)
    dataset, new = here.datasets.add(table)
    if new:
        with contextlib.suppress(redis.RedisError):  # then deleting it looks through the whole cache
            here.cache.begin(dataset.id)
    return dataset, new


def _stored(dataset: Dataset, new: bool) -> Response:  # noqa: FBT001 # the pair that `add` returns
    body = DatasetOut.of(dataset).model_dump_json()
    headers = {"Location": f"/v1/datasets/{dataset.id}"}
    return Response(body, 201 if new else 200, headers, "application/json")
