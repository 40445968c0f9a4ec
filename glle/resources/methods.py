"""Operations on methods: list them, embed by one, compare several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from glle.options import data_options
from glle.resources.datasets import column_id, dataset_id, labelled_dataset
from glle.resources.results import Result
from glle.transport.calls import Body, Call, Steps, path_of
from glle.transport.operation import operation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Unpack

    from glle.options import CompareDataOptions, DataOptions
    from glle.transport.session import Session
    from glle.types import EstimateOut, MethodOut, MethodsOptions, ScoreOut


EmbeddingT = TypeVar("EmbeddingT")


class MethodOperations(Generic[EmbeddingT]):
    """Methods, embeddings and comparisons of a client."""

    _session: Session

    @operation
    def methods(self, **options: Unpack[MethodsOptions]) -> Steps[list[MethodOut]]:
        """Return the methods with their parameters; `makes="embedding"` for those of `embed`."""
        return (yield from self._session.send(Call("GET", "/v1/methods", {**options}))).json()["items"]

    @operation
    def scores(self) -> Steps[list[ScoreOut]]:
        """Return the scores: the data that they need, and which direction is better."""
        return (yield from self._session.send(Call("GET", "/v1/scores"))).json()["items"]

    @operation
    def embed(
        self,
        data: Any,
        method: str,
        /,
        *,
        truth: Any = None,
        scores: Sequence[str] | None = None,
        score_neighbors: int | None = None,
        timeout: float | None = None,
        **parameters: Any,
    ) -> Steps[EmbeddingT]:
        """Return the embedding of a data set by a method.

        Parameters
        ----------
        data
            A data set, its id, or any argument of `dataset`.
        method
            Name of the method; `methods` lists them.
        truth
            True coordinates: an array, a data set or its id; for a synthetic data set the data set itself.
        scores
            Names of scores; None for all fast ones, () for none.
        score_neighbors
            Neighbours that the scores use.
        timeout
            Seconds; None for no limit.
        parameters
            Parameters of the method, such as `n_neighbors`; options of `dataset` for data to upload, such as
            ``label="species"`` and ``ignore=["note"]``; and `labels`, the class of each point: a vector of integers or
            words, or a data set of one column. By default the labels are those of the data set, if it has labels.

        Returns
        -------
        Embedding
            A `Result`: `embedding` (n, p), `id`, `figures`, `notes`, `seconds`, `eigenvalues`, and `scores` if any. Its
            `transform` places new points, if the method has a map.

        """
        of_data, spec = data_options(parameters)
        body = {
            **(yield from self._scored_data(data, of_data, {method}, scores, f"embed(frame, {method!r}")),
            "method": method,
            "parameters": spec,
            "truth": (yield from column_id(self._session, truth, "truth")),
            "scores": None if scores is None else list(scores),
            "n_neighbors": score_neighbors,
        }
        return self._embedding((yield from self._run("/v1/embeddings", body, timeout)))

    @operation
    def embedding(self, id: str, *, timeout: float | None = None) -> Steps[EmbeddingT]:  # noqa: A002 # name in the API
        """Return the embedding of an id, without scores; an evicted one is computed again."""
        path = path_of("embeddings", id)
        metadata = (yield from self._session.fetch(Call("GET", path), timeout)).json()
        places = (yield from self._session.fetch(Call.npy(f"{path}/coordinates", {}), timeout)).body
        return self._embedding(Result({"embedding": places}, metadata))

    @operation
    def delete_embedding(self, id: str, /) -> Steps[None]:  # noqa: A002 # the name in the API
        """Delete an embedding (`id` of the result of `embed`), its scores and its pictures; comparisons stay."""
        yield from self._session.send(Call("DELETE", path_of("embeddings", id)))

    @operation
    def compare(
        self,
        data: Any,
        methods: Sequence[str | dict[str, Any]],
        *,
        truth: Any = None,
        timeout: float | None = None,
        **options: Unpack[CompareDataOptions],
    ) -> Steps[Result]:
        """Return the scores of several methods on one data set.

        Parameters
        ----------
        data, truth, timeout
            As for `embed`.
        methods
            Names, or dictionaries with `method`, `parameters` and `label`.
        options
            Options of `dataset` for data to upload, and `labels` as for `embed`; `scores`, `n_neighbors` of the scores,
            `align`, with which the result has the embeddings, and `spread`, a number of half-samples, with which each
            row has the figures of its movement.

        Returns
        -------
        Result
            `rows`, one per method: scores, seconds and notes, or a `problem`; embeddings by label; the id of the `job`.

        """
        of_data, spec = data_options(options)
        compared = [{"method": method} if isinstance(method, str) else method for method in methods]
        names = {method.get("method") for method in compared}
        body = {
            **(yield from self._scored_data(data, of_data, names, spec.get("scores"), "compare(frame, methods")),
            "methods": compared,
            "truth": (yield from column_id(self._session, truth, "truth")),
            **spec,
        }
        return (yield from self._run("/v1/comparisons", body, timeout))

    @operation
    def picture(
        self, path: str, /, *, out: str | Path | None = None, timeout: float | None = None, **options: Any
    ) -> Steps[bytes]:
        """Return the picture of a path, ``f"/v1/jobs/{result.job}/result.png"`` or ``f"/v1/embeddings/{id}.svg"``.

        With `out`, also written to that file. Options: `color`, `theme`, `width`.
        """
        return (yield from self._session.picture(path, options, out, timeout))

    @operation
    def estimate(self, data: Any, method: str, /, **parameters: Any) -> Steps[EstimateOut]:
        """Return the expected seconds and bytes of an embedding, and the `problem` of its refusal, or None.

        Parameters as for `embed`.
        """
        of_data, spec = data_options(parameters)
        dataset = yield from dataset_id(self._session, data, of_data, call=f"estimate(frame, {method!r}")
        body = Body.of_json({"dataset": dataset, "method": method, "parameters": spec})
        call = Call("POST", "/v1/embeddings/estimate", body=body, by_content=True)
        return (yield from self._session.send(call)).json()

    def _scored_data(
        self, data: Any, options: DataOptions, methods: set[Any], scores: Sequence[str] | None, call: str
    ) -> Steps[dict[str, str | None]]:
        """Return the ids of a data set and of its labels: a separate vector, or those of the data set if they are used.

        The service refuses labels that neither a method nor a score uses.
        """
        of_upload: Any = {name: value for name, value in options.items() if name != "labels"}
        labels = options.get("labels")
        if labels is not None and options.get("label") is not None:
            raise ValueError("label= names a column, labels= has the values: give one of them.")
        dataset, has_labels = yield from labelled_dataset(self._session, data, of_upload, call=call)
        if labels is None and has_labels and (yield from self._use_labels(methods, scores)):
            labels = dataset
        return {"dataset": dataset, "labels": (yield from column_id(self._session, labels, "labels"))}

    def _use_labels(self, methods: set[Any], scores: Sequence[str] | None) -> Steps[bool]:
        """Return whether one of the methods or scores uses labels, as the default scores (None) do."""
        if scores is None:
            return True
        for path, names, needs in (("scores", set(scores), "needs"), ("methods", methods, "needs_labels")):
            items = (yield from self._session.send(Call("GET", f"/v1/{path}"))).json()["items"] if names else []
            if any(item["name"] in names and item[needs] in {"labels", True} for item in items):
                return True
        return False

    def _embedding(self, result: Result) -> EmbeddingT:
        made: EmbeddingT = self._session.classes["embedding"](result.arrays, result.metadata, _session=self._session)
        return made

    def _run(self, path: str, body: dict[str, Any], timeout: float | None) -> Steps[Result]:
        job, reply = yield from self._session.run_job(path, body, timeout)
        return Result.of_json({**reply.json(), "job": job["id"]})
