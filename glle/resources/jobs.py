"""Jobs of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from glle.resources.results import Resource, job_result
from glle.transport.calls import Call, path_of
from glle.transport.session import Async, Blocking, operation

if TYPE_CHECKING:
    from pathlib import Path

    from glle.transport.calls import Dtype
    from glle.types import JobOut

JobT = TypeVar("JobT")


@dataclass(frozen=True, repr=False)
class BaseJob(Resource, Generic[JobT]):
    """Job: `metadata` is the service's description as of the last request; `refresh` returns a new object."""

    metadata: JobOut

    @property
    def kind(self) -> str:
        """Kind of work, such as `fit` or `draws`."""
        return self.metadata["kind"]

    @property
    def status(self) -> str:
        """Status as of the last request."""
        return self.metadata["status"]

    def __repr__(self) -> str:
        progress = self.metadata["progress"]
        return f"{type(self).__name__}({self.id!r}, {self.kind}, {self.status}, {progress['done']}/{progress['total']})"

    @operation
    async def wait(self, timeout: float | None = None) -> JobT:
        """Wait until the job has succeeded, and return it; raise the problem of a failed job."""
        return self._session.build("job", await self._session.follow(self.metadata, timeout))

    @operation
    async def refresh(self) -> JobT:
        """Return the job in its present state."""
        return self._session.build("job", await self._session.get(path_of("jobs", self.id)))

    @operation
    async def cancel(self) -> JobT:
        """Cancel the job: at once if it is queued, soon if it runs; an ended job stays as it is."""
        call = Call("DELETE", path_of("jobs", self.id))
        return self._session.build("job", (await self._session.send(call)).json())

    @operation
    async def result(
        self, timeout: float | None = None, *, dtype: Dtype | None = None, out: str | Path | None = None
    ) -> Any:
        """Wait until the job has succeeded, and return its result.

        Draws are an array (count, n, p), or (scales, count, n, p); reconstructions are (count, n, d). With `out`, the
        array is written to that npy file and memory-mapped. A fit returns its posterior, every other job a `Result`.
        """
        return await job_result(self._session, self.metadata, timeout, dtype=dtype, out=out)


class Job(BaseJob["Job"], Blocking):
    """Job of a `Client`."""


class AsyncJob(BaseJob["AsyncJob"], Async):
    """Job of an `AsyncClient`."""
