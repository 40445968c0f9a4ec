"""What both clients can do with methods: list them, embed by one, compare several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle.resources.datasets import dataset_id
from glle.resources.pictures import pictured
from glle.resources.results import Result
from glle.transport.calls import Body, Call, Steps
from glle.transport.operation import operation
from glle.transport.requests import new_key, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Unpack

    from glle.transport.session import Session
    from glle.types import CompareOptions, EstimateOut, MethodOut, MethodsOptions, ScoreOut


class Comparing:
    """Methods, embeddings and comparisons of a service."""

    _session: Session

    @operation
    def methods(self, **options: Unpack[MethodsOptions]) -> Steps[list[MethodOut]]:
        """Return the methods there are, with their parameters; `makes="embedding"` for those of `embed`."""
        return (yield from self._session.ask(Call("GET", "/v1/methods", dict(options)))).json()["items"]

    @operation
    def scores(self) -> Steps[list[ScoreOut]]:
        """Return the scores there are: what they need, and which way is better."""
        return (yield from self._session.ask(Call("GET", "/v1/scores"))).json()["items"]

    @operation
    def embed(
        self,
        data: Any,
        method: str,
        /,
        *,
        labels: Any = None,
        truth: Any = None,
        scores: Sequence[str] | None = None,
        score_neighbors: int | None = None,
        timeout: float | None = None,
        **parameters: Any,
    ) -> Steps[Result]:
        """Return the embedding of a data set by a method.

        Parameters
        ----------
        data
            A data set, its id, or whatever `dataset` takes.
        method
            Its name: `methods` has them.
        labels
            The class of each point: a vector of integers or words, or a data set that tells it.
        truth
            The true coordinates, likewise; of a synthetic data set it is the data set itself.
        scores
            Their names; None for all that take a moment, () for none.
        score_neighbors
            Neighbours that the scores look at.
        timeout
            Seconds; None to wait for as long as it takes.
        parameters
            Of the method, such as `n_neighbors`.

        Returns
        -------
        Result
            `embedding` (n, p), `id`, `figures`, `notes`, `seconds`, `eigenvalues`, and `scores` where any were made.

        """
        body = {
            "dataset": (yield from dataset_id(self._session, data)),
            "method": method,
            "parameters": parameters,
            "labels": (yield from _told(self._session, labels)),
            "truth": (yield from _told(self._session, truth)),
            "scores": None if scores is None else list(scores),
            "n_neighbors": score_neighbors,
        }
        return (yield from _result(self._session, "/v1/embeddings", body, timeout))

    @operation
    def compare(
        self,
        data: Any,
        methods: Sequence[str | dict[str, Any]],
        *,
        labels: Any = None,
        truth: Any = None,
        timeout: float | None = None,
        **options: Unpack[CompareOptions],
    ) -> Steps[Result]:
        """Return several methods on one data set, side by side.

        Parameters
        ----------
        data, labels, truth, timeout
            As for `embed`.
        methods
            Their names, or dictionaries with `method`, `parameters` and `label`.
        options
            `scores`, `n_neighbors` of the scores, and `align`, with which the embeddings come along.

        Returns
        -------
        Result
            `rows`, one a method: its scores, seconds and notes, or its `problem`; the embeddings by their labels; and
            the id of the `job`.

        """
        body = {
            "dataset": (yield from dataset_id(self._session, data)),
            "methods": [{"method": one} if isinstance(one, str) else one for one in methods],
            "labels": (yield from _told(self._session, labels)),
            "truth": (yield from _told(self._session, truth)),
            **options,
        }
        return (yield from _result(self._session, "/v1/comparisons", body, timeout))

    @operation
    def picture(
        self, path: str, /, *, out: str | Path | None = None, timeout: float | None = None, **options: Any
    ) -> Steps[bytes]:
        """Return a picture by its path, ``f"/v1/jobs/{compared.job}/result.png"`` or ``f"/v1/embeddings/{id}.svg"``.

        With `out` it is written to that file, too. Options: `color`, `theme`, `width`.
        """
        return (yield from pictured(self._session, path, options, out, timeout))

    @operation
    def estimate(self, data: Any, method: str, /, **parameters: Any) -> Steps[EstimateOut]:
        """Return what an embedding is expected to take, and the `problem` that it would be refused with, or None."""
        body = {
            "dataset": (yield from dataset_id(self._session, data)),
            "method": method,
            "parameters": parameters,
        }
        call = Call("POST", "/v1/embeddings/estimate", body=Body.of_json(body), by_content=True)
        return (yield from self._session.ask(call)).json()


def _told(session: Session, given: Any) -> Steps[str | None]:
    """Return the id of a data set of what is given for each point: a vector becomes a column, words numbers."""
    if given is None:
        return None
    if not isinstance(given, str) and not hasattr(given, "told") and np.ndim(given) == 1:
        vector = np.asarray(given)
        if vector.dtype.kind not in "iufb":
            vector = np.unique(vector, return_inverse=True)[1]
        given = vector.astype(np.float64)[:, None]
    return (yield from dataset_id(session, given))


def _result(session: Session, path: str, body: dict[str, Any], timeout: float | None) -> Steps[Result]:
    """Return the result of what is asked for, once it is there."""
    reply = yield from session.ask(Call("POST", path, body=Body.of_json(body), key=new_key()))
    job = yield from session.follow(reply.json(), timeout)
    reply = yield from session.settled(Call("GET", path_of("jobs", job["id"], "result")), timeout)
    return Result.of_json({**reply.json(), "job": job["id"]})
