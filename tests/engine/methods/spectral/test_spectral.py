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
from glle_engine.base.errors import ConvergenceError, DegenerateDataError, DisconnectedGraphError, InvalidParameterError
from glle_engine.eigen import leading
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS
from glle_engine.methods.spectral import laplacian
from glle_engine.methods.spectral.laplacian import symmetric_graph
from glle_engine.metrics.ranks import trustworthiness
from tests.engine.methods.reference import embed, patches_of, same_columns

GRAPH_METHODS = ("lle", "modified-lle", "hessian-lle", "ltsa", "isomap", "laplacian-eigenmaps", "diffusion-maps")


@pytest.fixture(scope="module")
def roll() -> manifolds.Manifold:
    """Return 800 points of the Swiss roll."""
    return manifolds.make("swiss_roll", 800, seed=3)


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


def test_lle_refuses_more_components_than_its_solver_has_steps() -> None:
    """The last that it finds is found, the next refused by size; a fit refuses it, too."""
    X = manifolds.make("s_curve", 100, seed=1).X
    assert embed("lle", X, n_components=59).Y.shape == (100, 59)
    with pytest.raises(InvalidParameterError, match="Give n_components of at most 59"):
        METHODS["lle"].require_possible(100, 3, METHODS["lle"].spec(n_components=60))
    with pytest.raises(InvalidParameterError, match="Give n_components of at most 59"):
        fit(X, n_components=60)


def test_an_eigensolver_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, small: NDArray[np.float64]) -> None:
    """No embedding is shown that no solver found."""

    def failing(*_args: object, **_options: object) -> None:
        raise ArpackError(-9999)

    monkeypatch.setattr(laplacian, "eigsh", failing)
    with pytest.raises(ConvergenceError, match="The eigensolver found no embedding"):
        embed("laplacian-eigenmaps", small)


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
        monkeypatch.setattr(leading, "DENSE_UP_TO", most)
        found = embed("isomap", small, n_neighbors=8)
        same_columns(expected, found.Y, 1e-9)
        pairs = np.triu_indices(len(small), 1)
        straight = np.linalg.norm(found.Y[:, None] - found.Y[None], axis=2)
        r = np.corrcoef(distances[pairs], straight[pairs])[0, 1]
        assert found.figures["residual_variance"] == pytest.approx(1 - r**2, abs=1e-10)


@pytest.mark.parametrize("unit", [2.0**-460, 2.0**333, 2.0**490])
@pytest.mark.parametrize("n_landmarks", [0, 20])
def test_isomap_in_any_unit(small: NDArray[np.float64], unit: float, n_landmarks: int) -> None:
    """A unit of a power of 2 scales the embedding exactly, and no figure is lost to overflow."""
    found = embed("isomap", small, n_neighbors=8, n_landmarks=n_landmarks)
    other = embed("isomap", unit * small, n_neighbors=8, n_landmarks=n_landmarks)
    np.testing.assert_array_equal(other.Y, unit * found.Y)
    assert other.figures["residual_variance"] == found.figures["residual_variance"]
    assert other.figures["longest_path"] == unit * found.figures["longest_path"]


def test_isomap_of_points_at_one_distance_has_no_correlation() -> None:
    """Where all distances are equal the residual variance is not a number, and the figure is None."""
    found = embed("isomap", np.eye(12), n_neighbors=11)
    assert found.figures["residual_variance"] is None
    assert np.isfinite(found.Y).all()


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
    assert found.figures["solver"] == ("dense" if n <= laplacian.DENSE_MOST else "shift-invert")
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
