"""Request bodies of uploads: arrays, tables and files, encoded piece by piece while they are sent."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired

import numpy as np
from numpy.lib import format as npy

from glle.transport.calls import JSON, NPY, NPZ, Body
from glle.types import AuditOptions, CompareOptions, FitOptions, TransformOptions, UploadOptions
from glle_engine.base.arrays import array_of
from glle_engine.base.errors import InvalidParameterError
from glle_engine.tables.anndata import cells_of, obs_column
from glle_engine.tables.foreign import HEAD_BYTES, foreign_file
from glle_engine.tables.frames import frame_columns, is_anndata, is_frame, require_here
from glle_engine.tables.given import given_arrays, is_column, with_given
from glle_engine.tables.packed import pack
from glle_engine.tables.roles import SINGLE, ColumnRoles, column_option
from glle_engine.tables.row_texts import label_array
from glle_engine.tables.table import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from glle.transport.calls import Array
    from glle_engine.tables.columns import WholeTable

_PIECE_BYTES = 2**20  # arrays are sent in pieces of about this size, so that they are not copied as a whole
# An unknown option is reported as a misspelling if it is at least this similar to a known option, by the ratio of
# difflib. Among all parameters of methods, `seed` is the most similar to an option of an upload: .67, to `sheet`.
_MIN_NAME_SIMILARITY = 0.72
_ARROW = "application/vnd.apache.arrow.stream"

MEDIA_TYPES = {
    ".npy": NPY,
    ".npz": NPZ,
    ".csv": "text/csv",
    ".json": JSON,
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".parquet": "application/vnd.apache.parquet",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".gz": "application/gzip",  # the service finds out which format is compressed
    ".feather": "application/vnd.apache.arrow.file",
    ".arrow": _ARROW,
    ".arrows": _ARROW,
}


class DataOptions(UploadOptions):
    """Keyword arguments for data to upload: roles of columns, dialect of a text file, labels and colors of the rows."""

    labels: NotRequired[Any]
    """
    The label of each row of an array or a table, or the name of the column with the labels.
    """
    colors: NotRequired[Any]
    """
    A number for each row of an array or a table, or the name of the column with the numbers.
    """
    obsm: NotRequired[str | None]
    """
    Key of the points in `obsm` of an AnnData, such as "X_pca"; by default they are its `X`.
    """


class FitDataOptions(FitOptions, DataOptions):
    """Keyword arguments of `Client.fit`."""


class _BlocksOptions(DataOptions):
    blocks: NotRequired[Any]
    """
    Block of each point, such as the person that was measured, or the name of the column with the blocks.
    """


class AuditDataOptions(AuditOptions, _BlocksOptions):
    """Keyword arguments of `Client.audit`."""


class CompareDataOptions(CompareOptions, _BlocksOptions):
    """Keyword arguments of `Client.compare`."""


class TransformDataOptions(TransformOptions, DataOptions):
    """Keyword arguments of `Posterior.transform`."""


def data_options(options: Any, known: type[DataOptions] = DataOptions) -> tuple[DataOptions, dict[str, Any]]:
    """Split keyword arguments into `DataOptions`, for the upload, and all others, such as parameters of a method.

    Raises ValueError for a name that looks like a misspelling of an option in `known`, so that no data are uploaded in
    vain. The service checks all other names.
    """
    for name in options.keys() - known.__annotations__.keys():
        if near := get_close_matches(name, known.__annotations__, 1, _MIN_NAME_SIMILARITY):
            raise ValueError(f"There is no option {name}=. Did you mean {near[0]}=?")
    data: Any = {name: value for name, value in options.items() if name in DataOptions.__annotations__}
    return data, {name: value for name, value in options.items() if name not in data}


def set_blocks_apart(data: Any, blocks: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the blocks of an audit, and options of the data that keep the column of the blocks out of the features.

    A block is a group of points that an audit keeps together, such as the measurements of one person.

    If `blocks` is the name of a column of a table or a file, the name is returned, and the column is added to the
    option `id`, unless it has a role already. For the name of a column of an AnnData, the values of the column are
    returned. All other blocks, one for each point, are returned unchanged.

    Raises
    ------
    InvalidParameterError, TableError
        If `blocks` names a column, and the data have no columns or lack this one.

    """
    table_options = dict(options)
    if not isinstance(blocks, str):
        return blocks, table_options
    if is_anndata(data):
        return label_array(obs_column(data, blocks).objects(), 0), table_options
    if not (is_frame(data) or isinstance(data, (str, Path))):
        raise InvalidParameterError(
            f"blocks={blocks!r} names a column, but the data have no named columns.",
            remedy="Give the data as a frame of pandas or polars, or give `blocks` as an array with one value per row.",
        )
    ids = column_option("id", table_options.get("id")) or ()
    roles = [value for name in SINGLE if is_column(value := table_options.get(name))]
    if blocks not in {*roles, *ids}:
        table_options["id"] = [*ids, blocks]
    return blocks, table_options


@dataclass(frozen=True)
class DatasetUpload:
    """The body and the query of a request that uploads data.

    `index` is the row index of the pandas frame that is uploaded, which the client attaches to results about the data;
    None for other data. `kept` returns the mask (rows,) of the rows of a frame that the service does not drop, by the
    rules of the service; None for other data.
    """

    body: Body
    query: dict[str, Any] = field(default_factory=dict)
    index: Any = None
    kept: Callable[[], NDArray[np.bool_]] | None = None


def upload_of(data: Any, options: DataOptions | None = None) -> DatasetUpload:
    """Return the upload of an array, a sparse matrix, a table, an AnnData, nested lists, or the path of a file.

    `options` has the roles of columns. `labels` and `colors` may also have one value for each row of an array or a
    table, and `labels` may be the name of an index level of a pandas frame. The service guesses the roles of other
    columns. Raises ValueError for data that cannot be sent without loss.
    """
    columns: Any = {**(options or {})}
    obsm = columns.pop("obsm", None)
    values = {name: columns.pop(name) for name in sorted(SINGLE & columns.keys()) if not is_column(columns[name])}
    values = {name: vector for name, vector in values.items() if vector is not None}
    roles = {name: column_option(name, value) for name, value in columns.items()}
    query = {name: [*value] if isinstance(value, tuple) else value for name, value in roles.items() if value}
    if isinstance(data, (str, Path)):
        return _file_upload(Path(data), query, values)
    require_here(data)
    if is_anndata(data) or obsm is not None:
        return _cells_upload(data, query, values, obsm)
    if is_frame(data):
        return _frame_upload(data, query, values)
    if named := ", ".join(f"{name}={value!r}" for name, value in query.items() if name != "missing"):
        raise ValueError(
            f"{named} names a column, but an array has no named columns. Give a frame of pandas or polars, or the path "
            "of a CSV file."
        )
    array = data if hasattr(data, "tocsr") else array_of(data)
    rows = array.shape[0] if array.ndim else 0
    return DatasetUpload(_array_body(array, given_arrays(values, rows)), query)


def _cells_upload(data: Any, query: dict[str, Any], values: dict[str, Any], obsm: str | None) -> DatasetUpload:
    """Return the upload of an AnnData as an npz file of points, names of variables, ids, labels and colors.

    The points are `data.obsm[obsm]`, or `data.X` if `obsm` is None. Labels and colors are the columns of `data.obs`
    that `query` names, or arrays that the user gave (`values`).
    """
    cells = cells_of(data, ColumnRoles.from_options(query), obsm)
    members = {"ids": cells.ids, "labels": cells.labels, "colors": cells.colors}
    members |= given_arrays(values, len(cells.ids), data.obs_names)
    members["names"] = None if cells.names is None else np.array(cells.names, np.str_)
    arrays = {name: array for name, array in members.items() if array is not None}
    query = {name: value for name, value in query.items() if name == "missing"}
    return DatasetUpload(_array_body(cells.values, arrays), query, data.obs_names)


def _frame_upload(frame: Any, query: dict[str, Any], values: dict[str, Any]) -> DatasetUpload:
    """Return the upload of a frame; labels and colors that were given as arrays (`values`) become columns of it."""
    table, index = frame_columns(frame, with_index=query.get("missing") == "drop"), getattr(frame, "index", None)
    table, roles = with_given(table, values, index)
    members: dict[str, Any] = pack(table)
    query = {**query, **roles}
    return DatasetUpload(Body.of_writer(NPZ, partial(np.savez, **members)), query, index, partial(_kept, table, query))


def _kept(table: WholeTable, query: dict[str, Any]) -> NDArray[np.bool_]:
    kept = read_table(table, ColumnRoles.from_options(query)).kept
    return np.ones(len(table), bool) if kept is None else kept


def _file_upload(path: Path, query: dict[str, Any], values: dict[str, Any]) -> DatasetUpload:
    if values:
        raise ValueError(
            f"The data are the file {path}, but {' and '.join(values)} was given as an array. Give the name of a "
            "column of the file instead, or read the file first and give an array or a frame."
        )
    media = MEDIA_TYPES.get(path.suffix.lower())
    if media is None and path.is_file():
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            foreign = foreign_file(head, file)
        if foreign is not None:
            raise InvalidParameterError(f"{path} is {foreign.noun}.", remedy=foreign.remedy)
    if media is None:
        raise ValueError(
            f"The format of {path} is not known, because its name does not end in {', '.join(MEDIA_TYPES)}. Read the "
            "file first, and give an array or a frame."
        )
    if not path.is_file():
        relative = "" if path.is_absolute() else f" It is relative to {Path.cwd()}."
        raise FileNotFoundError(f"There is no file {path}. Check the path.{relative}")
    return DatasetUpload(Body.of_file(path, media), query)


def _array_body(array: Any, vectors: dict[str, Array]) -> Body:
    """Return the body of an array as npy; a sparse matrix, or an array with `vectors` such as labels, becomes npz."""
    if hasattr(array, "tocsr"):
        rows = array.tocsr()
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": np.array(rows.shape)}
        members: dict[str, Any] = {"format": np.array("csr"), **parts, **vectors}
        return Body.of_writer(NPZ, partial(np.savez, **members))
    if array.dtype.kind not in "fiub":
        raise ValueError(f"The data are an array of dtype {array.dtype}, not numbers. Convert it with .astype(float).")
    if vectors:
        arrays: dict[str, Any] = {"data": array, **vectors}
        return Body.of_writer(NPZ, partial(np.savez, **arrays))
    header = io.BytesIO()
    layout = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    npy.write_array_header_1_0(header, layout)

    def pieces() -> Iterator[bytes]:
        yield header.getvalue()
        for rows in np.array_split(np.atleast_1d(array), 2 + array.nbytes // _PIECE_BYTES):
            yield rows.tobytes()

    return Body(NPY, pieces, header.tell() + array.nbytes)
