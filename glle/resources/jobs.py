"""Jobs, as the service has them: followed, cancelled, and what they made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from glle.resources.results import Result
from glle.transport.calls import Call, Steps
from glle.transport.operation import Awaiting, Blocking, operation
from glle.transport.requests import npy_call, npz_call, path_of

if TYPE_CHECKING:
    from pathlib import Path

    from glle.transport.requests import Dtype
    from glle.transport.session import Session
    from glle.types import JobOut

JobT = TypeVar("JobT")


@dataclass(frozen=True, repr=False)
class JobMethods(Generic[JobT]):
    """A job; `told` is as old as the object.

    Attributes
    ----------
    told
        What the service told of it.

    """

    told: JobOut
    _session: Session = field(compare=False)

    @property
    def id(self) -> str:
        """Its id."""
        return self.told["id"]

    @property
    def kind(self) -> str:
        """What it does."""
        return self.told["kind"]

    @property
    def status(self) -> str:
        """How it stood when it was told."""
        return self.told["status"]

    def __repr__(self) -> str:
        progress = self.told["progress"]
        return f"{type(self).__name__}({self.id!r}, {self.kind}, {self.status}, {progress['done']}/{progress['total']})"

    @operation
    def wait(self, timeout: float | None = None) -> Steps[JobT]:
        """Return it as it is when it has succeeded; raise its problem when it has not."""
        job = yield from self._session.follow(self.told, timeout)
        return self._session.kinds["job"](job, self._session)

    @operation
    def refresh(self) -> Steps[JobT]:
        """Return it as it is now."""
        job = (yield from self._session.ask(Call("GET", path_of("jobs", self.id)))).json()
        return self._session.kinds["job"](job, self._session)

    @operation
    def cancel(self) -> Steps[JobT]:
        """Cancel it: at once when it is queued, soon when it runs; an ended one stays as it is."""
        job = (yield from self._session.ask(Call("DELETE", path_of("jobs", self.id)))).json()
        return self._session.kinds["job"](job, self._session)

    @operation
    def result(
        self, timeout: float | None = None, *, dtype: Dtype | None = None, out: str | Path | None = None
    ) -> Steps[Any]:
        """Return what it made, when it has succeeded.

        An array for draws (count, n, p), with the scales as an axis before, and for reconstructions (count, n, d); with
        `out`, written to that npy file and mapped from it. The posterior of a fit. A `Result` of all else.
        """
        yield from self._session.follow(self.told, timeout)
        path, query = path_of("jobs", self.id, "result"), {"dtype": dtype}
        if self.kind in {"draws", "reconstructions"}:
            return (yield from self._session.settled(npy_call(path, query, out), timeout)).body
        if out is not None:
            raise ValueError(f"A result of {self.kind} is no array that a file could hold: leave `out` away.")
        if self.kind == "transform":
            reply = yield from self._session.settled(npz_call(path, query), timeout)
            return Result(reply.body)
        told = (yield from self._session.settled(Call("GET", path, query), timeout)).json()
        if self.kind == "fit":
            return self._session.kinds["posterior"](told, self._session)
        return Result.of_json(told)


class Job(JobMethods["Job"], Blocking):
    """A job of a `Client`."""


class AsyncJob(JobMethods["AsyncJob"], Awaiting):
    """A job of an `AsyncClient`."""
