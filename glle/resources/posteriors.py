"""Posteriors, as the service has them, and what can be asked of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from glle.resources.datasets import dataset_id
from glle.resources.frames import frame_of
from glle.resources.jobs import AsyncJob, Job
from glle.resources.pictures import pictured
from glle.resources.results import Result
from glle.transport.calls import Body, Call, Steps
from glle.transport.operation import Awaiting, Blocking, operation
from glle.transport.requests import new_key, npy_call, npz_call, path_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    import pandas as pd

    from glle.transport.requests import Dtype
    from glle.transport.session import Session
    from glle.transport.sinks import Array
    from glle.types import (
        CalibrationOptions,
        DrawOptions,
        DrawsOptions,
        JobOut,
        PosteriorOut,
        ReconstructionsOptions,
        SummaryOptions,
        TransformOptions,
    )

JobT = TypeVar("JobT")


@dataclass(frozen=True, repr=False)
class PosteriorMethods(Generic[JobT]):
    """A fitted posterior.

    Attributes
    ----------
    told
        What the service told of it.
    index
        The index of the frame that was uploaded, if it was one.

    """

    told: PosteriorOut
    _session: Session = field(compare=False)
    index: Any = field(default=None, compare=False)

    @property
    def id(self) -> str:
        """Its id: the same data, parameters and engine have the same."""
        return self.told["id"]

    @property
    def n(self) -> int:
        """Points."""
        return self.told["n"]

    @property
    def spec(self) -> dict[str, Any]:
        """Every parameter with its value."""
        return self.told["spec"]

    @property
    def notes(self) -> list[str]:
        """What is remarkable, in words."""
        notes: list[str] = self.told["diagnostics"]["notes"]
        return notes

    def __repr__(self) -> str:
        spec = self.spec
        told = f"n={self.n}, {spec['method']}, n_neighbors={spec['n_neighbors']}, n_components={spec['n_components']}"
        return f"{type(self).__name__}({self.id!r}, {told})"

    def frame(self, array: Any, *, first: int = 0) -> pd.DataFrame:
        """Return embeddings (n, p) or (count, n, p) as a frame, with the index of the data that were uploaded."""
        return frame_of(array, self.index, first=first)

    @operation
    def draw(self, index: int = 0, *, timeout: float | None = None, **options: Unpack[DrawOptions]) -> Steps[Array]:
        """Return one embedding (n, p): the same for the same arguments, today and tomorrow.

        Options: `seed`, `scale` (a number, or "auto"), `source`, `align`, `dtype`.
        """
        call = npy_call(path_of("posteriors", self.id, "draws", str(index)), dict(options))
        return (yield from self._session.settled(call, timeout)).body

    @operation
    def draws(
        self,
        count: int,
        *,
        timeout: float | None = None,
        dtype: Dtype | None = None,
        out: str | Path | None = None,
        **options: Unpack[DrawsOptions],
    ) -> Steps[Array]:
        """Return embeddings first, ..., first + count - 1: (count, n, p), or (scales, count, n, p).

        With `out`, written to that npy file as they come, and mapped from it. Options: `seed`, `first`, `scale` or
        `scales` (numbers, or "auto"), `source`, `align`.
        """
        job = yield from self._job("draws", {"count": count, **options})
        job = yield from self._session.follow(job, timeout)
        call = npy_call(path_of("jobs", job["id"], "result"), {"dtype": dtype}, out)
        return (yield from self._session.settled(call, timeout)).body

    @operation
    def start_draws(self, count: int, **options: Unpack[DrawsOptions]) -> Steps[JobT]:
        """Return the job of such draws at once; its `result()` has them."""
        job = yield from self._job("draws", {"count": count, **options})
        return self._session.kinds["job"](job, self._session)

    @operation
    def summary(
        self, count: int = 100, *, timeout: float | None = None, **options: Unpack[SummaryOptions]
    ) -> Steps[Result]:
        """Return what many draws say together: `consensus`, `covariance`, `spread`, `stability` and more."""
        call = Call("GET", path_of("posteriors", self.id, "summary"), {**options, "count": count})
        return Result.of_json((yield from self._session.settled(call, timeout)).json())

    @operation
    def picture(
        self,
        of: int | Literal["draws", "summary"] = "summary",
        /,
        *,
        format: Literal["png", "svg"] = "png",  # noqa: A002 # as the path has it
        out: str | Path | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Steps[bytes]:
        """Return a picture of one draw (its index), of a sheet of draws, or of what many say together.

        With `out` it is written to that file, too. Options: `color`, `theme`, `width`, `seed`, `scale`; of a sheet
        `count` and `scales`, a row each.
        """
        name = f"draws/{of}.{format}" if isinstance(of, int) else f"{of}.{format}"
        path = path_of("posteriors", self.id, name)
        return (yield from pictured(self._session, path, options, out, timeout))

    @operation
    def transform(
        self, data: Any, *, timeout: float | None = None, **options: Unpack[TransformOptions]
    ) -> Steps[Result]:
        """Place new points: `embedding` (m, p), `distances` (m,); with `draws=`, `mean` and `covariance`, too."""
        dataset = yield from dataset_id(self._session, data)
        job = yield from self._job("transform", {"dataset": dataset, **options})
        job = yield from self._session.follow(job, timeout)
        call = npz_call(path_of("jobs", job["id"], "result"))
        return Result((yield from self._session.settled(call, timeout)).body)

    @operation
    def reconstructions(
        self,
        count: int,
        *,
        timeout: float | None = None,
        out: str | Path | None = None,
        **options: Unpack[ReconstructionsOptions],
    ) -> Steps[Array]:
        """Return data generated from drawn weights (count, n, d)."""
        job = yield from self._job("reconstructions", {"count": count, **options})
        job = yield from self._session.follow(job, timeout)
        call = npy_call(path_of("jobs", job["id"], "result"), {}, out)
        return (yield from self._session.settled(call, timeout)).body

    @operation
    def calibration(self, *, timeout: float | None = None, **options: Unpack[CalibrationOptions]) -> Steps[Result]:
        """Return the `scale` at which draws spread as half-samples of the data do, and how that was found."""
        job = yield from self._job("calibration", dict(options))
        job = yield from self._session.follow(job, timeout)
        reply = yield from self._session.settled(Call("GET", path_of("jobs", job["id"], "result")), timeout)
        return Result.of_json(reply.json())

    @operation
    def arrays(self, *, timeout: float | None = None) -> Steps[dict[str, Array]]:
        """Return its arrays by name: `embedding` is that of LLE."""
        call = npz_call(path_of("posteriors", self.id, "arrays"))
        return (yield from self._session.settled(call, timeout)).body

    @operation
    def delete(self) -> Steps[None]:
        """Delete it and its draws; the data set stays."""
        yield from self._session.ask(Call("DELETE", path_of("posteriors", self.id)))

    def _job(self, what: str, body: dict[str, Any]) -> Steps[JobOut]:
        """Have work on it done; return the job, which may have ended already."""
        path = path_of("posteriors", self.id, what)
        reply = yield from self._session.ask(Call("POST", path, body=Body.of_json(body), key=new_key()))
        return reply.json()


class Posterior(PosteriorMethods[Job], Blocking):
    """A posterior of a `Client`."""


class AsyncPosterior(PosteriorMethods[AsyncJob], Awaiting):
    """A posterior of an `AsyncClient`."""
