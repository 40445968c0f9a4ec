"""Embeddings of the service: coordinates, figures, and new points placed by the map of the method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glle.resources.datasets import column_id, dataset_id
from glle.resources.results import Result
from glle.transport.calls import Call, path_of
from glle.transport.operation import Async, Blocking, operation

if TYPE_CHECKING:
    from typing import Unpack

    from glle.options import DataOptions
    from glle.transport.session import Session
    from glle.transport.sinks import Array
    from glle.types import SpreadOptions


@dataclass(frozen=True, eq=False, repr=False)
class BaseEmbedding(Result):
    """Embedding (n, p) with its metadata: `embedding`, `id`, `figures`, `notes`, and `scores` if any."""

    _session: Session = field(kw_only=True)

    @property
    def id(self) -> str:
        """Id; the same data, method, parameters and engine have the same id."""
        return str(self.metadata["id"])

    @operation
    async def transform(self, data: Any, *, timeout: float | None = None, **options: Unpack[DataOptions]) -> Result:
        """Place new points: `embedding` (m, p). Training points get their coordinates. Options as for `dataset`.

        PCA, PPCA, kernel PCA and NPE have a map to new points; other methods raise `InvalidRequestError`.
        """
        body = {"dataset": await dataset_id(self._session, data, options, call="transform(frame")}
        path = path_of("embeddings", self.id, "transform")
        _, reply = await self._session.run_job(path, body, timeout, Call.npz)
        return Result(reply.body)

    @operation
    async def spread(
        self, *, labels: Any = None, timeout: float | None = None, **options: Unpack[SpreadOptions]
    ) -> Result:
        """Return how far the embedding moves when its method is refitted to random halves of the data.

        Parameters
        ----------
        labels
            Class of each point: a vector of integers or words, or a data set. By default those of the data set, or the
            clusters of the embedding if it has none.
        timeout
            Seconds; None for no limit.
        options
            `half_samples` (40), `refits` with other seeds (8), `seed` of the halves, `share` of the points in each (0.5
            or 0.632), and `n_neighbors` that may be kept (10).

        Returns
        -------
        Result
            `reliability` (`level` and `reason`), to be read before ranks; `figures`, such as `pairs_kept`,
            `cluster_stability` and `separated`; `notes`; and a row for each point of `movement`, which is no interval,
            its parts `sampling_movement` and `seed_movement`, `neighbor_stability`, `radius`, `margin`, `consensus`,
            `covariance`, `baseline` and `classes`.

        """
        body = {"labels": await column_id(self._session, labels, "labels"), **options}
        _, reply = await self._session.run_job(path_of("embeddings", self.id, "spread"), body, timeout)
        return Result.of_json(reply.json())

    @operation
    async def map_arrays(self, *, timeout: float | None = None) -> dict[str, Array]:
        """Return the arrays of the map by name, none without a map.

        `mean` (d,) and `components` (p, d) of PCA, PPCA and NPE: a point x is at `components @ (x - mean)`. Kernel PCA
        has the `kernel_means` (n,) of its columns.
        """
        reply = await self._session.fetch(Call.npz(path_of("embeddings", self.id, "arrays")), timeout)
        return {name: array for name, array in reply.body.items() if name != "embedding"}


class Embedding(BaseEmbedding, Blocking):
    """Embedding of a `Client`."""


class AsyncEmbedding(BaseEmbedding, Async):
    """Embedding of an `AsyncClient`."""
