"""Posteriors of the service: their draws, their analyses, and pandas frames of draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from glle.inputs import TransformDataOptions, data_options
from glle.resources.datasets import new_points
from glle.resources.results import AsyncJob, Job, Resource, Result, result_of, run_job, run_on, warn_of_scale
from glle.transport.calls import NPZ, Call, path_of
from glle.transport.session import Async, Blocking, operation
from glle.types import (
    CalibrationOptions,
    DrawOptions,
    DrawsOptions,
    ReconstructionsOptions,
    SummaryOptions,
    WeightsOptions,
)
from glle_engine.base.parameters import with_keywords

if TYPE_CHECKING:
    from typing import Unpack

    import pandas as pd

    from glle.transport.calls import Array, Dtype
    from glle.types import PosteriorOut

JobT = TypeVar("JobT")


@dataclass(frozen=True, repr=False)
class BasePosterior(Resource, Generic[JobT]):
    """A fitted posterior that the service stores.

    `metadata` is the service's description of it, and `index` is the row index of the pandas frame that was uploaded,
    or None.
    """

    metadata: PosteriorOut
    index: Any = field(default=None, compare=False)
    _notices: tuple[str, ...] = field(default=(), compare=False)  # notices of the upload by `fit`

    @property
    def n(self) -> int:
        """Number of points."""
        return self.metadata["n"]

    @property
    def spec(self) -> dict[str, Any]:
        """Values of all parameters of the fit, by name."""
        return self.metadata["spec"]

    @property
    def notes(self) -> list[str]:
        """The messages of the upload by `fit`, followed by warnings and findings of the fit itself."""
        return [*self._notices, *(note["message"] for note in self.metadata["diagnostics"]["notes"])]

    def __repr__(self) -> str:
        names = ("method", "n_neighbors", "n_components")
        spec = ", ".join(f"{name}={self.spec[name]!r}" for name in names)
        return f"{type(self).__name__}({self.id!r}, n={self.n}, {spec})"

    def frame(self, array: Any, *, first: int = 0, index: Any = None) -> pd.DataFrame:
        """Return embeddings (n, p) or (n_draws, n, p) as a frame with columns y1, ..., yp and the index of the data.

        `first` is the number of the first draw in the index level `draw`. `index` replaces the index of the uploaded
        frame, such as the ids of a file: ``posterior.frame(draw, index=dataset.ids())``.
        """
        try:
            import pandas as pd  # noqa: PLC0415 # an optional package
        except ImportError as error:
            raise ImportError("Frames need pandas: pip install pandas.") from error
        values = np.asarray(array)
        if values.ndim not in {2, 3}:
            raise ValueError(
                f"The values have shape {values.shape}. Give values of shape (n, p) or (n_draws, n, p) to make a frame."
            )
        columns = [f"y{i + 1}" for i in range(values.shape[-1])]
        labels = self.index if index is None else index
        points = pd.RangeIndex(values.shape[-2], name="point") if labels is None else pd.Index(labels)
        if values.ndim == 2:
            return pd.DataFrame(values, index=points, columns=columns)
        frames = {first + i: pd.DataFrame(value, index=points, columns=columns) for i, value in enumerate(values)}
        return pd.concat(frames, names=["draw"]) if frames else pd.DataFrame(columns=columns)

    @operation
    @with_keywords(DrawOptions)
    async def draw(self, index: int = 0, *, timeout: float | None = None, **options: Unpack[DrawOptions]) -> Array:
        """Return the draw number `index`, an embedding (n, p); equal arguments always give an equal draw.

        Options: `seed`; `scale`, a factor on the covariance of the weights, or "auto" for the factor that `calibration`
        finds; `source`, `align`, `dtype`. Warns if the scale that "auto" finds is doubtful.
        """
        call = Call.npy(self._path("draws", str(index)), {**options})
        reply = await self._session.fetch(call, timeout)
        warn_of_scale(reply)
        return reply.body

    @operation
    @with_keywords(WeightsOptions)
    async def weights(
        self,
        index: int = 0,
        *,
        timeout: float | None = None,
        out: str | Path | None = None,
        **options: Unpack[WeightsOptions],
    ) -> Array:
        """Return the reconstruction weights (n, k) of a draw, each row in the order of ``arrays()["neighbors"]``.

        With `out`, the weights are written to that npy file and memory-mapped. Options: `seed`; `scale`, a factor on
        the covariance of the weights, or "auto" for the factor that `calibration` finds; `source`, `dtype`. Warns if
        the scale that "auto" finds is doubtful.
        """
        call = Call.npy(self._path("draws", str(index), "weights"), {**options}, out)
        reply = await self._session.fetch(call, timeout)
        warn_of_scale(reply)
        return reply.body

    @operation
    @with_keywords(DrawsOptions)
    async def draws(
        self,
        n_draws: int,
        *,
        timeout: float | None = None,
        dtype: Dtype | None = None,
        out: str | Path | None = None,
        **options: Unpack[DrawsOptions],
    ) -> Array:
        """Return draws first, ..., first + n_draws - 1 as an array (n_draws, n, p).

        With the option `scales` the array is (n_scales, n_draws, n, p). With `out`, the array is written to that npy
        file and memory-mapped. Options: `seed`, `first`; `scale` or `scales`, factors on the covariance of the weights,
        or "auto" for the factor that `calibration` finds; `source`, `align`. Warns if the scale that "auto" finds is
        doubtful.
        """
        body = {"n_draws": n_draws, **options}
        return await run_job(self._session, self._path("draws"), body, timeout, dtype=dtype, out=out)

    @operation
    @with_keywords(DrawsOptions)
    async def start_draws(self, n_draws: int, **options: Unpack[DrawsOptions]) -> JobT:
        """Start a job that computes draws, and return the job at once; `result()` of the job returns the draws."""
        reply = await self._session.send(Call.post(self._path("draws"), {"n_draws": n_draws, **options}))
        return self._session.build("job", reply.json())

    @operation
    @with_keywords(SummaryOptions)
    async def summary(
        self, n_draws: int = 100, *, timeout: float | None = None, **options: Unpack[SummaryOptions]
    ) -> Result:
        """Return a `Result` on how far points move from draw to draw: `spread`, `covariance`, `stability` and others.

        `scale` is a factor on the covariance of the weights. By default it is "auto": the service finds the factor at
        which draws spread as much as embeddings of random halves of the data. Where this is not possible, such as with
        `source="prior"` or for a fit with `neighbors`, the default is 1. Options: `scale`, `seed`, `first`, `source`,
        `points`.
        """
        call = Call("GET", self._path("summary"), {**options, "n_draws": n_draws})
        return result_of(self, Result.of_json((await self._session.fetch(call, timeout)).json()))

    @operation
    @with_keywords(TransformDataOptions)
    async def transform(
        self, data: Any, *, timeout: float | None = None, **options: Unpack[TransformDataOptions]
    ) -> Result:
        """Embed new points; return a `Result` with their `embedding` (m, p) and their `distances` (m,).

        A distance is the distance of a new point to the nearest training point. With `n_draws` the result also has
        `mean` and `covariance` of each new point over that many draws. Options: the options of `dataset` for data to
        upload; `n_draws`, `first`, `seed` and `scale` of the draws.
        """
        of_data, spec = data_options(options)
        dataset = await new_points(self._session, data, of_data, self.metadata["dataset"])
        return await run_on(self._session, self._path("transform"), dataset, spec, timeout)

    @operation
    @with_keywords(ReconstructionsOptions)
    async def reconstructions(
        self,
        n_draws: int,
        *,
        timeout: float | None = None,
        out: str | Path | None = None,
        **options: Unpack[ReconstructionsOptions],
    ) -> Array:
        """Return data (n_draws, n, d) that are generated from draws of the reconstruction weights."""
        body = {"n_draws": n_draws, **options}
        return await run_job(self._session, self._path("reconstructions"), body, timeout, out=out)

    @operation
    @with_keywords(CalibrationOptions)
    async def calibration(self, *, timeout: float | None = None, **options: Unpack[CalibrationOptions]) -> Result:
        """Return a `Result` with the `scale` at which draws spread as much as embeddings of random halves of the data.

        The scale is a factor on the covariance of the weights. The result also has the spreads that were compared, and
        `notes` if the scale is doubtful.
        """
        return await run_job(self._session, self._path("calibration"), {**options}, timeout)

    @operation
    async def arrays(self, *, timeout: float | None = None) -> dict[str, Array]:
        """Return the arrays of the fit by name; `embedding` is the LLE embedding."""
        return (await self._session.fetch(Call.npz(self._path("arrays")), timeout)).body

    @operation
    async def export(self, path: str | Path, *, timeout: float | None = None) -> Path:
        """Write the posterior to one npz file, and return its path; `glle.load` reads it.

        Draws of the loaded posterior have the same bits, without a service.
        """
        call = Call("GET", self._path("export"), accept=NPZ, read=Path, out=Path(path))
        return (await self._session.fetch(call, timeout)).body

    @operation
    async def delete(self) -> None:
        """Delete the posterior and its draws, but not its data set."""
        await self._session.send(Call("DELETE", self._path()))

    def _path(self, *parts: str) -> str:
        return path_of("posteriors", self.id, *parts)


class Posterior(BasePosterior[Job], Blocking):
    """A posterior that the service stores, as a `Client` returns it: its methods block."""


class AsyncPosterior(BasePosterior[AsyncJob], Async):
    """A posterior that the service stores, as an `AsyncClient` returns it: its methods are coroutines."""
