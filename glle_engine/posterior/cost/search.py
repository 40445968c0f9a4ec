"""Time and memory of the neighbor search by number of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from glle_engine.graph.relations import Distances
from glle_engine.graph.search_cost import approximate_seconds, search_cost
from glle_engine.graph.sparse import SparsePoints
from glle_engine.posterior.cost.factorization import MOST_ANALYSED, sampled

if TYPE_CHECKING:
    from glle_engine.base.spec import FitSpec
    from glle_engine.graph.relations import Data

_ENTRY = 1e-7  # seconds to sort a distance among those of its row, of some thousand
_GROWTH = 1.1  # of the approximate search, in place of n log n


class Search(NamedTuple):
    """Expected time of a search: a power of n.

    Attributes
    ----------
    points : int
    seconds : float
        Of so many points.
    exponent : float
        At least 1 and at most 2.

    """

    points: int
    seconds: float
    exponent: float

    @classmethod
    def of(cls, X: Data, spec: FitSpec) -> Self:
        """Predict the search of data X (n, d); of an exact one from the pairs that subsamples compare."""
        assert not isinstance(X, SparsePoints)
        (n, d), k = X.shape, spec.n_neighbors
        if isinstance(X, Distances):
            return cls(n, _ENTRY * n * n, 2.0)
        if spec.search == "approximate":
            return cls(n, approximate_seconds(n, d), _GROWTH)
        part = X if n <= MOST_ANALYSED else X[sampled(n, MOST_ANALYSED)]
        seconds = search_cost(part, k, n).seconds
        few = len(part) // 4
        if few <= k:
            return cls(n, seconds, 2.0)
        slope = np.log(seconds / search_cost(X[sampled(n, few)], k).seconds) / np.log(n / few)
        return cls(n, seconds, float(np.clip(slope, 1.0, 2.0)))

    def at(self, n: int) -> float:
        """Return the seconds for n points of the same distribution."""
        return float(self.seconds * (n / self.points) ** self.exponent)
