r"""PaCMAP: attraction of near and mid-near pairs, and repulsion of further ones, in three phases.

With :math:`d_{ij} = |y_i - y_j|^2 + 1`,

.. math::
    w_N \sum_{near} \frac{d_{ij}}{10 + d_{ij}} + w_M \sum_{mid} \frac{d_{ij}}{10^4 + d_{ij}}
    + w_F \sum_{far} \frac{1}{1 + d_{ij}}

(Wang, Huang, Rudin and Shaposhnik 2021, section 4). The mid-near pairs, which have weight in the first phases, arrange
the large structure. The embedding is computed by the library pacmap, in one thread. The library finds neighbors
approximately, and first projects data of more than 100 features to 100 dimensions.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError, OutOfRangeError, TooFewPointsError
from glle_engine.base.parameters import mapping
from glle_engine.base.texts import Text, Way
from glle_engine.linalg.threads import numba_loops
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.neighbor_embedding.affinities import noisy, older_seed
from glle_engine.methods.neighbor_embedding.libraries import library_options, passed_on
from glle_engine.methods.parameters import DistanceSpec, choice, integer, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.neighbor_embedding.affinities import Start

_PHASE_ITERATIONS = (100, 100)  # iterations of the two phases before the last one, as in Wang et al.
_MIN_NEAR_PAIRS = 2
# For each mid-near pair, pacmap samples this many distinct points that are not mid-near points yet.
_CANDIDATES_PER_PAIR = 6
_LIBRARY = "pacmap"
# Arguments of pacmap that `options` cannot set: they are arrays, or would have no effect.
_NO_OPTIONS = {"pair_neighbors", "pair_MN", "pair_FP", "intermediate_snapshots"}
# Arguments of pacmap, and the parameters of this method that set them, where the names differ.
_PARAMETERS = {
    "MN_ratio": "mid_near_ratio",
    "FP_ratio": "further_ratio",
    "lr": "learning_rate",
    "num_iters": "max_iter",
    "random_state": "seed",
}
_MAX_SEED = 2**30  # seeds are below this, because pacmap adds to the seed in a signed integer of 32 bits


@dataclass(frozen=True, kw_only=True)
class PacmapSpec(DistanceSpec):
    """Parameters of PaCMAP."""

    n_neighbors: int = integer(10, "Number of near pairs of a point.", minimum=_MIN_NEAR_PAIRS, counts=True)
    mid_near_ratio: float = number(0.5, "Number of mid-near pairs of a point, divided by n_neighbors.", minimum=0)
    further_ratio: float = number(2.0, "Number of further pairs of a point, divided by n_neighbors.", above=0)
    max_iter: int = integer(250, "Iterations of the last phase, after two phases of 100 each.", minimum=1)
    learning_rate: float = number(1.0, "Step size of the descent, by Adam.", above=0)
    init: str = choice(
        "pca",
        "Where the descent starts: principal components, scaled small, or noise.",
        "pca",
        "random",
    )
    seed: int = integer(0, "Seed of the sampled pairs and of a random start.", minimum=0, maximum=2**63 - 1)
    options: dict[str, Any] | None = mapping("Further arguments of `pacmap.PaCMAP` by name, passed on as they are.")

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if further_ratio is so small that a point has no further pair."""
        if round(self.n_neighbors * self.further_ratio) < 1:
            raise InvalidParameterError(
                Text(
                    Way("further_ratio", self.further_ratio),
                    " times ",
                    Way("n_neighbors", self.n_neighbors),
                    " gives no further pair.",
                ),
                remedy=Text("Give ", Way("further_ratio"), f" of at least {1 / self.n_neighbors:g}."),
            )

    @property
    def pairs(self) -> int:
        """The number of near, mid-near and further pairs of each point, all together."""
        return self.n_neighbors + self._mid_near + round(self.n_neighbors * self.further_ratio)

    @property
    def _mid_near(self) -> int:
        return round(self.n_neighbors * self.mid_near_ratio)

    @property
    def least_points(self) -> int:
        """The smallest number of points with which pacmap can sample all pairs without searching forever."""
        return max(self.pairs + 1, self._mid_near + _CANDIDATES_PER_PAIR if self._mid_near else 0)

    def most_neighbors(self, n: int) -> int:
        """Return the largest number of neighbors, from 2 to `self.n_neighbors`, with which n points can be embedded.

        The result is also 2, the smallest valid number, if n points are too few even for 2 neighbors: the caller has to
        check this case.
        """
        fewer = range(min(self.n_neighbors, n - 1), _MIN_NEAR_PAIRS, -1)
        return next((k for k in fewer if replace(self, n_neighbors=k).least_points <= n), _MIN_NEAR_PAIRS)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` if n points are too few to pair each point with others, or n_components is too large.

        Each point needs different partners for its near, mid-near and further pairs (`least_points`).
        """
        if n < self.least_points:
            smaller_spec = replace(self, n_neighbors=self.most_neighbors(n))
            fewer = (
                Text(Way("n_neighbors"), f" of at most {smaller_spec.n_neighbors}, or ")
                if smaller_spec.least_points <= n
                else ""
            )
            raise TooFewPointsError(
                f"PaCMAP with {self.pairs} pairs of each point, {self.n_neighbors} of them near, needs at least "
                f"{self.least_points} points, not {n}.",
                remedy=Text("Give ", fewer, "more points."),
                details={"n_points": n, "least": self.least_points},
            )
        self.require_rank(n, d)


@contextmanager
def _one_quiet_thread() -> Iterator[None]:
    """In the with-block, run pacmap's loops in one thread, so that sums have a fixed order, and log only errors."""
    import numba  # noqa: PLC0415 -- installed with pacmap

    threads, log = numba.get_num_threads(), logging.getLogger("pacmap")
    level = log.level
    numba.set_num_threads(1)
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
        numba.set_num_threads(threads)


def _centered(points: NDArray[np.float64], data: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points (m, d) minus the mean of the data (n, d), divided by the largest centered coordinate of the data.

    Without this scaling, pacmap, which computes in single precision, would lose digits.
    """
    mean = data.mean(axis=0)
    return np.asarray((points - mean) / np.abs(data - mean).max())


def _model(spec: PacmapSpec, num_iters: tuple[int, int, int]) -> Any:
    """Return an unfitted estimator `pacmap.PaCMAP` with the parameters of `spec`.

    `num_iters` are the numbers of iterations of pacmap's three phases. The fitted estimator keeps its neighbor index,
    because `transform` needs it.
    """
    from pacmap import PaCMAP  # noqa: PLC0415 -- an extra, slow to import

    named = {
        "n_components": spec.n_components,
        "n_neighbors": spec.n_neighbors,
        "MN_ratio": spec.mid_near_ratio,
        "FP_ratio": spec.further_ratio,
        "lr": spec.learning_rate,
        "num_iters": num_iters,
        "random_state": older_seed(spec.seed) % _MAX_SEED,
        "save_tree": True,
        "verbose": False,
        "intermediate": False,
    }
    named |= library_options(_LIBRARY, PaCMAP, spec, {*named, *_NO_OPTIONS}, _PARAMETERS)
    with passed_on(_LIBRARY, spec.options):
        return PaCMAP(**named)


class PacmapMap(NeighborMap):
    """Map that places new points by pacmap's transform: a descent that draws them to neighbors in the fixed data."""

    @cached_property
    def _placing(self) -> Any:
        """An estimator `pacmap.PaCMAP` with the map's embedding and the data's neighbor index, ready to transform."""
        model = _model(self.spec, (0, 0, 0)).fit(_centered(self.points, self.points))
        model.embedding_ = self.embedding.Y.astype(np.float32)
        return model.set_params(num_iters=(*_PHASE_ITERATIONS, self.spec.max_iter))

    def _row_entries(self) -> int:
        return int(max(self.n_features, self.spec.n_neighbors))

    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        with numba_loops("PaCMAP"), _one_quiet_thread():
            places = np.asarray(self._placing.transform(_centered(points, self.points)), np.float64)
        low, high = self.embedding.Y.min(axis=0), self.embedding.Y.max(axis=0)
        is_outside = (np.abs(places - (low + high) / 2) > high - low).any(axis=1)
        if is_outside.any():
            raise OutOfRangeError(
                f"{is_outside.sum()} of {len(points)} new points, the first in row {is_outside.argmax()} (counted from "
                "0), are so far from the data that pacmap cannot place them near their neighbors.",
                remedy="Leave these points out, or give them in the unit of the training data.",
            )
        return places


@Method(
    spec=PacmapSpec,
    title="Pairwise controlled manifold approximation",
    about="Attracts near and mid-near pairs and repels further ones, in three phases that arrange the large structure "
    "before the small.",
    source="Wang, Huang, Rudin and Shaposhnik 2021, JMLR 22, section 4; pacmap",
    growth="n log n",
    libraries=("pacmap",),
    extra="pacmap",
    compiles=True,
    neighbor_map=PacmapMap,
)
def pacmap(X: NDArray[np.float64], spec: PacmapSpec, on_progress: OnProgress, *, start: Start = None) -> Embedding:
    """Embed by the library pacmap, from the initial coordinates `start` (n, p) if the user gives them."""
    init = spec.init if start is None else noisy(start, spec.seed).astype(np.float32)
    on_progress(0, 1, "descent")
    with numba_loops("PaCMAP"), _one_quiet_thread():
        model = _model(spec, (*_PHASE_ITERATIONS, spec.max_iter))
        with passed_on(_LIBRARY, spec.options):
            Y = np.asarray(model.fit_transform(_centered(X, X), init=init), np.float64)
    return Embedding(Y, None, {"iterations": sum(_PHASE_ITERATIONS) + spec.max_iter})
