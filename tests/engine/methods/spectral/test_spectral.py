"""The spectral methods against dense algebra, other implementations, and the sheets that they unroll."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import ArpackError
from scipy.spatial.distance import cdist
from sklearn import manifold
from sklearn.manifold import locally_linear_embedding

from glle_engine import fit, manifolds
from glle_engine.base.errors import ConvergenceError, DegenerateDataError, InvalidParameterError, TooFewPointsError
from glle_engine.eigen import leading
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.radius import symmetric_graph
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS
from glle_engine.methods.spectral import laplacian
from glle_engine.methods.spectral.diffusion_maps import lump
from glle_engine.metrics.ranks import trustworthiness
from tests.engine.methods.reference import (
    cloud,
    codes_of,
    embed,
    patches_of,
    same_columns,
    values_of,
    weight_matrix,
)


@pytest.fixture(scope="module")
def roll() -> manifolds.Manifold:
    """Return 800 points of the Swiss roll."""
    return manifolds.make("swiss_roll", 800, seed=3)


@pytest.fixture(scope="module")
def few() -> NDArray[np.float64]:
    """Return 400 points of an S-curve, too many for the dense eigensolver."""
    return manifolds.make("s_curve", 400, seed=1).X


def test_lle_finds_as_many_components_as_its_solver_has_steps() -> None:
    """The largest allowed number of components is found, and a fit refuses one more."""
    X = manifolds.make("s_curve", 100, seed=1).X
    assert embed("lle", X, n_components=59).Y.shape == (100, 59)
    with pytest.raises(InvalidParameterError, match="Give n_components of at most 59"):
        fit(X, n_components=60)


def test_an_eigensolver_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, few: NDArray[np.float64]) -> None:
    """A failure of the eigensolver raises a `ConvergenceError`."""

    def failing(*_args: object, **_options: object) -> None:
        raise ArpackError(-9999)

    monkeypatch.setattr(laplacian, "eigsh", failing)
    with pytest.raises(ConvergenceError, match="The eigensolver found no embedding"):
        embed("laplacian-eigenmaps", few)


@pytest.mark.parametrize(("dense_up_to", "landmarks"), [(500, None), (100, None), (500, 400)])
def test_isomap_against_dense_scaling(
    few: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch, dense_up_to: int, landmarks: int
) -> None:
    """The embedding is that of Floyd and Warshall's paths, scaled densely; also by Lanczos, and with n landmarks."""
    distances = shortest_path(symmetric_graph(*kneighbors(few, 8)), method="FW", directed=False)
    J = np.eye(len(few)) - 1 / len(few)
    values, vectors = scipy.linalg.eigh(-J @ distances**2 @ J / 2)
    expected = (vectors * np.sqrt(np.maximum(values, 0)))[:, :-3:-1]
    monkeypatch.setattr(leading, "MAX_DENSE_ROWS", dense_up_to)
    embedding = embed("isomap", few, n_neighbors=8, landmarks=landmarks)
    same_columns(expected, embedding.Y, 1e-8)
    pairs = np.triu_indices(len(few), 1)
    straight = np.linalg.norm(embedding.Y[:, None] - embedding.Y[None], axis=2)
    r = np.corrcoef(distances[pairs], straight[pairs])[0, 1]
    assert embedding.figures["residual_variance"] == pytest.approx(1 - r**2, abs=1e-9)
    lost = np.linalg.norm(-J @ distances**2 @ J / 2 - expected @ expected.T) / len(few)
    assert embedding.figures["reconstruction_error"] == pytest.approx(lost, rel=1e-7)


def test_isomap_of_degenerate_data() -> None:
    """Points at equal distances have no residual variance; points on a line have one of 0."""
    embedding = embed("isomap", np.eye(12), n_neighbors=11)
    assert embedding.figures["residual_variance"] is None
    assert np.isfinite(embedding.Y).all()
    line = np.linspace(0, 1, 50)[:, None] ** 2 * np.ones(2)
    assert embed("isomap", line, n_neighbors=3, n_components=1).figures["residual_variance"] < 1e-10


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("weights", ["heat", "simple"])
@pytest.mark.parametrize("n", [200, 400])
def test_laplacian_eigenmaps_against_dense_algebra(
    few: NDArray[np.float64], n: int, weights: str, *, normalized: bool
) -> None:
    """Embedding and eigenvalues are those of LAPACK's generalized eigenproblem, by either solver."""
    X, t = few[:n], 0.05
    nearest = patches_of(X, 10)[:, 1:]
    W = np.zeros((n, n))
    W[np.arange(n)[:, None], nearest] = 1
    W = np.maximum(W, W.T)
    if weights == "heat":
        W *= np.exp(-(np.linalg.norm(X[:, None] - X[None], axis=2) ** 2) / t)
    D = np.diag(W.sum(axis=1))
    values, vectors = scipy.linalg.eigh(D - W, D if normalized else None)
    scale = np.trace(D) if normalized else n
    options = {"epsilon": t} if weights == "heat" else {}
    embedding = embed("laplacian-eigenmaps", X, weights=weights, normalized=normalized, **options)
    assert embedding.figures["solver"] == ("dense" if n <= laplacian.DENSE_MOST else "shift-invert")
    np.testing.assert_allclose(values_of(embedding), values[1:3], rtol=1e-7)
    same_columns(np.sqrt(scale) * vectors[:, 1:3], embedding.Y, 1e-6)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("convert", [np.asarray, csr_array])
def test_given_weights_are_those_of_the_kernel(
    few: NDArray[np.float64], *, normalized: bool, convert: Callable[[Any], Any]
) -> None:
    """The matrix of a heat kernel, dense or sparse, gives the embedding by this kernel."""
    X = few[:200]
    K = np.exp(-(cdist(X, X) ** 2) / 0.4)
    expected = embed("laplacian-eigenmaps", X, n_neighbors=199, epsilon=0.4, normalized=normalized)
    for diagonal, unit in ((1.0, 1.0), (0.0, 2.0)):
        kernel = K.copy()
        np.fill_diagonal(kernel, diagonal)
        embedding = embed("laplacian-eigenmaps", convert(unit * kernel), weights="precomputed", normalized=normalized)
        same_columns(expected.Y, embedding.Y, 1e-9)
        values = values_of(embedding) / (1.0 if normalized else unit)
        np.testing.assert_allclose(values, values_of(expected), rtol=1e-8)


def test_lle_spans_the_bottom_singular_vectors(few: NDArray[np.float64]) -> None:
    """The embedding is the bottom singular vectors of I - W by LAPACK, and scikit-learn's LLE."""
    n, k = len(few), 10
    _, singular, right = np.linalg.svd(np.eye(n) - weight_matrix(few, patches_of(few, k)[:, 1:]))
    embedding = embed("lle", few, reg=1e-3)
    np.testing.assert_allclose(values_of(embedding), singular[-2:-4:-1] ** 2, rtol=1e-5)
    same_columns(np.sqrt(n) * right[-2:-4:-1].T, embedding.Y, 1e-5)
    theirs, _ = locally_linear_embedding(few, n_neighbors=k, n_components=2, reg=1e-3, eigen_solver="dense")
    same_columns(np.sqrt(n) * theirs, embedding.Y, 1e-5)


def test_an_automatic_k_is_used_for_new_points_too(few: NDArray[np.float64]) -> None:
    """With n_neighbors="auto", training and new points have the positions of LLE with the k that was found."""
    automatic = embed("lle", few[:300], n_neighbors="auto")
    plain = embed("lle", few[:300], n_neighbors=automatic.figures["n_neighbors"])
    np.testing.assert_array_equal(automatic.Y, plain.Y)
    np.testing.assert_array_equal(automatic.transform(few[300:]), plain.transform(few[300:]))
    with pytest.raises(TooFewPointsError):
        METHODS["lle"].require_possible(2, 3, METHODS["lle"].spec.from_dict({"n_neighbors": "auto"}))


def markov(X: NDArray[np.float64], epsilon: float, alpha: float) -> NDArray[np.float64]:
    """Return the transition matrix P (n, n) of the random walk, by its definition."""
    K = np.exp(-cdist(X, X, "sqeuclidean") / epsilon)
    q = K.sum(axis=1)
    K /= np.outer(q, q) ** alpha
    return np.asarray(K / K.sum(axis=1, keepdims=True))


@pytest.fixture(scope="module")
def curve() -> NDArray[np.float64]:
    """Return 300 points of an S-curve."""
    return manifolds.make("s_curve", 300, seed=1).X


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n_neighbors", ["all", 299])
def test_against_the_markov_matrix_itself(curve: NDArray[np.float64], alpha: float, n_neighbors: int | str) -> None:
    """The embedding is eigenvectors of P, of length 1 by the stationary distribution, times lambda^t."""
    t, epsilon = 3, 0.3
    P = markov(curve, epsilon, alpha)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    values, right = np.linalg.eig(P)
    order = np.argsort(-values.real)
    law, left = np.linalg.eig(P.T)
    stationary = np.abs(left[:, np.argmax(law.real)].real)
    stationary /= stationary.sum()
    psi = right.real[:, order[1:3]]
    psi /= np.sqrt(stationary @ psi**2)
    embedding = embed("diffusion-maps", curve, alpha=alpha, t=t, epsilon=epsilon, n_neighbors=n_neighbors)
    same_columns(psi * values.real[order[1:3]] ** t, embedding.Y, 1e-7)
    np.testing.assert_allclose(values_of(embedding), values.real[order[1:3]], rtol=1e-9)


def test_diffusion_distance_is_the_distance_of_the_walks(curve: NDArray[np.float64]) -> None:
    """With all coordinates, |y_i - y_j|^2 = sum_l (P^t_il - P^t_jl)^2 / pi_l (Coifman and Lafon)."""
    X, t, epsilon = curve[:40], 2, 0.5
    K = np.exp(-cdist(X, X, "sqeuclidean") / epsilon)
    stationary = K.sum(axis=1) / K.sum()
    walks = np.linalg.matrix_power(markov(X, epsilon, 0.0), t) / np.sqrt(stationary)
    embedding = embed("diffusion-maps", X, alpha=0.0, t=t, epsilon=epsilon, n_components=37)
    np.testing.assert_allclose(cdist(embedding.Y, embedding.Y), cdist(walks, walks), atol=1e-4)


def test_alpha_1_forgets_the_density_of_a_circle_and_alpha_0_does_not() -> None:
    """With alpha=1, an unevenly sampled circle is embedded as a circle; with alpha=0 it is not."""
    uniform = (np.arange(400) + 0.5) / 400
    angle = 2 * np.pi * uniform + 0.7 * np.sin(2 * np.pi * uniform)  # one side has some six times the points
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    apart = {
        alpha: disparity(embed("diffusion-maps", circle, alpha=alpha, epsilon=0.03).Y, circle)
        for alpha in (0.0, 0.5, 1.0)
    }
    assert apart[1.0] < 0.002
    assert apart[0.5] > 5 * apart[1.0]
    assert apart[0.0] > 20 * apart[1.0]


def test_delta_and_time_tell_how_many_coordinates_count(curve: NDArray[np.float64]) -> None:
    """The dimension is counted by its definition; t="auto" is the first t for which p coordinates are enough."""
    all_values = np.sort(np.linalg.eigvals(markov(curve, 0.3, 1.0)).real)[-2::-1]
    for t in (1, 5, 40):
        embedding = embed("diffusion-maps", curve, epsilon=0.3, t=t, delta=0.2)
        counted = int(np.sum(all_values[:30] ** t > 0.2 * all_values[0] ** t))
        assert embedding.figures["dimension"] == counted
        assert bool(embedding.notes) == (counted > 2)
    chosen = embed("diffusion-maps", curve, epsilon=0.3, t="auto", delta=0.2)
    assert chosen.figures["dimension"] <= 2
    assert chosen.notes == ()
    assert embed("diffusion-maps", curve, epsilon=0.3, t=chosen.figures["t"] - 1, delta=0.2).figures["dimension"] == 3


def test_a_kernel_cut_to_neighbors_is_nearly_the_whole(curve: NDArray[np.float64]) -> None:
    """Cutting a kernel that has decayed at the last neighbor hardly changes the embedding."""
    whole, cut = (
        embed("diffusion-maps", curve, epsilon=0.05),
        embed("diffusion-maps", curve, epsilon=0.05, n_neighbors=60),
    )
    assert disparity(whole.Y, cut.Y) < 1e-3
    assert cut.figures["n_neighbors"] == 60
    assert whole.figures["n_neighbors"] is None


@pytest.mark.parametrize("name", ["hessian-lle", "ltsa"])
def test_patches_against_least_squares_one_by_one(name: str, few: NDArray[np.float64]) -> None:
    """The embedding is that of penalties from least squares in every patch, decomposed densely."""
    n, k = len(few), 8
    M = np.zeros((n, n))
    for patch in patches_of(few, k):
        local = few[patch] - few[patch].mean(axis=0)
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
    embedding = embed(name, few, n_neighbors=k)
    assert embedding.figures["solver"] == "shift-invert"
    np.testing.assert_allclose(values_of(embedding), values[1:3], rtol=1e-6)
    same_columns(np.sqrt(n) * vectors[:, 1:3], embedding.Y, 1e-6)


@pytest.mark.parametrize("name", ["hessian-lle", "ltsa"])
def test_a_flat_sheet_comes_back(name: str) -> None:
    """A plane in five dimensions is embedded exactly, with eigenvalues of 0."""
    rng = np.random.default_rng(0)
    plane = rng.uniform(-1, 1, (350, 2))
    embedding = embed(name, plane @ rng.standard_normal((2, 5)), n_neighbors=8)
    assert disparity(embedding.Y, np.linalg.qr(plane - plane.mean(axis=0))[0]) < 1e-8
    assert embedding.notes == ()


def test_patches_that_hang_together_by_one_point_are_reported() -> None:
    """If two groups of patches share a single point, more coordinates satisfy the conditions, and a note says so."""
    line = np.concatenate([np.linspace(0, 1, 6), 2.5 + np.linspace(0, 0.4, 5)])[:, None] * np.ones(2)
    assert codes_of(embed("ltsa", line, n_components=1, n_neighbors=5)) == ["null-space"]
    assert embed("ltsa", line, n_components=1, n_neighbors=7).notes == ()


@pytest.mark.parametrize("name", ["hessian-lle", "ltsa"])
def test_patches_of_too_few_dimensions_are_reported(name: str) -> None:
    """Patches of points on a line, which have no tangent plane, are counted and noted."""
    line = np.linspace(0, 1, 40)[:, None] * np.array([1.0, 2.0, 3.0])
    embedding = embed(name, line, n_neighbors=7)
    assert embedding.figures["flat_patches"] == 40
    assert "flat-patches" in codes_of(embedding)
    assert np.abs(embedding.Y.mean(axis=0)).max() < 1e-9
    assert values_of(embedding)[0] < 1e-12


@pytest.mark.parametrize(("d", "k"), [(3, 10), (25, 10)])
def test_modified_lle_is_that_of_scikit_learn(d: int, k: int, wide: NDArray[np.float64]) -> None:
    """Embedding and reconstruction error are scikit-learn's, with more neighbors than features and with fewer."""
    X = manifolds.make("s_curve", 300, seed=2).X if d == 3 else wide
    theirs, error = manifold.locally_linear_embedding(
        X, n_neighbors=k, n_components=2, method="modified", eigen_solver="dense"
    )
    embedding = embed("modified-lle", X, n_neighbors=k)
    same_columns(theirs * np.sqrt(300), embedding.Y, 1e-5)
    assert values_of(embedding).sum() == pytest.approx(error, rel=1e-3, abs=1e-9)


def test_eigenpairs_that_are_none_are_reported(monkeypatch: pytest.MonkeyPatch, few: NDArray[np.float64]) -> None:
    """Vectors of the solver that are no eigenvectors raise a `ConvergenceError`."""
    monkeypatch.setattr(laplacian, "_shift_inverted", lambda _A, u, _norm, m: (np.zeros(m), np.eye(len(u), m)))
    with pytest.raises(ConvergenceError, match="left a residual of"):
        embed("ltsa", few)


def test_points_in_no_neighborhood_are_reported() -> None:
    """Points that are among no other point's neighbors are counted in a note, and lie among the others."""
    rng = np.random.default_rng(0)
    X = 1.5 * rng.standard_normal((3, 10))[rng.integers(0, 3, 300)] + rng.standard_normal((300, 10))
    embedding = embed("ltsa", X, n_neighbors=12)
    (note,) = (note for note in embedding.notes if note.code == "lonely-points")
    lonely = np.setdiff1d(np.arange(300), kneighbors(X, 12)[0])
    assert note.message.startswith(f"{len(lonely)} points")
    assert (embedding.Y[lonely] ** 2).sum() < 0.5 * (embedding.Y**2).sum()


@pytest.mark.parametrize("name", ["modified-lle", "hessian-lle", "ltsa"])
def test_unrolls_the_swiss_roll_up_to_the_scale_of_its_axes(name: str, roll: manifolds.Manifold) -> None:
    """The embedding is the true coordinates, each scaled to variance 1."""
    white = (roll.coordinates - roll.coordinates.mean(axis=0)) / roll.coordinates.std(axis=0)
    embedding = embed(name, roll.X)
    assert disparity(embedding.Y, white) < 0.005
    assert trustworthiness(roll.X, embedding.Y) > 0.985
    np.testing.assert_allclose(embedding.Y.T @ embedding.Y / len(roll.X), np.eye(2), atol=1e-8)
    np.testing.assert_allclose(embedding.Y.mean(axis=0), 0, atol=1e-7)


@pytest.mark.parametrize("landmarks", [None, 60])
def test_isomap_unrolls_the_swiss_roll_in_its_own_units(landmarks: int, roll: manifolds.Manifold) -> None:
    """Distances along the sheet are kept, with all points as landmarks or with 60."""
    embedding = embed("isomap", roll.X, landmarks=landmarks)
    assert disparity(embedding.Y, roll.coordinates) < 0.005
    assert trustworthiness(roll.X, embedding.Y) > 0.995
    assert embedding.figures["residual_variance"] < 0.005
    assert np.ptp(embedding.Y[:, 0]) == pytest.approx(np.ptp(roll.coordinates[:, 0]), rel=0.05)


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
    """The first coordinate is cos(pi s / L) of the length s, as the Laplacian of a strip has it."""
    s = roll.coordinates[:, 0]
    cosine = np.cos(np.pi * (s - s.min()) / np.ptp(s))
    embedding = embed(name, roll.X, **options)
    assert abs(np.corrcoef(cosine, embedding.Y[:, 0])[0, 1]) > 0.97
    assert trustworthiness(roll.X, embedding.Y) > 0.85


def test_time_0_shows_the_eigenfunctions_themselves(curve: NDArray[np.float64]) -> None:
    """The embedding with t=7 is the embedding with t=0, times the eigenvalues to the power of 7."""
    start, later = embed("diffusion-maps", curve, t=0), embed("diffusion-maps", curve, t=7)
    np.testing.assert_allclose(later.Y, start.Y * values_of(start) ** 7, rtol=1e-9)


@pytest.mark.parametrize("far", [100.0, 1e6])
def test_a_far_point_does_not_set_the_bandwidth(far: float, roll: manifolds.Manifold) -> None:
    """A far point changes neither the bandwidth nor the positions of the others, and a note says so."""
    alone = embed("laplacian-eigenmaps", roll.X)
    embedding = embed("laplacian-eigenmaps", np.concatenate([roll.X, [[far, 0, 0]]]))
    assert embedding.figures["epsilon"] == pytest.approx(alone.figures["epsilon"], rel=0.05)
    assert disparity(embedding.Y[:-1], alone.Y) < 0.01
    assert "far-parts" in codes_of(embedding)
    assert "far-parts" not in codes_of(alone)


@pytest.mark.parametrize("gap", [30.0, 1e5])
def test_diffusion_maps_tell_far_parts_apart(gap: float) -> None:
    """The first coordinate has one value in each of two far parts, and the bandwidth is that of one part."""
    blob = cloud(60, 3)
    embedding = embed("diffusion-maps", np.concatenate([blob, blob + gap]))
    first = embedding.Y[:, 0] * np.sign(embedding.Y[0, 0])
    np.testing.assert_allclose(first, np.repeat([1.0, -1.0], 60), atol=1e-6)
    assert embedding.figures["epsilon"] == pytest.approx(embed("diffusion-maps", blob).figures["epsilon"])
    assert "far-parts" in codes_of(embedding)


def test_the_threshold_sets_the_number_of_columns() -> None:
    """Columns with |lambda^t| >= 1 - threshold are kept; if there is none, an error is raised."""
    X = manifolds.make("s_curve", 200, seed=0).X
    method = METHODS["diffusion-maps"]
    all_ten = method.embed(X, method.spec(n_components=10, t=3))
    assert all_ten.eigenvalues is not None
    powers = all_ten.eigenvalues**3
    for count in (1, 4, 9):
        threshold = 1 - float(powers[count - 1 : count + 1].mean())
        embedding = method.embed(X, method.spec(n_components=10, t=3, threshold=threshold))
        np.testing.assert_array_equal(embedding.Y, all_ten.Y[:, :count])
        assert embedding.figures["columns"] == count
    with pytest.raises(DegenerateDataError, match="no column of the diffusion map"):
        method.embed(X, method.spec(t=3, threshold=0.5 * (1 - float(powers[0]))))


def test_bandwidth_is_the_root_of_epsilon() -> None:
    """bandwidth=h is epsilon=h^2; giving both raises an error."""
    X = manifolds.make("s_curve", 150, seed=0).X
    method = METHODS["diffusion-maps"]
    one, other = (method.embed(X, method.spec(**option)) for option in ({"bandwidth": 0.7}, {"epsilon": 0.7**2}))
    assert one.Y.tobytes() == other.Y.tobytes()
    assert one.figures["epsilon"] == 0.7**2
    with pytest.raises(InvalidParameterError, match="would change nothing with bandwidth="):
        method.spec(bandwidth=0.7, epsilon=0.5)


def test_a_lumpable_chain_has_piecewise_constant_eigenvectors() -> None:
    """If states of a group move alike, the eigenvectors of the groups' chain are eigenvectors of the whole chain."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], [4, 5, 6])
    rates = np.array([[5.0, 1, 0.5], [1, 4, 2], [0.5, 2, 6]])
    K = rates[group][:, group]
    P = K / K.sum(axis=1, keepdims=True)
    lumping = lump(P, group)
    assert lumping.deviation < 1e-15
    assert lumping.eigenvalues[0] == pytest.approx(1)
    np.testing.assert_allclose(P @ lumping.vectors, lumping.vectors * lumping.eigenvalues, atol=1e-12)
    assert all(np.ptp(lumping.vectors[group == g], axis=0).max() == 0 for g in range(3))
    noise = rng.standard_normal(K.shape)
    K = K * np.exp(0.3 * (noise + noise.T))
    other = lump(K / K.sum(axis=1, keepdims=True), group)
    assert other.deviation > 0.01
    np.testing.assert_allclose(other.chain.sum(axis=1), 1)


@pytest.mark.parametrize("options", [{}, {"n_neighbors": 12, "alpha": 0.5}])
def test_labels_are_groups_of_the_diffusion(options: dict[str, Any]) -> None:
    """With `lump`, a figure has the chain between the labels; the embedding does not change."""
    X, group = manifolds.make("s_curve", 90, seed=0).X, np.repeat([2, 5, 7], 30)
    method = METHODS["diffusion-maps"]
    embedding = method.embed(X, method.spec(lump=True, epsilon=0.5, **options), labels=group)
    assert embedding.Y.tobytes() == method.embed(X, method.spec(epsilon=0.5, **options)).Y.tobytes()
    squares = cdist(X, X) ** 2
    K = np.exp(-squares / 0.5)
    if options:
        near = np.argsort(squares, axis=1)[:, :13]
        among = np.zeros((90, 90), bool)
        np.put_along_axis(among, near, True, axis=1)  # noqa: FBT003
        K *= among | among.T
    q = K.sum(axis=1) ** options.get("alpha", 1.0)
    P = K / q / q[:, None]
    P /= P.sum(axis=1, keepdims=True)
    into = np.array([[row[group == g].sum() for g in (2, 5, 7)] for row in P])
    chain = np.array([into[group == g].mean(axis=0) for g in (2, 5, 7)])
    found = embedding.figures["lumping"]
    assert found["groups"] == [2, 5, 7]
    np.testing.assert_allclose(found["chain"], chain, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["eigenvalues"], np.sort(np.linalg.eigvals(chain).real)[::-1], rtol=1e-9)
    assert found["deviation"] == pytest.approx(max(abs(into - np.repeat(chain, 30, axis=0)).ravel()), rel=1e-9)
    with pytest.raises(InvalidParameterError, match="class of each point"):
        method.embed(X, method.spec(lump=True))
    with pytest.raises(InvalidParameterError, match="at most 100 groups"):
        method.embed(manifolds.make("s_curve", 120, seed=0).X, method.spec(lump=True), labels=np.arange(120))
