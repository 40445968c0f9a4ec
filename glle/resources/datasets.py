"""Data sets of the service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from glle.inputs import as_array, upload_of
from glle.resources.results import Resource
from glle.transport.calls import Call, path_of
from glle.transport.errors import in_words, keyword
from glle.transport.session import Async, Blocking, operation

if TYPE_CHECKING:
    from pathlib import Path

    from glle.inputs import DataOptions
    from glle.transport.calls import Array, Dtype
    from glle.transport.session import Session
    from glle.types import DatasetOut


@dataclass(frozen=True, repr=False)
class BaseDataset(Resource):
    """Data set: `metadata`, the service's description, and `index`, that of the uploaded frame, or None."""

    metadata: DatasetOut
    index: Any = field(default=None, compare=False)

    @property
    def n(self) -> int:
        """Number of points."""
        return self.metadata["n"]

    @property
    def d(self) -> int:
        """Number of features."""
        return self.metadata["d"]

    @property
    def names(self) -> list[str] | None:
        """Names of the features."""
        return self.metadata["names"]

    @property
    def notices(self) -> list[str]:
        """Decisions of the upload, such as a column that was set apart, and the argument that decides otherwise."""
        return [in_words(notice, keyword) for notice in self.metadata["notices"]]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, n={self.n}, d={self.d})"

    @operation
    async def data(self, *, dtype: Dtype | None = None, out: str | Path | None = None) -> Array:
        """Return the values (n, d); with `out`, written to that npy file and memory-mapped."""
        call = Call.npy(path_of("datasets", self.id, "data"), {"dtype": dtype}, out)
        return (await self._session.send(call)).body

    @operation
    async def arrays(self) -> dict[str, Array]:
        """Return `data`, and those of `labels`, `color`, `coordinates` and `ids` that the data set has."""
        return (await self._session.send(Call.npz(path_of("datasets", self.id, "data")))).body

    @operation
    async def ids(self) -> Array | None:
        """Return the ids of the rows as in the file: (n,), of several columns (n, columns), or None without ids."""
        if not self.metadata.get("has_ids"):
            return None
        return (await self._session.send(Call.npy(path_of("datasets", self.id, "ids")))).body

    @operation
    async def delete(self, *, force: bool = False) -> None:
        """Delete the data set; with `force` also its posteriors, which otherwise prevent it."""
        await self._session.send(Call("DELETE", path_of("datasets", self.id), {"force": force}))


class Dataset(BaseDataset, Blocking):
    """Data set of a `Client`."""


class AsyncDataset(BaseDataset, Async):
    """Data set of an `AsyncClient`."""


def is_stored(data: Any, options: DataOptions) -> bool:
    """Return whether data are a data set or its id. Raise ValueError if it has options, which only an upload has."""
    if not (isinstance(data, BaseDataset) or (isinstance(data, str) and data.startswith("ds_"))):
        return False
    given = ", ".join(f"{name}=" for name, value in options.items() if value is not None)
    if given:
        raise ValueError(
            f"The data set is stored with the roles of its columns, its labels and its colors: leave out {given}, or "
            "give the data in place of the data set."
        )
    return True


async def dataset_of(
    session: Session, data: Any, options: DataOptions | None = None, *, call: str = "dataset(frame"
) -> Any:
    """Return a data set, or its id, as it is; upload other data. `call` as for `glle.inputs.upload_of`."""
    options = options or {}
    if is_stored(data, options):
        return data
    return session.build("dataset", *await upload(session, data, options, call=call))


async def dataset_id(
    session: Session, data: Any, options: DataOptions | None = None, *, call: str = "dataset(frame"
) -> str:
    """Return the id of a data set; upload data that have none."""
    dataset = await dataset_of(session, data, options, call=call)
    return dataset if isinstance(dataset, str) else dataset.id


async def upload(
    session: Session, data: Any, options: DataOptions, path: str = "", *, call: str = "dataset(frame"
) -> tuple[Any, Any]:
    """Upload data; return the metadata of the data set, and the index of its frame; or send it to a `path` below."""
    roles: Any = {**options}
    labels, colors = roles.pop("labels", None), roles.pop("colors", None)
    content = upload_of(data, roles, labels, colors, call=call)
    reply = await session.send(Call.by_content_of("/v1/datasets" + path, content.body, content.query))
    return reply.json(), content.index


async def column_id(session: Session, data: Any, keyword: str) -> str | None:
    """Return the id of a data set of one value per point, the argument `keyword`; words become numbers."""
    if data is None:
        return None
    if not isinstance(data, str) and np.ndim(data) == 1:
        vector = as_array(data, "The values")
        if vector.dtype.kind not in "iufb":
            vector = np.unique(vector, return_inverse=True)[1]
        data = vector.astype(np.float64)[:, None]
    return await dataset_id(session, data, call=f"{keyword}=client.dataset(frame")


async def labels_id(session: Session, labels: Any) -> str | None:
    """Return the id of a data set with the label of each point, which may be words; upload labels that have none."""
    if labels is None or is_stored(labels, {}):
        return None if labels is None else await dataset_id(session, labels)
    return await dataset_id(session, np.zeros((len(labels), 1)), {"labels": labels})
