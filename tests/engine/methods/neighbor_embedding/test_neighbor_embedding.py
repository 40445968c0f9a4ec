"""Neighbor embedding: affinities, objectives, their descent, and what comes out."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse.linalg import ArpackNoConvergence
from scipy.spatial.distance import cdist
from scipy.special import xlogy
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE

from glle_engine import manifolds
from glle_engine.base.errors import ConvergenceError
from glle_engine.base.progress import silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import method
from glle_engine.methods.neighbor_embedding.affinities import (
    _calibrate,
    conditional_affinities,
    initial,
    joint_affinities,
)
from glle_engine.methods.neighbor_embedding.descent import Objective, attraction_factor, descend, gaussian_sums
from glle_engine.methods.neighbor_embedding.pairwise import (
    elastic_energy,
    joint_divergence,
    mean_divergence,
    repulsive_weights,
    strengths,
)
from glle_engine.metrics.ranks import trustworthiness
from tests.engine.conftest import reference_data
from tests.engine.methods.reference import cloud, codes_of, embed

OWN = ("sne", "symmetric-sne", "elastic-embedding")
ALL = (*OWN, "t-sne")
# A few iterations, which do not converge.
QUICK: dict[str, dict[str, object]] = {
    **{name: {"max_iter": 20} for name in OWN},
    "t-sne": {"early_iter": 20, "max_iter": 30},
}

Array = np.ndarray


def squared_distances(Y: Array) -> Array:
    """Return the squared distances of all pairs of rows of Y."""
    return np.asarray(cdist(Y, Y, "sqeuclidean"))


def kernel(Y: Array) -> Array:
    """Return exp(-|y_i - y_j|^2) for all pairs, with 0 on the diagonal."""
    K: Array = np.exp(-squared_distances(Y))
    np.fill_diagonal(K, 0)
    return K


def divergence(P: Array, Q: Array) -> float:
    """Return the sum of P log(P / Q), in which terms with P = 0 are 0."""
    return float((xlogy(P, P) - xlogy(P, np.where(P > 0, Q, 1))).sum())


@pytest.mark.parametrize(("perplexity", "unit"), [(1.5, 1e9), (10.0, 1e-6)])
def test_affinities_have_the_perplexity(perplexity: float, unit: float) -> None:
    """Affinities of each point sum to one and have the entropy log(perplexity), in any unit, also with an outlier."""
    X = cloud(400, 3)
    X[7] += 1000
    P, met = conditional_affinities(unit * X, perplexity)
    assert met.all()
    assert not np.diag(P).any()
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(-xlogy(P, P).sum(axis=1)), perplexity, rtol=1e-8)
    order = np.argsort(squared_distances(X)[3])
    assert np.all(np.diff(P[3][order[1:]]) <= 1e-15)
    joint = joint_affinities(P)
    assert np.array_equal(joint, joint.T)
    assert joint.sum() == pytest.approx(1, abs=1e-12)


def test_affinities_of_motion_capture_have_the_perplexity() -> None:
    """Data for which Newton's method alone oscillates reach the perplexity by bisection."""
    assert conditional_affinities(reference_data("mocap_run1.npy"), 18.0)[1].all()


def test_ties_have_uniform_affinities_and_a_note() -> None:
    """If more points tie as the nearest than the perplexity, their affinities are equal, and a note says so."""
    X = np.repeat(cloud(10, 3), 8, axis=0)
    P, met = conditional_affinities(X, 3.0)
    assert not met.any()
    np.testing.assert_allclose(P[0, 1:8], 1 / 7, rtol=1e-9)
    for name in ("sne", "t-sne"):
        embedding = embed(name, X, perplexity=3.0, **QUICK[name])
        assert "perplexity-not-met" in codes_of(embedding)
        assert np.isfinite(embedding.Y).all()


def objectives() -> dict[str, tuple[Objective, Callable[[Array], float]]]:
    """Return each objective of the engine, with a function that computes its value by the definition."""
    X = cloud(40, 3)
    conditional, _ = conditional_affinities(X, 5.0)
    P = joint_affinities(conditional)
    entropy = -float(xlogy(conditional, conditional).sum()) / len(X)
    repulsive = repulsive_weights(X, "distances")

    def sne(Y: Array) -> float:
        K = kernel(Y)
        return divergence(conditional, K / K.sum(axis=1, keepdims=True)) / len(X)

    def symmetric(Y: Array) -> float:
        K = kernel(Y)
        return divergence(P, K / K.sum())

    def elastic(Y: Array) -> float:
        return float((P * squared_distances(Y)).sum() + 30 * (repulsive * kernel(Y)).sum())

    return {
        "sne": (mean_divergence(entropy, P), sne),
        "symmetric-sne": (joint_divergence(P), symmetric),
        "elastic-embedding": (elastic_energy(P, repulsive, 30.0), elastic),
    }


@pytest.mark.parametrize("name", OWN)
def test_objectives_are_the_definitions_and_their_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values equal sums over all pairs, and gradients equal central differences."""
    monkeypatch.setattr("glle_engine.methods.neighbor_embedding.descent._BLOCK_ENTRIES", 7 * 40)
    objective, defined = objectives()[name]
    Y = np.random.default_rng(6).standard_normal((40, 2))
    value, gradient = objective(Y)
    assert value == pytest.approx(defined(Y), rel=1e-10)
    differences = np.empty_like(Y)
    for entry in np.ndindex(*Y.shape):
        step = np.zeros_like(Y)
        step[entry] = 1e-5
        differences[entry] = (defined(Y + step) - defined(Y - step)) / 2e-5
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["sne", "symmetric-sne"])
def test_divergences_do_not_underflow(name: str) -> None:
    """If all points are so far apart that every Gaussian is 0, values are finite and gradients agree with them."""
    objective, _ = objectives()[name]
    Y = 1000.0 * np.random.default_rng(6).standard_normal((40, 2))
    assert gaussian_sums(Y).total == 0
    value, gradient = objective(Y)
    assert np.isfinite(value)
    along = np.random.default_rng(7).standard_normal(Y.shape)
    slope = (objective(Y + 1e-4 * along)[0] - objective(Y - 1e-4 * along)[0]) / 2e-4
    assert float(np.vdot(gradient, along)) == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("name", OWN)
def test_descends_to_a_stationary_point(name: str) -> None:
    """The gradient vanishes at the end of a descent, and R^T R is four times the Laplacian."""
    objective, _ = objectives()[name]
    conditional, _ = conditional_affinities(cloud(40, 3), 5.0)
    P = joint_affinities(conditional)
    R = attraction_factor(P)
    Y = np.random.default_rng(6).standard_normal((40, 2))
    Y -= Y.mean(axis=0)
    laplacian = 4 * (np.diag(P.sum(axis=1)) - P)
    np.testing.assert_allclose(R.T @ (R @ Y), laplacian @ Y, rtol=1e-5, atol=1e-8)
    descent = descend(objective, 0.01 * Y, R, max_iter=3000, tol=1e-14, on_progress=silent)
    assert descent.converged
    assert np.abs(objective(descent.Y)[1]).max() < 1e-5
    assert descent.value < objective(0.01 * Y)[0]


def test_lambda_grows_to_the_one_wanted() -> None:
    """The homotopy ends at lambda, with an energy that is no worse; repulsive weights have sum one."""
    np.testing.assert_allclose(strengths(100.0, 3), [1, 10, 100])
    assert strengths(7.0, 1).tolist() == [7.0]
    X = manifolds.make("swiss_roll", 150, seed=3).X
    at_once, slowly = (embed("elastic-embedding", X, homotopy=count).figures for count in (1, 5))
    assert slowly["energy"] <= at_once["energy"] * 1.05
    assert slowly["iterations"] > at_once["iterations"]
    for kind in ("distances", "one"):
        weights = repulsive_weights(X, kind)
        assert weights.sum() == pytest.approx(1)
        assert not np.diag(weights).any()
        np.testing.assert_allclose(repulsive_weights(1e100 * X, kind), weights)
        apart = squared_distances(X) if kind == "distances" else 1 - np.eye(150)
        np.testing.assert_allclose(weights, apart / apart.sum(), atol=1e-15)


def test_tsne_agrees_with_another_implementation() -> None:
    """The divergence equals its definition, and scikit-learn finds an optimum that is as good."""
    X = load_digits().data[:150]
    spec, done = method("t-sne").spec(perplexity=15.0, theta=0.0, early_iter=150, max_iter=300), list[int]()
    embedding = method("t-sne").embed(X, spec, on_progress=lambda iteration, *_: done.append(iteration))
    descent = done[len(done) - 1 - done[::-1].index(0) :]
    assert descent == sorted(descent)
    assert (200 in descent, descent[-1]) == (True, 450)
    nearest, distances = kneighbors(X, 45)
    shares, _ = _calibrate(distances**2, np.log(15.0))
    P = np.zeros((150, 150))
    np.put_along_axis(P, nearest.astype(np.intp), shares, axis=1)
    P = joint_affinities(P)

    def divergence_at(Y: Array) -> float:
        Q = 1 / (1 + squared_distances(Y))
        np.fill_diagonal(Q, 0)
        return divergence(P, Q / Q.sum())

    assert embedding.figures["kl_divergence"] == pytest.approx(divergence_at(embedding.Y), rel=1e-3)
    peer = TSNE(2, perplexity=15.0, init="pca", angle=0.3, max_iter=400, n_jobs=1).fit_transform(X)
    assert divergence_at(embedding.Y) == pytest.approx(divergence_at(peer), rel=0.05)


@pytest.mark.parametrize("start", ["random", "spectral"])
@pytest.mark.parametrize("name", ALL)
def test_random_start_depends_on_the_seed(name: str, start: str) -> None:
    """The same seed gives the same bits, another seed another random start."""
    X, options = cloud(60, 3), {"perplexity": 5.0, "init": start, **QUICK[name]}
    X = X[:, :1] if start == "random" else X
    first, again, other = (embed(name, X, seed=seed, **options).Y for seed in (2**62, 2**62, 1))
    assert np.array_equal(first, again)
    assert start == "spectral" or not np.allclose(first, other)


@pytest.mark.parametrize("name", ["sne", "t-sne"])
def test_ends_early_with_a_note(name: str) -> None:
    """A descent that did not converge has a note with the remedy."""
    few = {"early_iter": 0, "max_iter": 40} if name == "t-sne" else {"max_iter": 3}
    embedding = embed(name, cloud(60, 3), perplexity=5.0, **few)
    assert not embedding.figures["converged"]
    assert codes_of(embedding) == ["not-converged"]
    assert "larger max_iter" in embedding.notes[0].message


def test_starts_off_the_line_of_data_on_a_line() -> None:
    """The start follows the first principal component, and noise separates equal points and leaves the line."""
    X = np.repeat(np.linspace(0, 1, 30), 2)[:, None] * [1.0, 2.0]
    places = initial(X, 2, "pca", 3)
    assert np.corrcoef(places[:, 0], X[:, 0])[0, 1] ** 2 > 0.999
    assert 0.98 < places[:, 0].std() < 1.02
    assert 0.005 < places[:, 1].std() < 0.02
    assert np.unique(places, axis=0).shape == (60, 2)
    assert np.array_equal(places, initial(X, 2, "pca", 3))


def test_eigenvectors_that_are_not_found_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the eigenvectors of the start do not converge, an error names another start."""

    def fails(*_: object, **__: object) -> None:
        raise ArpackNoConvergence("no convergence", np.empty(0), np.empty((0, 0)))

    monkeypatch.setattr("openTSNE.initialization.spectral", fails)
    with pytest.raises(ConvergenceError, match="init='pca'"):
        embed("t-sne", cloud(60, 3), perplexity=5.0, init="spectral")


@pytest.mark.parametrize("name", ALL)
def test_digits_separate(name: str) -> None:
    """Neighbors are kept far better than by PCA, and most neighbors in the embedding are the same digit."""
    data = load_digits()
    X, digit = data.data[:300], data.target[:300]
    embedding = embed(name, X, **({"early_iter": 100, "max_iter": 150} if name == "t-sne" else {}))
    assert trustworthiness(X, embed("pca", X).Y) < 0.9
    assert trustworthiness(X, embedding.Y) > 0.96
    near = np.argsort(squared_distances(embedding.Y), axis=1)[:, 1:6]
    assert (digit[near] == digit[:, None]).mean() > 0.85
    assert embedding.figures["converged"]
    assert {note.code for note in embedding.notes} == {"unequal-feature-scales"}  # some pixels are hardly ever black


@pytest.mark.parametrize("factor", [1000.0, 3.7, 1e-5])
def test_t_sne_does_not_depend_on_the_unit(factor: float) -> None:
    """The embedding has the same bits in any unit, although a descent amplifies rounding errors."""
    pytest.importorskip("openTSNE")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 5)) + 3 * (np.arange(150) < 75)[:, None]
    chosen = method("t-sne")
    spec = chosen.spec(early_iter=80, max_iter=120)
    first, other = chosen.embed(X, spec), chosen.embed(factor * X, spec)
    assert np.array_equal(first.Y, other.Y)
    assert np.array_equal(first.transform(X[:9] + 0.5), other.transform(factor * (X[:9] + 0.5)))
