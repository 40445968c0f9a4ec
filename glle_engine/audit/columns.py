r"""Structure within single columns: clusters of one column's values.

Permuting columns keeps the clusters of each one, so a test of relations among columns does not see them. But a map
does: three columns with two clusters each make up to eight groups of points, and a reader calls these structure.

Clusters of a column are found by the dip test (Hartigan and Hartigan, "The dip test of unimodality", Annals of
Statistics 13, 1985). Here it is computed as the excess mass of two modes (Mueller and Sawitzki, "Excess mass
estimates and tests for multimodality", JASA 86, 1991), twice the dip: the largest gain, over densities :math:`\lambda`,
of two intervals over one interval,

.. math:: \max_\lambda \left[ \max_{I \cap J = \emptyset} (H_\lambda(I) + H_\lambda(J)) - \max_I H_\lambda(I) \right],
   \quad H_\lambda(I) = \frac{\#\{x_i \in I\}}{n} - \lambda |I|.

Uniform points have the largest excess mass of all distributions with one mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.randomness import generator
from glle_engine.reliability.thresholds import MIN_EXCESS_MASS

if TYPE_CHECKING:
    from numpy.typing import NDArray

DENSITY_LEVELS = 40  # two modes are compared with one mode at this many densities, lambda in the formula above
EXAMINED_POINTS = 1000
MAX_COLUMNS = 200
MIN_COLUMN_POINTS = 20  # columns of fewer points are not examined for clusters


def find_clustered_columns(data: NDArray[np.float64], seed: int = 0) -> list[int]:
    """Return the columns of data (n, d) whose values form clusters; at most the first 200 columns are examined.

    In a column of counts or ratings, each value that is often repeated would be a cluster. Equal values are therefore
    first spread evenly, by up to half of the gap to the nearest other value. Such a column then has clusters only if
    some values in the middle of its range are rare.
    """
    n = len(data)
    if n < MIN_COLUMN_POINTS:
        return []
    rng = generator(seed, n)
    rows = rng.permutation(n)[:EXAMINED_POINTS]
    columns = range(min(data.shape[1], MAX_COLUMNS))
    return [column for column in columns if excess_mass(data[rows, column]) * np.sqrt(len(rows)) > MIN_EXCESS_MASS]


def excess_mass(values: NDArray[np.float64]) -> float:
    """Return the excess mass of two modes over one mode, a measure of how bimodal the values (n,) are.

    The result is twice Hartigan's dip; it is 0 if there are fewer than three different values.
    """
    x = _spread(values)
    extent = np.quantile(x, 0.95) - np.quantile(x, 0.05)  # single far values do not matter
    if len(np.unique(values)) < 3 or not extent > 0:
        return 0.0
    n, x = len(x), (x - x[0]) / extent
    steps = np.arange(n) / n
    gains = [_two_modes(x, steps, density) for density in np.geomspace(0.25, 16, DENSITY_LEVELS)]
    return float(max(gains))


def _two_modes(x: NDArray[np.float64], steps: NDArray[np.float64], density: float) -> float:
    """Return by how much the excess mass of the best two intervals exceeds the excess mass of the best single one.

    The excess mass of an interval is its share of the points x (n,) minus `density` times its length; x ascends, and
    `steps` (n,) are 0, 1 / n, 2 / n, and so on.
    """
    # An interval from point i to point j has j - i + 1 points, and so the excess mass height[j] - height[i] + 1 / n.
    height = steps - density * x
    start = np.minimum.accumulate(height)
    best_until = np.maximum.accumulate(height - start)
    end = np.maximum.accumulate(height[::-1])[::-1]
    best_from = np.maximum.accumulate((end - height)[::-1])[::-1]
    return float((best_until[:-1] + best_from[1:]).max() + steps[1] - best_until[-1])


def _spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sort values (n,), and spread equal values evenly, by up to half of the gap to the nearest other value."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < 2 or counts.max() == 1:
        return np.sort(values)
    gaps = np.diff(distinct)
    half = np.minimum(np.r_[gaps[0], gaps], np.r_[gaps, gaps[-1]]) / 2
    within = np.concatenate([(np.arange(count) + 0.5) / count * 2 - 1 for count in counts])
    return np.asarray(np.repeat(distinct, counts) + np.repeat(half, counts) * within * (np.repeat(counts, counts) > 1))
