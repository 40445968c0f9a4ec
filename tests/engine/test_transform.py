"""New points and generated data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine import errors, fit, manifolds
from glle_engine.transform import extend, reconstruct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


def test_training_points_get_exactly_their_own_embedding(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """All of them, to the last bit."""
    np.testing.assert_array_equal(posterior.transform(sheet, sheet), posterior.embedding)


def test_training_points_in_many_features(wide: NDArray[np.float64]) -> None:
    """Likewise where neighbours are found by brute force."""
    fitted = fit(wide)
    np.testing.assert_array_equal(fitted.transform(wide, wide[50:60]), fitted.embedding[50:60])


@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.integers(0, 399), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_the_batch_does_not_matter(
    sheet: NDArray[np.float64], posterior: Posterior, rows: list[int], seed: int
) -> None:
    """A point's answer is the same bits alone and beside any others."""
    new = sheet[rows] + 0.1 * np.random.default_rng(seed).standard_normal((len(rows), 3))
    together = posterior.transform(sheet, new)
    alone = np.concatenate([posterior.transform(sheet, point[None]) for point in new])
    assert together.tobytes() == alone.tobytes()


def test_new_points_land_where_a_joint_fit_puts_them() -> None:
    """Held-out points come close to where LLE of all points has them."""
    X = manifolds.make("s_curve", 1500, seed=0).X
    everything, part = fit(X), fit(X[:1350])
    placed = part.transform(X[:1350], X[1350:])
    both = np.concatenate([part.embedding, placed])
    design = np.concatenate([both, np.ones((1500, 1))], axis=1)
    linear = np.linalg.lstsq(design[:1350], everything.embedding[:1350], rcond=None)[0]
    off = (design[1350:] @ linear - everything.embedding[1350:]).std(axis=0)
    trained = (design[:1350] @ linear - everything.embedding[:1350]).std(axis=0)
    assert (off < 2 * trained + 0.02).all()


def test_spread_of_new_points(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """For training points the spread under draws is that of the draws; new points have one, too."""
    draws = list(posterior.draws(8))
    mean, covariance = extend(posterior, sheet, sheet[:5]).spread(draws, posterior.embedding)
    summary = posterior.summary(8)
    np.testing.assert_array_equal(mean, summary.consensus[:5])
    np.testing.assert_array_equal(covariance, summary.covariance[:5])
    extension = extend(posterior, sheet, sheet[:5] + 0.2)
    assert (np.trace(extension.spread(draws, posterior.embedding)[1], axis1=1, axis2=2) > 0).all()
    assert (extension.distances > 0).all()


def test_impossible_new_points(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Wrong training data, other features and NaN are refused with the remedy."""
    with pytest.raises(errors.InvalidShapeError, match="fitted to"):
        posterior.transform(sheet[:-1], sheet)
    with pytest.raises(errors.InvalidShapeError, match="3 columns"):
        posterior.transform(sheet, sheet[:, :2])
    with pytest.raises(errors.NotFiniteError, match=r"\[1, 2\]"):
        posterior.transform(sheet, [[0.0, 0.0, 0.0], [0.0, 0.0, np.nan]])


def test_data_from_weights(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """x_i = X_i w_i: the mean's reconstruction is close to the data, a draw's scatters by its law."""
    off = reconstruct(posterior, sheet, posterior.mean) - sheet
    radius = np.linalg.norm(sheet[posterior.neighbors] - sheet[:, None], axis=2).mean()
    assert np.linalg.norm(off, axis=1).mean() < 0.05 * radius
    i = 40
    drawn = np.stack([reconstruct(posterior, sheet, posterior.weights(j))[i] for j in range(800)])
    spread = sheet[posterior.neighbors[i]].T @ posterior.covariance_factor[i]
    expected = spread @ spread.T
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.25 * np.abs(expected).max())
    published = fit(sheet, variant="published")
    np.testing.assert_allclose(reconstruct(published, sheet, published.weights(0)), sheet, atol=1e-5)
