"""`Client` and `AsyncClient`, whose methods call one service; `glle` exports the public names of this module."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import httpx

from glle.inputs import DataOptions, FitDataOptions, data_options
from glle.progress import Bars
from glle.resources.datasets import AsyncDataset, Dataset, dataset_id, dataset_of, upload
from glle.resources.methods import AsyncEmbedding, Embedding, EmbeddingT, MethodOperations
from glle.resources.posteriors import AsyncPosterior, Posterior
from glle.resources.results import AsyncJob, Job, Result
from glle.transport.calls import Call, path_of
from glle.transport.errors import (
    AuthError,
    ConflictError,
    GlleServiceError,
    InvalidRequestError,
    JobTimeoutError,
    NotFoundError,
    RateLimitedError,
    UnavailableError,
)
from glle.transport.session import Async, Blocking, BlockingSession, Retries, Session, http_options, listing, operation
from glle.types import DatasetsOptions, EmbeddingsOptions, JobsOptions, PosteriorsOptions, SyntheticOptions
from glle_engine.base.parameters import with_keywords

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Unpack

    from glle.types import (
        DatasetPreviewOut,
        InfoOut,
        ListedEmbeddingOut,
        UsageOut,
    )

__all__ = [
    "AsyncClient",
    "AsyncDataset",
    "AsyncEmbedding",
    "AsyncJob",
    "AsyncPosterior",
    "AuthError",
    "Client",
    "ConflictError",
    "Dataset",
    "GlleServiceError",
    "InvalidRequestError",
    "Job",
    "JobTimeoutError",
    "NotFoundError",
    "Posterior",
    "RateLimitedError",
    "Result",
    "Retries",
    "UnavailableError",
]

URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_SECONDS = 120.0  # longest wait for the next bytes of a response; longer than a poll for a job (20 s)

DatasetT = TypeVar("DatasetT")
PosteriorT = TypeVar("PosteriorT")
JobT = TypeVar("JobT")


class BaseClient(MethodOperations[EmbeddingT], Generic[DatasetT, PosteriorT, JobT, EmbeddingT]):
    """Methods that `Client` and `AsyncClient` have in common."""

    _session_class: ClassVar[Callable[..., Session]]
    _classes: ClassVar[dict[str, Callable[..., Any]]]

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        progress: bool | Bars | None = None,
        retries: Retries | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        url, key = url or os.environ.get("GLLE_URL") or URL, key or os.environ.get("GLLE_KEY") or None
        options = {**http_options(url, key, timeout), "transport": transport}
        bars = progress if isinstance(progress, Bars) else Bars(progress)
        self._session = self._session_class(options, url, retries or Retries(), bars, self._classes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session.url!r})"

    @operation
    @with_keywords(DataOptions)
    async def dataset(self, data: Any, **options: Unpack[DataOptions]) -> DatasetT:
        """Upload an array, a table or a file and return the new data set, or return the data set with an id.

        Parameters
        ----------
        data
            (n, d) values: an array, nested lists or a matrix of scipy.sparse; a table with names, which is a
            `pandas.DataFrame`, an AnnData or, with pyarrow, any object with an Arrow stream (polars, pyarrow, DuckDB);
            the path of a csv, npy, Parquet or other file; or the id of a data set.
        options
            All methods that take data have these options:

            - `labels`, `colors`: the name of a column of a table or a file; or one value for each row of an array or a
              table, in an array, a list or a `Series`. Labels are texts or numbers, colors are numbers. A missing label
              becomes the empty text
            - `features`, `id`, `ignore`, `one_hot`: columns by names or patterns such as ``x*``: to fit, to name the
              rows, to leave out, and columns of categories, of which each category becomes a feature
            - `missing`: "drop" for rows with missing values, "median" for the medians of their columns
            - `obsm`: key of the points of an AnnData, if they are not in `X`; `labels` and `colors` name columns of its
              `obs`
            - `header`, `delimiter`, `decimal`, `charset`: dialect of a text file; `sheet` of a workbook

            If you give no role to a column of texts or dates, the service guesses one: ids if the values are distinct,
            labels if there are few words, and colors if they are dates. The `notices` of the data set list the guesses.
            Other columns of texts are refused.

        """
        dataset = await dataset_of(self._session, data, options)
        return await self._get("dataset", dataset) if isinstance(dataset, str) else dataset

    @operation
    @with_keywords(DataOptions)
    async def preview(self, data: Any, **options: Unpack[DataOptions]) -> DatasetPreviewOut:
        """Return what `dataset` would store, and store nothing: the columns with their roles, and the first rows.

        Arguments are the same as for `dataset`. If the service would refuse the data, the member `problem` of the
        preview says why; otherwise `problem` is None.
        """
        return (await upload(self._session, data, options, "/preview"))[0]

    @operation
    @with_keywords(SyntheticOptions)
    async def synthetic(self, name: str, n: int = 1000, **options: Unpack[SyntheticOptions]) -> DatasetT:
        """Return a data set of n points that the service samples from a manifold, such as `swiss_roll` or `s_curve`.

        Options: `noise`, `seed`.
        """
        call = Call.post("/v1/datasets/synthetic", {"name": name, "n": n, **options})
        reply = await self._session.send(call)
        return self._session.build("dataset", reply.json())

    @operation
    @with_keywords(FitDataOptions)
    async def fit(
        self,
        data: Any,
        *,
        neighbors: Any = None,
        timeout: float | None = None,
        **options: Unpack[FitDataOptions],
    ) -> PosteriorT:
        """Return the posterior of a data set, which is fitted unless the service has it already.

        Parameters
        ----------
        data
            A data set, its id, or any argument of `dataset`.
        neighbors
            Neighbors of each point, in place of a search: row numbers (n, k), with k the `n_neighbors`, as an array, a
            file, a data set or the id of a data set. An array or a file is uploaded as a data set.
        timeout
            Seconds to wait for the fit; None for no limit.
        options
            Options of `dataset` for data to upload, such as ``labels="species"`` and ``ignore=["note"]``. The fit does
            not use labels and colors; plots, scores and the explorer do. Parameters of the posterior:

            - `n_neighbors`: k, the number of neighbors of a point, by default .35 times the root of the number of
              points, and between 10 and 30
            - `n_components`: p, the dimension of the embedding, by default 2
            - `method`: "em", the posterior given the data, or "direct", given the embedding as well
            - `variant`: "constrained" for weights that sum to one, or "published"
            - `reg`: ratio of noise to prior variance, the ridge of LLE
            - `noise`: the noise of the reconstruction of a point from its neighbors: "isotropic", "tangent", or "auto"
              for the one whose draws keep neighbors better
            - `variance`: how the variance of this noise is estimated: "dirichlet", "ml" or "auto"
            - `disconnected`: "bridge" a graph of several components, with a note, or "error"
            - `neighborhoods`: "fixed", or "adaptive" for sheets that come close to themselves
            - `standardize`: "zscore" or "robust" for features in different units
            - `metric`: distance of the neighbors: "euclidean", "cosine", "correlation", "hamming", or
              "precomputed" for a matrix of distances as the data
            - `landmarks`: number of points that are fitted, on which the others are placed; "all" points; or "auto":
              all points if a draw is expected to take less than a second, otherwise 4,000 or 2,000, with a note
            - `search`: "exact", or "approximate" for many points with many features
            - `mean`: only with ``method="direct"``; `covariance`, `max_iter`, `tol`: only with ``method="em"`` and
              ``variant="published"``

            The service has the defaults; `glle fit --help` lists all values.

        """
        of_data, spec = data_options(options, FitDataOptions)
        dataset = await dataset_of(self._session, data, of_data)
        index, notices = (None, []) if isinstance(dataset, str) else (dataset.index, dataset.notices)
        body: dict[str, Any] = {"dataset": dataset if isinstance(dataset, str) else dataset.id, **spec}
        if neighbors is not None:
            if isinstance(neighbors, tuple) or hasattr(neighbors, "tocsr"):
                raise ValueError(
                    "`neighbors` is a pair or a sparse matrix, which a service does not accept. Give an array (n, k) "
                    "with the row numbers of the neighbors of each point, and -1 where a point has fewer than k."
                )
            body["neighbors"] = await dataset_id(self._session, neighbors)
        reply = await self._session.send(Call.post("/v1/posteriors", body))
        if reply.status == httpx.codes.ACCEPTED:
            job = await self._session.follow(reply.json(), timeout)
            reply = await self._session.send(Call("GET", path_of("posteriors", str(job["posterior"]))))
        return self._session.build("posterior", reply.json(), index, tuple(notices))

    @operation
    async def posterior(self, id: str) -> PosteriorT:  # noqa: A002 # named as in the API
        """Return the posterior with this id; if it is still being fitted, wait for the fit."""
        return await self._get("posterior", id)

    @operation
    async def job(self, id: str) -> JobT:  # noqa: A002 # named as in the API
        """Return the job with this id."""
        return self._session.build("job", await self._session.get(path_of("jobs", id)))

    @listing
    @with_keywords(DatasetsOptions)
    def datasets(self, **filters: Unpack[DatasetsOptions]) -> AsyncIterator[DatasetT]:
        """Iterate over the data sets, newest first; select some by `name`, or by a list of tags in `tag`."""
        return self._items("dataset", {**filters})

    @listing
    @with_keywords(PosteriorsOptions)
    def posteriors(self, **filters: Unpack[PosteriorsOptions]) -> AsyncIterator[PosteriorT]:
        """Iterate over the posteriors, newest first; select some by `name`, or by a list of tags in `tag`."""
        return self._items("posterior", {**filters})

    @listing
    @with_keywords(EmbeddingsOptions)
    def embeddings(self, **filters: Unpack[EmbeddingsOptions]) -> AsyncIterator[ListedEmbeddingOut]:
        """Iterate over the descriptions of the stored embeddings, newest first; `embedding(id)` returns coordinates."""
        return self._items("embedding", {**filters})

    @listing
    @with_keywords(JobsOptions)
    def jobs(self, **filters: Unpack[JobsOptions]) -> AsyncIterator[JobT]:
        """Iterate over the jobs, newest first; select some by `status` ("running", ...) or `kind` ("fit", ...)."""
        return self._items("job", {**filters})

    @operation
    async def info(self) -> InfoOut:
        """Return the service's versions and limits."""
        return await self._session.get("/v1/info")

    @operation
    async def usage(self) -> UsageOut:
        """Return how much the tenant of the API key stores, such as the number of data sets, and the quotas."""
        return await self._session.get("/v1/usage")

    async def _get(self, kind: str, id_: str) -> Any:
        reply = await self._session.fetch(Call("GET", path_of(f"{kind}s", id_)))
        return self._session.build(kind, reply.json())

    async def _items(self, kind: str, query: dict[str, Any]) -> AsyncIterator[Any]:
        cursor = None
        while True:
            page = await self._session.get(f"/v1/{kind}s", {**query, "limit": 100, "cursor": cursor})
            for item in page["items"]:
                yield item if kind == "embedding" else self._session.build(kind, item)
            if (cursor := page["next"]) is None:
                return


class Client(BaseClient[Dataset, Posterior, Job, Embedding], Blocking):
    """Client of one service; a context manager.

    Parameters
    ----------
    url
        Address of the service; by default GLLE_URL, or http://127.0.0.1:8000.
    key
        API key; by default GLLE_KEY, or none.
    progress
        Whether to show the progress of jobs on stderr. None: in terminals and notebooks. Or an instance of `Bars`.
    retries
        A `glle.Retries`, which says for how many seconds and after which pauses a call is repeated that got no answer,
        or the status 429, 502, 503 or 504. By default, calls are repeated for up to 120 seconds.
    timeout
        Seconds to wait for the next bytes of a response.
    transport
        A transport of httpx that replaces the network, for tests.

    """

    _session_class = BlockingSession
    _classes: ClassVar = {"dataset": Dataset, "posterior": Posterior, "job": Job, "embedding": Embedding}

    def close(self) -> None:
        """Close the connections. Without this call they close when the client and all its objects are deleted."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(BaseClient[AsyncDataset, AsyncPosterior, AsyncJob, AsyncEmbedding], Async):
    """Client of one service whose methods are coroutines; use it with `async with`.

    Methods and parameters are the same as for `Client`.
    """

    _session_class = Session
    _classes: ClassVar = {
        "dataset": AsyncDataset,
        "posterior": AsyncPosterior,
        "job": AsyncJob,
        "embedding": AsyncEmbedding,
    }

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
