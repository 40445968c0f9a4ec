"""LLE with the distances of the data: against other solvers, and the sheets whose proportions come back."""

from typing import Any

import numpy as np
import pytest

from docs.figures import oracles
from glle_engine import manifolds
from glle_engine.base.progress import silent
from glle_engine.graph.connectivity import closed_classes
from glle_engine.graph.radius import bridged_graph
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods.lle_variants.metric_lle import Program, landmark_basis, solve, squared_lengths
from tests.engine.methods.reference import cloud, codes_of, embed, values_of

SHEET = manifolds.make("s_curve", 150, seed=0).X


def test_distance_lle_is_its_formula() -> None:
    """A least-squares solver, over F in S = F F^T, finds the same map from LLE by a dense decomposition."""
    found = embed("distance-lle", SHEET, n_neighbors=8, n_basis=5, tol=1e-12).Y
    assert oracles.difference(found, oracles.distance_lle(SHEET, 8, 5)) < 1e-6


def test_landmark_mvu_is_its_formula() -> None:
    """Sequential quadratic programming, over F in S = F F^T, finds the same map; the weights are solved densely."""
    found = embed("landmark-mvu", SHEET, n_neighbors=8, landmarks=6, tol=1e-10).Y
    assert oracles.difference(found, oracles.landmark_mvu(SHEET, 8, 6)) < 1e-5


def test_the_program_is_solved_as_by_clarabel() -> None:
    """Also with both a quadratic objective and constraints, and the gap bounds what is missing."""
    cvxpy: Any = pytest.importorskip("cvxpy")
    A = cloud(40, 4)
    lengths = squared_lengths(A)
    g = lengths.mean(axis=0)
    program = Program(lengths.T @ lengths / 40, g, lengths[:9], np.full(9, 0.5))
    start = np.eye(4)[np.triu_indices(4)] * 0.4 / float((A[:9] ** 2).sum(axis=1).max())
    S = cvxpy.Variable((4, 4), PSD=True)
    s = cvxpy.hstack([S[i, j] for i, j in zip(*np.triu_indices(4), strict=True)])
    objective = cvxpy.sum_squares(lengths @ s) / 80 - g @ s
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [program.C @ s <= program.b])
    least = problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11)
    for tol in (1e-2, 1e-9):
        solution = solve(program, start, tol, 200, silent)
        found = solution.S[np.triu_indices(4)]
        missing = float(found @ program.H @ found / 2 - g @ found) - least
        assert solution.converged
        assert -1e-9 < missing < max(1.1 * solution.gap * float(g @ found), 1e-8)
    np.testing.assert_allclose(solution.S, S.value, atol=1e-5 * np.abs(S.value).max())


@pytest.mark.parametrize(("name", "most"), [("distance-lle", 0.001), ("landmark-mvu", 0.02)])
def test_a_roll_has_its_proportions(name: str, most: float) -> None:
    """LLE unrolls it, but scales its axes to one length; the distances of neighbors give the map its unit, too."""
    roll = manifolds.make("swiss_roll", 1000, seed=1)
    embedding = embed(name, roll.X)
    assert disparity(embedding.Y, roll.coordinates) < most < 0.1 < disparity(embed("lle", roll.X).Y, roll.coordinates)
    assert embedding.figures["kept"] > 0.98
    spread = np.sqrt(np.ptp(embedding.Y, axis=0).prod() / np.ptp(roll.coordinates, axis=0).prod())
    assert 0.7 < spread < 1.1
    np.testing.assert_allclose((embedding.Y**2).sum(axis=0), values_of(embedding))


def test_landmark_mvu_lengthens_no_edge() -> None:
    """In all dimensions of its Gram matrix; more landmarks allow more variance."""
    X = cloud(20, 6)
    few, many = (embed("landmark-mvu", X, n_components=p, n_neighbors=4, landmarks=m) for p, m in ((5, 6), (18, 20)))
    scaled = embed("landmark-mvu", 2.0**9 * X, n_components=5, n_neighbors=4, landmarks=6)
    assert scaled.figures["mean_squared_distance_error"] == pytest.approx(few.figures["mean_squared_distance_error"])
    nearest = oracles.nearest(np.linalg.norm(X[:, None] - X, axis=2), 4)
    for embedding in (few, many):
        ratio = [np.linalg.norm(embedding.Y[near] - embedding.Y[i], axis=1) / np.linalg.norm(X[near] - X[i], axis=1)
                 for i, near in enumerate(nearest)]  # fmt: skip
        assert 0.99 < np.max(ratio) <= 1 + 1e-9
    assert few.figures["trace"] < many.figures["trace"]


def test_a_closed_class_has_a_landmark() -> None:
    """Nothing outside determines points that have only each other as neighbors; one of them is a landmark, too."""
    rng = np.random.default_rng(0)
    line = np.arange(20) + np.where(np.arange(20) < 10, 0.0, 1.0)
    X = np.column_stack([np.append(line, 10 + 0.01 * np.arange(5)), rng.uniform(-0.1, 0.1, 25)])
    X[20:, 1] *= 0.1
    graph, bridges = bridged_graph(X, 4, None, silent)
    assert not bridges
    assert [members.tolist() for members in closed_classes(graph.nearest)] == [[20, 21, 22, 23, 24]]
    U = landmark_basis(X, graph, 2, 1e-3, silent)
    assert U.shape == (25, 2)
    np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(U.sum(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("name", ["distance-lle", "landmark-mvu"])
def test_what_did_not_converge_says_so(name: str) -> None:
    """In a note with the remedy, and in the figures."""
    embedding = embed(name, SHEET, max_iter=1)
    assert embedding.figures["converged"] is False
    assert codes_of(embedding) == ["not-converged"]


def test_more_components_than_the_basis_take_a_larger_one() -> None:
    """The basis is never smaller than the embedding."""
    assert embed("distance-lle", SHEET, n_components=4, n_basis=1).Y.shape == (150, 4)
    assert embed("landmark-mvu", SHEET, n_components=4, landmarks=2).Y.shape == (150, 4)
