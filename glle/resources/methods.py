"""Embeddings of the service, and operations on methods: list, embed, compare and audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from glle.inputs import AuditDataOptions, CompareDataOptions, DataOptions, data_options, set_blocks_apart
from glle.resources.datasets import (
    dataset_id,
    dataset_of,
    is_stored,
    labels_id,
    names_column,
    new_points,
    optional_id,
)
from glle.resources.results import Result, result_of, run_job, run_on
from glle.transport.calls import Call, path_of
from glle.transport.session import Async, Blocking, operation
from glle.types import MethodsOptions
from glle_engine.base.parameters import with_keywords

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from glle.transport.calls import Array
    from glle.transport.session import Session
    from glle.types import MethodOut, ScoreOut

EmbeddingT = TypeVar("EmbeddingT")


@dataclass(frozen=True, eq=False, repr=False)
class BaseEmbedding(Result):
    """An embedding that the service stores.

    It has the attributes `embedding` (n, p), `id`, `figures` (numbers that the method reports by name, such as its
    stress), `notes`, and `scores` if some were computed.
    """

    _session: Session = field(kw_only=True)

    @property
    def id(self) -> str:
        """Id of the embedding, which is determined by the data, the method, its parameters and the engine."""
        return str(self.metadata["id"])

    @operation
    @with_keywords(DataOptions)
    async def transform(self, data: Any, *, timeout: float | None = None, **options: Unpack[DataOptions]) -> Result:
        """Place new points in this embedding; return a `Result` whose array `embedding` (m, p) has their coordinates.

        Points of the training data get the coordinates that they have in this embedding. Options as for `dataset`. PCA,
        PPCA, factor analysis, kernel PCA, NPE, LLE, Isomap, t-SNE, UMAP and PaCMAP can place new points; other methods
        raise `InvalidRequestError`.
        """
        dataset = await new_points(self._session, data, options, self.metadata["dataset"])
        return await run_on(self._session, path_of("embeddings", self.id, "transform"), dataset, {}, timeout)

    @operation
    async def map_arrays(self, *, timeout: float | None = None) -> dict[str, Array]:
        """Return by name the arrays of the function that places new points; empty if the method has no such function.

        PCA, PPCA, factor analysis and NPE have `mean` (d,) and `components` (p, d): they place a point x at
        `components @ (x - mean)`.
        Kernel PCA has `kernel_means` (n,), the means of the columns of the kernel matrix of the training points: they
        are subtracted from the kernel values of a new point and the training points. The data and the embedding
        determine the rest of this function.
        """
        reply = await self._session.fetch(Call.npz(path_of("embeddings", self.id, "arrays")), timeout)
        return {name: array for name, array in reply.body.items() if name != "embedding"}


class Embedding(BaseEmbedding, Blocking):
    """An embedding that the service stores, as a `Client` returns it: its methods wait for the service's reply."""


class AsyncEmbedding(BaseEmbedding, Async):
    """An embedding that the service stores, as an `AsyncClient` returns it: its methods are coroutines."""


class MethodOperations(Generic[EmbeddingT]):
    """Part of a client that calls methods: `methods`, `scores`, `embed`, `compare` and `audit`."""

    _session: Session

    @operation
    @with_keywords(MethodsOptions)
    async def methods(self, **options: Unpack[MethodsOptions]) -> list[MethodOut]:
        """Return the methods with their parameters; with `makes="embedding"`, only the methods of `embed`."""
        return (await self._session.get("/v1/methods", {**options}))["items"]

    @operation
    async def scores(self) -> list[ScoreOut]:
        """Return the descriptions of all scores: which inputs a score needs, and whether higher or lower is better."""
        return (await self._session.get("/v1/scores"))["items"]

    @operation
    @with_keywords(DataOptions, Any)
    async def embed(
        self,
        data: Any,
        method: str,
        /,
        *,
        labels: Any = None,
        truth: Any = None,
        scores: Sequence[str] | None = None,
        score_neighbors: int | Literal["auto"] | None = "auto",
        timeout: float | None = None,
        **parameters: Any,
    ) -> EmbeddingT:
        """Embed a data set by a method, and return the embedding.

        Parameters
        ----------
        data
            A data set, its id, or any argument of `dataset`.
        method
            Name of the method; `methods` lists them.
        labels
            Class of each point: the name of a column of data to upload, an array of integers or words, or a data set of
            one column. By default the labels of the data set, if it has some. Scores and supervised methods use them;
            other methods do not.
        truth
            True coordinates of the points: an array, a data set or its id. A synthetic data set contains its
            true coordinates: give the data set itself.
        scores
            Names of scores. None for all fast scores, of which some need `labels` or `truth`; () for no scores.
        score_neighbors
            Number of neighbors for the scores; "auto" or None means 10, or fewer if there are few points.
        timeout
            Seconds to wait; None for no limit.
        parameters
            Parameters of the method, such as `n_neighbors`, and options of `dataset` for data to upload, such as
            ``ignore=["note"]``.

        Returns
        -------
        Embedding
            A `Result`: `embedding` (n, p), `id`, `figures`, `notes`, `seconds`, `eigenvalues`, and `scores` if any. Its
            `transform` places new points, if the method has a map.

        """
        of_data, spec = data_options(parameters)
        dataset, id_ = await self._labeled_data(data, of_data, labels)
        body = {
            "labels": id_,
            "method": method,
            "parameters": spec,
            "truth": await optional_id(self._session, truth),
            "scores": None if scores is None else list(scores),
            "score_neighbors": score_neighbors,
        }
        return self._embedding(await run_on(self._session, "/v1/embeddings", dataset, body, timeout))

    @operation
    async def embedding(self, id: str, *, timeout: float | None = None) -> EmbeddingT:  # noqa: A002 # named as in the API
        """Return the embedding with this id, without scores."""
        path = path_of("embeddings", id)
        metadata = (await self._session.fetch(Call("GET", path), timeout)).json()
        places = (await self._session.fetch(Call.npy(f"{path}/coordinates"), timeout)).body
        return self._embedding(Result({"embedding": places}, metadata))

    @operation
    async def delete_embedding(self, id: str, /) -> None:  # noqa: A002 # named as in the API
        """Delete the embedding with this `id`, and its scores; comparisons that show it are kept."""
        await self._session.send(Call("DELETE", path_of("embeddings", id)))

    @operation
    @with_keywords(CompareDataOptions)
    async def compare(
        self,
        data: Any,
        methods: Sequence[str | tuple[str, dict[str, Any]] | dict[str, Any]] | None = None,
        *,
        truth: Any = None,
        timeout: float | None = None,
        **options: Unpack[CompareDataOptions],
    ) -> Result:
        """Compare maps of a data set by several methods, and say which map to show for neighbors, layout and groups.

        Parameters
        ----------
        data, truth, timeout
            As for `embed`.
        methods
            Names, pairs (name, parameters), or dictionaries with `method`, `parameters` and `label`. By default PCA,
            t-SNE and UMAP with several numbers of neighbors, Isomap, GLLE and PaCMAP, as far as they are installed.
        options
            Options of `dataset` for data to upload; `labels` and `scores` as for `embed`; `blocks`, `standardize`,
            `metric` and `seed` as for `audit`; `audit=False` for the scores alone; `score_neighbors` of the scores;
            and `align`, with which the result also has the embeddings.

        Returns
        -------
        Result
            `sentences`, the answers; `best`, the label of the map to show for each of "neighbors", "layout" and
            "groups", or None if no map will do; `rows`, one for each method, with the level and verdict of its audit,
            `facts` on which the answers rest, scores, seconds and notes, or with a `problem`; embeddings by label; and
            `job`, the id of the job.

        """
        of_data, spec = data_options(options, CompareDataOptions)
        blocks = spec.pop("blocks", None)
        roles: Any = of_data
        if not is_stored(data, roles):
            blocks, roles = set_blocks_apart(data, blocks, roles)
        dataset, id_ = await self._labeled_data(data, roles, roles.pop("labels", None))
        body = {
            "labels": id_,
            "methods": None if methods is None else [_row(method) for method in methods],
            "truth": await optional_id(self._session, truth),
            "blocks": blocks if isinstance(blocks, str) else await labels_id(self._session, blocks),
            **spec,
        }
        return await run_on(self._session, "/v1/comparisons", dataset, body, timeout)

    @operation
    @with_keywords(AuditDataOptions)
    async def audit(
        self,
        data: Any,
        coordinates: Any = None,
        *,
        method: str | None = None,
        parameters: dict[str, Any] | None = None,
        timeout: float | None = None,
        **options: Unpack[AuditDataOptions],
    ) -> Result:
        """Audit a map: return a `verdict` on how far the data support the map, and the stability of each point.

        Parameters
        ----------
        data
            A posterior or an embedding of the service, or its id. Or a data set, its id, or any argument of `dataset`,
            together with coordinates or a method.
        coordinates
            Coordinates (n, p) from anywhere: any argument of `dataset`. Without a method, the audit can judge only
            fidelity, tears and islands; with a method, the coordinates are compared with its maps.
        method, parameters
            Name of a method, and its parameters; with coordinates, the method that made them.
        timeout
            Seconds to wait; None for no limit.
        options
            Options of `dataset` for data to upload; `labels`, the group of each point: the name of a column of data to
            upload, an array, or a data set with labels, by default the labels of the data; `blocks`, the subject,
            series or replicate of each point, or the name of its column; `standardize` of the features and `metric` of
            the distances; `score_neighbors`, the number of neighbors that are compared, and the `seed`.

        Returns
        -------
        Result
            With the names of `glle.audit`: `verdict`, `level`, `remains`, `islands`, `arrangement`, `neighborhoods`,
            `shape`, `tears`, `dimension`, `groups`, `regions` and `notes`; the arrays `embedding`, `island`,
            `neighborhood`, `stretch`, `squeeze`, `is_torn`, `is_glued`, `seam`, `p_value`, `is_point_beyond`,
            `stability`, `spread`, `half_axes` and `member_probability`, with a row for each point; and `neighbors`, a
            sparse matrix.

        """
        of_data, body = data_options(options, AuditDataOptions)
        blocks, labels = body.pop("blocks", None), of_data.pop("labels", None)
        id_ = str(getattr(data, "id", data)) if coordinates is None else ""
        kind = {"post": "posterior", "emb": "embedding"}.get(id_.partition("_")[0])
        if kind is not None:
            body[kind] = id_
        else:
            roles: Any = of_data
            if not is_stored(data, roles):
                if names_column(labels):
                    roles, labels = {**roles, "labels": labels}, None
                blocks, roles = set_blocks_apart(data, blocks, roles)
            data = await dataset_of(self._session, data, roles)
            body |= {"dataset": data if isinstance(data, str) else data.id}
            body |= {"method": method, "parameters": parameters or {}}
            if coordinates is not None:
                body["coordinates"] = await dataset_id(self._session, coordinates)
        body["labels"] = await labels_id(self._session, labels)
        body["blocks"] = blocks if isinstance(blocks, str) else await labels_id(self._session, blocks)
        result = await run_job(self._session, "/v1/audits", body, timeout)
        return result_of(data, result)

    async def _labeled_data(self, data: Any, options: Any, labels: Any) -> tuple[Any, str | None]:
        """Return the data set to embed, and the id of the data set that has the labels; upload what is not stored.

        If `data` is an id, the first value is this id. The second value is None if there are no labels. If `labels` is
        None, or names a column of data to upload, the labels are stored with the points, and the second value is the id
        of the same data set.
        """
        if not is_stored(data, options) and names_column(labels):
            options, labels = {**options, "labels": labels}, None
        dataset: Any = await dataset_of(self._session, data, options)
        is_id = isinstance(dataset, str)
        metadata = await self._session.get(path_of("datasets", dataset)) if is_id else dataset.metadata
        if labels is None and metadata["has_labels"]:
            labels = dataset
        return dataset, await labels_id(self._session, labels)

    def _embedding(self, result: Result) -> EmbeddingT:
        made: EmbeddingT = self._session.classes["embedding"](
            result.arrays, result.metadata, result.index, _session=self._session
        )
        return made


def _row(method: str | tuple[str, dict[str, Any]] | dict[str, Any]) -> dict[str, Any]:
    """Return the JSON object in the request for one of the `methods` that a user gave to `Client.compare`."""
    if isinstance(method, str):
        return {"method": method}
    return {"method": method[0], "parameters": method[1]} if isinstance(method, tuple) else method
