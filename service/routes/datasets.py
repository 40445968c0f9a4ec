"""`/v1/datasets`: upload, list, read back, delete."""

from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine import manifolds
from service.arrays import (
    JSON,
    NPY,
    NPZ,
    Dtype,
    Stack,
    check_float32,
    json_response,
    negotiated,
    npy_response,
    npz_response,
)
from service.checks import require_dataset
from service.context import Here
from service.idempotency import IN_USE, Answers, Key, content_digest, remembered
from service.models import DatasetOut, DatasetPage, SyntheticIn
from service.paging import Cursor, Limit, page, position
from service.problems import documented
from service.readers import Limits, reader_of
from service.uploads import received
from worker.analyses import results_prefix
from worker.datasets import Dataset, Table
from worker.problems import refuse
from worker.stores import Stores

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

_BODIES = {
    "application/x-npy": {"schema": {"type": "string", "format": "binary"}},
    "text/csv": {"schema": {"type": "string"}, "example": "x,y,z\n1.0,2.0,3.0\n"},
    "application/json": {
        "schema": {"type": ["array", "object"]},
        "example": {"data": [[1.0, 2.0], [3.0, 4.0]], "names": ["x", "y"], "labels": ["a", "b"]},
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
            _415="Not npy, CSV or JSON.",
            _422="Not a finite matrix: the row and the column are named.",
            _507="The disk is full.",
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": _BODIES}},
)
async def upload(
    request: Request,
    here: Here,
    label: Annotated[str | None, Query(description="CSV: the column (name, or number from 0) of labels.")] = None,
    key: Key = None,
) -> Response:
    """Store an (n, d) matrix, one point a row, named by its content.

    npy may hold any real dtype (float32 stays float32, all else becomes float64). CSV may begin with a header
    of names. NaN and infinity are refused with their row and column, never dropped.
    """
    reader = reader_of(
        request.headers.get("content-type", ""), request.headers.get("content-encoding", ""), here.settings
    )
    async with received(request, Path(here.settings.data_dir) / "incoming", reader.cap) as file:

        def stored() -> tuple[Dataset, bool]:
            return here.datasets.add(reader.read(file, Limits.of(here.settings), label))

        asked = await run_in_threadpool(_upload_asked, request, file) if key is not None else ("", "")
        return _stored(*await run_in_threadpool(remembered, here, key, asked, stored, _answers(here)))


@router.post(
    "/synthetic",
    summary="Make a synthetic data set",
    status_code=201,
    response_model=DatasetOut,
    responses={
        **_CREATED,
        **documented(_409=IN_USE, _413="Body too long.", _415="Not JSON.", _422="A value out of range."),
    },
)
def synthetic(body: SyntheticIn, here: Here, key: Key = None) -> Response:
    """Sample one of the sheets of the literature; the true coordinates are kept with it."""
    Limits.of(here.settings).check((body.n, 3))

    def sampled() -> tuple[Dataset, bool]:
        sheet = manifolds.make(body.name, body.n, noise=body.noise, seed=body.seed)
        source = {"kind": "synthetic", **body.model_dump()}
        return here.datasets.add(Table(values=sheet.X, coordinates=sheet.coordinates, source=source))

    asked = ("POST /v1/datasets/synthetic", body.model_dump())
    return _stored(*remembered(here, key, asked, sampled, _answers(here)))


@router.get("", summary="List data sets", responses=documented(_422="Bad cursor."))
def list_datasets(here: Here, limit: Limit = 20, cursor: Cursor = None) -> DatasetPage:
    """List the data sets, the newest first."""
    items, following = page(here.datasets.newest(position(cursor)), limit)
    return DatasetPage(items=[DatasetOut.of(item) for item in items], next=following)


@router.get("/{id}", summary="Describe a data set", responses=documented(_404="None."))
def get_dataset(id: str, here: Here) -> DatasetOut:  # noqa: A002 # the name in the path
    """Tell shape, dtype, names and origin of a data set."""
    return DatasetOut.of(require_dataset(here, id))


@router.get(
    "/{id}/data",
    summary="Read a data set back",
    response_class=Response,
    responses={
        200: {"description": "The values.", "content": {media: {} for media in (JSON, NPY, NPZ)}},
        **documented(_404="No such data set.", _406="No offered type is accepted.", _422="Beyond float32."),
    },
)
def get_data(
    id: str,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    dtype: Annotated[Dtype | None, Query(description="Convert the values; as stored unless told.")] = None,
) -> Response:
    """Return the values: JSON and npz with labels and true coordinates where there are any, npy without."""
    dataset = require_dataset(here, id)
    media = negotiated(request, (JSON, NPY, NPZ))
    values = here.datasets.values(id)
    if dtype == "float32" and values.dtype != np.float32:
        check_float32(values)
    stack = Stack.of(values, dtype)
    if media == NPY:
        return npy_response(stack)
    beside = {}
    if dataset.has_labels:
        beside["labels"] = here.datasets.labels(id)
    if dataset.has_coordinates:
        beside["coordinates"] = here.datasets.coordinates(id)
    if media == NPZ:
        return npz_response({"data": stack, **{name: Stack.of(array) for name, array in beside.items()}})
    more = [("names", dataset.names), *((name, array.tolist()) for name, array in beside.items())]
    return json_response(stack, more)


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
    for name in posteriors:
        if (record := here.posteriors.get(name)) is not None:
            here.posteriors.delete(record)
    here.datasets.delete(id)
    here.cache.delete_prefix(results_prefix(id))
    return Response(status_code=204)


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


def _stored(dataset: Dataset, new: bool) -> Response:  # noqa: FBT001 # the pair that `add` returns
    body = DatasetOut.of(dataset).model_dump_json()
    headers = {"Location": f"/v1/datasets/{dataset.id}"}
    return Response(body, 201 if new else 200, headers, "application/json")
