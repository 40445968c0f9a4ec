"""The batched dense operations against their definitions; `tests/engine/reproducibility` compares their bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from glle_engine.linalg import dense

NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)
few = settings(max_examples=25)
BATCHES = arrays(np.float64, array_shapes(min_dims=3, max_dims=3, max_side=7), elements=NUMBERS)


@few
@given(BATCHES)
def test_the_gram_matrix_is_the_product_with_the_transpose(rows: np.ndarray) -> None:
    """A A^T, symmetric to the last bit."""
    scale = np.abs(rows).max() ** 2 * rows.shape[2]
    np.testing.assert_allclose(dense.gram(rows), rows @ rows.transpose(0, 2, 1), rtol=0, atol=1e-14 * scale)
    np.testing.assert_array_equal(dense.gram(rows), dense.gram(rows).transpose(0, 2, 1))


@few
@given(BATCHES)
def test_singular_values_rebuild_the_matrix_from_orthonormal_factors(matrices: np.ndarray) -> None:
    """U diag(s) V^T with s descending."""
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


@few
@given(arrays(np.float64, array_shapes(min_dims=3, max_dims=3, max_side=7), elements=st.integers(-99, 99).map(float)))
def test_the_pseudo_inverse_has_the_four_properties_of_penrose(matrices: np.ndarray) -> None:
    """A B A = A and A B symmetric, for both orders."""
    inverse = dense.pinv(matrices, rcond=1e-10)
    size = max(1.0, float(np.abs(matrices).max() * np.abs(inverse).max()))
    for one, other in ((matrices, inverse), (inverse, matrices)):
        np.testing.assert_allclose(one @ other @ one, one, rtol=0, atol=1e-8 * np.abs(one).max() * size)
        np.testing.assert_allclose(one @ other, (one @ other).transpose(0, 2, 1), rtol=0, atol=1e-9 * size)


@few
@given(BATCHES)
def test_the_inverse_factor_inverts_a_positive_definite_matrix(rows: np.ndarray) -> None:
    """F F^T P = I with F upper triangular, and the affine minimum solves P w = min 1."""
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


def test_a_matrix_that_is_not_positive_definite_is_refused() -> None:
    """An indefinite matrix has no Cholesky factor."""
    with pytest.raises(np.linalg.LinAlgError):
        dense.inverse_factor(np.array([[[1.0, 2.0], [2.0, 1.0]]]))


@pytest.mark.parametrize("operation", [dense.eigh, dense.svd])
def test_a_matrix_that_is_not_finite_is_refused(operation: object) -> None:
    """NaN is refused as LAPACK does."""
    assert callable(operation)
    with pytest.raises(np.linalg.LinAlgError):
        operation(np.array([[[1.0, np.nan], [np.nan, 1.0]]]))


@few
@given(arrays(np.float64, 5, elements=st.floats(1e-300, 1e300)))
def test_logarithms_are_right_to_the_last_digits(x: np.ndarray) -> None:
    """Against the decimal logarithm, over the range of doubles."""
    exact = np.array([dense.log(float(value)) for value in x])
    np.testing.assert_allclose(dense.logs(x), exact, rtol=4e-16, atol=1e-16)
    np.testing.assert_allclose([dense.exp(value) for value in exact], x, rtol=1e-12)
