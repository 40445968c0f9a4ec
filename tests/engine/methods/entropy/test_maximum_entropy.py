"""The maximum entropy methods against limits, optimality conditions and other implementations."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal
from sklearn.covariance import graphical_lasso

from glle_engine import manifolds
from glle_engine.base.progress import silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import METHODS
from glle_engine.methods.entropy.alle import AlleSpec, acyclic, ordering
from glle_engine.methods.entropy.drill import regularize
from glle_engine.methods.entropy.gaussian_field import principal_coordinates, second_moment, undirected_edges
from glle_engine.methods.entropy.meu import Unfolding, unfold
from glle_engine.methods.entropy.mvu import Program, unroll
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.metrics.ranks import trustworthiness
from tests.engine.conftest import reference_data
from tests.engine.methods.reference import cloud, codes_of, embed, same_columns, values_of


def unfolding(X: np.ndarray, k: int, *, positive: bool = True) -> Unfolding:
    """Return the likelihood of the multipliers on the kNN graph of X."""
    i, j = undirected_edges(kneighbors(X, k)[0])
    return Unfolding(second_moment(X), i, j, 1e-4, positive=positive)


def test_the_gradient_of_the_multipliers_is_that_of_finite_differences() -> None:
    """The gradient of MEU's objective agrees with finite differences."""
    problem = unfolding(cloud(15, 6), 4)
    multipliers = np.random.default_rng(0).uniform(0.5, 1.5, len(problem.i))
    error = check_grad(
        lambda x: problem.objective(x)[0],
        lambda x: problem.gradient(np.linalg.inv(problem.laplacian(x).toarray() + 1e-4 * np.eye(15))),
        multipliers,
    )
    assert error < 1e-4 * np.linalg.norm(problem.squared_distances(problem.S))


def test_at_the_optimum_distances_are_expected_as_observed() -> None:
    """Expected squared distances equal the observed ones, or are smaller where the multiplier is 0."""
    X = manifolds.make("s_curve", 80, seed=1).X
    problem = unfolding(X, 6)
    unfolded = unfold(problem, 1e-8, 100, silent)
    observed = problem.squared_distances(problem.S)
    expected = problem.squared_distances(unfolded.K)
    held = unfolded.multipliers > 0
    assert unfolded.converged
    assert unfolded.multipliers.min() == 0
    assert np.allclose(expected[held], observed[held], atol=1e-6)
    assert (expected[~held] <= observed[~held] + 1e-6).all()


@pytest.mark.parametrize("exponent", [-460, 400])
def test_unfolding_in_any_unit(exponent: int) -> None:
    """A unit that is a power of 2 scales embedding, eigenvalues and gamma exactly."""
    X, unit = manifolds.make("s_curve", 60, seed=1).X, 2.0**exponent
    embedding, other = (embed("meu", data, n_neighbors=6) for data in (X, unit * X))
    np.testing.assert_array_equal(other.Y, unit * embedding.Y)
    np.testing.assert_array_equal(values_of(other), unit**2 * values_of(embedding))
    assert other.figures["gamma"] == embedding.figures["gamma"] / unit**2
    shift = -X.size * exponent * np.log(2)
    assert other.figures["log_likelihood"] == pytest.approx(embedding.figures["log_likelihood"] + shift, rel=1e-12)


def test_with_all_neighbors_the_embedding_is_that_of_pca() -> None:
    """ALLE and MEU with all neighbors are PCA divided by sqrt(d); LLE and MEU with positive multipliers are not."""
    X = cloud(16, 24)
    Z = principal_axes(X, 2, silent).scores / np.sqrt(24)
    for embedding in (
        embed("alle", X, n_neighbors=15, reg=0),
        embed("meu", X, n_neighbors=15, multipliers="any", tol=1e-9),
    ):
        assert np.allclose(embedding.Y, Z, atol=1e-5)
        assert embedding.figures.get("edges_without_multiplier", 0) == 0
    positive = embed("meu", X, n_neighbors=15)
    assert positive.figures["edges_without_multiplier"] > 0
    assert not np.allclose(positive.Y, Z, atol=0.02)
    lle = np.linalg.qr(embed("lle", X, n_neighbors=15).Y)[0]
    assert np.linalg.svd(lle.T @ np.linalg.qr(Z)[0])[1].min() < 0.98


@pytest.mark.parametrize("name", ["meu", "alle"])
def test_the_likelihood_is_that_of_the_gaussian(name: str) -> None:
    """The log likelihood is scipy's for the features as draws of N(0, K)."""
    X = cloud(25, 7)
    spec = METHODS[name].spec(n_neighbors=5)
    if name == "meu":
        i, j = undirected_edges(kneighbors(X, 5)[0])
        gamma = spec.mean_precision * 25 / np.trace(second_moment(X))
        K = unfold(Unfolding(second_moment(X), i, j, gamma, positive=True), spec.tol, 100, silent).K
    else:
        M = acyclic(X, spec, np.arange(25), silent)[0].toarray()
        K = np.linalg.inv(M @ M.T)
    expected = multivariate_normal(np.zeros(25), K).logpdf((X - X.mean(axis=0)).T).sum()
    figures = embed(name, X, n_neighbors=5).figures
    assert figures["log_likelihood"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [60, 130])
def test_acyclic_coordinates_are_those_of_the_dense_covariance(n: int) -> None:
    """The embedding is the principal coordinates of the dense covariance, by Lanczos or not, in any order."""
    X = manifolds.make("s_curve", n, seed=2).X
    spec = AlleSpec(n_neighbors=6, order="random", seed=1)
    order = ordering(X, spec)
    M = np.zeros((n, n))
    M[order] = acyclic(X, spec, order, silent)[0].toarray()
    expected = principal_coordinates(np.asarray(np.linalg.inv(M @ M.T), np.float64), 2)[0]
    assert np.allclose(METHODS["alle"].embed(X, spec).Y, expected, atol=1e-7)


def test_the_order_of_the_features_moves_no_point() -> None:
    """Ties between distances are decided by the index, not by rounding, which the order of features changes."""
    X = np.random.default_rng(0).integers(0, 16, (200, 4)) / 15
    first, second = (embed("alle", data).Y for data in (X, X[:, [2, 0, 3, 1]]))
    same_columns(first, second, 1e-9)


def test_words_for_an_ordering_are_what_they_say() -> None:
    """Order inward is by decreasing distance from the mean, and a random order depends on the seed."""
    X = cloud(40, 3)
    inward = np.argsort(-((X - X.mean(axis=0)) ** 2).sum(axis=1))
    np.testing.assert_allclose(embed("alle", X, order="inward").Y[inward], embed("alle", X[inward]).Y, atol=1e-9)
    random = [embed("alle", X, order="random", seed=seed).Y for seed in (0, 0, 1)]
    assert np.array_equal(random[0], random[1])
    assert not np.allclose(random[0], random[2])


@pytest.mark.parametrize("k", [5, 29])
def test_the_precision_meets_its_optimality_conditions(k: int) -> None:
    """The subgradient of the penalized likelihood contains 0, and entries outside the pattern are 0."""
    X = cloud(30, 20)
    S = second_moment(X)
    i, j = undirected_edges(kneighbors(X, k)[0])
    pattern = np.zeros((30, 30), bool)
    pattern[i, j] = pattern[j, i] = True
    neighbors = [np.flatnonzero(row) for row in pattern]
    regularized = regularize(S, neighbors, 0.1, 1e-10, 500, silent)
    slope = np.linalg.inv(regularized.P) - S - 0.1 * np.sign(regularized.P)
    linked = regularized.P != 0
    assert regularized.converged
    assert regularized.P[~pattern & ~np.eye(30, dtype=bool)].tolist() == [0.0] * int((~pattern).sum() - 30)
    assert np.abs(slope[linked]).max() < 1e-3
    assert np.abs(slope[pattern & ~linked]).max(initial=0) < 0.1 + 1e-3


def test_the_precision_of_all_points_is_that_of_scikit_learn() -> None:
    """Precision and covariance are scikit-learn's graphical lasso, with rho added to the diagonal of S."""
    S = second_moment(cloud(15, 40))
    neighbors = [np.delete(np.arange(15), i) for i in range(15)]
    K, P = graphical_lasso(S + 0.1 * np.eye(15), 0.1, tol=1e-6, enet_tol=1e-10)
    regularized = regularize(S, neighbors, 0.1, 1e-12, 500, silent)
    assert np.allclose(regularized.P, P, atol=1e-4)
    assert np.allclose(regularized.K, K, atol=1e-4)
    one, two = (embed("drill", unit * cloud(15, 40), n_neighbors="all").figures for unit in (1, 2))
    assert one["candidate_edges"] == 15 * 14 / 2
    assert one["log_likelihood"] - two["log_likelihood"] == pytest.approx(15 * 40 * np.log(2))


@pytest.mark.parametrize("name", ["meu", "drill", "mvu"])
def test_what_did_not_converge_says_so(name: str) -> None:
    """A figure and a note with the remedy say that the method did not converge."""
    embedding = embed(name, manifolds.make("s_curve", 60, seed=1).X, n_neighbors=8, max_iter=1)
    assert embedding.figures["converged"] is False
    assert codes_of(embedding) == ["not-converged"]
    assert "max_iter" in embedding.notes[0].message


def test_the_greatest_variance_is_that_of_clarabel() -> None:
    """The barrier method on the dual finds the solution of an interior-point solver on the primal problem."""
    cvxpy: Any = pytest.importorskip("cvxpy")
    X = cloud(14, 6)
    embedding = embed("mvu", X, n_neighbors=4, slack=1e-5, tol=1e-4)
    assert embedding.figures["converged"]
    i, j = undirected_edges(kneighbors(X, 4)[0])
    K = cvxpy.Variable((14, 14), PSD=True)
    diagonal = cvxpy.diag(K)
    distances = diagonal[i] + diagonal[j] - 2 * K[i, j] == ((X[i] - X[j]) ** 2).sum(axis=1)
    cvxpy.Problem(cvxpy.Maximize(cvxpy.trace(K)), [cvxpy.sum(K) == 0, distances]).solve(solver=cvxpy.CLARABEL)
    Y, _ = principal_coordinates((K.value + K.value.T) / 2, 2)
    assert embedding.figures["trace"] == pytest.approx(float(K.value.trace()), rel=1e-3)
    assert np.abs(embedding.Y - Y).max() < 1e-2 * np.abs(Y).max()


@pytest.mark.parametrize(
    ("name", "data", "k"), [("meu", "mocap_run1", 6), ("mvu", "mocap_run1", 6), ("alle", "robot_wifi", 7)]
)
def test_real_data_unfold(name: str, data: str, k: int) -> None:
    """Neighbors are kept for motion capture and for a robot's wireless signals."""
    X = reference_data(f"{data}.npy")
    embedding = embed(name, X, n_neighbors=k)
    # The strengths of the robot's signals have one unit and unequal scales, which `embed` notes.
    assert set(codes_of(embedding)) <= {"unequal-feature-scales"}
    assert trustworthiness(X, embedding.Y) > 0.95


def test_the_gram_matrix_of_greatest_trace_is_centered() -> None:
    """Also before convergence, so that its trace is the variance of the map."""
    X = cloud(14, 6)
    i, j = undirected_edges(kneighbors(X, 4)[0])
    K = unroll(Program(14, i, j, ((X[i] - X[j]) ** 2).sum(axis=1)), 1e-3, 1e-3, 5, silent).K
    np.testing.assert_allclose(K.sum(axis=0), 0, atol=1e-9 * K.trace())


def test_a_sheet_unrolls_with_its_distances() -> None:
    """Two dimensions keep nearly all variance of an S-curve, and neighbors nearly keep their distances."""
    embedding = embed("mvu", manifolds.make("s_curve", 80, seed=3).X, n_neighbors=5)
    assert embedding.figures["kept"] > 0.98
    assert embedding.figures["mean_squared_distance_error"] < 5e-3
    assert 0 <= embedding.figures["duality_gap"] <= 1e-3
