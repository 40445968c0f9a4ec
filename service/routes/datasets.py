"""`/v1/datasets`: upload, list, read back, name, delete."""

import contextlib
import http
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine.base.texts import Way
from glle_engine.base.validation import Missing
from glle_engine.tables.table import Table
from service.encoding.arrays import JSON, NPY, NPZ, Dtype, id_columns, matrix_columns, with_ids
from service.encoding.arrays import ResultTable as Columns
from service.encoding.media_types import ARROW, ARROW_FILE, PARQUET
from service.encoding.result import (
    RESULT_MEDIA,
    ArraysResult,
    Points,
    Selection,
    immutable_headers,
    mutable_response,
    negotiate,
    unless_current,
)
from service.middleware.requests import TENANT
from service.routes.params import (
    AT_ONCE,
    CONTENT_STAYS,
    NOT_MODIFIED,
    Id,
    TenantStores,
    add_list,
    add_rename,
    body_content,
    returns_arrays,
)
from service.schemas.derived import ArrayOut
from service.schemas.problems import failures
from service.schemas.resources import (
    PREVIEW_ROWS,
    DatasetOut,
    DatasetPage,
    DatasetPreviewOut,
    SyntheticIn,
)
from service.schemas.results import DatasetValuesOut
from service.submission.jobs import delete_embedding_of, delete_posterior_of
from service.uploads.limits import Limits
from service.uploads.reading import MULTIPART, IncomingBytes, Upload, receive_body
from service.uploads.registry import XLSX
from service.uploads.synthetic import Synthetic
from worker.base.disk import temporary_file
from worker.base.files import make_folder
from worker.base.problems import ProblemError, refuse
from worker.storage.datasets import Array, Dataset
from worker.stores import Stores

MAX_DELETE_ATTEMPTS = 5  # attempts to delete a data set while jobs add posteriors and embeddings of it

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

_BODIES = {
    **body_content((NPY, NPZ, ARROW, ARROW_FILE, PARQUET, XLSX, "application/gzip")),
    "text/csv": {"schema": {"type": "string"}, "example": "x,y,z\n1.0,2.0,3.0\n"},
    "text/tab-separated-values": {"schema": {"type": "string"}, "example": "x\ty\tz\n1.0\t2.0\t3.0\n"},
    "text/plain": {"schema": {"type": "string"}, "example": "x;y;z\n1,0;2,0;3,0\n"},
    MULTIPART: {
        "schema": {
            "type": "object",
            "required": ["file"],
            "properties": {  # `service.schemas.openapi` adds the parameters of the query
                "file": {
                    "type": "string",
                    "format": "binary",
                    "description": "The table, also .gz.",
                },
            },
        }
    },
    "application/json": {
        "schema": {"$ref": "#/components/schemas/TableIn"},
        "example": {"data": [[1.0, 2.0], [3.0, 4.0]], "names": ["x", "y"], "labels": ["a", "b"], "colors": [0.5, 2.0]},
    },
}
_CREATED: dict[int | str, dict[str, Any]] = {
    200: {"model": DatasetOut, "description": "It exists already: the same content is the same data set."},
    201: {"model": DatasetOut, "description": "Stored."},
}


_NO_COLUMNS: Any = ()  # default of the parameters that are lists of columns; a dataclass refuses [], which is mutable


@dataclass(frozen=True, kw_only=True)
class UploadQuery:
    """Query of an upload: roles of the columns, and the dialect of a table of text."""

    labels: Annotated[
        str | None, Query(description="Column of labels: its name, in CSV also its number from 0, in npz a member.")
    ] = None
    colors: Annotated[str | None, Query(description="Column of numbers that colors the points: as for `labels`.")] = (
        None
    )
    features: Annotated[
        list[str], Query(description="Columns to fit, by names or patterns such as `x*`; all others are left out.")
    ] = _NO_COLUMNS
    id: Annotated[
        list[str], Query(description="Columns that name the rows, by names or patterns: ids, no features.")
    ] = _NO_COLUMNS
    ignore: Annotated[list[str], Query(description="Columns to leave out, by names or patterns.")] = _NO_COLUMNS
    one_hot: Annotated[
        list[str], Query(description="Columns of categories, each of which becomes a feature of zeros and ones.")
    ] = _NO_COLUMNS
    missing: Annotated[
        Missing | None,
        Query(
            description="Rows with a missing value in a feature or the colors: drop them, or take the median of the "
            "column; without it they are refused. A notice says what was done."
        ),
    ] = None
    header: Annotated[
        Literal["present", "absent"] | None, Query(description="Of text: whether the first row has the names.")
    ] = None
    delimiter: Annotated[
        Literal["comma", "tab", "semicolon", "pipe", "space"] | None, Query(description="Of text; without it sniffed.")
    ] = None
    decimal: Annotated[
        Literal["point", "comma"] | None, Query(description="Decimal mark of text; without it sniffed.")
    ] = None
    charset: Annotated[
        Literal["utf-8", "utf-16", "windows-1252", "iso-8859-15", "macintosh"] | None,
        Query(description="Encoding of text; without it UTF-8, or UTF-16 by its first bytes."),
    ] = None
    sheet: Annotated[str | None, Query(description="Sheet of a workbook, by its name; without it the first.")] = None


Roles = Annotated[UploadQuery, Depends()]


@contextlib.asynccontextmanager
async def _receive_upload(
    request: Request, stores: TenantStores, options: UploadQuery
) -> AsyncIterator[Callable[[], Table]]:
    """Receive a request's body, and yield a function that reads the table in the body.

    While the context lasts, a reader process is reserved, unless the body is so small and simple that none is needed.
    """
    settings, processes = stores.settings, request.app.state.readers
    headers = request.headers
    body = Upload.from_headers(
        headers.get("content-type", ""), headers.get("content-encoding", ""), asdict(options), settings
    )
    tenant, folder = request.scope[TENANT], Path(body.folder)
    incoming = IncomingBytes(stores.shares.incoming, stores.datasets, tenant, folder, settings.api_processes)
    async with (
        receive_body(request, folder, body.cap, incoming) as file,
        contextlib.nullcontext() if body.is_safe(file) else processes.slot(tenant, os.fstat(file.fileno()).st_size),
    ):
        yield partial(processes.read_table, body, file)


@router.post(
    "",
    summary="Upload a data set",
    **AT_ONCE,
    status_code=201,
    response_model=DatasetOut,
    responses={
        **_CREATED,
        **failures(
            _413="Longer than GLLE_MAX_BODY (JSON: than a 128th of it).",
            _415="Not npy, npz, CSV, Arrow, Parquet, xlsx or JSON, nor these by gzip; or without its library.",
            _422="Not a finite matrix: see the row and the column.",
            _507="The disk is full, but for the reserve.",
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": _BODIES}},
)
async def upload(request: Request, stores: TenantStores, options: Roles) -> Response:
    """Store an (n, d) matrix, one point in each row; equal content of a tenant has an equal id.

    The dtype may be any real one (float32 stays float32, all others become float64). CSV may begin with a header of
    names. JSON may also be the list of the rows alone. npz has the points as `data`, and may have `labels`,
    `colors`, `ids`, `coordinates` and `names`; in Arrow and Parquet the columns of numbers are the features. The body
    may be compressed (Content-Encoding gzip), or a form with one file and the query parameters as fields.

    Missing values, NaN and infinity are refused. The error counts the rows that have one, and lists the first 20 with
    row and column. With `missing`, rows with missing values are dropped, or the values are filled in.

    If a column is not numeric, and the query gives it no role, the service chooses a role, and a notice says which.
    Texts that number or name the rows become the ids, the first column with few distinct texts becomes the labels, and
    the first column of dates becomes the colors. Other columns of text are refused, and the error names the options
    that help.
    """
    async with _receive_upload(request, stores, options) as read_table:
        return _created_response(*await run_in_threadpool(lambda: _add(stores, read_table())))


@router.post(
    "/preview",
    summary="Preview an upload",
    **AT_ONCE,
    response_model=DatasetPreviewOut,
    responses=failures(_413="As for an upload.", _415="As for an upload.", _422="Not a value of an option."),
    openapi_extra={"requestBody": {"required": True, "content": _BODIES}},
)
async def preview(
    request: Request,
    stores: TenantStores,
    options: Roles,
    rows: Annotated[
        int,
        Query(
            ge=1,
            description="Points of the answer, from the first one on; fewer if these have more than 4 MiB.",
        ),
    ] = PREVIEW_ROWS,
) -> Response:
    """Read a body as an upload does, and store nothing: the answer shows what would be fitted.

    A table that an upload would refuse has its `problem`, with the columns as far as they are known.
    """
    async with _receive_upload(request, stores, options) as read_table:

        def read() -> str:
            try:
                table = read_table()
                shown = DatasetPreviewOut.from_table(table, stores.datasets.id_of(table), rows)
            except ProblemError as error:
                if error.problem.status != http.HTTPStatus.UNPROCESSABLE_ENTITY:
                    raise
                shown = DatasetPreviewOut.of_problem(error.problem)
            return shown.model_dump_json()

        return Response(await run_in_threadpool(read), media_type=JSON)


@router.post(
    "/synthetic",
    summary="Make a synthetic data set",
    **AT_ONCE,
    status_code=201,
    response_model=DatasetOut,
    responses={
        **_CREATED,
        **failures(
            _413="Body too long.",
            _415="Not JSON.",
            _422="A value out of range.",
            _507="The disk is full, but for the reserve.",
        ),
    },
)
async def synthetic(request: Request, body: SyntheticIn, stores: TenantStores) -> Response:
    """Sample a synthetic manifold of the literature; its true coordinates are stored with it."""
    source = Synthetic(**body.model_dump())
    source.check(Limits.from_settings(stores.settings))
    processes, folder = request.app.state.readers, Path(stores.settings.data_dir) / "incoming"

    def add(empty: IO[bytes]) -> Response:
        return _created_response(*_add(stores, processes.read_table(source, empty)))

    await run_in_threadpool(make_folder, folder)
    with await run_in_threadpool(temporary_file, folder) as empty:
        if source.is_safe(empty):
            return await run_in_threadpool(add, empty)
        async with processes.slot(request.scope[TENANT], source.nbytes):
            return await run_in_threadpool(add, empty)


add_list(router, "datasets", "List data sets", "data sets", DatasetPage)


@router.get(
    "/{id}",
    summary="Describe a data set",
    response_model=DatasetOut,
    responses={**NOT_MODIFIED, **failures(_404="No such data set.")},
)
def get_dataset(id_: Id, request: Request, stores: TenantStores) -> Response:
    """Return shape, dtype, names and origin of a data set."""
    return mutable_response(request, DatasetOut.from_record(stores.datasets.fetch(id_)).model_dump_json())


@router.get(
    "/{id}/data",
    summary="Read a data set back",
    **returns_arrays(
        "The values.",
        RESULT_MEDIA,
        DatasetValuesOut,
        may_be_job=False,
        _404="No such data set.",
        _422="Beyond float32, or a slice that is out of range.",
    ),
)
def get_data(
    id_: Id,
    request: Request,
    stores: TenantStores,
    dtype: Annotated[Dtype | None, Query(description="Type of the values; without it as stored.")] = None,
    points: Points = None,
) -> Response:
    """Return the values of a data set, as stored or converted to `dtype`: immutable, with a strong ETag.

    JSON and npz also have labels, colors, true coordinates and ids, if they exist; CSV and Arrow have one row for each
    point, the first column `id`, and the columns `label` and `color`; npy has the values alone, and supports Range.
    """
    dataset = stores.datasets.fetch(id_)
    media = negotiate(request, RESULT_MEDIA)
    selection = Selection.from_query(points, dataset.n, "points")
    result_dtype = dtype or dataset.dtype
    headers = immutable_headers(dataset.sha256, media, result_dtype, selection.tag)

    def respond() -> Response:
        values = selection.select(stores.datasets.values(id_))
        stored = {} if media == NPY else stores.datasets.load_extras(dataset)
        extras = {name: selection.select(array) for name, array in stored.items()}
        named = {} if dataset.names is None else {"names": np.array(dataset.names, np.str_)}
        return ArraysResult(
            arrays={"data": values},
            stored=extras | named,
            main="data",
            members=[("names", dataset.names), *extras.items()],
            table=lambda: _table(dataset, values, extras, dtype),
        ).response(media, result_dtype, headers)

    return unless_current(request, headers, respond)


@router.get(
    "/{id}/ids",
    summary="Read the ids of the rows",
    **returns_arrays(
        "The ids.",
        (JSON, NPY),
        ArrayOut,
        may_be_job=False,
        _404="No such data set, or one without ids.",
        _422="A slice that is out of range.",
    ),
)
def get_ids(id_: Id, request: Request, stores: TenantStores, points: Points = None) -> Response:
    """Return the ids of the rows as in the uploaded file: (n,), or (n, columns) if several columns are ids; immutable.

    The ids are int64 if all are whole numbers to 2^53 in their usual digits, otherwise text; a missing id is empty.
    """
    dataset = stores.datasets.fetch(id_)
    media = negotiate(request, (JSON, NPY))
    selection = Selection.from_query(points, dataset.n, "points")
    if not dataset.has_ids:
        remedy = f"Upload the table, and name the column of the ids as {Way('id')}."
        raise refuse("no-ids", 404, f"Data set {id_} has no ids.", remedy, dataset=id_)
    headers = immutable_headers(dataset.sha256, media, "ids", selection.tag)

    def respond() -> Response:
        ids = stores.datasets.ids_of(id_)
        assert ids is not None
        return ArraysResult(arrays={"ids": selection.select(ids)}, main="ids").response(media, "", headers)

    return unless_current(request, headers, respond)


add_rename(router, "datasets", "Name and tag a data set", DatasetOut, CONTENT_STAYS)


@router.delete(
    "/{id}",
    summary="Delete a data set",
    status_code=204,
    responses=failures(_404="No such data set.", _409="Posteriors were fitted on it, or with its neighbors."),
)
def delete_dataset(
    id_: Id,
    stores: TenantStores,
    *,
    force: Annotated[bool, Query(description="Delete its posteriors and their draws too.")] = False,
) -> Response:
    """Delete a data set with its embeddings, whose jobs are cancelled; with `force` also its posteriors.

    Without `force` a data set with posteriors is kept, because new points and summaries need it.
    """
    derived = [store.set_of(f"of:{id_}") for store in (stores.posteriors, stores.embeddings)]
    for _ in range(MAX_DELETE_ATTEMPTS):
        stores.datasets.fetch(id_)
        posteriors = stores.posteriors.of_dataset(id_)
        if posteriors and not force:
            break
        _delete_derived(stores, id_)
        if stores.datasets.delete(id_, unless_existing=derived) is not None:
            return Response(status_code=204)
    raise refuse(
        "dataset-in-use",
        409,
        f"Data set {id_} cannot be deleted, because {len(posteriors)} posterior(s) use it as their data or as their "
        "neighbors.",
        f"Delete these posteriors first, or delete them with the data set by {Way('force', value=True)}.",
        posteriors=posteriors[:100],
    )


def _delete_derived(stores: Stores, dataset: str) -> None:
    """Delete the posteriors and the embeddings of a data set."""
    for id_ in stores.posteriors.of_dataset(dataset):
        if (record := stores.posteriors.get(id_)) is not None:
            delete_posterior_of(stores, record)
    for id_ in stores.embeddings.ids_in(f"of:{dataset}"):
        if (embedding := stores.embeddings.get(id_)) is not None:
            delete_embedding_of(stores, embedding)


def _table(dataset: Dataset, values: Array, extras: dict[str, Array], dtype: Dtype | None) -> Columns:
    """Return a table with columns for ids, values (named x1 to xd by default), `label` and `color`."""
    columns = matrix_columns(values, "x", dataset.names)
    kinds = [np.dtype(dtype or values.dtype)] * len(columns)
    for name, array in (("label", extras.get("labels")), ("color", extras.get("colors"))):
        if array is not None:
            while name in columns:  # a feature may have the same name
                name += "_"  # noqa: PLW2901 # until no feature has this name
            columns[name] = array
            kinds.append(array.dtype)  # ?dtype= converts only the features, not labels and colors
    kinds = [array.dtype for array in id_columns(extras.get("ids")).values()] + kinds
    columns = with_ids(columns, extras.get("ids"))
    return Columns(list(zip(columns, kinds, strict=True)), [list(columns.values())])


def _add(stores: Stores, table: Table) -> tuple[Dataset, bool]:
    """Store a table; return the record of its data set, and whether the data set is new."""
    source = {name: value for name, value in table.source.items() if name != "layout"}
    dataset, new = stores.datasets.add(replace(table, source=source))
    # If an earlier upload had the same values, `add` returned its record. Its file may have had another format or other
    # columns, so the response describes the file that was sent now.
    return replace(dataset, source=source), new


def _created_response(dataset: Dataset, new: bool) -> Response:  # noqa: FBT001 # both are results of `add`
    body = DatasetOut.from_record(dataset).model_dump_json()
    headers = {"Location": f"/v1/datasets/{dataset.id}"}
    return Response(body, 201 if new else 200, headers, "application/json")
