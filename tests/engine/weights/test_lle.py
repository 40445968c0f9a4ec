"""LLE's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import GlleError, fit
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.dense import affine_solution, inverse_factor
from glle_engine.weights.lle import lle_weights, neighborhoods

if TYPE_CHECKING:
    from numpy.typing import NDArray


def test_weights_solve_the_regularised_problem(sheet: NDArray[np.float64]) -> None:
    """Rows sum to one and are the solution of the bordered system, point by point."""
    neighbors = np.sort(kneighbors(sheet, 7)[0], axis=1)
    weights = lle_weights(sheet, neighbors, 1e-2)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-13)
    for i in (0, 17, 399):
        gram = (sheet[neighbors[i]] - sheet[i]) @ (sheet[neighbors[i]] - sheet[i]).T
        solution = np.linalg.solve(gram + 1e-2 * np.trace(gram) * np.eye(7), np.ones(7))
        np.testing.assert_allclose(weights[i], solution / solution.sum(), rtol=1e-10)


def test_duplicates_all_around_get_equal_weights() -> None:
    """Where every weight reconstructs the point the ridge chooses 1/k."""
    X = np.repeat(np.random.default_rng(0).standard_normal((4, 3)), 6, axis=0)
    neighbors = np.sort(kneighbors(X, 5)[0], axis=1)
    np.testing.assert_allclose(lle_weights(X, neighbors), 0.2)


def test_weights_of_the_oracle(oracle: dict[str, Any]) -> None:
    """With the oracle's absolute ridge of 1e-7 the weights are the oracle's."""
    X, neighbors = oracle["X"], oracle["neighbors"].astype(np.int32)
    weights = np.empty(neighbors.shape)
    for block in neighborhoods(X, neighbors):
        weights[block.rows] = affine_solution(inverse_factor(block.gram + 1e-7 * np.eye(10)))[0]
    np.testing.assert_allclose(weights, oracle["lle_weights"], atol=1e-8)


@pytest.mark.parametrize("noise", ["isotropic", "tangent"])
def test_a_ridge_below_rounding_is_refused(noise: Any) -> None:
    """Ten neighbors in three features have singular Gram matrices; the error names a ridge that works."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(GlleError, match=r"reg is so small .* Give a larger reg, such as 1e-3"):
        fit(X, noise=noise, reg=1e-30)
    assert np.isfinite(fit(X, noise=noise, reg=1e-3).embedding).all()
