"""Hessian LLE, LTSA and modified LLE: against least squares patch by patch, and scikit-learn."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

from glle_engine import manifolds
from glle_engine.base.errors import ConvergenceError, InvalidParameterError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS
from glle_engine.methods.spectral import laplacian, modified_lle
from tests.engine.methods.reference import embed, patches_of, same_columns


@pytest.fixture(scope="module")
def small() -> NDArray[np.float64]:
    """Return 400 points of an S-curve: more than are solved densely."""
    return manifolds.make("s_curve", 400, seed=1).X


@pytest.mark.parametrize("name", ["hessian-lle", "ltsa"])
def test_patches_against_least_squares_one_by_one(name: str, small: NDArray[np.float64]) -> None:
    """The matrix from residuals of least squares in every patch, decomposed densely, gives the same coordinates."""
    n, k = len(small), 8
    M = np.zeros((n, n))
    for patch in patches_of(small, k):
        local = small[patch] - small[patch].mean(axis=0)
        a, b = scipy.linalg.svd(local)[0][:, :2].T
        affine = np.stack([np.ones(k + 1), a, b], axis=1)
        if name == "ltsa":
            part = np.eye(k + 1) - affine @ np.linalg.pinv(affine)
        else:
            quadratic = np.stack([a * a, a * b, b * b], axis=1)
            rest = quadratic - affine @ np.linalg.lstsq(affine, quadratic, rcond=None)[0]
            part = rest @ np.linalg.pinv(rest)
        M[np.ix_(patch, patch)] += part
    values, vectors = scipy.linalg.eigh(M)
    found = embed(name, small, n_neighbors=k)
    assert found.figures["solver"] == "shift-invert"
    assert found.eigenvalues is not None
    np.testing.assert_allclose(found.eigenvalues, values[1:3], rtol=1e-6)
    same_columns(np.sqrt(n) * vectors[:, 1:3], found.Y, 1e-6)


def test_ltsa_agrees_with_scikit_learn(small: NDArray[np.float64]) -> None:
    """Its patches leave the point itself out: nearly the same embedding."""
    manifold = pytest.importorskip("sklearn.manifold")
    theirs, _ = manifold.locally_linear_embedding(
        small, n_neighbors=12, n_components=2, method="ltsa", eigen_solver="dense"
    )
    assert disparity(theirs, embed("ltsa", small, n_neighbors=12).Y) < 0.001


def test_scikit_learns_hessian_lle_is_ltsa(small: NDArray[np.float64]) -> None:
    """Why Hessian LLE is not wrapped: theirs penalises what is not affine, ours what is quadratic, and they differ."""
    manifold = pytest.importorskip("sklearn.manifold")
    theirs = {
        variant: manifold.locally_linear_embedding(
            small[:200], n_neighbors=14, n_components=2, method=variant, eigen_solver="dense"
        )[0]
        for variant in ("ltsa", "hessian")
    }
    assert disparity(theirs["hessian"], theirs["ltsa"]) < 1e-10
    ours = {name: embed(name, small[:200], n_neighbors=14).Y for name in ("ltsa", "hessian-lle")}
    assert disparity(ours["hessian-lle"], ours["ltsa"]) > 1e-5


@pytest.mark.parametrize("name", ["hessian-lle", "ltsa"])
def test_a_flat_sheet_comes_back(name: str) -> None:
    """A plane in five dimensions satisfies the local conditions exactly: both coordinates, and eigenvalues of zero."""
    rng = np.random.default_rng(0)
    plane = rng.uniform(-1, 1, (350, 2))
    found = embed(name, plane @ rng.standard_normal((2, 5)), n_neighbors=8)
    assert disparity(found.Y, np.linalg.qr(plane - plane.mean(axis=0))[0]) < 1e-8
    assert found.notes == ()


def test_patches_that_hang_together_by_one_point_are_reported() -> None:
    """A hinge: five points whose patches share a single one with the six others may turn about it."""
    line = np.concatenate([np.linspace(0, 1, 6), 2.5 + np.linspace(0, 0.4, 5)])[:, None] * np.ones(2)
    found = embed("ltsa", line, n_components=1, n_neighbors=5)
    assert [note.code for note in found.notes] == ["null-space"]
    assert embed("ltsa", line, n_components=1, n_neighbors=7).notes == ()


@pytest.mark.parametrize("name", ["hessian-lle", "ltsa"])
def test_patches_of_too_few_dimensions_are_reported(name: str) -> None:
    """A line has no tangent plane: the result is centred, keeps the local conditions, and a note tells what is any."""
    line = np.linspace(0, 1, 40)[:, None] * np.array([1.0, 2.0, 3.0])
    found = embed(name, line, n_neighbors=7)
    assert found.figures["flat_patches"] == 40
    assert "flat-patches" in [note.code for note in found.notes]
    assert np.abs(found.Y.mean(axis=0)).max() < 1e-9
    assert found.eigenvalues is not None
    assert found.eigenvalues[0] < 1e-12


def test_modified_lle_falls_back_on_the_dense_solver(
    monkeypatch: pytest.MonkeyPatch, small: NDArray[np.float64]
) -> None:
    """What ARPACK does not find, the dense solver does, and a note says so; without it the failure has a remedy."""
    manifold = pytest.importorskip("sklearn.manifold")
    plain = embed("modified-lle", small)
    assert plain.figures["solver"] == "dense"
    theirs = manifold.locally_linear_embedding

    def failing(X: NDArray[np.float64], *, eigen_solver: str, **options: Any) -> Any:
        if eigen_solver == "arpack":
            raise ValueError("Error in determining null-space with ARPACK. And so on.")
        return theirs(X, eigen_solver=eigen_solver, **options)

    monkeypatch.setattr(manifold, "locally_linear_embedding", failing)
    monkeypatch.setattr(modified_lle, "_DENSE_MOST", 100)
    found = embed("modified-lle", small)
    np.testing.assert_array_equal(found.Y, plain.Y)
    assert [note.code for note in found.notes] == ["solver-fallback"]
    assert found.figures["rejected"] == ["arpack: Error in determining null-space with ARPACK"]
    monkeypatch.setattr(modified_lle, "_FALLBACK_MOST", 100)
    with pytest.raises(ConvergenceError, match="Raise n_neighbors"):
        embed("modified-lle", small)


def test_modified_lle_by_arpack_is_the_dense_one(monkeypatch: pytest.MonkeyPatch, small: NDArray[np.float64]) -> None:
    """The solver of many points, on few."""
    plain = embed("modified-lle", small[:250])
    monkeypatch.setattr(modified_lle, "_DENSE_MOST", 100)
    found = embed("modified-lle", small[:250])
    assert (plain.figures["solver"], found.figures["solver"]) == ("dense", "arpack")
    same_columns(plain.Y, found.Y, 1e-5)


def test_eigenpairs_that_are_none_are_reported(monkeypatch: pytest.MonkeyPatch, small: NDArray[np.float64]) -> None:
    """What the solver gives is put into the equation."""
    monkeypatch.setattr(laplacian, "_shift_inverted", lambda _A, u, _norm, m: (np.zeros(m), np.eye(len(u), m)))
    with pytest.raises(ConvergenceError, match="left a residual of"):
        embed("ltsa", small)


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        ("hessian-lle", {"n_neighbors": 5}, 6),
        ("hessian-lle", {"n_neighbors": 9, "n_components": 3}, 10),
        ("ltsa", {"n_neighbors": 3}, 4),
        ("modified-lle", {"n_neighbors": 2, "n_components": 3}, 3),
    ],
)
def test_too_few_neighbors_are_refused_with_those_that_do(name: str, options: dict[str, int], least: int) -> None:
    """By size alone, before anything is computed; the remedy is accepted."""
    one = METHODS[name]
    with pytest.raises(InvalidParameterError, match=f"Give n_neighbors of at least {least}"):
        one.require_possible(100, 3, one.spec(**options))
    one.require_possible(100, 3, one.spec(**{**options, "n_neighbors": least}))


def test_points_in_no_neighborhood_are_reported() -> None:
    """They have a place; scikit-learn's LTSA only separates them."""
    rng = np.random.default_rng(0)
    X = 1.5 * rng.standard_normal((3, 10))[rng.integers(0, 3, 300)] + rng.standard_normal((300, 10))
    found = METHODS["ltsa"].embed(X, METHODS["ltsa"].spec(n_neighbors=12))
    (note,) = (note for note in found.notes if note.code == "lonely-points")
    lonely = np.setdiff1d(np.arange(300), kneighbors(X, 12)[0])
    assert note.message.startswith(f"{len(lonely)} points")
    assert (found.Y[lonely] ** 2).sum() < 0.5 * (found.Y**2).sum()
