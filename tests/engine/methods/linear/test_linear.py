"""The linear and kernel methods, against closed forms, limits, optimality, decompositions and scikit-learn."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA, FactorAnalysis, KernelPCA
from sklearn.manifold import Isomap

from glle_engine import manifolds
from glle_engine.base.errors import (
    DegenerateDataError,
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
    NotFiniteError,
    OutOfRangeError,
)
from glle_engine.base.progress import silent
from glle_engine.eigen.leading import leading_eigenpairs, least_eigenvalue
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import METHODS, Embedding, maps, method
from glle_engine.methods.linear.pca import FactorMap, Model, fit_ppca, fit_ppca_by_em, maximize, principal_axes, step
from glle_engine.methods.registry import MAPPED, no_map
from glle_engine.weights.lle import lle_weights
from tests.engine.methods.reference import codes_of, embed, factor_data, same_columns, values_of


def gaussian(X: np.ndarray, W: np.ndarray, noise: np.ndarray) -> float:
    """Return the log likelihood of N(mean, W W^T + diag(noise)), computed from the dense covariance."""
    n, d = X.shape
    C = W @ W.T + np.diag(noise)
    S = np.cov(X.T, bias=True)
    result = d * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S))
    return float(-0.5 * n * result)


@pytest.mark.parametrize("shape", [(80, 6), (30, 90)])
def test_the_likelihood_of_ppca_is_scikit_learns(shape: tuple[int, int]) -> None:
    """Log likelihood and noise variance are those of the dense covariance and of scikit-learn."""
    X = factor_data(*shape)
    n, d = shape
    embedding = embed("ppca", X, n_components=3)
    fit = fit_ppca(X, principal_axes(X, 3, silent))
    dense = gaussian(X, fit.loadings, np.full(d, fit.noise_variance))
    assert embedding.figures["log_likelihood"] == pytest.approx(dense, rel=1e-10)
    # scikit-learn divides by n - 1, and its noise by the dimensions that the points span, not those there are.
    mean = X.mean(axis=0)
    other = PCA(3).fit(mean + (X - mean) * np.sqrt((n - 1) / n))
    expected = other.noise_variance_ * (min(n, d) - 3) / (d - 3)
    assert embedding.figures["noise_variance"] == pytest.approx(expected, rel=1e-9)
    if d < n:
        assert embedding.figures["log_likelihood"] == pytest.approx(other.score(X) * n, rel=1e-10)


def test_ppca_by_em_converges_to_the_closed_form() -> None:
    """EM has the loadings, noise, likelihood and embedding of the closed form; fewer steps have less likelihood."""
    X = factor_data(200, 8)
    closed = fit_ppca(X, principal_axes(X, 3, silent))
    by_em, steps = fit_ppca_by_em(X, 3, silent)
    found_covariance, expected_covariance = (
        one.loadings @ one.loadings.T + one.noise_variance * np.eye(8) for one in (by_em, closed)
    )
    np.testing.assert_allclose(found_covariance, expected_covariance, atol=1e-5 * np.abs(expected_covariance).max())
    assert by_em.noise_variance == pytest.approx(closed.noise_variance, rel=1e-5)
    assert by_em.log_likelihood == pytest.approx(closed.log_likelihood, rel=1e-9)
    earlier = [fit_ppca_by_em(X, 3, silent, count)[0].log_likelihood for count in (1, 3, 10, steps)]
    assert all(np.diff(earlier) >= 0)
    embedding, expected = embed("ppca", X, n_components=3, solver="em"), embed("ppca", X, n_components=3)
    np.testing.assert_allclose(embedding.Y, expected.Y, atol=1e-4)
    assert embedding.figures["iterations"] > 10
    np.testing.assert_allclose(embedding.transform(X), embedding.Y, atol=1e-9)


def bayesian_pca(X: np.ndarray, p: int) -> tuple[np.ndarray, float]:
    """Return W and the noise variance by Bishop's EM, written out with full matrices, point by point."""
    n, d = X.shape
    centered = X - X.mean(axis=0)
    values, vectors = np.linalg.eigh(centered.T @ centered / n)
    noise = values[:-p].mean()
    W = vectors[:, : -p - 1 : -1] * np.sqrt(values[: -p - 1 : -1] - noise)
    for _ in range(3000):
        precision = np.diag(d / np.maximum((W**2).sum(axis=0), 1e-200))
        inverse = np.linalg.inv(W.T @ W + noise * np.eye(p))
        means = centered @ W @ inverse
        seconds = [noise * inverse + np.outer(mean, mean) for mean in means]
        W = centered.T @ means @ np.linalg.inv(sum(seconds) + noise * precision)
        residual = sum(
            x @ x - 2 * mean @ W.T @ x + np.trace(second @ W.T @ W)
            for x, mean, second in zip(centered, means, seconds, strict=True)
        )
        noise = residual / (n * d)
    return W, float(noise)


def test_bayesian_pca_is_bishops_em_and_finds_the_number_of_components() -> None:
    """Loadings and noise equal EM with full matrices; of five components, the three of the data stay."""
    rng = np.random.default_rng(0)
    X = 5 + rng.standard_normal((60, 3)) @ rng.standard_normal((3, 8)) * 2 + 0.7 * rng.standard_normal((60, 8))
    embedding = embed("ppca", X, n_components=5, prior="ard")
    W, noise = bayesian_pca(X, 5)
    assert embedding.map is not None
    found = embedding.map.arrays["loadings"]
    np.testing.assert_allclose(found @ found.T, W @ W.T, atol=1e-6 * np.abs(W @ W.T).max())
    assert embedding.figures["noise_variance"] == pytest.approx(noise, rel=1e-6)
    expected = gaussian(X, found, np.full(8, embedding.figures["noise_variance"]))
    assert embedding.figures["log_likelihood"] == pytest.approx(expected)
    left = embedding.figures["relevant_components"]
    assert left == int((np.abs(W).max(axis=0) > 1e-6).sum()) == 3
    assert embedding.figures["relevance"][left:] == [None] * (5 - left)
    assert not embedding.Y[:, left:].any()
    assert codes_of(embedding) == ["components-of-noise"]
    many = np.tile(X, (200, 1))  # the data outweigh the prior
    plain = embed("ppca", many, n_components=3)
    np.testing.assert_allclose(embed("ppca", many, n_components=3, prior="ard").Y, plain.Y, atol=1e-2)
    with pytest.raises(InvalidParameterError, match="would change nothing with prior='ard'"):
        METHODS["ppca"].spec(prior="ard", solver="em")


def test_factor_analysis_has_loadings_and_noise_variances() -> None:
    """Likelihood and embedding follow from W and Psi of the map; a constant feature has zeros in both."""
    X = np.column_stack([factor_data(300, 6) * np.array([1.0, 10, 0.1, 1, 1, 3]), np.full(300, 4.0)])
    embedding = embed("factor-analysis", X, tol=1e-9)
    assert embedding.map is not None
    W, noise = embedding.map.arrays["loadings"], embedding.map.arrays["noise_variances"]
    assert (W.shape, noise.shape) == ((7, 2), (7,))
    assert not W[6].any()
    assert noise[6] == 0
    assert embedding.figures["log_likelihood"] == pytest.approx(gaussian(X[:, :6], W[:6], noise[:6]), rel=1e-9)
    signal = (W[:6].T / noise[:6]) @ W[:6]
    assert abs(signal[0, 1]) < 1e-9 * signal[1, 1]
    expected = (X[:, :6] - X[:, :6].mean(axis=0)) / noise[:6] @ W[:6] @ np.linalg.inv(np.eye(2) + signal)
    np.testing.assert_allclose(embedding.Y, expected, atol=1e-9)
    np.testing.assert_allclose(embedding.transform(X), embedding.Y, atol=1e-9)


def test_ppca_embeds_by_the_posterior_mean() -> None:
    """The embedding is E[z | x] = (W^T W + sigma^2 I)^-1 W^T (x - mu)."""
    X = factor_data(80, 6)
    fit = fit_ppca(X, axes := principal_axes(X, 2, silent))
    means = np.linalg.solve(fit.loadings.T @ fit.loadings + fit.noise_variance * np.eye(2), fit.loadings.T)
    embedding = embed("ppca", X)
    np.testing.assert_allclose(embedding.Y, (X - X.mean(axis=0)) @ means.T, atol=1e-10)
    assert axes.values[1] > fit.noise_variance
    assert embedding.notes == ()
    assert embedding.figures["posterior_variance"] == pytest.approx((fit.noise_variance / axes.values).tolist())
    round_ = np.concatenate([np.eye(4), -np.eye(4)])
    assert embed("ppca", round_).notes[0].message.startswith("2 of 2 components vary no more than the noise: ")


def test_the_likelihood_of_factor_analysis_grows_to_that_of_scikit_learn() -> None:
    """No step of EM lowers the likelihood, which ends at scikit-learn's, with the same factors."""
    X = factor_data(300, 8)
    centered = (X - X.mean(axis=0)) / X.std(axis=0)
    start = Model(np.random.default_rng(0).standard_normal((8, 3)), np.ones(8))
    first = step(centered / np.sqrt(300), start)[1]
    assert first * 300 == pytest.approx(gaussian(centered, start.loadings, start.noise), rel=1e-12)
    result = maximize(centered / np.sqrt(300), start, 1e-9, 2000, silent)[1]
    assert (np.diff(result) >= -1e-12).all()
    embedding = embed("factor-analysis", X, n_components=3, tol=1e-9, max_iter=5000)
    other = FactorAnalysis(3, tol=1e-9, max_iter=5000, svd_method="lapack").fit(X)
    assert embedding.figures["converged"]
    assert embedding.figures["log_likelihood"] == pytest.approx(other.score(X) * 300, abs=0.01)
    residual = np.linalg.lstsq(embedding.Y, other.transform(X), rcond=None)[1]
    assert residual.max() / 300 < 1e-3


def test_the_factors_are_the_same_in_any_unit_of_a_feature() -> None:
    """Features in units from 1e-300 to 1e100 have the factors of the unscaled data."""
    X = np.random.default_rng(0).standard_normal((60, 5)) + np.random.default_rng(1).standard_normal((60, 1))
    embedding = embed("factor-analysis", X * [1e-200, 1.0, 1e100, 1e-300, 1e-160], n_components=1)
    np.testing.assert_allclose(embedding.Y, embed("factor-analysis", X, n_components=1).Y, atol=1e-9)


def test_factor_analysis_says_what_is_doubtful() -> None:
    """Too few steps, constant features, too many factors and a feature without noise each have a note."""
    X = factor_data(80, 6)
    X[:, 0], X[:, 1] = 1, X[:, 2]
    embedding = embed("factor-analysis", X, n_components=3, max_iter=3)
    assert {"not-converged", "constant-features", "not-identified"} <= {*codes_of(embedding)}
    assert not embedding.figures["converged"]
    assert "heywood" in codes_of(embed("factor-analysis", X, n_components=2))


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"kernel": "rbf", "gamma": 0.3}, {"kernel": "rbf", "gamma": 0.3}),
        ({"kernel": "cosine"}, {"kernel": "cosine"}),
        ({"kernel": "polynomial", "degree": 2, "offset": 2.0}, {"kernel": "poly", "degree": 2, "coef0": 2.0}),
    ],
)
def test_kernel_pca_is_scikit_learns(options: dict[str, object], other: dict[str, object]) -> None:
    """The embedding of training and new points is scikit-learn's, up to signs."""
    X, new = factor_data(100, 5), factor_data(20, 5) + 0.3
    gamma = {} if options["kernel"] == "cosine" else {"gamma": 0.3}
    embedding = embed("kernel-pca", X, **options | gamma)
    expected = KernelPCA(2, eigen_solver="dense", **other | gamma).fit(X)
    same_columns(expected.transform(X), embedding.Y, 1e-8)
    same_columns(expected.transform(new), embedding.transform(new), 1e-8)


def test_a_given_kernel_is_as_its_name() -> None:
    """A precomputed kernel matrix gives the embedding of the kernel, also of new points."""
    X, new = factor_data(100, 5), factor_data(20, 5) + 0.3
    K, values = (np.exp(-0.3 * cdist(points, X, "sqeuclidean")) for points in (X, new))
    named, embedding = embed("kernel-pca", X, gamma=0.3), embed("kernel-pca", K, kernel="precomputed")
    same_columns(named.Y, embedding.Y, 1e-10)
    same_columns(named.transform(new), embedding.transform(values), 1e-10)
    np.testing.assert_allclose(values_of(embedding), values_of(named), rtol=1e-10)
    assert embedding.figures["explained_variance"] == pytest.approx(named.figures["explained_variance"], rel=1e-10)
    assert not embedding.notes
    with pytest.raises(InvalidParameterError, match="cannot be mapped back to data"):
        embedding.inverse_transform(embedding.Y)


def test_a_matrix_that_is_no_kernel_is_reported() -> None:
    """A negative eigenvalue has a note, and only positive eigenvalues are used."""
    vectors = np.linalg.qr(np.column_stack([np.ones(30), factor_data(30, 4)]))[0][:, 1:]
    K = vectors * [4.0, 2.0, -1.0, 0.5] @ vectors.T
    embedding = embed("kernel-pca", K, kernel="precomputed")
    np.testing.assert_allclose(values_of(embedding) * 30, [4.0, 2.0], rtol=1e-10)
    assert codes_of(embedding) == ["not-a-kernel"]
    assert "is 0.25 of the largest" in embedding.notes[0].message
    assert embedding.figures["explained_variance"] == 1.0
    for unit in (1.0, 1e-9, 1e9):
        with pytest.raises(DegenerateDataError, match="span 3 dimensions"):
            embed("kernel-pca", unit * K, kernel="precomputed", n_components=4)


@pytest.mark.parametrize("name", ["pca", "npe", "ppca", "factor-analysis"])
def test_affine_maps_have_inverses(name: str) -> None:
    """Inverses return points that are mapped to the given positions (PCA, NPE), or E[x | z] (PPCA, factor analysis)."""
    X = factor_data(80, 6)
    embedding = embed(name, X, n_components=3)
    back = embedding.inverse_transform(embedding.Y)
    assert back.shape == X.shape
    if name in {"pca", "npe"}:
        np.testing.assert_allclose(embedding.transform(back), embedding.Y, atol=1e-10)
    else:
        assert isinstance(embedding.map, FactorMap)
        np.testing.assert_allclose(back, X.mean(axis=0) + embedding.Y @ embedding.map.loadings.T, atol=1e-12)
    if name == "pca":
        other = PCA(3).fit(X)
        np.testing.assert_allclose(back, other.inverse_transform(other.transform(X)), atol=1e-10)
        np.testing.assert_allclose(
            embed("pca", X, n_components=6).inverse_transform(np.zeros((1, 6)))[0], X.mean(axis=0)
        )


def test_kernel_pca_returns_near_the_data() -> None:
    """The inverse is scikit-learn's for centered data, and that of PCA for the linear kernel."""
    X = factor_data(80, 4)
    X = X - X.mean(axis=0)
    embedding = embed("kernel-pca", X, n_components=10, gamma=0.002)
    other = KernelPCA(10, kernel="rbf", gamma=0.002, fit_inverse_transform=True, alpha=0.01).fit(X)
    expected = other.inverse_transform(other.transform(X))
    np.testing.assert_allclose(embedding.inverse_transform(embedding.Y, ridge=0.01), expected, atol=1e-8)
    rough, near = (np.linalg.norm(embedding.inverse_transform(embedding.Y, ridge=r) - X) for r in (1.0, 1e-4))
    assert near < 0.1 * np.linalg.norm(X) < rough
    linear, pca = embed("kernel-pca", X + 5, kernel="linear"), embed("pca", X + 5)
    back = linear.inverse_transform(linear.Y, ridge=1e-7)
    np.testing.assert_allclose(back, pca.inverse_transform(pca.Y), atol=1e-4)
    rows = embed("kernel-pca", X + 5, kernel="cosine", n_components=3)
    lengths = np.linalg.norm(rows.inverse_transform(rows.Y, ridge=1e-9), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=0.05)


def test_places_without_a_way_back_are_refused() -> None:
    """Methods without an inverse, and positions of another width, raise an error."""
    X = factor_data(40, 3)
    for name, subject in (("ltsa", "This embedding"), ("isomap", "The map by nearest neighbors")):
        embedding = embed(name, X)
        with pytest.raises(InvalidParameterError, match=f"{subject} has no inverse"):
            embedding.inverse_transform(embedding.Y)
    embedding = embed("pca", X)
    with pytest.raises(InvalidShapeError, match="the embedding has 2 components"):
        embedding.inverse_transform(X)
    with pytest.raises(InvalidParameterError, match="ridge=0"):
        embedding.inverse_transform(embedding.Y, ridge=0)


@pytest.mark.parametrize("name", ["ppca", "factor-analysis"])
def test_the_density_is_the_gaussian_of_the_covariance(name: str) -> None:
    """The density of each point is scipy's Gaussian, and constant features are ignored."""
    X = factor_data(90, 6)
    embedding = embed(name, X, n_components=2)
    assert isinstance(embedding.map, FactorMap)
    expected = multivariate_normal(X.mean(axis=0), embedding.map.covariance).logpdf(X)
    np.testing.assert_allclose(embedding.map.log_likelihoods(X), expected, rtol=1e-10)
    assert embedding.map.log_likelihoods(X).sum() == pytest.approx(embedding.figures["log_likelihood"], rel=1e-10)
    if name == "factor-analysis":
        wider = embed(name, np.column_stack([X[:, :3], np.full(90, 7.0), X[:, 3:]]), n_components=2)
        assert isinstance(wider.map, FactorMap)
        with_any = np.insert(X, 3, 9.0, axis=1)
        np.testing.assert_allclose(wider.map.log_likelihoods(with_any), expected, rtol=1e-8)


def test_linear_kernel_and_distances_give_pca() -> None:
    """Kernel PCA with the linear kernel, MDS of points and MDS of their distances equal PCA."""
    for n in (60, 650):
        X = factor_data(n, 6)
        pca = embed("pca", X)
        linear = embed("kernel-pca", X, kernel="linear")
        np.testing.assert_allclose(linear.Y, pca.Y, atol=1e-8)
        np.testing.assert_allclose(values_of(linear), values_of(pca), rtol=1e-9)
        points, distances = embed("mds", X), embed("mds", cdist(X, X), dissimilarity="precomputed")
        np.testing.assert_allclose(points.Y, pca.Y, atol=1e-8)
        np.testing.assert_allclose(distances.Y, pca.Y, atol=1e-8)
        assert points.figures["strain"] == pytest.approx(distances.figures["strain"], rel=1e-8)
        assert not distances.notes


@pytest.mark.parametrize("name", ["pca", "mds"])
def test_a_component_of_rounding_is_reported(name: str) -> None:
    """Points on a line have a note that the second component is only rounding errors."""
    assert codes_of(embed(name, np.outer(np.arange(20.0), [1, 2, 3]) + 0.3)) == ["flat-components"]
    assert not embed(name, factor_data(20, 3)).notes


def test_dissimilarities_that_are_no_distances_are_reported() -> None:
    """A negative eigenvalue of the inner products is a figure and has a note."""
    X = factor_data(90, 3)
    D = np.abs(X[:, None] - X[None]).sum(axis=2) ** 1.5
    J = np.eye(90) - 1 / 90
    spectrum = np.linalg.eigvalsh(-0.5 * J @ D**2 @ J)
    embedding = embed("mds", D, dissimilarity="precomputed")
    np.testing.assert_allclose(values_of(embedding), spectrum[:-3:-1], rtol=1e-9)
    assert embedding.figures["least_eigenvalue"] == pytest.approx(spectrum[0], rel=1e-9)
    kept, all_ = (spectrum[-2:] ** 2).sum(), (spectrum**2).sum()
    assert embedding.figures["strain"] == pytest.approx(np.sqrt(1 - kept / all_), rel=1e-9)
    assert codes_of(embedding) == ["not-euclidean"]


def reconstruction(X: np.ndarray, k: int = 10) -> np.ndarray:
    """Return M = (I - W)^T (I - W) as a dense matrix."""
    nearest = np.sort(kneighbors(X, k, silent)[0], axis=1)
    rest = np.eye(len(X))
    np.put_along_axis(rest, nearest, -lle_weights(X, nearest), axis=1)
    return np.asarray(rest.T @ rest)


def test_npe_solves_its_generalized_eigenproblem() -> None:
    """Eigenvalues are those of a dense solver, and the embedding is a linear function of the data that attains them."""
    X = factor_data(120, 6)
    embedding = embed("npe", X)
    M, centered = reconstruction(X), X - X.mean(axis=0)
    dense = eigh(centered.T @ M @ centered, centered.T @ centered, eigvals_only=True)
    np.testing.assert_allclose(values_of(embedding), dense[:2], rtol=1e-8)
    np.testing.assert_allclose(embedding.Y.T @ embedding.Y / 120, np.eye(2), atol=1e-10)
    assert np.trace(embedding.Y.T @ M @ embedding.Y) == pytest.approx(120 * values_of(embedding).sum(), rel=1e-9)
    assert np.linalg.lstsq(centered, embedding.Y, rcond=None)[1].max() < 1e-15 * 120


def test_npe_with_every_axis_of_many_features_is_lle() -> None:
    """With as many axes as points, NPE is LLE; by default fewer axes are used."""
    X = np.sin(factor_data(60, 100))
    lle, all_axes, usual = embed("lle", X), embed("npe", X, variance_share=1), embed("npe", X)
    np.testing.assert_allclose(values_of(all_axes), values_of(lle), rtol=1e-6)
    np.testing.assert_allclose(np.abs(all_axes.Y), np.abs(lle.Y), atol=1e-5)
    assert usual.figures["axes"] < all_axes.figures["axes"] == 59
    assert (values_of(usual) > values_of(lle)).all()


def test_npe_tells_a_graph_in_pieces() -> None:
    """A disconnected graph is embedded, with a note and a figure."""
    X = factor_data(40, 4)
    embedding = embed("npe", np.concatenate([X, X + 1000]))
    assert codes_of(embedding) == ["disconnected-graph"]
    assert embedding.figures["components"] == 2


@pytest.mark.parametrize("shape", [(80, 6), (30, 90), (700, 650), (300, 3)])
def test_principal_axes_are_those_of_the_decomposition(shape: tuple[int, int]) -> None:
    """Scores, directions and eigenvalues of tall, wide and large data are those of the SVD."""
    X = factor_data(*shape)
    axes = principal_axes(X, 3, silent)
    S = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(axes.values, S[:3] ** 2 / len(X), rtol=1e-10)
    np.testing.assert_allclose(axes.scores, (X - X.mean(axis=0)) @ axes.directions, atol=1e-8)
    np.testing.assert_allclose(axes.directions.T @ axes.directions, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(axes.total, (S**2).sum() / len(X), rtol=1e-12)


def test_a_small_component_keeps_its_digits() -> None:
    """A direction 1e-10 times as wide as the first is found to five digits."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    X = rng.standard_normal((200, 4)) * [1.0, 1e-10, 0.0, 0.0]
    wide = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[1]
    assert np.sqrt(principal_axes(X @ turn, 2, silent).values[1] * 200) == pytest.approx(wide, rel=1e-5)


def test_lanczos_finds_the_copies_of_a_multiple_eigenvalue() -> None:
    """Five equal eigenvalues of a large matrix are found five times; the least eigenvalue is found, too."""
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((700, 700)))[0]
    spectrum = np.concatenate([[9.0, 4, 4, 4, 4, 4], np.linspace(1, -0.5, 694)])
    matrix = (Q * spectrum) @ Q.T
    values, vectors = leading_eigenpairs(matrix, 5, silent)
    np.testing.assert_allclose(values, [9, 4, 4, 4, 4], rtol=1e-10)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-8)
    assert least_eigenvalue(matrix, 9.0, silent) == pytest.approx(-0.5, abs=1e-4)
    assert least_eigenvalue(0 * matrix, 0.0, silent) == 0


TALL = factor_data(120, 6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("pca", "ppca", "factor-analysis", "lle", "isomap", "t-sne")),
        ("npe", {"standardize": "robust", "variance_share": 0.9}),
        *(("kernel-pca", {"kernel": kernel}) for kernel in ("rbf", "cosine", "linear", "polynomial")),
        ("lle", {"metric": "cosine"}),
        *(pytest.param(each, {}, marks=pytest.mark.slow) for each in ("umap", "pacmap")),
    ],
    ids=str,
)
def test_a_stored_map_is_the_map(name: str, options: dict[str, object]) -> None:
    """A map is rebuilt from its arrays, the data and the embedding; training points get their positions."""
    X, new = TALL, factor_data(9, 6) + 0.1
    one = method(name)
    spec = one.spec(**options)
    embedding = one.embed(X, spec)
    assert embedding.map is not None
    assert one.restore is not None
    stored = Embedding(embedding.Y, embedding.eigenvalues, embedding.figures)
    again = one.restore(lambda: X, spec, stored, embedding.map.arrays)
    np.testing.assert_allclose(again.transform(new), embedding.transform(new), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(again.transform(X), embedding.Y, rtol=0, atol=1e-8 * np.abs(embedding.Y).max())
    assert again.arrays.keys() == embedding.map.arrays.keys()


@pytest.mark.parametrize("name", ["pca", "ppca", "npe"])
def test_affine_maps_have_mean_and_components(name: str) -> None:
    """The position of x is components (p, d) times (x - mean); for PCA this is scikit-learn's transform."""
    X, x = TALL, factor_data(1, 6)
    embedding = embed(name, X, n_components=3)
    assert isinstance(embedding.map, maps.AffineMap)
    assert (embedding.map.mean.shape, embedding.map.components.shape) == ((6,), (3, 6))
    np.testing.assert_allclose(embedding.map.mean, X.mean(axis=0))
    np.testing.assert_allclose(embedding.transform(x)[0], embedding.map.components @ (x[0] - embedding.map.mean))
    if name == "pca":
        same_columns(PCA(3).fit(X).transform(X + 0.3), embedding.transform(X + 0.3), 1e-8)


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 40), rows=st.integers(1, 7))
def test_blocks_do_not_matter(seed: int, size: int, rows: int) -> None:
    """The size of blocks changes no position, and every block is reported."""
    X, new = TALL, factor_data(size, 6) + seed % 7
    embedding = embed("kernel-pca", X, gamma=0.1)
    reports: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("glle_engine.base.progress.BLOCK_ENTRIES", rows * len(X))
        places = embedding.transform(new, lambda done, total, _stage: reports.append((done, total)))
    np.testing.assert_allclose(places, embedding.transform(new), rtol=1e-9, atol=1e-12)
    assert reports[-1] == (size, size)
    assert len(reports) == -(-size // rows)


def test_a_map_that_magnifies_rounding_is_noted() -> None:
    """NPE on axes along which the data hardly vary has a note; with less variance it has none."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4)) * [1.0, 1.0, 1.0, 1e-13] @ np.linalg.qr(rng.standard_normal((4, 4)))[0]
    embedding = embed("npe", X)
    assert np.abs(embedding.transform(X) - embedding.Y).max() > 1e-8 * np.abs(embedding.Y).max()
    assert "ill-conditioned-map" in codes_of(embedding)
    assert embed("npe", X, variance_share=0.999999).notes == ()


def test_methods_without_a_map_name_those_that_have_one() -> None:
    """The error names methods that can place new points."""
    embedding = embed("laplacian-eigenmaps", TALL)
    with pytest.raises(InvalidParameterError, match="no map to new points") as caught:
        embedding.transform(TALL)
    assert {"pca", "isomap", "umap"} <= set(re.findall(r"[a-z-]+", caught.value.remedy)) & set(MAPPED)
    refusal = no_map("Laplacian eigenmaps")
    assert all(name in refusal.remedy for name in MAPPED)
    assert refusal.details == {"methods": list(MAPPED)}


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        (np.ones((3, 5)), InvalidShapeError, "Give a matrix of 6 columns"),
        (np.full((1, 6), np.nan), NotFiniteError, "is nan"),
        (np.full((1, 6), 1e308), OutOfRangeError, "unit of the training data"),
        (np.zeros((1, 6)), DegenerateDataError, "no direction"),
    ],
)
def test_bad_new_points_are_refused(points: np.ndarray[Any, Any], error: type[GlleError], message: str) -> None:
    """New points of another width, NaN, out of range, or without a direction raise an error."""
    fitted: Any = embed("kernel-pca", TALL, kernel="cosine")
    if error is OutOfRangeError:
        fitted = maps.AffineMap(np.zeros(6), np.full((2, 6), 10.0))
    with pytest.raises(error, match=message):
        fitted.transform(points)


@pytest.mark.parametrize("length", [1e-300, 1e-160, 1e160, 1e300])
def test_the_cosine_of_a_point_does_not_depend_on_its_length(length: float) -> None:
    """New points of any length, even 1e300, have the position of their direction."""
    embedding, new = embed("kernel-pca", TALL, kernel="cosine"), factor_data(9, 6)
    np.testing.assert_allclose(embedding.transform(new * length), embedding.transform(new), atol=1e-12)


def test_isomap_places_new_points_as_scikit_learn() -> None:
    """New points have scikit-learn's positions, up to signs."""
    X = manifolds.make("s_curve", 200, seed=2).X
    expected = Isomap(n_neighbors=10, eigen_solver="dense").fit(X[:180]).transform(X[180:])
    same_columns(expected, embed("isomap", X[:180], n_neighbors=10).transform(X[180:]), 1e-6)
