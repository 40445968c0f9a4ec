"""Data sets of the service, and the upload of data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glle.inputs import upload_of
from glle.resources.results import Resource
from glle.transport.calls import Call, path_of
from glle.transport.session import Async, Blocking, operation
from glle_engine.tables.given import is_column
from glle_engine.tables.roles import COLUMN_LISTS

if TYPE_CHECKING:
    from glle.inputs import DataOptions
    from glle.transport.calls import Array, Dtype
    from glle.transport.session import Session
    from glle.types import DatasetOut

ROLES = COLUMN_LISTS | {"labels", "colors"}


@dataclass(frozen=True, repr=False)
class BaseDataset(Resource):
    """A data set that the service stores.

    `metadata` is the service's description of it, and `index` is the row index of the pandas frame that was uploaded,
    or None.
    """

    metadata: DatasetOut
    index: Any = field(default=None, compare=False)

    @property
    def n(self) -> int:
        """Number of points."""
        return self.metadata["n"]

    @property
    def d(self) -> int:
        """Number of features."""
        return self.metadata["n_features"]

    @property
    def names(self) -> list[str] | None:
        """Names of the features."""
        return self.metadata["names"]

    @property
    def notices(self) -> list[str]:
        """What the upload decided, such as which column has the labels, and the argument that changes the decision."""
        return [notice["message"] for notice in self.metadata["notices"]]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, n={self.n}, d={self.d})"

    @operation
    async def data(self, *, dtype: Dtype | None = None, out: str | Path | None = None) -> Array:
        """Return the values (n, d); with `out`, the values are written to that npy file and memory-mapped."""
        call = Call.npy(path_of("datasets", self.id, "data"), {"dtype": dtype}, out)
        return (await self._session.send(call)).body

    @operation
    async def arrays(self) -> dict[str, Array]:
        """Return by name the array `data` (n, d), and `labels`, `colors`, `coordinates` and `ids` if there are any."""
        return (await self._session.send(Call.npz(path_of("datasets", self.id, "data")))).body

    @operation
    async def ids(self) -> Array | None:
        """Return the ids of the rows as in the file: (n,), or (n, columns) for several columns, or None without ids."""
        if not self.metadata.get("has_ids"):
            return None
        return (await self._session.send(Call.npy(path_of("datasets", self.id, "ids")))).body

    @operation
    async def delete(self, *, force: bool = False) -> None:
        """Delete the data set and its embeddings; with `force` also the posteriors that use it.

        Without `force`, raises `ConflictError` if a posterior uses it.
        """
        await self._session.send(Call("DELETE", path_of("datasets", self.id), {"force": force}))


class Dataset(BaseDataset, Blocking):
    """A data set that the service stores, as a `Client` returns it: its methods block."""


class AsyncDataset(BaseDataset, Async):
    """A data set that the service stores, as an `AsyncClient` returns it: its methods are coroutines."""


def is_stored(data: Any, options: DataOptions) -> bool:
    """Return whether `data` is a data set of the service, or the id of one, and not data to upload.

    Raises ValueError if a stored data set comes with options, because only an upload can have them.
    """
    if not (isinstance(data, BaseDataset) or (isinstance(data, str) and data.startswith("ds_"))):
        return False
    passed = ", ".join(f"{name}=" for name, value in options.items() if value is not None)
    if passed:
        raise ValueError(
            f"The data set is stored with the roles of its columns, its labels and its colors: leave out {passed}, or "
            "give the data in place of the data set."
        )
    return True


async def dataset_of(session: Session, data: Any, options: DataOptions | None = None) -> Any:
    """Return `data` unchanged if it is a data set or the id of one; otherwise upload it and return the new data set."""
    options = options or {}
    if is_stored(data, options):
        return data
    return session.build("dataset", *await upload(session, data, options))


async def dataset_id(session: Session, data: Any, options: DataOptions | None = None) -> str:
    """Return the id of a data set; `data` is the data set or its id, or data to upload as a new data set."""
    dataset = await dataset_of(session, data, options)
    return dataset if isinstance(dataset, str) else dataset.id


async def new_points(session: Session, data: Any, options: DataOptions, training: str) -> Any:
    """Upload new points, and return their data set; if `data` is a data set or its id, return it unchanged.

    Unless `options` give roles, the columns of an upload get the roles that they have in the training data, whose id is
    `training`: from a few new rows, the service could guess other roles.
    """
    given_roles = {name for name, value in options.items() if name in COLUMN_LISTS or is_column(value)}
    if not is_stored(data, options) and not given_roles & ROLES:
        columns = (await session.get(path_of("datasets", training)))["columns"]
        if columns:
            # Only the service can read the columns of a file, so a preview has to list them.
            if (given_names := getattr(data, "column_names", getattr(data, "columns", None))) is None:
                preview, _ = await upload(session, data, options, "/preview")
                given_names = [column["name"] for column in preview["columns"]]
            names = set(map(str, given_names))
            roles: Any = {}
            for role in ROLES:
                present = [name for name in columns.get(role, ()) if name in names]
                if present:
                    roles[role] = present if role in COLUMN_LISTS else present[0]
            options = {**roles, **options}
    return await dataset_of(session, data, options)


async def upload(session: Session, data: Any, options: DataOptions, path: str = "") -> tuple[Any, Any]:
    """Post data to `/v1/datasets`, or to a `path` below it; return the JSON response, and the row index of the data.

    The row index is the index of a pandas frame without the rows that the service has dropped, and None for other data.
    """
    content = upload_of(data, options)
    reply = await session.send(Call.post("/v1/datasets" + path, content.body, content.query))
    metadata, index = reply.json(), content.index
    if index is not None and content.query.get("missing") == "drop" and not path and metadata["n"] < len(index):
        if content.kept:
            return metadata, index[content.kept()]
        index = (await session.send(Call.npy(path_of("datasets", metadata["id"], "ids")))).body  # of an AnnData
    return metadata, index


async def optional_id(session: Session, data: Any) -> str | None:
    """Return the id of a data set, or None for None; an array, a file or a vector (as one column) is uploaded first."""
    if np.ndim(data) == 1:
        data = np.reshape(data, (-1, 1))
    return None if data is None else await dataset_id(session, data)


def names_column(labels: Any) -> bool:
    """Return whether `labels` is the name of a column, not an array, a file, a data set or the id of a data set."""
    is_file = isinstance(labels, Path) or (isinstance(labels, str) and Path(labels).is_file())
    return is_column(labels) and not (is_file or is_stored(labels, {}))


async def labels_id(session: Session, labels: Any) -> str | None:
    """Return the id of a data set with the label of each point, or None if `labels` is None.

    An array of labels, numbers or words, and a file of labels are uploaded first. Raises ValueError for the name of a
    column, which only an upload of the data could resolve.
    """
    if np.ndim(labels) == 1:
        return await dataset_id(session, np.zeros((len(labels), 1)), {"labels": labels})
    if names_column(labels):
        raise ValueError(
            f"labels={labels!r} names a column, but columns cannot be chosen in a data set that is already stored. "
            "Leave labels= out if the data set was uploaded with these labels; otherwise give the labels in an array."
        )
    return await optional_id(session, labels)
