"""Operations on small matrices, compared with their definitions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from scipy.sparse import csc_array, random_array

from glle_engine.base.errors import InvalidShapeError
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import (
    CONSENSUS_TOLERANCE,
    MAX_ROUNDS,
    disparity,
    generalized_procrustes,
    medoid,
    moments,
    procrustes_rotation,
)
from glle_engine.linalg.sparse_lu import SparseLU

NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)
few = settings(max_examples=25)
BATCHES = arrays(np.float64, array_shapes(min_dims=3, max_dims=3, max_side=7), elements=NUMBERS)


@few
@given(BATCHES)
def test_the_gram_matrix_is_the_product_with_the_transpose(rows: np.ndarray) -> None:
    """The Gram matrix equals A A^T to rounding, and is symmetric to the last bit."""
    scale = np.abs(rows).max() ** 2 * rows.shape[2]
    np.testing.assert_allclose(dense.gram(rows), rows @ rows.transpose(0, 2, 1), rtol=0, atol=1e-14 * scale)
    np.testing.assert_array_equal(dense.gram(rows), dense.gram(rows).transpose(0, 2, 1))


@few
@given(BATCHES)
def test_singular_values_rebuild_the_matrix_from_orthonormal_factors(matrices: np.ndarray) -> None:
    """U diag(s) V^T equals the matrix, U and V have orthonormal columns, and s is descending."""
    u, s, vt = dense.svd(matrices)
    identity = np.broadcast_to(np.eye(s.shape[1]), (*s.shape, s.shape[1]))
    np.testing.assert_allclose(u.transpose(0, 2, 1) @ u, identity, atol=1e-13)
    np.testing.assert_allclose(vt @ vt.transpose(0, 2, 1), identity, atol=1e-13)
    np.testing.assert_allclose(
        (u * s[:, None, :]) @ vt, matrices, rtol=0, atol=1e-13 * max(1e-300, np.abs(matrices).max())
    )
    assert (np.diff(s, axis=1) <= 0).all()


@few
@given(BATCHES)
def test_eigenvectors_diagonalise_a_symmetric_matrix(rows: np.ndarray) -> None:
    """V diag(l) V^T with l ascending, of matrices that may be indefinite."""
    matrices = rows @ rows.transpose(0, 2, 1) - rows[:, :1, :1] ** 2 * np.eye(rows.shape[1])
    values, vectors = dense.eigh(matrices)
    size = max(1e-300, float(np.abs(matrices).max()))
    np.testing.assert_allclose(
        (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1), matrices, rtol=0, atol=1e-13 * size
    )
    np.testing.assert_allclose(
        vectors.transpose(0, 2, 1) @ vectors, np.broadcast_to(np.eye(rows.shape[1]), matrices.shape), atol=1e-13
    )
    assert (np.diff(values, axis=1) >= 0).all()
    np.testing.assert_allclose(dense.eigvalsh(matrices), values, rtol=0, atol=1e-13 * size)


@pytest.mark.parametrize("k", [40, 60, 100])
def test_matrices_of_low_rank_have_eigenvectors(k: int) -> None:
    """Gram matrices of more neighbors than features, which have low rank, have accurate eigenvectors."""
    rng = np.random.default_rng(k)
    points = rng.normal(size=(50, k, 6))
    squared = ((points[:, :, None] - points[:, None]) ** 2).sum(axis=3)
    to_center = (points**2).sum(axis=2)
    grams = (to_center[:, :, None] + to_center[:, None] - squared) / 2
    values, vectors = dense.eigh(grams)
    scale = np.abs(grams).max()
    assert np.abs(grams @ vectors - vectors * values[:, None]).max() < 1e-13 * k * scale
    assert np.abs(values - np.linalg.eigvalsh(grams)).max() < 1e-13 * k * scale


@few
@given(arrays(np.float64, array_shapes(min_dims=3, max_dims=3, max_side=7), elements=st.integers(-99, 99).map(float)))
def test_the_pseudo_inverse_has_the_four_properties_of_penrose(matrices: np.ndarray) -> None:
    """A B A = A, B A B = B, and both A B and B A are symmetric."""
    inverse = dense.pinv(matrices, rcond=1e-10)
    size = max(1.0, float(np.abs(matrices).max() * np.abs(inverse).max()))
    for one, other in ((matrices, inverse), (inverse, matrices)):
        np.testing.assert_allclose(one @ other @ one, one, rtol=0, atol=1e-8 * np.abs(one).max() * size)
        np.testing.assert_allclose(one @ other, (one @ other).transpose(0, 2, 1), rtol=0, atol=1e-9 * size)


@few
@given(BATCHES)
def test_the_inverse_factor_inverts_a_positive_definite_matrix(rows: np.ndarray) -> None:
    """F F^T is the inverse of P, F is upper triangular, and the affine solution w has constant P w."""
    k = rows.shape[1]
    precision = dense.gram(rows) + (1.0 + np.abs(rows).max() ** 2) * np.eye(k)
    factor = dense.inverse_factor(precision)
    np.testing.assert_array_equal(factor, np.triu(factor))
    np.testing.assert_allclose(
        factor @ factor.transpose(0, 2, 1) @ precision, np.broadcast_to(np.eye(k), precision.shape), atol=1e-11
    )
    weights, minimum = dense.affine_solution(factor)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-13)
    np.testing.assert_allclose(np.einsum("mij,mj->mi", precision, weights) / minimum[:, None], 1.0, atol=1e-9)


@pytest.mark.parametrize(
    ("operation", "entry"), [(dense.inverse_factor, 2.0), (dense.eigh, np.nan), (dense.svd, np.nan)]
)
def test_a_matrix_without_a_factor_is_refused(operation: Any, entry: float) -> None:
    """An indefinite matrix has no Cholesky factor, and a matrix with NaN no decomposition."""
    with pytest.raises(np.linalg.LinAlgError):
        operation(np.array([[[1.0, entry], [entry, 1.0]]]))


@few
@given(arrays(np.float64, 5, elements=st.floats(1e-300, 1e300)))
def test_logarithms_are_right_to_the_last_digits(x: np.ndarray) -> None:
    """Logarithms agree with decimal arithmetic over the range of doubles."""
    exact = np.array([dense.log(float(value)) for value in x])
    np.testing.assert_allclose(dense.logs(x), exact, rtol=4e-16, atol=1e-16)
    np.testing.assert_allclose([dense.exp(value) for value in exact], x, rtol=1e-12)


def turned_copies(seed: int, p: int, noise: float) -> NDArray[np.float64]:
    """Return nine randomly rotated copies (9, 80, p) of one configuration, with noise."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((1, 80, p)) + noise * rng.standard_normal((9, 80, p))
    return np.stack([one @ np.linalg.qr(rng.standard_normal((p, p)))[0] for one in Y])


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 4), noise=st.floats(0.0, 0.5))
def test_generalized_procrustes_converges_to_a_stationary_point(seed: int, p: int, noise: float) -> None:
    """Generalized Procrustes converges, and then no rotation brings an embedding closer to the mean."""
    Y, rounds = turned_copies(seed, p, noise), []
    aligned = generalized_procrustes(Y, Y[0], lambda round_, *_: rounds.append(round_))
    consensus = aligned.mean(axis=0)
    assert len(rounds) < MAX_ROUNDS
    # The best turn of Y_j to C is the identity if and only if Y_j^T C is symmetric and positive semidefinite. It is so
    # for the mean of the round before, which differs from C by the tolerance.
    for one in aligned:
        overlap = one.T @ consensus
        apart = 10 * CONSENSUS_TOLERANCE * float(np.linalg.norm(one) * np.linalg.norm(consensus))
        np.testing.assert_allclose(overlap, overlap.T, rtol=0, atol=apart)
        assert np.linalg.eigvalsh((overlap + overlap.T) / 2).min() >= -apart


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), m=st.integers(2, 9), p=st.integers(1, 3))
def test_moments_are_those_of_numpy_point_by_point(seed: int, m: int, p: int) -> None:
    """Mean and covariance agree with numpy; those of a point have the same bits without the other points."""
    places = np.random.default_rng(seed).standard_normal((m, 20, p)) + 5
    mean, covariance = moments(places)
    np.testing.assert_allclose(mean, places.mean(axis=0), rtol=1e-14)
    for i in range(20):
        np.testing.assert_allclose(covariance[i], np.cov(places[:, i].T).reshape(p, p), atol=1e-14, rtol=1e-12)
        alone = moments(places[:, i : i + 1])
        assert (alone[0][0].tobytes(), alone[1][0].tobytes()) == (mean[i].tobytes(), covariance[i].tobytes())


def test_a_consensus_does_not_depend_on_the_order() -> None:
    """The alignment is the same if an embedding that differs from all others comes first."""
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((60, 2))
    embeddings = np.stack([reference + 0.1 * rng.standard_normal((60, 2)) for _ in range(9)])
    embeddings = np.concatenate([rng.standard_normal((1, 60, 2)), embeddings])
    assert medoid(embeddings) != 0
    first = generalized_procrustes(embeddings, reference)
    last = generalized_procrustes(embeddings[::-1], reference)[::-1]
    np.testing.assert_allclose(first, last, atol=1e-9)


def test_the_medoid_is_nearest_to_the_others() -> None:
    """The medoid has the smallest sum of squared distances; of many embeddings, only 32 are compared."""
    Y = turned_copies(0, 2, 0.5)
    sums = [((np.stack([one @ procrustes_rotation(one, other) for one in Y]) - other) ** 2).sum() for other in Y]
    assert medoid(Y) == np.argmin(sums)
    many = np.concatenate([Y] * 20)
    assert medoid(many) in np.linspace(0, len(many) - 1, 32).astype(int)


def lu_of(matrix: csc_array, threshold: float) -> SparseLU:
    """Factor a sparse matrix with this pivoting threshold."""
    return SparseLU.factor(matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data, threshold)


@settings(max_examples=80)
@given(
    n=st.integers(1, 60),
    density=st.floats(0.0, 0.5),
    threshold=st.sampled_from([0.01, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_solves_are_those_of_the_matrix(n: int, density: float, threshold: float, seed: int) -> None:
    """Solutions of A x = b and A^T x = b agree with numpy, also if diagonal entries are tiny."""
    rng = np.random.default_rng(seed)
    whole = random_array((n, n), density=density, rng=rng).toarray() - 0.5 * np.eye(n)
    whole = whole[rng.permutation(n)] + 1e-12 * np.eye(n)
    if np.linalg.cond(whole) > 1e8:
        return
    lu = lu_of(csc_array(whole), threshold)
    b = rng.standard_normal((n, 2))
    for trans, matrix in (("N", whole), ("T", whole.T)):
        x = lu.solve(b, trans)
        np.testing.assert_allclose(x[:, 1], lu.solve(np.ascontiguousarray(b[:, 1]), trans), rtol=0, atol=0)
        expected = np.linalg.solve(matrix, b)
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-13 * np.linalg.cond(whole) * np.abs(expected).max() * n)


def test_multipliers_are_bounded_by_the_threshold() -> None:
    """No entry of L exceeds 1 / threshold, and each row is the pivot of one column."""
    rng = np.random.default_rng(0)
    matrix = csc_array(random_array((200, 200), density=0.03, rng=rng).toarray() + 1e-3 * np.eye(200))
    for threshold in (0.1, 1.0):
        lu = lu_of(matrix, threshold)
        assert np.abs(lu.lower).max() <= 1 / threshold * (1 + 1e-15)
        assert np.array_equal(np.sort(lu.pivots), np.arange(200))


@pytest.mark.parametrize("entry", [0.0, np.nan, np.inf])
def test_a_matrix_without_a_pivot_is_refused(entry: float) -> None:
    """A matrix with a column of zeros, or with NaN, raises `FloatingPointError`."""
    matrix = csc_array(np.eye(4))
    matrix.data[2] = entry
    with pytest.raises(FloatingPointError):
        lu_of(matrix, 0.1)


@pytest.mark.parametrize("shape", [(1000, 2), (10, 3), (10, 1), (9, 2)])
def test_embeddings_of_different_shapes_are_not_aligned(shape: tuple[int, int]) -> None:
    """Embeddings of different shapes are refused, because compiled code would read beyond the smaller one."""
    Y, reference = np.random.default_rng(0).standard_normal(shape), np.eye(10, 2)
    for align in (disparity, procrustes_rotation, lambda a, b: generalized_procrustes(np.stack([a, a]), b)):
        with pytest.raises(InvalidShapeError, match="have the shapes"):
            align(Y, reference)
    with pytest.raises(InvalidShapeError, match="have the shapes"):
        disparity(Y[:, :0], Y[:, :0])


def test_gram_matrices_about_points_have_the_bits_of_their_differences() -> None:
    """Without an array of differences; a row that the data do not have is refused."""
    rng = np.random.default_rng(0)
    data, points = rng.standard_normal((30, 7)), rng.standard_normal((12, 7))
    neighbors = rng.integers(0, 30, (12, 5)).astype(np.int32)
    expected = dense.gram(data[neighbors] - points[:, None])
    np.testing.assert_array_equal(dense.gram_about(data, points, neighbors), expected)
    for row in (-1, 30):
        with pytest.raises(IndexError, match="0 to 29"):
            dense.gram_about(data, points, np.full((12, 5), row, np.int32))
