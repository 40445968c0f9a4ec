"""`Client` and `AsyncClient`: the service as an object."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import httpx

from glle.progress import Bars
from glle.resources.datasets import AsyncDataset, Dataset, dataset_id, uploaded
from glle.resources.jobs import AsyncJob, Job
from glle.resources.methods import Comparing
from glle.resources.posteriors import AsyncPosterior, Posterior
from glle.resources.results import Result
from glle.transport.calls import Body, Call, Steps
from glle.transport.drivers import AwaitingSession, BlockingSession, options_of
from glle.transport.operation import Awaiting, Blocking, listing, operation
from glle.transport.requests import new_key, path_of
from glle.transport.retries import Retries
from glle.transport.session import ACCEPTED

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    from glle.transport.session import Session
    from glle.types import (
        AdviceOptions,
        DatasetsOptions,
        FitOptions,
        InfoOut,
        JobOut,
        JobsOptions,
        PosteriorsOptions,
        SyntheticOptions,
    )

URL = "http://127.0.0.1:8000"
TIMEOUT = 120.0

DatasetT = TypeVar("DatasetT")
PosteriorT = TypeVar("PosteriorT")
JobT = TypeVar("JobT")


class ClientMethods(Comparing, Generic[DatasetT, PosteriorT, JobT]):
    """What both clients can do."""

    _session: Session

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session.url!r})"

    @operation
    def dataset(self, data: Any, *, label: str | None = None) -> Steps[DatasetT]:
        """Return the data set of an array, a frame, a file's path, or an id.

        Parameters
        ----------
        data
            (n, d) values: what numpy makes an array of, a `pandas.DataFrame` of numbers, the path of a csv, npy or json
            file; or the id of a data set that is there.
        label
            The column of labels, of a frame or a csv file.

        """
        if isinstance(data, str) and data.startswith("ds_"):
            told = (yield from self._session.ask(Call("GET", path_of("datasets", data)))).json()
            return self._made("dataset", told)
        told, index = yield from uploaded(self._session, data, label)
        return self._made("dataset", told, index)

    @operation
    def synthetic(self, name: str, n: int = 1000, **options: Unpack[SyntheticOptions]) -> Steps[DatasetT]:
        """Return a data set that the service makes: `swiss_roll`, `s_curve` and others. Options: `noise`, `seed`."""
        body = Body.of_json({"name": name, "n": n, **options})
        reply = yield from self._session.ask(Call("POST", "/v1/datasets/synthetic", body=body, by_content=True))
        return self._made("dataset", reply.json())

    @operation
    def fit(self, data: Any, *, timeout: float | None = None, **options: Unpack[FitOptions]) -> Steps[PosteriorT]:
        """Return the posterior of a data set, fitted unless it is there already.

        Parameters
        ----------
        data
            A data set, its id, or whatever `dataset` takes.
        timeout
            Seconds; None to wait for as long as it takes.
        options
            `n_neighbors`, `n_components`, `method`, `variant`, `reg` and all other parameters of a posterior.

        """
        index = getattr(data, "index", None) if hasattr(data, "told") or hasattr(data, "iloc") else None
        body = {"dataset": (yield from dataset_id(self._session, data)), **options}
        call = Call("POST", "/v1/posteriors", body=Body.of_json(body), key=new_key())
        reply = yield from self._session.ask(call)
        if reply.status == ACCEPTED:
            job: JobOut = yield from self._session.follow(reply.json(), timeout)
            reply = yield from self._session.ask(Call("GET", path_of("posteriors", str(job["posterior"]))))
        return self._made("posterior", reply.json(), index)

    @operation
    def advice(self, data: Any, *, timeout: float | None = None, **options: Unpack[AdviceOptions]) -> Steps[Result]:
        """Return which `n_neighbors` and `n_components` suit a data set, and the curves that say so."""
        body = {"dataset": (yield from dataset_id(self._session, data)), **options}
        reply = yield from self._session.ask(Call("POST", "/v1/advice", body=Body.of_json(body), key=new_key()))
        job = yield from self._session.follow(reply.json(), timeout)
        reply = yield from self._session.settled(Call("GET", path_of("jobs", job["id"], "result")), timeout)
        return Result.of_json(reply.json())

    @operation
    def posterior(self, id: str) -> Steps[PosteriorT]:  # noqa: A002 # the contract's name
        """Return the posterior of an id; one that is being fitted, when it is."""
        reply = yield from self._session.settled(Call("GET", path_of("posteriors", id)))
        return self._made("posterior", reply.json())

    @operation
    def job(self, id: str) -> Steps[JobT]:  # noqa: A002 # the contract's name
        """Return the job of an id."""
        return self._made("job", (yield from self._session.ask(Call("GET", path_of("jobs", id)))).json())

    @listing
    def datasets(
        self, cursor: str | None, **filters: Unpack[DatasetsOptions]
    ) -> Steps[tuple[list[DatasetT], str | None]]:
        """Iterate over the data sets, the newest first."""
        return (yield from self._page("dataset", cursor, dict(filters)))

    @listing
    def posteriors(
        self, cursor: str | None, **filters: Unpack[PosteriorsOptions]
    ) -> Steps[tuple[list[PosteriorT], str | None]]:
        """Iterate over the posteriors, the newest first."""
        return (yield from self._page("posterior", cursor, dict(filters)))

    @listing
    def jobs(self, cursor: str | None, **filters: Unpack[JobsOptions]) -> Steps[tuple[list[JobT], str | None]]:
        """Iterate over the jobs, the newest first: all, or those of a `status`, of a `kind`."""
        return (yield from self._page("job", cursor, dict(filters)))

    @operation
    def info(self) -> Steps[InfoOut]:
        """Return the service's versions and limits."""
        return (yield from self._session.ask(Call("GET", "/v1/info"))).json()

    def _made(self, kind: str, told: Any, *more: Any) -> Any:
        return self._session.kinds[kind](told, self._session, *more)

    def _page(self, kind: str, cursor: str | None, query: dict[str, Any]) -> Steps[tuple[list[Any], str | None]]:
        page = (
            yield from self._session.ask(Call("GET", f"/v1/{kind}s", {**query, "limit": 100, "cursor": cursor}))
        ).json()
        return [self._made(kind, item) for item in page["items"]], page["next"]


class Client(ClientMethods[Dataset, Posterior, Job], Blocking):
    """A service.

    Parameters
    ----------
    url
        Its address; unless told GLLE_URL, or http://127.0.0.1:8000.
    key
        A bearer key; unless told GLLE_KEY, or none.
    progress
        Bars for jobs that take a while: None for a terminal or a notebook, True for always, False for never; or `Bars`
        of one's own.
    retries
        How patient it is with a service that does not answer, or says 429, 502, 503 or 504.
    timeout
        Seconds between two signs of life of one answer.
    transport
        Of httpx, in place of the network.

    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        progress: bool | Bars | None = None,
        retries: Retries | None = None,
        timeout: float = TIMEOUT,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        url, key = _given(url, key)
        http = httpx.Client(transport=transport, **options_of(url, key, timeout))
        kinds = {"dataset": Dataset, "posterior": Posterior, "job": Job}
        self._session: Session = BlockingSession(http, url, retries or Retries(), _bars(progress), kinds)
        self._close = weakref.finalize(self._session, http.close)  # which data sets and posteriors hold, too

    def close(self) -> None:
        """Close the connections; they close by themselves with the last that holds them."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(ClientMethods[AsyncDataset, AsyncPosterior, AsyncJob], Awaiting):
    """A service, awaited: the methods and parameters of `Client`, under `async with`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        progress: bool | Bars | None = None,
        retries: Retries | None = None,
        timeout: float = TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        url, key = _given(url, key)
        self._http = httpx.AsyncClient(transport=transport, **options_of(url, key, timeout))
        kinds = {"dataset": AsyncDataset, "posterior": AsyncPosterior, "job": AsyncJob}
        self._session: Session = AwaitingSession(self._http, url, retries or Retries(), _bars(progress), kinds)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _bars(progress: bool | Bars | None) -> Bars:  # noqa: FBT001 # handed on as it came
    return progress if isinstance(progress, Bars) else Bars(progress)


def _given(url: str | None, key: str | None) -> tuple[str, str | None]:
    """Return address and key: as told, or of the environment."""
    return url or os.environ.get("GLLE_URL") or URL, key or os.environ.get("GLLE_KEY") or None
