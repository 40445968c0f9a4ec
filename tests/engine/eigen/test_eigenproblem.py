"""The eigenproblem compared with dense linear algebra, and each solver of its chain."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glle_engine import Posterior, fit, manifolds
from glle_engine.base.errors import ConvergenceError
from glle_engine.eigen import eigenpairs, eigenproblem, lu
from glle_engine.eigen.eigenproblem import Eigenproblem
from glle_engine.eigen.pattern import Pattern
from glle_engine.graph.connectivity import closed_classes
from glle_engine.graph.neighbors import kneighbors
from glle_engine.weights.lle import lle_weights
from tests.engine.conftest import linked_clusters
from tests.engine.eigen.dense_reference import angle, bottom, residual_matrix
from tests.engine.eigen.hard_problems import with_vanishing_pivot, with_weak_point


@pytest.mark.parametrize(("name", "p"), [*zip(manifolds.NAMES, (1, 2, 5, 2), strict=True)])
def test_lle_span_is_that_of_a_dense_svd(name: str, p: int) -> None:
    """The reference embedding has the span and the eigenvalues of the SVD of I - W."""
    X = manifolds.make(name, 300, seed=2).X
    fitted = fit(X, n_components=p)
    weights = lle_weights(X, fitted.neighbors)
    values, vectors = bottom(fitted.neighbors, weights, p + 1)
    assert angle(fitted.embedding, vectors[:, :p]) < 1e-9
    np.testing.assert_allclose(fitted.eigenvalues, values, rtol=1e-7)


def test_scale_of_the_embedding(posterior: Posterior) -> None:
    """The reference embedding has (1/n) Y^T Y = I and columns that sum to 0."""
    Y = posterior.embedding
    np.testing.assert_allclose(Y.T @ Y / len(Y), np.eye(2), atol=1e-12)
    np.testing.assert_allclose(Y.sum(axis=0), 0, atol=1e-10)


@pytest.fixture(scope="module")
def roll_posterior() -> Posterior:
    """Return a posterior of the Swiss roll."""
    return fit(manifolds.make("swiss_roll", 400, seed=3).X)


@pytest.mark.parametrize(("index", "scale"), [(0, 1.0), (2**63, 0.01), (7, 10.0), (1075, 0.1), (3623, 0.1)])
def test_draws_are_eigenpairs(roll_posterior: Posterior, index: int, scale: float) -> None:
    """Draws are the bottom eigenvectors of their own M by a dense SVD, up to rounding errors of I - W."""
    drawn = roll_posterior.draw(index, scale=scale)
    values, vectors = bottom(roll_posterior.neighbors, roll_posterior.weights(index, scale=scale), 3)
    sigma = np.sqrt(values)
    share = 100 * np.finfo(float).eps / sigma[0]  # relative rounding error of the least singular value
    # Element growth costs draw 1075 at scale 0.1 some digits, within the deviation that the solver reports.
    bound = 1e-9 + float(drawn.diagnostics["deviation"]) + share * sigma[1] / (sigma[2] - sigma[1])
    assert angle(drawn.embedding, vectors[:, :2]) < bound
    np.testing.assert_allclose(drawn.eigenvalues, values[:2], rtol=1e-6 + share)
    # An estimate: the iteration ends when the first pairs have converged; draw 3623 at scale 0.1 is .2 % above.
    assert drawn.diagnostics["next_eigenvalue"] == pytest.approx(values[2], rel=1e-2)


def test_the_dense_route_and_the_sparse_one_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense solver for few points gives the same embedding as the sparse solver."""
    X = manifolds.make("s_curve", 75, seed=1).X
    dense = fit(X, n_neighbors=6)
    monkeypatch.setattr(eigenproblem, "DENSE_BELOW", 10)
    sparse = fit(X, n_neighbors=6)
    assert dense.diagnostics.figures["solver"] == "dense"
    assert sparse.diagnostics.figures["solver"] != "dense"
    assert angle(dense.embedding, sparse.embedding) < 1e-9
    np.testing.assert_allclose(dense.eigenvalues, sparse.eigenvalues, rtol=1e-7)
    a, b = dense.draw(3), sparse.draw(3)
    np.testing.assert_allclose(a.embedding, b.embedding, atol=1e-7)


def test_multiple_eigenvalues_are_all_found() -> None:
    """The points of a regular ring have pairs of equal eigenvalues, and both eigenvectors of a pair are found."""
    t = 2 * np.pi * np.arange(300) / 300
    ring = np.stack([np.cos(t), np.sin(t)], axis=1)
    fitted = fit(ring, n_neighbors=4)
    assert angle(fitted.embedding, ring) < 1e-6
    assert fitted.eigenvalues[1] == pytest.approx(fitted.eigenvalues[0], rel=1e-6)


def test_the_pin_lies_in_the_closed_class() -> None:
    """If most points lie outside the closed class, the pin is inside it, and the result is that of a dense SVD."""
    rng = np.random.default_rng(0)
    outside = np.stack([np.linspace(40, 1.5, 120), rng.normal(0, 0.05, 120), rng.normal(0, 0.05, 120)], axis=1)
    X = np.concatenate([outside, rng.normal(0, 0.3, (100, 3))])
    neighbors = np.sort(kneighbors(X, 8)[0], axis=1)
    classes, weights = closed_classes(neighbors), lle_weights(X, neighbors)
    assert [len(members) for members in classes] != [len(X)]
    problem, first = Eigenproblem.prepare(neighbors, weights, classes, 2)
    assert all(pin in members for pin, members in zip(sorted(problem.pins), classes, strict=True))
    for pairs in (first, problem.solve(weights, 2)):
        assert angle(pairs.vectors, bottom(neighbors, weights, 2)[1]) < 1e-7


def test_a_first_pin_that_is_bad_is_not_kept() -> None:
    """If the left null vector is 1e-9 at the first point of the class, another point becomes the pin."""
    X = manifolds.make("swiss_roll", 300, seed=2).X
    neighbors = np.sort(kneighbors(X, 8)[0], axis=1)
    (members,) = closed_classes(neighbors)
    weights = with_weak_point(neighbors, lle_weights(X, neighbors), int(members[0]))
    problem, pairs = Eigenproblem.prepare(neighbors, weights, [members], 2)
    assert problem.pins != members[:1]
    assert pairs.diagnostics["pin"] > eigenpairs.GOOD_PIN / np.sqrt(len(X))
    assert angle(pairs.vectors, bottom(neighbors, weights, 2)[1]) < 1e-8


def test_several_closed_classes_give_as_many_null_vectors() -> None:
    """With two closed classes, the first eigenvalue is exactly 0, and all vectors are those of a dense SVD."""
    X = linked_clusters()
    fitted = fit(X, n_neighbors=6, n_components=3, disconnected="error")
    assert len(fitted.diagnostics.figures["closed_classes"]) == 2
    assert "closed-classes" in {note.code for note in fitted.diagnostics.notes}
    weights = lle_weights(X, fitted.neighbors)
    values, vectors = bottom(fitted.neighbors, weights, 3)
    assert fitted.eigenvalues[0] == 0
    assert values[0] < 1e-25
    assert angle(fitted.embedding, vectors) < 1e-8
    assert np.abs(residual_matrix(fitted.neighbors, weights) @ fitted.embedding[:, 0]).max() < 1e-9


def test_a_bad_pin_is_moved(posterior: Posterior) -> None:
    """If the left null vector y nearly vanishes at the pin, the pin moves to the largest |y|; diagnostics say so."""
    weights = with_weak_point(posterior.neighbors, posterior.mean, int(posterior.order[0]))
    bad = replace(posterior.eigenproblem, pins=posterior.order[:1])
    pairs = bad.solve(weights, 2)
    assert pairs.diagnostics["solver"] == "lu-repinned"
    assert pairs.diagnostics["rejected"]
    assert angle(pairs.vectors, bottom(posterior.neighbors, weights, 2)[1]) < 1e-9


def test_the_last_solver_gives_the_same_embedding(posterior: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all factorizations of B fail, the inverse of M gives the same draw, and the diagnostics name the solver."""

    def failing(*_: Any) -> Any:
        raise FloatingPointError("the matrix is singular, or its factors are not finite")

    posterior = replace(posterior)  # without the sampler of other tests
    monkeypatch.setitem(posterior.__dict__, "lane_solver", None)
    expected = posterior.draw(9).embedding
    monkeypatch.setattr(eigenproblem, "factor", failing)
    drawn = posterior.draw(9)
    assert drawn.diagnostics["solver"] == "shift-invert"
    assert len(drawn.diagnostics["rejected"]) == 2
    assert angle(drawn.embedding, expected) < 1e-6


def test_nothing_accepted_is_an_error_with_a_remedy(posterior: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no solver passes the accuracy test, a draw raises `ConvergenceError` with a remedy."""
    for module in ("eigenproblem", "batched.solver"):
        monkeypatch.setattr(f"glle_engine.eigen.{module}.refusal", lambda *_, **__: "no")
    with pytest.raises(ConvergenceError) as caught:
        posterior.draw(0)
    assert "reg" in caught.value.remedy
    tried = [reason.split(":")[0] for reason in caught.value.details["tried"]]
    assert tried[-3:] == ["lu", "lu-repinned", "shift-invert"]


@pytest.mark.parametrize("factorization", ["draws", "mean"])
@pytest.mark.parametrize("hardship", ["none", "weak point", "nothing to pivot on"])
def test_every_factorization_gives_the_pairs_of_a_dense_svd(
    posterior: Posterior, factorization: str, hardship: str
) -> None:
    """Factors with and without pivoting give the eigenpairs of a dense SVD, also for weights that are hard for them."""
    pattern, pins, weights = Pattern(posterior.neighbors, posterior.order), posterior.pins, posterior.mean
    if hardship == "weak point":
        weights = with_weak_point(pattern.neighbors, weights, int(pattern.order[3]))
    elif hardship == "nothing to pivot on" and factorization != "mean":
        weights = with_vanishing_pivot(pattern.neighbors, weights, pattern.order)
    if factorization == "mean":
        factored = lu.factor_mean(pattern, weights, pins)[1]
    else:
        factored = lu.factor(pattern, weights, pins)
    pairs = factored.eigenpairs(3, factored.null_left(), exhaustive=True)
    values, vectors = bottom(pattern.neighbors, weights, 3)
    assert angle(pairs.vectors, vectors) < 1e-8
    np.testing.assert_allclose(pairs.values, values, rtol=1e-6)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(3), atol=1e-10)


def test_eigenvalues_at_the_machine_precision_are_found_by_the_sparse_factors() -> None:
    """Weights that rebuild three coordinates exactly give three more null vectors, which the sparse factors find."""
    X = manifolds.make("s_curve", 300, seed=2).X
    neighbors = np.sort(kneighbors(X, 10)[0], axis=1)
    weights = lle_weights(X, neighbors, 1e-15)
    problem, pairs = Eigenproblem.prepare(neighbors, weights, closed_classes(neighbors), 3)
    assert pairs.diagnostics["solver"] != "shift-invert"
    assert np.linalg.norm(problem.pattern.apply(weights, pairs.vectors), axis=0).max() < 1e-13
    assert angle(pairs.vectors, bottom(neighbors, weights, 3)[1]) < 1e-6


def test_eigenvalues_that_lie_close_together_take_more_steps() -> None:
    """Six eigenvalues with ratios near 1 are found by the sparse factors."""
    rng = np.random.default_rng(0)
    n, k = 300, 20
    neighbors = np.sort(rng.permuted(np.tile(np.arange(n), (n, 1)), axis=1)[:, : k + 1], axis=1)
    neighbors = np.array([row[row != i][:k] for i, row in enumerate(neighbors)], np.int32)
    weights = rng.uniform(0.5, 1, (n, k))
    weights /= weights.sum(axis=1, keepdims=True)
    _, pairs = Eigenproblem.prepare(neighbors, weights, closed_classes(neighbors), 6)
    assert pairs.diagnostics["solver"] != "shift-invert"
    np.testing.assert_allclose(pairs.values, bottom(neighbors, weights, 6)[0], rtol=1e-8)


@pytest.fixture(scope="module")
def direct_posterior() -> Posterior:
    """Return a published posterior by direct, whose weights reach 10^5."""
    return fit(np.random.default_rng(0).standard_normal((200, 8)), n_neighbors=10, variant="published", method="direct")


def test_published_draws_that_the_lanes_reject_need_no_pivoting(
    direct_posterior: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published draws with large weights have the span of a dense SVD, even if pivoting is not available."""

    def failing(*_: Any) -> Any:
        raise FloatingPointError("no factors with pivoting")

    monkeypatch.setattr(eigenproblem, "factor", failing)
    for index in range(40):
        weights = direct_posterior.weights(index, scale=10.0)
        pairs = direct_posterior.eigenproblem.solve(weights, 2)
        values, vectors = bottom(direct_posterior.neighbors, weights, 2, constrained=False)
        assert angle(pairs.vectors, vectors) < 1e-8
        np.testing.assert_allclose(pairs.values, values, rtol=1e-7)


@pytest.mark.parametrize("trans", ["N", "T"])
def test_refinement_squares_the_error_of_the_factors(direct_posterior: Posterior, trans: str) -> None:
    """A refined solution has the square of the relative error of an unrefined one, up to rounding."""
    pattern, b = direct_posterior.eigenproblem.pattern, np.random.default_rng(1).standard_normal(200)
    order = pattern.structure.order
    for index in range(20):
        weights = direct_posterior.weights(index, scale=10.0)
        refined = lu.factor_refined(pattern, weights).lu
        assert isinstance(refined, lu.RefinedLU)
        matrix = residual_matrix(direct_posterior.neighbors, weights)[np.ix_(order, order)]
        matrix = matrix if trans == "T" else matrix.T
        error, left = (
            np.linalg.norm(b - matrix @ solver.solve(b, trans)) / np.linalg.norm(b) for solver in (refined.lu, refined)
        )
        rounding = np.finfo(float).eps * np.linalg.norm(matrix) * np.linalg.norm(np.linalg.solve(matrix, b))
        assert left < 100 * error**2 + rounding


def test_every_draw_of_a_singular_problem_has_eigenpairs() -> None:
    """If the weights reconstruct the data exactly, so that I - W is singular, all draws have the right eigenvalues."""
    singular = fit(manifolds.make("swiss_roll", 200, seed=0).X, n_neighbors=10, variant="published")
    for drawn in singular.draws(40):
        values = bottom(singular.neighbors, singular.weights(drawn.index), 2, constrained=False)[0]
        np.testing.assert_allclose(drawn.eigenvalues, values, rtol=1e-6, atol=1e-20)


def test_the_relative_gap_is_of_the_next_eigenvalue() -> None:
    """The gap is relative to eigenvalue p + 1, and 0 where this is 0."""
    assert eigenpairs.relative_gap(np.array([1.0, 3.0, 4.0]), 2) == pytest.approx(0.25)
    assert eigenpairs.relative_gap(np.zeros(3), 2) == 0
