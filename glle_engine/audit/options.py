"""Options of an audit: how the map was made, what is known of the rows, and how the audit is computed."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.spec import Metric, Standardize
    from glle_engine.reliability.resamples import Resamples

    Function = Callable[[NDArray[np.float64]], ArrayLike]

    class Transformer(Protocol):
        """Type of estimators that an audit takes as a method, such as `sklearn.decomposition.PCA(2)`."""

        def fit_transform(self, X: NDArray[np.float64]) -> ArrayLike:
            """Return the embedding (m, p) of points (m, d)."""


AUDIT_NEIGHBORS = 15


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditOptions:
    """Options of an audit.

    Attributes
    ----------
    method : str, callable or estimator, optional
        How the coordinates are made: a method of the registry by name, a function of points (m, d) to coordinates
        (m, p), or an object with such a function `fit_transform`. Without a method, the audit can judge only fidelity,
        tears and islands.
    parameters : dict, optional
        Parameters of the method.
    standardize, metric : str, optional
        How features are standardized, and the metric of the data, as in `FitSpec`. A method by name gets these as
        parameters; a function gets points that are transformed accordingly.
    labels : (n,) array-like, optional
        Groups of the points, for `Audit.groups`.
    blocks : (n,) array-like, optional
        Subject, series or replicate of each point. Halves are then halves of the blocks, because rows of one block are
        not independent samples.
    ids : (n,) or (n, columns) array, optional
        Columns that identify the rows, such as sample names; a note says which of the columns may be blocks.
    id_names : sequence of str
        Names of the columns of `ids`.
    is_own_map : bool
        Whether the method itself made the coordinates. The audit then need not check whether they are its map.
    score_neighbors : int
        Number of neighbors to compare. For the share of kept neighbors and the p-values, it is limited to a fifth of
        the points, or of 1,000 points if there are more.
    names : list of str, optional
        Names of the features, for the statement.
    seed : int
        Seed of permutations and halves.
    executor : concurrent.futures.Executor, optional
        Threads that embed halves and permuted data in parallel, with the same bits. By default, threads do this for
        methods of this library.
    threads : int, optional
        Number of threads, if there is no `executor`. Default: the number of processors.
    embed_halves : callable, optional
        Called in place of `resample`, with the same arguments, so that stored maps of halves can be used.
    on_progress
        Called with (done, all, stage); its exceptions end the audit.

    Raises
    ------
    InvalidParameterError
        Unless `score_neighbors` is an integer of at least 2, and `seed` an integer in [0, 2^64), or if `executor` has
        processes.

    """

    method: str | Function | Transformer | None = None
    parameters: dict[str, Any] | None = None
    standardize: Standardize | None = None
    metric: Metric | None = None
    labels: ArrayLike | None = None
    blocks: ArrayLike | None = None
    ids: NDArray[Any] | None = None
    id_names: Sequence[str] = ()
    is_own_map: bool = False
    score_neighbors: int = AUDIT_NEIGHBORS
    names: Sequence[str] | None = None
    seed: int = 0
    executor: Executor | None = None
    threads: int | None = None
    embed_halves: Callable[..., Resamples] | None = None
    on_progress: OnProgress = silent

    def __post_init__(self) -> None:
        object.__setattr__(self, "score_neighbors", check_integer("score_neighbors", self.score_neighbors, 2))
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0, counter=True))
        if isinstance(self.executor, ProcessPoolExecutor):
            raise InvalidParameterError(
                "An audit cannot use the processes of a `ProcessPoolExecutor`, because its parts share memory.",
                remedy="Give a `ThreadPoolExecutor`, or a number of `threads`.",
            )

    def open_pool(self) -> AbstractContextManager[Executor | None]:
        """Return a context manager that yields the caller's executor, a new pool of threads, or None for one thread."""
        if self.executor is not None or self.threads == 1:
            return nullcontext(self.executor)
        return ThreadPoolExecutor(self.threads or os.cpu_count())
