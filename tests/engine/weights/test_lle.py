"""LLE's weights, the number of directions of their residuals, and the spread that rests on it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from glle_engine import FitSpec, GlleError, fit
from glle_engine.base.errors import InvalidParameterError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.weights.constrained import constrained_distribution, residual_dimension, residuals
from glle_engine.weights.gaussian import WeightDistribution
from glle_engine.weights.lle import MeanWeights, lle_weights
from tests.engine.methods.reference import embed, weight_matrix


def test_weights_solve_the_regularized_problem(sheet: NDArray[np.float64]) -> None:
    """Rows sum to one, and equal the solution of the linear system of each point."""
    neighbors = np.sort(kneighbors(sheet, 7)[0], axis=1)
    weights = lle_weights(sheet, neighbors)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-13)
    expected = np.take_along_axis(weight_matrix(sheet, neighbors), neighbors.astype(np.intp), axis=1)
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-12)


def test_weights_of_the_oracle(oracle: dict[str, Any]) -> None:
    """With the absolute ridge of 1e-7 of the authors' program, the weights equal those of the program."""
    weights = lle_weights(oracle["X"], oracle["neighbors"].astype(np.int32), 1e-7, ridge="absolute")
    np.testing.assert_allclose(weights, oracle["lle_weights"], atol=1e-8)


def test_an_absolute_ridge_is_in_the_squared_unit_of_the_data(sheet: NDArray[np.float64]) -> None:
    """Data in another unit have the same weights if the ridge is scaled with the square of the unit."""
    neighbors = np.sort(kneighbors(sheet, 5)[0], axis=1)
    first = embed("lle", sheet, n_neighbors=5, reg=1e-4, ridge="absolute").Y
    np.testing.assert_allclose(embed("lle", 8 * sheet, n_neighbors=5, reg=64e-4, ridge="absolute").Y, first)
    assert not np.allclose(embed("lle", 8 * sheet, n_neighbors=5, reg=1e-4, ridge="absolute").Y, first)
    differences = sheet[neighbors[0]] - sheet[0]
    unit = np.linalg.norm(differences)
    relative, absolute = (
        lle_weights(sheet / unit, neighbors, 1e-3, ridge=ridge)[0] for ridge in ("relative", "absolute")
    )
    np.testing.assert_allclose(relative, absolute, rtol=1e-12)


@pytest.mark.parametrize("noise", ["isotropic", "tangent"])
def test_a_ridge_below_rounding_is_refused(noise: Any) -> None:
    """A ridge that rounding loses raises an error that names a ridge that works."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(GlleError, match=r"`reg` is so small .* Give a larger reg, such as 1e-3"):
        fit(X, noise=noise, reg=1e-30)
    assert np.isfinite(fit(X, noise=noise, reg=1e-3).embedding).all()


def isometry(rng: np.random.Generator, d: int, features: int) -> NDArray[np.float64]:
    """Return a matrix (d, features) with orthonormal rows."""
    return np.asarray(np.linalg.qr(rng.standard_normal((features, d)))[0].T)


def test_ratio_is_that_of_the_eigenvalues(wide: NDArray[np.float64]) -> None:
    """The result equals (sum lambda)^2 / sum lambda^2, for more points than features and for fewer."""
    for X in (wide, np.random.default_rng(0).standard_normal((60, 700))):
        neighbors, _ = kneighbors(X, 10)
        weights = lle_weights(X, neighbors)
        rest = X - np.einsum("nk,nkd->nd", weights, X[neighbors])
        np.testing.assert_allclose(-residuals(X, neighbors, weights), rest, atol=1e-12)
        values = np.linalg.svd(rest, compute_uv=False) ** 2
        assert residual_dimension(X, neighbors, weights) == pytest.approx(values.sum() ** 2 / (values**2).sum())


def test_residuals_of_rounding_have_no_directions(sheet: NDArray[np.float64]) -> None:
    """If the weights reconstruct the points up to rounding, the number of directions is 0."""
    turned = sheet @ isometry(np.random.default_rng(2), 3, 40)
    for X in (sheet, turned):
        figures = fit(X, reg=1e-15).diagnostics.figures
        assert (figures["residual_dimension"], figures["variance"]) == (0.0, "dirichlet")
    assert np.isfinite(fit(turned, reg=1e-15, variance="ml").covariance_factor).all()


@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32 - 1),
    more=st.integers(0, 40),
    padding=st.integers(0, 30),
    copies=st.integers(1, 5),
    unit=st.floats(1e-6, 1e6),
    method=st.sampled_from(["em", "direct"]),
    is_wide=st.booleans(),
)
def test_isometries_repetitions_and_zeros_change_no_distribution(
    sheet: NDArray[np.float64],
    wide: NDArray[np.float64],
    seed: int,
    more: int,
    padding: int,
    copies: int,
    unit: float,
    method: Any,
    is_wide: bool,  # noqa: FBT001
) -> None:
    """Rotated, repeated or additional zero features change neither the distribution nor the figures."""
    X = wide if is_wide else sheet
    turned = X @ isometry(np.random.default_rng(seed), X.shape[1], X.shape[1] + more)
    written = unit * np.concatenate([np.repeat(turned, copies, axis=1), np.zeros((len(X), padding))], axis=1)
    before, after = fit(X, method=method), fit(written, method=method)
    figures = after.diagnostics.figures
    assert figures["variance"] == before.diagnostics.figures["variance"] == ("ml" if is_wide else "dirichlet")
    assert figures["residual_dimension"] == pytest.approx(before.diagnostics.figures["residual_dimension"], rel=1e-9)
    np.testing.assert_array_equal(after.neighbors, before.neighbors)
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-9)
    np.testing.assert_allclose(after.covariance_factor, before.covariance_factor, atol=1e-9)


@pytest.mark.parametrize("data", ["sheet", "wide"])
def test_constant_features_change_no_bit(data: str, request: pytest.FixtureRequest) -> None:
    """Constant features of any size change no bit of the arrays and of new points."""
    X = request.getfixturevalue(data)
    held, new = (np.insert(rows, [0, 2, 2], [7.0, -1e200, 0.0], axis=1) for rows in (X, X[:5] + 0.01))
    before, after = fit(X), fit(held)
    for name, array in before.arrays().items():
        assert after.arrays()[name].tobytes() == array.tobytes(), name
    assert after.diagnostics.figures["constant_features"] == [0, 3, 4]
    assert after.diagnostics.figures["n_features"] == X.shape[1] + 3
    np.testing.assert_allclose(after.transform(held, new), before.transform(X, X[:5] + 0.01), atol=1e-12)


REPLICATES, DRAWS, BINS = 1000, 39, 10
UNLIKELY = 1e-4  # of the largest of three statistics of a correct posterior, for one fixed seed


def posterior_of(
    x: NDArray[np.float64], X: NDArray[np.float64], ridge: float, kept: NDArray[np.bool_] | None
) -> WeightDistribution:
    """Return the engine's distribution of the weights of x (d,) on its neighbors X (k, d) for a given lambda."""
    data, neighbors = np.concatenate([x[None], X]), np.arange(1, len(X) + 1, dtype=np.int32)[None]
    apart = X - x if kept is None else (X - x)[kept]
    spec = FitSpec(n_neighbors=len(X), reg=ridge / float((apart**2).sum()), variance="dirichlet")
    kept_row = None if kept is None else kept[None]
    mean = lle_weights(data, neighbors, spec.reg, kept=kept_row)
    return constrained_distribution(data, MeanWeights(neighbors, mean, None, kept_row), np.empty((0, 2)), spec)[0]


@pytest.mark.parametrize(
    ("k", "d", "ridge", "dropped"),
    [(6, 2, 1e-2, 0), (6, 3, 1.0, 0), (5, 12, 0.3, 0), (8, 3, 0.1, 3)],
    ids=["null space", "wide prior", "many features", "adaptive"],
)
def test_ranks_of_true_weights_are_uniform(k: int, d: int, ridge: float, dropped: int) -> None:
    """Among draws of the posterior, true weights drawn from the prior have uniform ranks, by chi-square statistics."""
    rng = np.random.default_rng(20_211)
    kept = np.arange(k) >= dropped
    count = int(kept.sum())
    noise = ridge / (count * (count + 1))
    contrast = rng.standard_normal(k)
    ranks = np.empty((REPLICATES, 3), int)
    for replicate in range(REPLICATES):
        X, z = rng.standard_normal((k, d)), rng.standard_normal(k) * kept
        true = kept / count + np.sqrt(noise / ridge) * (z - kept * z.sum() / count)
        x = true @ X + np.sqrt(noise) * rng.standard_normal(d)
        distribution = posterior_of(x, X, ridge, kept if dropped else None)
        mean, factor = distribution.gaussian("posterior")
        drawn = mean[0] + rng.standard_normal((DRAWS, k)) @ factor[0].T
        every = np.concatenate([true[None], drawn])
        values = np.stack([every[:, -1], every @ contrast, ((every @ X - x) ** 2).sum(axis=1)], axis=1)
        ranks[replicate] = (values[1:] < values[0]).sum(axis=0)
    expected = REPLICATES / BINS
    for statistic in ranks.T:
        counts = np.bincount(statistic * BINS // (DRAWS + 1), minlength=BINS)
        assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(UNLIKELY, BINS - 1)


def test_more_tangent_directions_than_neighbors_are_refused() -> None:
    """Three neighbors give clouds of nine differences, which do not span ten directions."""
    X = np.random.default_rng(0).standard_normal((60, 20))
    with pytest.raises(InvalidParameterError, match=r"n_components=10 tangent directions.*n_components <= 9"):
        fit(X, n_neighbors=3, n_components=10, noise="tangent")
    assert fit(X, n_neighbors=3, n_components=9, noise="tangent").embedding.shape == (60, 9)
