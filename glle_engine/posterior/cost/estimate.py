"""Estimates of the cost of a fit and its draws, and of the draws of a fitted posterior."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

import numpy as np

from glle_engine.base.parameters import require_known_names
from glle_engine.base.spec import MAX_EXACT_FLOPS, FitParameters, FitSpec
from glle_engine.base.validation import finite_matrix
from glle_engine.eigen.eigenproblem import DENSE_BELOW, require_pairs
from glle_engine.graph.neighbors import approximate_seconds, search_cost
from glle_engine.graph.relations import Distances, locate
from glle_engine.graph.sparse import SparsePoints
from glle_engine.posterior.cost import rates
from glle_engine.posterior.cost.rates import MAX_ANALYSED, Factorization, Work, count_work, sample, sample_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from glle_engine.graph.relations import Data
    from glle_engine.posterior.posterior import Posterior

_ENTRY = 1e-7  # seconds to sort a distance in a row of some thousand
_GROWTH = 1.1  # exponent of n in the time of the approximate search


@dataclass(frozen=True)
class Cost:
    """Expected cost on one processor core.

    Attributes
    ----------
    seconds : float
    bytes : float
        Peak working memory, without the data.

    """

    seconds: float
    bytes: float


def largest(least: int, most: int, is_affordable: Callable[[int], bool]) -> int | None:
    """Return the largest affordable size from `least` to `most`, or None if none is; the cost must grow with size."""
    if is_affordable(most):
        return most
    if not is_affordable(least):
        return None
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if is_affordable(middle) else (least, middle)
    return least


class Search(NamedTuple):
    """Expected time of a neighbor search, which grows like a power of n.

    Attributes
    ----------
    points : int
    seconds : float
        Time to search that many points.
    exponent : float
        At least 1 and at most 2.

    """

    points: int
    seconds: float
    exponent: float

    @classmethod
    def from_data(cls, X: Data, spec: FitSpec) -> Self:
        """Predict the time to search data X (n, d), for an exact search from the pairs that subsamples compare."""
        assert not isinstance(X, SparsePoints)
        (n, d), k = X.shape, spec.n_neighbors
        if isinstance(X, Distances):
            return cls(n, _ENTRY * n * n, 2.0)
        if spec.search == "approximate":
            return cls(n, approximate_seconds(n, d), _GROWTH)
        part = X if n <= MAX_ANALYSED else X[sample_rows(n, MAX_ANALYSED)]
        seconds = search_cost(part, k, n).seconds
        few = len(part) // 4
        if few <= k:
            return cls(n, seconds, 2.0)
        slope = np.log(seconds / search_cost(X[sample_rows(n, few)], k).seconds) / np.log(n / few)
        return cls(n, seconds, float(np.clip(slope, 1.0, 2.0)))

    def at(self, n: int) -> float:
        """Return the seconds for n points of the same distribution."""
        return float(self.seconds * (n / self.points) ** self.exponent)


@dataclass(frozen=True)
class Estimate:
    """Expected cost of a posterior of n points, on one core of the machine of `glle_engine.posterior.cost.rates`.

    Attributes
    ----------
    n, n_features : int
        Number of points, and number of features that vary.
    spec : FitSpec
    search : Search
    factorization : Factorization

    """

    n: int
    n_features: int
    spec: FitSpec
    search: Search
    factorization: Factorization

    @property
    def size(self) -> int:
        """Number of points in the eigenproblem: of the landmarks, or of all points."""
        return self.n if isinstance(self.spec.landmarks, str) else min(self.n, self.spec.landmarks)

    @property
    def work(self) -> Work:
        """Work of one factorization."""
        return self.factorization.at(self.size)

    @property
    def fit(self) -> Cost:
        """Cost of the fit."""
        nbytes = rates.fit_bytes(self.size, self.n_features, self.work, self.spec)
        return Cost(
            sum(self.stages.values()), nbytes + rates.placed_bytes(self.n, self.size, self.n_features, self.spec)
        )

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of the fit by stage."""
        n, work, spec = self.size, self.work, self.spec
        ordered = 0.0
        if n > DENSE_BELOW:
            ordered = rates.order_seconds(n, work, self.factorization.dimension, spec)
        placed = {}
        if n < self.n:
            placed = {
                "landmarks": rates.landmarks_seconds(self.n, n, self.n_features),
                "placing": (self.n - n) * self.search.at(n) / n
                + rates.weights_seconds(self.n - n, self.n_features, spec),
            }
        embedding = ordered + rates.mean_seconds(n, work, spec)
        drawn = rates.draw_seconds(n, work, spec, self.n_features) + rates.trust_seconds(n, self.n_features)
        return {
            **placed,
            "neighbors": self.search.at(n),
            "weights": rates.weights_seconds(n, self.n_features, spec),
            "embedding": 2 * embedding if spec.noise == "auto" else embedding,
            "diagnostics": rates.compared_draws(spec) * drawn,
        }

    @property
    def draw(self) -> Cost:
        """Cost of one of many draws; `bytes` is the memory of the process that draws."""
        n, work, spec = self.size, self.work, self.spec
        nbytes = rates.draw_bytes(n, work, spec) + rates.placed_bytes(self.n, n, self.n_features, spec)
        return Cost(_draw_seconds(self.n, n, work, spec, self.n_features)[1], nbytes)

    @property
    def single_draw_seconds(self) -> float:
        """Seconds of a single draw; the unused lanes compute the same draw again."""
        return _draw_seconds(self.n, self.size, self.work, self.spec, self.n_features)[0]

    @property
    def peak(self) -> Cost:
        """The larger of the seconds, and the larger of the bytes, of the fit and of a single draw."""
        fit, draw = self.fit, self.draw
        return Cost(max(fit.seconds, self.single_draw_seconds), max(fit.bytes, draw.bytes))

    @property
    def posterior_bytes(self) -> float:
        """Bytes of the posterior's arrays."""
        return rates.posterior_bytes(self.n, self.spec)

    @property
    def least(self) -> int:
        """The smallest number of points that a fit needs."""
        return max(self.spec.n_neighbors + 1, self.spec.n_components + 2)

    def at(self, n: int) -> Self:
        """Return the estimate for n points of the same distribution."""
        return replace(self, n=n)

    def most_points(self, is_affordable: Callable[[Self], bool]) -> int | None:
        """Return the largest affordable number of points up to n, or None if even the smallest fit is too expensive."""
        return largest(self.least, self.n, lambda n: is_affordable(self.at(n)))

    def most_landmarks(self, is_affordable: Callable[[Self], bool]) -> int | None:
        """Return the largest affordable number of landmarks for all n points, or None if there is none."""
        if self.spec.variant != "constrained" or self.spec.metric == "precomputed":
            return None

        def is_enough(m: int) -> bool:
            return is_affordable(replace(self, spec=replace(self.spec, landmarks=m).of_points(self.n)))

        return largest(self.least, self.size, is_enough)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as a JSON-able dictionary, with the numbers of `figures`."""
        return {
            "n": self.n,
            "n_features": self.n_features,
            "spec": self.spec.to_dict(),
            "search": list(self.search),
            "factorization": self.factorization.to_dict(),
            **self.figures(),
        }

    def figures(self) -> dict[str, Any]:
        """Return the expected seconds and sizes, JSON-able."""
        return {
            "fit": asdict(self.fit),
            "stages": self.stages,
            "draw": asdict(self.draw),
            "single_draw_seconds": self.single_draw_seconds,
            "posterior_bytes": self.posterior_bytes,
            "factor_entries": self.work.entries,
            "factor_flops": self.work.flops,
            "intrinsic_dimension": self.factorization.dimension,
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        search, factorization = Search(*value["search"]), Factorization.from_dict(value["factorization"])
        return cls(value["n"], value["n_features"], FitSpec.from_dict(value["spec"]), search, factorization)


def estimate(X: ArrayLike, spec: FitSpec | None = None, **parameters: Unpack[FitParameters]) -> Estimate:
    """Estimate the seconds and bytes of a fit and of its draws, in a small part of the time of the fit.

    If there are few points, their graph is searched and analysed. If there are many, subsamples are searched and
    analysed, and the work is extrapolated (`glle_engine.posterior.cost.rates`). Seconds follow from measured constants
    and not from this machine, so that equal requests have equal estimates.

    Parameters
    ----------
    X : (n, d) array-like
        As for `glle_engine.fit`.
    spec : FitSpec, optional
    **parameters
        Fields of `FitSpec`, in place of the fields of `spec`.

    Raises
    ------
    InvalidParameterError, InvalidShapeError, NotFiniteError, OutOfRangeError, TooFewPointsError
        As `glle_engine.fit`. A graph of several components is not an error.

    Examples
    --------
    >>> from glle_engine import manifolds
    >>> from glle_engine.posterior.cost.estimate import estimate
    >>> expected = estimate(manifolds.make("swiss_roll", 1000, seed=0).X, n_neighbors=10)
    >>> expected.fit.seconds < 1 and expected.draw.seconds < expected.fit.seconds
    True

    """
    require_known_names(parameters, FitSpec.parameters())
    given, values = finite_matrix(X), dict[str, Any](**parameters)
    wanted = replace(spec or FitSpec(), **values)
    choices = wanted.choices(len(given))
    data = locate(given, wanted.of_points(len(given)))
    for choice in choices:
        # The distances among landmarks are nearly those among the points of a random sample of this size.
        solved = data if isinstance(choice.landmarks, str) else sample(data, choice.landmarks)
        require_pairs(len(solved), choice.n_components)
        factorization = Factorization.from_data(solved, choice.n_neighbors)
        if choice is choices[-1] or factorization.at(len(solved)).flops <= MAX_EXACT_FLOPS:
            break
    return Estimate(len(data), data.shape[1], choice, Search.from_data(solved, choice), factorization)


def _draw_seconds(n: int, solved: int, work: Work, spec: FitSpec, d: int) -> tuple[float, float]:
    """Return the seconds of a single draw of n points, and of one of many; `solved` points are in the eigenproblem."""
    lane = rates.draw_seconds(solved, work, spec, d) + rates.placing_seconds(n - solved, spec)
    fallback = rates.fallback_seconds(solved, work, spec, d)  # without lanes: one draw at a time
    return rates.lanes(solved) * lane + fallback, lane + fallback


class DrawCost(NamedTuple):
    """Expected cost of draws on one core.

    Attributes
    ----------
    seconds : float
        Seconds of a single draw; the unused lanes compute the same draw again.
    each_seconds : float
        Seconds of one of many draws.
    bytes : float
        Peak memory of a process that draws, with the posterior.

    """

    seconds: float
    each_seconds: float
    bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        return {name: float(f"{value:.3g}") for name, value in self._asdict().items()}


def draw_cost(posterior: Posterior) -> DrawCost:
    """Return the expected cost of draws of a posterior, without computing factors or their structure.

    Counting the fill of the elimination order takes the time and memory of the graph, even for a forged posterior.

    Examples
    --------
    >>> from glle_engine import fit, manifolds
    >>> cost = draw_cost(fit(manifolds.make("swiss_roll", 1000, seed=0).X))
    >>> cost.seconds < 0.1 and cost.bytes < 1e8
    True

    """
    pattern, spec = posterior.eigenproblem.pattern, posterior.spec
    n, work = len(pattern.neighbors), count_work(pattern)
    d = posterior.diagnostics.figures.get("n_features", 0)  # a forged posterior may lack it; 0 gives the highest cost
    alone, each = _draw_seconds(posterior.n_points, n, work, spec, d)
    nbytes = rates.draw_bytes(n, work, spec) + rates.placed_bytes(posterior.n_points, n, 0, spec)
    if (classes := len(posterior.pins)) > 1:  # no lanes
        alone += rates.pivoting_seconds(n, work) + rates.null_seconds(n, work, classes)
        each = alone
        nbytes += rates.null_bytes(n, classes)
    return DrawCost(alone, each, nbytes)
