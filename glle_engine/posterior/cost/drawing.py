"""Cost of the draws of a posterior, from the fill of its own elimination order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from glle_engine.eigen.eigenproblem import DENSE_BELOW
from glle_engine.graph.search_cost import all_pairs_seconds, approximate_seconds
from glle_engine.posterior.cost import rates
from glle_engine.posterior.cost.factorization import count_work

if TYPE_CHECKING:
    from glle_engine.posterior.posterior import Posterior


class DrawCost(NamedTuple):
    """Expected cost of draws on one core.

    Attributes
    ----------
    seconds : float
        Of a draw alone, whose unused lanes repeat it.
    each_seconds : float
        Of one of many draws.
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
    """Return the expected cost of the draws of a posterior, without factors and without their structure.

    The fill of the elimination order is counted, in the time and memory of the graph, even if it is a forged one.

    Examples
    --------
    >>> from glle_engine import fit, manifolds
    >>> cost = draw_cost(fit(manifolds.make("swiss_roll", 1000, seed=0).X))
    >>> cost.seconds < 0.1 and cost.bytes < 1e8
    True

    """
    pattern, spec = posterior.eigenproblem.pattern, posterior.spec
    n, placed = len(pattern.neighbors), posterior.n_points - len(pattern.neighbors)
    work = count_work(pattern)
    each = rates.draw_seconds(n, work, spec) + rates.placing_seconds(placed, spec)
    nbytes = rates.draw_bytes(n, work, spec) + rates.placed_bytes(posterior.n_points, n, 0, spec)
    alone = rates.lanes(n, spec) * each
    if (classes := len(posterior.pins)) > 1:  # no lanes
        alone += rates.pivoting_seconds(n, work) + rates.null_seconds(n, work, classes)
        each = alone
        nbytes += rates.null_bytes(n, classes)
    return DrawCost(alone, each, nbytes)


def refit_seconds(posterior: Posterior, d: int) -> float:
    """Return the expected seconds of a fit of the same specification to other points with d features.

    The search is the faster one of all pairs and the approximate one: an exact search of data of few dimensions takes
    no longer, and the data are not in a posterior.
    """
    pattern, spec = posterior.eigenproblem.pattern, posterior.spec
    n = len(pattern.neighbors)
    work = count_work(pattern)
    search = min(all_pairs_seconds(posterior.n_points, d), approximate_seconds(posterior.n_points, d))
    embedding = rates.mean_seconds(n, work, spec)
    if n > DENSE_BELOW:
        embedding += rates.order_seconds(n, work, float(spec.n_components), spec)
    return search + rates.weights_seconds(posterior.n_points, d, spec) + embedding
