"""Predictions of the exact search count the work of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from glle_engine.graph.search_cost import search_cost
from glle_engine.linalg.nearest.leaves import Leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray


def curved(n: int, dimensions: int, d: int) -> NDArray[np.float64]:
    """Return a smooth map of the unit cube into d features."""
    rng = np.random.default_rng(0)
    return np.sin(rng.random((n, dimensions)) @ rng.standard_normal((dimensions, d)) * 2 + rng.random(d) * 6)


@pytest.mark.parametrize("dimensions", [2, 12])
def test_pairs_extrapolate_from_a_sample(dimensions: int) -> None:
    """From a fifth of the points the pairs are predicted within a factor of 2, few dimensions or many."""
    X = curved(10_000, dimensions, 20)
    counted = Leaves(X).work(10, 1 << 20)[0]
    assert 0.5 < search_cost(X[:2000], 10, len(X)).pairs / counted < 2
    assert 0.7 < search_cost(X, 10).pairs / counted < 1.4


def test_cost_grows_with_points_neighbors_and_dimensions() -> None:
    """More points, more neighbors or more intrinsic dimensions take longer; more features leave out no fewer pairs."""
    sheet, solid = curved(4000, 2, 12), curved(4000, 8, 12)
    costs = [search_cost(sheet, 8), search_cost(sheet, 25), search_cost(solid, 25), search_cost(solid, 25, 100_000)]
    assert np.all(np.diff([cost.seconds for cost in costs]) > 0)
    assert np.all(np.diff([cost.pairs for cost in costs]) > 0)
    assert costs[-1].pairs <= 1e10
    assert search_cost(curved(4000, 2, 30), 8).pairs < 4e6


@pytest.mark.parametrize("n", [2, 3, 12, 40])
def test_small_samples(n: int) -> None:
    """A sample with fewer points than neighbors still gives a prediction, at most all pairs."""
    X = np.random.default_rng(0).random((n, 3))
    cost = search_cost(X, 20, 50_000)
    assert 0 < cost.seconds < 600
    assert 0 < cost.pairs <= 50_000**2


def test_copies_and_extreme_units() -> None:
    """Equal points and units near the ends of the range are no obstacle."""
    for X in (np.ones((2000, 4)), curved(2000, 2, 5) * 1e-140, curved(2000, 2, 5) * 1e140):
        assert 0 < search_cost(X, 10, 4000).seconds < 10
