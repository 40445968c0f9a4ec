"""The linear and kernel methods, against closed forms, limits, optimality and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA, FactorAnalysis, KernelPCA

from glle_engine import manifolds
from glle_engine.base.errors import (
    DegenerateDataError,
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
    OutOfRangeError,
)
from glle_engine.base.progress import silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import Embedding, method
from glle_engine.methods.linear.factor_analysis import FactorAnalysisSpec, Model, maximise, step
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.methods.linear.ppca import fit_ppca
from glle_engine.weights.lle import lle_weights
from tests.engine.methods.linear.factors import correlated


def embedded(name: str, X: np.ndarray, **options: object) -> Embedding:
    """Embed by a method's name."""
    one = method(name)
    return one.embed(X, one.spec(**options))


def eigenvalues(found: Embedding) -> np.ndarray:
    """Return the eigenvalues, which there are."""
    assert found.eigenvalues is not None
    return found.eigenvalues


def gaussian(X: np.ndarray, W: np.ndarray, noise: np.ndarray) -> float:
    """Return the log likelihood of N(mean, W W^T + diag(noise)), densely."""
    n, d = X.shape
    C = W @ W.T + np.diag(noise)
    S = np.cov(X.T, bias=True)
    result = d * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S))
    return float(-0.5 * n * result)


@pytest.mark.parametrize("shape", [(80, 6), (30, 90)])
def test_the_likelihood_of_ppca_is_scikit_learns(shape: tuple[int, int]) -> None:
    """The log likelihood of all points is the dense one, and scikit-learn's; so is the noise variance."""
    X = correlated(*shape)
    n, d = shape
    found = embedded("ppca", X, n_components=3)
    fit = fit_ppca(X, principal_axes(X, 3, silent))
    dense = gaussian(X, fit.loadings, np.full(d, fit.noise_variance))
    assert found.figures["log_likelihood"] == pytest.approx(dense, rel=1e-10)
    # scikit-learn divides by n - 1, and its noise by the dimensions that the points span, not those there are.
    mean = X.mean(axis=0)
    other = PCA(3).fit(mean + (X - mean) * np.sqrt((n - 1) / n))
    expected = other.noise_variance_ * (min(n, d) - 3) / (d - 3)
    assert found.figures["noise_variance"] == pytest.approx(expected, rel=1e-9)
    if d < n:
        assert found.figures["log_likelihood"] == pytest.approx(other.score(X) * n, rel=1e-10)


def test_ppca_is_stationary_and_its_embedding_the_posterior_mean() -> None:
    """No direction changes the likelihood to first order; E[z | x] = (W^T W + sigma^2 I)^-1 W^T (x - mu)."""
    X = correlated(80, 6)
    fit = fit_ppca(X, axes := principal_axes(X, 2, silent))
    rng, h = np.random.default_rng(1), 1e-4
    for _ in range(5):
        dW, ds = rng.standard_normal(fit.loadings.shape), rng.standard_normal()
        sides = [gaussian(X, fit.loadings + t * dW, np.full(6, fit.noise_variance + t * ds)) for t in (-h, h)]
        assert abs(sides[1] - sides[0]) / (2 * h) < 1e-3
    means = np.linalg.solve(fit.loadings.T @ fit.loadings + fit.noise_variance * np.eye(2), fit.loadings.T)
    np.testing.assert_allclose(embedded("ppca", X).Y, (X - X.mean(axis=0)) @ means.T, atol=1e-10)
    assert axes.values[1] > fit.noise_variance


def test_the_likelihood_of_factor_analysis_grows_to_that_of_scikit_learn() -> None:
    """No step lowers it, its end is scikit-learn's, and the scores are the same factors."""
    X = correlated(300, 8)
    centred = (X - X.mean(axis=0)) / X.std(axis=0)
    rng = np.random.default_rng(0)
    start = Model(rng.standard_normal((8, 3)), np.ones(8))
    result = maximise(centred / np.sqrt(300), start, FactorAnalysisSpec(n_components=3, tolerance=1e-9), silent)[1]
    assert (np.diff(result) >= -1e-12).all()
    found = embedded("factor-analysis", X, n_components=3, tolerance=1e-9, max_iterations=5000)
    other = FactorAnalysis(3, tol=1e-9, max_iter=5000, svd_method="lapack").fit(X)
    assert found.figures["converged"]
    assert found.figures["log_likelihood"] == pytest.approx(other.score(X) * 300, abs=0.01)
    residual = np.linalg.lstsq(found.Y, other.transform(X), rcond=None)[1]
    assert residual.max() / 300 < 1e-3


def test_a_step_of_factor_analysis_tells_the_dense_likelihood() -> None:
    """The likelihood from p x p matrices is that of the d x d covariance."""
    X, rng = correlated(60, 5), np.random.default_rng(2)
    model = Model(rng.standard_normal((5, 2)), rng.uniform(0.5, 2, 5))
    result = step((X - X.mean(axis=0)) / np.sqrt(60), model)[1]
    assert result * 60 == pytest.approx(gaussian(X, model.loadings, model.noise), rel=1e-12)


def test_factor_analysis_says_what_is_doubtful() -> None:
    """Too few steps, constant features, too many factors and a feature without noise are notes."""
    X = correlated(80, 6)
    X[:, 0] = 1
    X[:, 1] = X[:, 2]
    found = embedded("factor-analysis", X, n_components=3, max_iterations=3)
    codes = {note.code for note in found.notes}
    assert {"not-converged", "constant-features", "not-identified"} <= codes
    assert not found.figures["converged"]
    assert "heywood" in {note.code for note in embedded("factor-analysis", X, n_components=2).notes}


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"kernel": "rbf", "gamma": 0.3}, {"kernel": "rbf", "gamma": 0.3}),
        ({"kernel": "cosine"}, {"kernel": "cosine"}),
        (
            {"kernel": "polynomial", "gamma": 0.5, "degree": 2, "offset": 2.0},
            {"kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 2.0},
        ),
    ],
)
def test_kernel_pca_is_scikit_learns(options: dict[str, object], other: dict[str, object]) -> None:
    """Up to sign, for every kernel but the linear one."""
    X = manifolds.make("s_curve", 150, seed=1).X
    found = embedded("kernel-pca", X, **options)
    expected = KernelPCA(2, eigen_solver="dense", **other).fit_transform(X)
    np.testing.assert_allclose(np.abs(found.Y), np.abs(expected), atol=1e-8)


def test_kernel_pca_refuses_what_its_kernel_cannot() -> None:
    """Options of other kernels, a point without direction, powers out of range, images that coincide."""
    X = correlated(40, 4)
    with pytest.raises(InvalidParameterError, match="degree has no meaning"):
        method("kernel-pca").spec(kernel="rbf", degree=2)
    with pytest.raises(DegenerateDataError, match="Point 3 is 0"):
        embedded("kernel-pca", np.where(np.arange(40)[:, None] == 3, 0.0, X), kernel="cosine")
    with pytest.raises(OutOfRangeError, match="Lower degree"):
        embedded("kernel-pca", X * 1e10, kernel="polynomial", gamma=1.0, degree=30)
    with pytest.raises(DegenerateDataError, match="span 1 dim"):
        embedded("kernel-pca", np.repeat(X[:2], 10, axis=0))


def test_linear_kernel_and_distances_give_pca() -> None:
    """Kernel PCA with the linear kernel, MDS of points and MDS of their distances are PCA, large and small."""
    for n in (60, 650):
        X = correlated(n, 6)
        pca = embedded("pca", X)
        linear = embedded("kernel-pca", X, kernel="linear")
        np.testing.assert_allclose(linear.Y, pca.Y, atol=1e-8)
        np.testing.assert_allclose(eigenvalues(linear), eigenvalues(pca), rtol=1e-9)
        points, distances = embedded("mds", X), embedded("mds", cdist(X, X), dissimilarity="precomputed")
        np.testing.assert_allclose(points.Y, pca.Y, atol=1e-8)
        np.testing.assert_allclose(distances.Y, pca.Y, atol=1e-8)
        assert points.figures["strain"] == pytest.approx(distances.figures["strain"], rel=1e-8)
        assert not distances.notes


@pytest.mark.parametrize("name", ["pca", "mds"])
def test_a_component_of_rounding_is_reported(name: str) -> None:
    """Points on a line have one component; the second is said to be none."""
    X = np.outer(np.arange(20.0), [1, 2, 3]) + 0.3
    assert [note.code for note in embedded(name, X).notes] == ["flat-components"]
    assert not embedded(name, correlated(20, 3)).notes


@pytest.mark.parametrize("unit", [1e-130, 1e145])
@pytest.mark.parametrize("name", ["pca", "ppca", "factor-analysis", "kernel-pca", "mds", "npe"])
def test_units_at_the_ends_of_the_range_do(name: str, unit: float) -> None:
    """Squares neither overflow nor vanish in any unit that the data may have."""
    X = correlated(40, 5)
    usual, found = embedded(name, X).Y, embedded(name, X * unit).Y
    usual, found = usual / np.linalg.norm(usual), found / unit / np.linalg.norm(found / unit)
    np.testing.assert_allclose(found, usual, atol=1e-6)


def test_dissimilarities_that_are_no_distances_are_reported() -> None:
    """Negative eigenvalues are a figure and a note, checked by the whole spectrum."""
    X = correlated(90, 3)
    D = np.abs(X[:, None] - X[None]).sum(axis=2) ** 1.5
    J = np.eye(90) - 1 / 90
    spectrum = np.linalg.eigvalsh(-0.5 * J @ D**2 @ J)
    found = embedded("mds", D, dissimilarity="precomputed")
    np.testing.assert_allclose(eigenvalues(found), spectrum[:-3:-1], rtol=1e-9)
    assert found.figures["least_eigenvalue"] == pytest.approx(spectrum[0], rel=1e-9)
    assert [note.code for note in found.notes] == ["not-euclidean"]


def test_mds_refuses_what_are_no_dissimilarities() -> None:
    """Not square, not symmetric, negative, with a diagonal, of too few dimensions: with the place and the remedy."""
    D = cdist(X := correlated(20, 3), X)
    with pytest.raises(InvalidShapeError, match="20 x 3"):
        embedded("mds", X, dissimilarity="precomputed")
    for place, value, result in (((2, 5), 100.0, "mirror"), ((2, 5), -1.0, "negative"), ((4, 4), 1.0, "diagonal")):
        wrong = D.copy()
        wrong[place] = value
        with pytest.raises(InvalidParameterError, match=result) as caught:
            embedded("mds", wrong, dissimilarity="precomputed")
        assert caught.value.details == {"row": place[0], "column": place[1]}
    line = np.abs(np.subtract.outer(np.arange(20.0), np.arange(20.0)))
    with pytest.raises(DegenerateDataError, match="at most 1"):
        embedded("mds", line, dissimilarity="precomputed")


def reconstruction(X: np.ndarray, k: int = 10) -> np.ndarray:
    """Return M = (I - W)^T (I - W), densely."""
    nearest = np.sort(kneighbors(X, k, silent)[0], axis=1)
    rest = np.eye(len(X))
    np.put_along_axis(rest, nearest, -lle_weights(X, nearest), axis=1)
    return np.asarray(rest.T @ rest)


def test_npe_solves_its_generalised_eigenproblem() -> None:
    """A dense solver finds the same values, and no random linear map of unit variance reconstructs better."""
    X = correlated(120, 6)
    found = embedded("npe", X)
    M, centred = reconstruction(X), X - X.mean(axis=0)
    np.testing.assert_allclose(
        eigenvalues(found), eigh(centred.T @ M @ centred, centred.T @ centred, eigvals_only=True)[:2], rtol=1e-8
    )
    np.testing.assert_allclose(found.Y.T @ found.Y / 120, np.eye(2), atol=1e-10)
    least = np.trace(found.Y.T @ M @ found.Y)
    assert least == pytest.approx(120 * eigenvalues(found).sum(), rel=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        Q = np.linalg.qr(centred @ rng.standard_normal((6, 2)))[0] * np.sqrt(120)
        assert np.trace(Q.T @ M @ Q) > least
    residual = np.linalg.lstsq(centred, found.Y, rcond=None)[1]
    assert residual.max() < 1e-15 * 120


def test_npe_with_every_axis_of_many_features_is_lle() -> None:
    """With as many dimensions as points every embedding is linear; by default most variance alone is kept."""
    X = np.sin(correlated(60, 100))
    lle, all_axes, usual = embedded("lle", X), embedded("npe", X, variance=1), embedded("npe", X)
    np.testing.assert_allclose(eigenvalues(all_axes), eigenvalues(lle), rtol=1e-6)
    np.testing.assert_allclose(np.abs(all_axes.Y), np.abs(lle.Y), atol=1e-5)
    assert usual.figures["axes"] < all_axes.figures["axes"] == 59
    assert (eigenvalues(usual) > eigenvalues(lle)).all()


def test_npe_tells_a_graph_in_pieces() -> None:
    """It is no failure of a linear map, but is said."""
    X = correlated(40, 4)
    found = embedded("npe", np.concatenate([X, X + 1000]))
    assert [note.code for note in found.notes] == ["disconnected-graph"]
    assert found.figures["components"] == 2


@pytest.mark.parametrize("name", ["ppca", "factor-analysis"])
def test_noise_needs_a_dimension(name: str) -> None:
    """As many components as features are refused from the sizes; data of too few dimensions by PPCA as well."""
    X = correlated(30, 3)
    with pytest.raises(GlleError, match="n_components of at most 2"):
        embedded(name, X, n_components=3)
    with pytest.raises(DegenerateDataError, match="nothing is left"):
        embedded("ppca", X @ np.ones((3, 1)) @ np.ones((1, 5)))


@pytest.mark.parametrize("name", ["pca", "ppca", "factor-analysis", "kernel-pca", "mds", "npe"])
@settings(max_examples=4)
@given(seed=st.integers(0, 1000), shift=st.floats(-50, 50), scale=st.sampled_from([0.01, 3.0]))
def test_order_place_and_unit_do_not_matter(name: str, seed: int, shift: float, scale: float) -> None:
    """Permuted points are embedded alike, in their order; shifted and rescaled ones alike, up to scale and sign."""
    X = correlated(50, 6, seed % 5)
    order = np.random.default_rng(seed).permutation(50)
    plain, other = embedded(name, X).Y, embedded(name, scale * X[order] + shift).Y
    plain, other = plain[order] / np.linalg.norm(plain, axis=0), other / np.linalg.norm(other, axis=0)
    np.testing.assert_allclose(other * np.sign((plain * other).sum(axis=0)), plain, atol=1e-5)
