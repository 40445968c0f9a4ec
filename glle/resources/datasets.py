"""Data sets, as the service has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glle.inputs import upload_of
from glle.transport.calls import Call, Steps
from glle.transport.operation import Awaiting, Blocking, operation
from glle.transport.requests import npy_call, npz_call, path_of

if TYPE_CHECKING:
    from pathlib import Path

    from glle.transport.requests import Dtype
    from glle.transport.session import Session
    from glle.transport.sinks import Array
    from glle.types import DatasetOut


@dataclass(frozen=True, repr=False)
class DatasetMethods:
    """A data set.

    Attributes
    ----------
    told
        What the service told of it.
    index
        The index of the frame that was uploaded, if it was one.

    """

    told: DatasetOut
    _session: Session = field(compare=False)
    index: Any = field(default=None, compare=False)

    @property
    def id(self) -> str:
        """Its id: the same content has the same."""
        return self.told["id"]

    @property
    def n(self) -> int:
        """Points."""
        return self.told["n"]

    @property
    def d(self) -> int:
        """Features."""
        return self.told["d"]

    @property
    def names(self) -> list[str] | None:
        """Names of the features."""
        return self.told["names"]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, n={self.n}, d={self.d})"

    @operation
    def data(self, *, dtype: Dtype | None = None, out: str | Path | None = None) -> Steps[Array]:
        """Return its values (n, d); with `out`, written to that npy file and mapped from it."""
        path = path_of("datasets", self.id, "data")
        return (yield from self._session.ask(npy_call(path, {"dtype": dtype}, out))).body

    @operation
    def arrays(self) -> Steps[dict[str, Array]]:
        """Return `data`, and `labels` and `coordinates` where there are any."""
        call = npz_call(path_of("datasets", self.id, "data"))
        return (yield from self._session.ask(call)).body

    @operation
    def delete(self, *, force: bool = False) -> Steps[None]:
        """Delete it; with `force` its posteriors, too, which else keep it."""
        yield from self._session.ask(Call("DELETE", path_of("datasets", self.id), {"force": force}))


class Dataset(DatasetMethods, Blocking):
    """A data set of a `Client`."""


class AsyncDataset(DatasetMethods, Awaiting):
    """A data set of an `AsyncClient`."""


def dataset_id(session: Session, data: Any) -> Steps[str]:
    """Return the id of a data set: its own, or that of what is uploaded now."""
    if isinstance(data, DatasetMethods):
        return data.id
    if isinstance(data, str) and data.startswith("ds_"):
        return data
    told, _ = yield from uploaded(session, data, None)
    return told["id"]


def uploaded(session: Session, data: Any, label: str | None) -> Steps[tuple[DatasetOut, Any]]:
    """Upload data; return what is told of the data set, and the index of the frame that it was."""
    upload = upload_of(data, label)
    call = Call("POST", "/v1/datasets", upload.query, upload.body, by_content=True)
    return (yield from session.ask(call)).json(), upload.index
