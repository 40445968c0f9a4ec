"""The GP-LVM log likelihood, compared with finite differences, scikit-learn and published numbers."""

from dataclasses import astuple

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.manifold import Isomap, LocallyLinearEmbedding

from glle_engine import manifolds
from glle_engine.base.errors import (
    ConvergenceError,
    DegenerateDataError,
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
)
from glle_engine.metrics import gplvm
from glle_engine.metrics.gplvm import Kernel, fit_likelihood, log_likelihood, standardize
from tests.engine.conftest import reference_data

KERNEL = Kernel(variance=0.7, inverse_width=1.3, bias=0.2, white=0.05)


def parts(n: int = 60) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return centered data, the standardized true coordinates, and the squared distances of the latter."""
    sheet = manifolds.make("s_curve", n, seed=4)
    X, Y = sheet.X - sheet.X.mean(axis=0), standardize(sheet.coordinates)
    return X, Y, ((Y[:, None] - Y) ** 2).sum(axis=2)


def test_the_gradient_is_that_of_finite_differences() -> None:
    """The gradient by the logarithms of the kernel's parameters equals finite differences."""
    X, _, squared = parts()
    theta, step = np.log(astuple(KERNEL)), 1e-6 * np.eye(4)
    _, gradient = log_likelihood(squared, X, 3, KERNEL)
    above, below = (
        np.array([log_likelihood(squared, X, 3, Kernel(*np.exp(theta + sign * one)))[0] for one in step])
        for sign in (1, -1)
    )
    assert gradient == pytest.approx((above - below) / 2e-6, rel=1e-5)


def test_agrees_with_gaussian_process_regression() -> None:
    """The likelihood equals the sum of scikit-learn's log marginal likelihoods of the features."""
    X, Y, squared = parts()
    kernel = (
        ConstantKernel(KERNEL.variance) * RBF(KERNEL.inverse_width**-0.5)
        + ConstantKernel(KERNEL.bias)
        + WhiteKernel(KERNEL.white)
    )
    other = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(Y, X).log_marginal_likelihood_value_
    assert log_likelihood(squared, X, 3, KERNEL)[0] == pytest.approx(other, rel=1e-10)


def test_is_a_maximum_and_the_same_to_the_bit() -> None:
    """No kernel nearby has a higher likelihood, and another run gives the same bits."""
    X, Y, squared = parts()
    likelihood = fit_likelihood(X, Y)
    assert likelihood.converged
    assert likelihood == fit_likelihood(X, Y)
    assert log_likelihood(squared, X, 3, likelihood.kernel)[0] == pytest.approx(likelihood.log_likelihood, rel=1e-9)
    for factors in 1 + 0.05 * np.concatenate([np.eye(4), -np.eye(4)]):
        near = Kernel(*(np.array(astuple(likelihood.kernel)) * factors))
        assert log_likelihood(squared, X, 3, near)[0] <= likelihood.log_likelihood + 1e-6


def test_units_of_the_data_shift_it_and_those_of_the_embedding_do_not() -> None:
    """Data ten times as large have n d log 10 less; the unit of the embedding changes nothing."""
    X, Y, _ = parts()
    log_likelihood = fit_likelihood(X, Y).log_likelihood
    assert fit_likelihood(10 * X + 3, Y).log_likelihood == pytest.approx(log_likelihood - X.size * np.log(10), abs=1e-4)
    scaled = np.c_[Y * [1e-6, 1e6] + 1, np.full(60, 7.0)]
    assert fit_likelihood(X, scaled).log_likelihood == pytest.approx(log_likelihood, abs=1e-4)


def test_more_features_than_points_count_by_their_gram_matrix() -> None:
    """If there are more features than points, the likelihood is computed from their Gram matrix."""
    X, _, squared = parts(40)
    wide = np.concatenate([X, np.zeros((40, 60))], axis=1)
    ascent = gplvm._Ascent(wide, parts(40)[1], 1.0)
    assert ascent.factor.shape == (40, 40)
    whole, _ = log_likelihood(squared, ascent.factor, 63, KERNEL)
    assert whole == pytest.approx(log_likelihood(squared, wide, 63, KERNEL)[0], rel=1e-12)


def test_a_large_sample_goes_on_from_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight starts on a sample, and one on all points, find what eight starts on all points find."""
    X, Y, _ = parts(100)
    all_starts = fit_likelihood(X, Y)
    monkeypatch.setattr(gplvm, "_SEARCH_POINTS", 60)
    reports: list[tuple[int, int, str]] = []
    likelihood = fit_likelihood(X, Y, lambda *one: reports.append(one))
    assert reports[-1] == (9, 9, "gplvm")
    assert likelihood.converged
    assert likelihood.log_likelihood == pytest.approx(all_starts.log_likelihood, rel=1e-6)


@pytest.mark.parametrize(
    ("X", "Y", "error"),
    [
        (np.zeros((2001, 1)), np.zeros((2001, 1)), InvalidParameterError),
        (np.eye(5), np.eye(4), InvalidShapeError),
        (np.eye(5), np.ones((5, 2)), DegenerateDataError),
        (np.ones((5, 2)), np.eye(5), DegenerateDataError),
    ],
)
def test_refuses_with_a_remedy(
    X: NDArray[np.float64], Y: NDArray[np.float64], error: type[GlleError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many points, different lengths, equal points, and likelihoods that are not finite are refused."""
    with pytest.raises(error) as caught:
        fit_likelihood(X, Y)
    assert caught.value.remedy
    monkeypatch.setattr("scipy.linalg.lapack.dpotrf", lambda K, **_: (K, 1))
    with pytest.raises(ConvergenceError, match="finite likelihood"):
        fit_likelihood(*parts(20)[:2])


@pytest.mark.parametrize(
    ("name", "k", "isomap", "lle"),
    [("mocap_run1", 6, 3812, -1089), pytest.param("robot_wifi", 7, 2201, -1913, marks=pytest.mark.slow)],
)
def test_known_figures_of_the_two_real_sets(name: str, k: int, isomap: float, lle: float) -> None:
    """The scores of two real data sets agree with reference numbers to the unit."""
    X = reference_data(f"{name}.npy")
    assert fit_likelihood(X, Isomap(n_neighbors=k).fit_transform(X)).log_likelihood == pytest.approx(isomap, abs=1)
    other = LocallyLinearEmbedding(n_neighbors=k, eigen_solver="dense")
    assert fit_likelihood(X, other.fit_transform(X)).log_likelihood == pytest.approx(lle, abs=1)
