"""Jobs of the service, their results, and the base class of data sets, posteriors and jobs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from glle.table import map_frame, map_table, table_html, table_text
from glle.transport.calls import Call, path_of
from glle.transport.session import Async, Blocking, operation
from glle_engine.base.arrays import PointArray

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from glle.transport.calls import Array, Dtype, Reply
    from glle.transport.session import Session
    from glle.types import JobOut

# Why a calibrated scale is doubtful, as a part of a sentence, by the code of the calibration's note.
_DOUBTS = {
    "scale-saturated": "the spread of draws hardly depends on it",
    "scale-not-matched": "no scale that was tried makes draws spread as much as maps of random halves of the data",
    "scale-poorly-correlated": "draws and maps of random halves of the data disagree about which points are uncertain",
}


def warn_of_scale(reply: Reply) -> None:
    """Issue a UserWarning if the calibrated scale of the draws in a response is doubtful.

    The scale is the factor on the covariance of the weights. An array of draws cannot have notes, so the response has
    the codes of the notes in the header GLLE-Notes.
    """
    if codes := reply.headers.get("glle-notes", ""):
        doubts = " and ".join(_DOUBTS.get(code, code) for code in codes.split(", "))
        message = f"The calibrated scale is doubtful: {doubts}. Posterior.calibration() has the notes."
        warnings.warn(message, UserWarning, stacklevel=2)


@dataclass(frozen=True, repr=False)
class Resource:
    """Base class of data sets, posteriors and jobs; `metadata` is the JSON with which the service describes one."""

    metadata: Any
    _session: Session = field(compare=False)

    @property
    def id(self) -> str:
        """Id of the resource.

        The id of a data set is determined by its content, and the id of a posterior by its data, its parameters and the
        version of the engine. The id of a job is random.
        """
        return str(self.metadata["id"])


@dataclass(frozen=True, eq=False)
class Result(PointArray):
    """Result of an analysis: `arrays` by name, and all other values in `metadata`.

    `index` is the row index of the pandas frame that was uploaded, or None.
    Arrays and values are also attributes: ``summary.spread``, ``audit.verdict``. A result with coordinates can be
    passed in place of an array, and stands for its `embedding` (n, p); the `embedding` of a summary is the `consensus`.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    index: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look up names before the object has its fields
            raise AttributeError(name)
        for values in (self.arrays, self.metadata):
            if name in values:
                return values[name]
        if name == "embedding" and "consensus" in self.arrays:
            return self.arrays["consensus"]
        raise AttributeError(f"The result has no {name!r}. It has {', '.join(self.__dir__()) or 'no values'}.")

    def __dir__(self) -> list[str]:
        return [*self.arrays, *self.metadata]

    def __repr__(self) -> str:
        if "rows" in self.metadata:  # only comparisons have rows
            return "\n".join([*self.metadata.get("sentences", ()), table_text(self._table()), *self._below()])
        shapes = [f"{name}: {array.dtype} {array.shape}" for name, array in self.arrays.items()]
        return f"Result({', '.join([*shapes, *self.metadata])})"

    def _repr_html_(self) -> str | None:
        """Return the sentences and the table of a comparison, for notebooks; None for other results."""
        if "rows" not in self.metadata:
            return None
        return table_html(self._table(), self.metadata.get("sentences", ()), self._below())

    def frame(self) -> pd.DataFrame:
        """Return a comparison as a frame with the columns of `glle.comparison.Comparison.frame`.

        For a result with points, there is ``glle.frame(result)``.
        """
        rows = [{**row, "problem": self._problem(row)} for row in self.rows]
        return map_frame(rows, self.metadata.get("best") or {})

    def _table(self) -> list[list[str]]:
        return map_table([row for row in self.rows if not row["problem"]])

    def _below(self) -> list[str]:
        failures = [f"{row['label']}: {self._problem(row)}" for row in self.rows if row["problem"]]
        return [*failures, *(note["message"] for note in self.metadata.get("notes", ()))]

    @staticmethod
    def _problem(row: dict[str, Any]) -> str | None:
        problem = row["problem"]
        return problem and f"{problem['detail']} {problem['remedy']}"

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> Result:
        """Return the result in a JSON response, with its arrays as numpy arrays."""
        arrays = {
            name: np.array(array["data"], array["dtype"]).reshape(array["shape"])
            for name, array in content.get("arrays", {}).items()
        }
        return cls(arrays, {name: value for name, value in content.items() if name != "arrays"})


def result_of(data: Any, result: Result) -> Result:
    """Return `result` with the row index of `data`, which is a data set, a posterior, an embedding or an id.

    The row index is that of the pandas frame that was uploaded. The notices of a data set's upload come before the
    notes of the result. If `data` is only an id, the row index is None, and there are no notices.
    """
    notices = () if isinstance(data, str) else data.metadata.get("notices", ())
    notes = [*notices, *result.metadata.get("notes", ())]
    index = None if isinstance(data, str) else data.index
    return replace(result, metadata={**result.metadata, "notes": notes}, index=index)


async def job_result(
    session: Session,
    job: JobOut,
    timeout: float | None = None,
    *,
    dtype: Dtype | None = None,
    out: str | Path | None = None,
) -> Any:
    """Wait until a job has succeeded, and return its result; `BaseJob.result` lists what each kind of job returns."""
    job = await session.follow(job, timeout)
    path, query, kind = path_of("jobs", job["id"], "result"), {"dtype": dtype}, job["kind"]
    if kind in {"draws", "reconstructions", "weights"}:
        reply = await session.fetch(Call.npy(path, query, out), timeout)
        warn_of_scale(reply)
        return reply.body
    if out is not None:
        raise ValueError(
            f"The result of a {kind} job is not a single array, so that it cannot be written to an npy file. Leave "
            "`out` out, and save the arrays of the result that you need."
        )
    if kind in {"transform", "placement"}:
        arrays = (await session.fetch(Call.npz(path, query), timeout)).body
        return Result(arrays, {"dataset": job["dataset"], "job": job["id"]})
    if kind == "audit":  # only the npz has the matrix of neighbors, and only the JSON has the statements
        arrays = (await session.fetch(Call.npz(path, query), timeout)).body
        statements = (await session.fetch(Call("GET", path, {"points": "0"}), timeout)).json()
        return Result(with_neighbors(arrays), {**Result.of_json(statements).metadata, "job": job["id"]})
    content = (await session.fetch(Call("GET", path, query), timeout)).json()
    if kind == "fit":
        return session.build("posterior", content)
    return Result.of_json({**content, "job": job["id"]} if kind in {"embedding", "comparison"} else content)


async def run_job(session: Session, path: str, body: Any, timeout: float | None, **options: Any) -> Any:
    """Submit a job: post `body` to `path`, wait for the job and return its result. `options` are for `job_result`."""
    reply = await session.send(Call.post(path, body))
    return await job_result(session, reply.json(), timeout, **options)


async def run_on(session: Session, path: str, data: Any, body: Any, timeout: float | None) -> Result:
    """Submit a job on `data`, a data set or its id, and return the result, with the row index of the data set.

    The notices of the data set's upload come before the notes of the result.
    """
    id_ = data if isinstance(data, str) else data.id
    result: Result = await run_job(session, path, {"dataset": id_, **body}, timeout)
    return result_of(data, result)


def with_neighbors(arrays: dict[str, Array]) -> dict[str, Any]:
    """Return the arrays of an audit; the three arrays of its matrix `neighbors` become one sparse matrix."""
    parts = [arrays.get(f"neighbors_{name}") for name in ("data", "indices", "indptr")]
    if parts[0] is None:
        return arrays
    from scipy.sparse import csr_array  # noqa: PLC0415 # the import takes a tenth of a second

    n = len(arrays["embedding"])
    rows = {name: array for name, array in arrays.items() if not name.startswith("neighbors_")}
    return {**rows, "neighbors": csr_array(tuple(parts), shape=(n, n))}


JobT = TypeVar("JobT")


@dataclass(frozen=True, repr=False)
class BaseJob(Resource, Generic[JobT]):
    """A job of the service; `metadata` is the service's description of the job at the last request.

    The object does not follow the job: `refresh` asks the service again, and returns a new object.
    """

    metadata: JobOut

    @property
    def kind(self) -> str:
        """Kind of the job, such as `fit` or `draws`."""
        return self.metadata["kind"]

    @property
    def status(self) -> str:
        """Status of the job when `metadata` was requested, such as "running"."""
        return self.metadata["status"]

    def __repr__(self) -> str:
        progress = self.metadata["progress"]
        return f"{type(self).__name__}({self.id!r}, {self.kind}, {self.status}, {progress['done']}/{progress['total']})"

    @operation
    async def wait(self, timeout: float | None = None) -> JobT:
        """Wait until the job has succeeded, and return the job; raise its problem if it fails or is cancelled."""
        return self._session.build("job", await self._session.follow(self.metadata, timeout))

    @operation
    async def refresh(self) -> JobT:
        """Ask the service for the job, and return it in its current state as a new object."""
        return self._session.build("job", await self._session.get(path_of("jobs", self.id)))

    @operation
    async def statements(self) -> Result | None:
        """Return the preliminary statements of a running audit as a `Result`, or None if there are none yet."""
        reply = await self._session.send(Call("GET", path_of("jobs", self.id, "result"), {"partial": True}))
        return None if reply.status == HTTPStatus.ACCEPTED else Result.of_json(reply.json())

    @operation
    async def cancel(self) -> JobT:
        """Cancel the job: at once if it is queued, soon if it is running. A job that has ended does not change."""
        call = Call("DELETE", path_of("jobs", self.id))
        return self._session.build("job", (await self._session.send(call)).json())

    @operation
    async def result(
        self, timeout: float | None = None, *, dtype: Dtype | None = None, out: str | Path | None = None
    ) -> Any:
        """Wait until the job has succeeded, and return its result.

        Draws are an array (n_draws, n, p), or (scales, n_draws, n, p); reconstructions are (n_draws, n, d), weights are
        (n, k). With `out`, the array is written to that npy file and memory-mapped. A fit returns its posterior, and
        every other job returns a `Result`.
        """
        return await job_result(self._session, self.metadata, timeout, dtype=dtype, out=out)


class Job(BaseJob["Job"], Blocking):
    """A job of the service, as a `Client` returns it: its methods block."""


class AsyncJob(BaseJob["AsyncJob"], Async):
    """A job of the service, as an `AsyncClient` returns it: its methods are coroutines."""
