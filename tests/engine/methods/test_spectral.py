"""The spectral methods against dense algebra, other implementations, and the sheets that they unroll."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import ArpackError

from glle_engine import fit, manifolds
from glle_engine.alignment import disparity
from glle_engine.errors import ConvergenceError, DegenerateDataError, DisconnectedGraphError, InvalidParameterError
from glle_engine.methods import METHODS, Embedding, isomap, modified_lle, spectrum
from glle_engine.methods.affinity import symmetric_graph
from glle_engine.neighbors import kneighbors
from glle_engine.quality import trustworthiness

GRAPH_METHODS = ("lle", "modified-lle", "hessian-lle", "ltsa", "isomap", "laplacian-eigenmaps", "diffusion-maps")


def embed(name: str, X: NDArray[np.float64], **options: Any) -> Embedding:
    """Embed with some options."""
    return METHODS[name].embed(X, METHODS[name].spec(**options))


def same_columns(expected: NDArray[np.float64], found: NDArray[np.float64], tolerance: float) -> None:
    """Assert that columns agree but for their signs, relative to the largest entry."""
    signs = np.sign(np.einsum("ij,ij->j", expected, found))
    np.testing.assert_allclose(found * signs, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.fixture(scope="module")
def roll() -> manifolds.Manifold:
    """Return 800 points of the Swiss roll, of which the second coordinate is arc length along the spiral."""
    made = manifolds.make("swiss_roll", 800, seed=3)
    t = made.coordinates[:, 0]
    arc = (t * np.sqrt(1 + t * t) + np.arcsinh(t)) / 2
    return manifolds.Manifold(made.name, made.X, np.stack([arc, made.coordinates[:, 1]], axis=1))


@pytest.fixture(scope="module")
def small() -> NDArray[np.float64]:
    """Return 400 points of an S-curve: more than are solved densely."""
    return manifolds.make("s_curve", 400, seed=1).X


@pytest.mark.parametrize("name", ["modified-lle", "hessian-lle", "ltsa"])
def test_unrolls_the_swiss_roll_up_to_the_scale_of_its_axes(name: str, roll: manifolds.Manifold) -> None:
    """These find the coordinates themselves, each scaled to variance 1."""
    white = (roll.coordinates - roll.coordinates.mean(axis=0)) / roll.coordinates.std(axis=0)
    found = embed(name, roll.X)
    assert disparity(found.Y, white) < 0.005
    assert trustworthiness(roll.X, found.Y) > 0.985
    np.testing.assert_allclose(found.Y.T @ found.Y / len(roll.X), np.eye(2), atol=1e-8)
    np.testing.assert_allclose(found.Y.mean(axis=0), 0, atol=1e-7)


@pytest.mark.parametrize("landmarks", [0, 60])
def test_isomap_unrolls_the_swiss_roll_in_its_own_units(landmarks: int, roll: manifolds.Manifold) -> None:
    """Distances along the sheet are kept; from landmarks hardly less well than from all points."""
    found = embed("isomap", roll.X, n_landmarks=landmarks)
    assert disparity(found.Y, roll.coordinates) < 0.005
    assert trustworthiness(roll.X, found.Y) > 0.995
    assert found.figures["residual_variance"] < 0.005
    assert np.ptp(found.Y[:, 0]) == pytest.approx(np.ptp(roll.coordinates[:, 0]), rel=0.05)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("laplacian-eigenmaps", {}),
        ("laplacian-eigenmaps", {"weights": "simple", "normalized": False}),
        ("diffusion-maps", {"n_neighbors": 16}),
        ("diffusion-maps", {"epsilon": 3.0}),
    ],
)
def test_the_first_eigenfunction_of_the_roll_is_the_cosine_of_its_length(
    name: str, options: dict[str, Any], roll: manifolds.Manifold
) -> None:
    """The Laplacian of a strip has cos(pi s / L) first: what LE and diffusion maps show is not the sheet itself."""
    s = roll.coordinates[:, 0]
    cosine = np.cos(np.pi * (s - s.min()) / np.ptp(s))
    found = embed(name, roll.X, **options)
    assert abs(np.corrcoef(cosine, found.Y[:, 0])[0, 1]) > 0.97
    assert trustworthiness(roll.X, found.Y) > 0.85


@pytest.mark.parametrize("name", GRAPH_METHODS)
def test_a_disconnected_graph_is_refused_with_the_k_that_connects(name: str) -> None:
    """Two sheets far apart: the remedy is the smallest k, and with it the graph hangs together."""
    X = manifolds.make("s_curve", 40, seed=2).X
    apart = np.concatenate([X, X + np.array([30.0, 0, 0])])
    with pytest.raises(DisconnectedGraphError, match="The smallest n_neighbors that connects it is") as caught:
        embed(name, apart, n_neighbors=10)
    enough = caught.value.details["smallest_connecting_k"]
    with pytest.raises(DisconnectedGraphError):
        embed(name, apart, n_neighbors=enough - 1)
    embed("isomap", apart, n_neighbors=enough)


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


def test_lle_refuses_more_components_than_its_solver_has_steps() -> None:
    """The last that it finds is found, the next refused by size; a fit refuses it, too."""
    X = manifolds.make("s_curve", 100, seed=1).X
    assert embed("lle", X, n_components=59).Y.shape == (100, 59)
    with pytest.raises(InvalidParameterError, match="Give n_components of at most 59"):
        METHODS["lle"].require_possible(100, 3, METHODS["lle"].spec(n_components=60))
    with pytest.raises(InvalidParameterError, match="Give n_components of at most 59"):
        fit(X, n_components=60)


def patches_of(X: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Return each point and its k nearest, by sorted distances."""
    return np.argsort(np.linalg.norm(X[:, None] - X[None], axis=2), axis=1, kind="stable")[:, : k + 1]


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


def test_patches_that_hang_together_by_one_point_are_told() -> None:
    """A hinge: five points whose patches share a single one with the six others may turn about it."""
    line = np.concatenate([np.linspace(0, 1, 6), 2.5 + np.linspace(0, 0.4, 5)])[:, None] * np.ones(2)
    found = embed("ltsa", line, n_components=1, n_neighbors=5)
    assert [note.code for note in found.notes] == ["null-space"]
    assert embed("ltsa", line, n_components=1, n_neighbors=7).notes == ()


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


@pytest.mark.parametrize(("module", "name"), [(spectrum, "laplacian-eigenmaps"), (isomap, "isomap")])
def test_an_eigensolver_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, small: NDArray[np.float64], module: Any, name: str
) -> None:
    """No embedding is shown that no solver found."""

    def failing(*_args: object, **_options: object) -> None:
        raise ArpackError(-9999)

    monkeypatch.setattr(module, "eigsh", failing)
    monkeypatch.setattr(isomap, "_DENSE_MOST", 100)
    with pytest.raises(ConvergenceError, match="The eigensolver found no embedding"):
        embed(name, small)


def test_eigenpairs_that_are_none_are_told(monkeypatch: pytest.MonkeyPatch, small: NDArray[np.float64]) -> None:
    """What the solver gives is put into the equation."""
    monkeypatch.setattr(spectrum, "_shift_inverted", lambda _A, u, _norm, m: (np.zeros(m), np.eye(len(u), m)))
    with pytest.raises(ConvergenceError, match="left a residual of"):
        embed("ltsa", small)


@pytest.mark.parametrize(
    ("name", "stage"), [("isomap", "shortest paths"), ("ltsa", "patches"), ("hessian-lle", "embedding")]
)
def test_what_on_progress_raises_leaves_the_computation(name: str, stage: str, small: NDArray[np.float64]) -> None:
    """That is how a job is cancelled, in the stages that take long."""

    def stop(_done: int, _total: int, now: str) -> None:
        if now == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        METHODS[name].embed(small, on_progress=stop)


def test_isomap_against_dense_scaling(small: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """Floyd and Warshall's paths, dense classical scaling and the correlation matrix give the same; so does Lanczos."""
    distances = shortest_path(symmetric_graph(*kneighbors(small, 8)), method="FW", directed=False)
    J = np.eye(len(small)) - 1 / len(small)
    values, vectors = scipy.linalg.eigh(-J @ distances**2 @ J / 2)
    expected = (vectors * np.sqrt(np.maximum(values, 0)))[:, :-3:-1]
    for most in (500, 100):
        monkeypatch.setattr(isomap, "_DENSE_MOST", most)
        found = embed("isomap", small, n_neighbors=8)
        same_columns(expected, found.Y, 1e-9)
        r = np.corrcoef(distances.ravel(), np.linalg.norm(found.Y[:, None] - found.Y[None], axis=2).ravel())[0, 1]
        assert found.figures["residual_variance"] == pytest.approx(1 - r**2, abs=1e-10)


def test_isomap_with_all_points_as_landmarks_is_isomap(small: NDArray[np.float64]) -> None:
    """The limit case of de Silva and Tenenbaum's placement."""
    same_columns(embed("isomap", small).Y, embed("isomap", small, n_landmarks=len(small)).Y, 1e-8)


def test_isomap_refuses_what_has_no_such_dimension() -> None:
    """Points on a line have one; landmarks must be more than the components and at most the points."""
    line = np.linspace(0, 1, 50)[:, None] ** 2 * np.ones(2)
    with pytest.raises(DegenerateDataError, match="Give fewer components"):
        embed("isomap", line, n_neighbors=3)
    assert embed("isomap", line, n_neighbors=3, n_components=1).figures["residual_variance"] < 1e-10
    for m in (2, 51):
        with pytest.raises(InvalidParameterError, match="Give n_landmarks from 3 to 50"):
            embed("isomap", line, n_landmarks=m)


def test_duplicates_are_neighbors_at_no_distance() -> None:
    """A sparse graph forgets a weight of zero; points given twice still hang together, and lie together."""
    X = manifolds.make("s_curve", 60, seed=0).X
    found = embed("isomap", np.concatenate([X, X]), n_neighbors=8)
    np.testing.assert_allclose(found.Y[:60], found.Y[60:], atol=1e-9)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("weights", ["heat", "simple"])
@pytest.mark.parametrize("n", [200, 400])
def test_laplacian_eigenmaps_against_dense_algebra(
    small: NDArray[np.float64], n: int, weights: str, *, normalized: bool
) -> None:
    """The generalised problem, solved as such by LAPACK; by either of the two solvers."""
    X, t = small[:n], 0.05
    nearest = patches_of(X, 10)[:, 1:]
    W = np.zeros((n, n))
    W[np.arange(n)[:, None], nearest] = 1
    W = np.maximum(W, W.T)
    if weights == "heat":
        W *= np.exp(-(np.linalg.norm(X[:, None] - X[None], axis=2) ** 2) / t)
    D = np.diag(W.sum(axis=1))
    values, vectors = scipy.linalg.eigh(D - W, D if normalized else None)
    scale = np.trace(D) if normalized else n
    options = {"t": t} if weights == "heat" else {}
    found = embed("laplacian-eigenmaps", X, weights=weights, normalized=normalized, **options)
    assert found.figures["solver"] == ("dense" if n <= spectrum.DENSE_MOST else "shift-invert")
    assert found.eigenvalues is not None
    np.testing.assert_allclose(found.eigenvalues, values[1:3], rtol=1e-7)
    same_columns(np.sqrt(scale) * vectors[:, 1:3], found.Y, 1e-6)


def test_laplacian_eigenmaps_agree_with_scikit_learn(small: NDArray[np.float64]) -> None:
    """Simple weights, normalised: the spectral embedding of the same graph."""
    manifold = pytest.importorskip("sklearn.manifold")
    graph = symmetric_graph(*kneighbors(small, 10))
    ones = csr_array((np.ones_like(graph.data), graph.indices, graph.indptr), shape=graph.shape)
    theirs = manifold.SpectralEmbedding(2, affinity="precomputed", random_state=0).fit_transform(ones.toarray())
    found = embed("laplacian-eigenmaps", small, weights="simple").Y
    same_columns(found / np.linalg.norm(found, axis=0), theirs / np.linalg.norm(theirs, axis=0), 1e-5)


def test_a_bandwidth_too_small_is_refused_with_the_smallest_that_connects(small: NDArray[np.float64]) -> None:
    """The edges are there, their weights are not; the bandwidth of the remedy does."""
    with pytest.raises(DisconnectedGraphError, match="The smallest t that connects them") as caught:
        embed("laplacian-eigenmaps", small, t=1e-5)
    embed("laplacian-eigenmaps", small, t=caught.value.details["smallest"])
    with pytest.raises(DisconnectedGraphError, match="The smallest epsilon that connects them"):
        embed("diffusion-maps", small, epsilon=1e-5)
    with pytest.raises(InvalidParameterError, match="no meaning for simple weights"):
        embed("laplacian-eigenmaps", small, weights="simple", t=1.0)


def test_lle_spans_the_bottom_singular_vectors(small: NDArray[np.float64]) -> None:
    """Of I - W by LAPACK, W by its definition; and scikit-learn's LLE is the same."""
    manifold = pytest.importorskip("sklearn.manifold")
    n, k = len(small), 10
    B = np.eye(n)
    for i, patch in enumerate(patches_of(small, k)):
        D = small[patch[1:]] - small[i]
        gram = D @ D.T
        w = np.linalg.solve(gram + 1e-3 * np.trace(gram) * np.eye(k), np.ones(k))
        B[i, patch[1:]] -= w / w.sum()
    _, singular, right = np.linalg.svd(B)
    found = embed("lle", small, reg=1e-3)
    assert found.eigenvalues is not None
    np.testing.assert_allclose(found.eigenvalues, singular[-2:-4:-1] ** 2, rtol=1e-5)
    same_columns(np.sqrt(n) * right[-2:-4:-1].T, found.Y, 1e-5)
    theirs, _ = manifold.locally_linear_embedding(small, n_neighbors=k, n_components=2, reg=1e-3, eigen_solver="dense")
    same_columns(np.sqrt(n) * theirs, found.Y, 1e-5)
