"""Data sets of the service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from glle.inputs import neighbor_indices, upload_of
from glle.transport.calls import Call, Steps, path_of
from glle.transport.errors import in_words, keyword
from glle.transport.operation import Async, Blocking, operation

if TYPE_CHECKING:
    from pathlib import Path

    from glle.transport.calls import Dtype
    from glle.transport.session import Session
    from glle.transport.sinks import Array
    from glle.types import DatasetOut, UploadOptions


@dataclass(frozen=True, repr=False)
class BaseDataset:
    """Data set: `metadata`, the service's description, and `index`, that of the uploaded frame, or None."""

    metadata: DatasetOut
    _session: Session = field(compare=False)
    index: Any = field(default=None, compare=False)

    @property
    def id(self) -> str:
        """Id; the same content has the same id."""
        return self.metadata["id"]

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
    def data(self, *, dtype: Dtype | None = None, out: str | Path | None = None) -> Steps[Array]:
        """Return the values (n, d); with `out`, written to that npy file and memory-mapped."""
        call = Call.npy(path_of("datasets", self.id, "data"), {"dtype": dtype}, out)
        return (yield from self._session.send(call)).body

    @operation
    def arrays(self) -> Steps[dict[str, Array]]:
        """Return `data`, and those of `labels`, `color`, `coordinates` and `ids` that the data set has."""
        return (yield from self._session.send(Call.npz(path_of("datasets", self.id, "data")))).body

    @operation
    def ids(self) -> Steps[Array | None]:
        """Return the ids of the rows as in the file: (n,), of several columns (n, columns), or None without ids."""
        return (yield from ids_of(self._session, self.metadata))

    @operation
    def delete(self, *, force: bool = False) -> Steps[None]:
        """Delete the data set; with `force` also its posteriors, which otherwise prevent it."""
        yield from self._session.send(Call("DELETE", path_of("datasets", self.id), {"force": force}))


class Dataset(BaseDataset, Blocking):
    """Data set of a `Client`."""


class AsyncDataset(BaseDataset, Async):
    """Data set of an `AsyncClient`."""


def ids_of(session: Session, dataset: Any) -> Steps[Array | None]:
    """Return the ids of the rows of a data set, of its description or its id; None without ids."""
    if isinstance(dataset, str):
        dataset = (yield from session.send(Call("GET", path_of("datasets", dataset)))).json()
    if not dataset.get("has_ids"):
        return None
    return (yield from session.send(Call.npy(path_of("datasets", dataset["id"], "ids"), {}))).body


def dataset_id(session: Session, data: Any, labels: Any = None, colors: Any = None) -> Steps[str]:
    """Return the id of a data set; upload data that have none, with their labels and colors."""
    if isinstance(data, BaseDataset) or (isinstance(data, str) and data.startswith("ds_")):
        if labels is not None or colors is not None:
            raise ValueError("The data set is stored, and its labels and colors with it: give its values with labels=.")
        return data.id if isinstance(data, BaseDataset) else data
    metadata, _ = yield from upload(session, data, {}, labels=labels, colors=colors)
    return metadata["id"]


def neighbors_id(session: Session, neighbors: Any) -> Steps[str]:
    """Return the id of the data set of neighbors (`glle.inputs.neighbor_indices`); upload those that have none."""
    return (yield from dataset_id(session, neighbor_indices(neighbors)))


def labelled(session: Session, data: Any) -> Steps[tuple[str, bool]]:
    """Return the id of a data set, and whether it has labels; upload data that have none."""
    if isinstance(data, BaseDataset):
        metadata = data.metadata
    elif isinstance(data, str) and data.startswith("ds_"):
        metadata = (yield from session.send(Call("GET", path_of("datasets", data)))).json()
    else:
        metadata, _ = yield from upload(session, data, {})
    return metadata["id"], metadata["has_labels"]


def upload(
    session: Session, data: Any, options: UploadOptions, path: str = "", *, labels: Any = None, colors: Any = None
) -> Steps[tuple[Any, Any]]:
    """Upload data; return the metadata of the data set, and the index of its frame; or send it to a `path` below."""
    content = upload_of(data, options, labels, colors)
    call = Call("POST", "/v1/datasets" + path, content.query, content.body, by_content=True)
    return (yield from session.send(call)).json(), content.index


def column_id(session: Session, data: Any) -> Steps[str | None]:
    """Return the id of a data set of one value per point; words become numbers."""
    if data is None:
        return None
    if not isinstance(data, str) and np.ndim(data) == 1:
        vector = np.asarray(data)
        if vector.dtype.kind not in "iufb":
            vector = np.unique(vector, return_inverse=True)[1]
        data = vector.astype(np.float64)[:, None]
    return (yield from dataset_id(session, data))
