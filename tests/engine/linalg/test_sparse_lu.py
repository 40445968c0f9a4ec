"""Sparse LU with pivoting against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, random_array

from glle_engine.linalg.sparse_lu import SparseLU


def factored(matrix: csc_array, threshold: float) -> SparseLU:
    """Factor a sparse matrix."""
    return SparseLU.factor(matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data, threshold)


@settings(max_examples=80)
@given(
    n=st.integers(1, 60),
    density=st.floats(0.0, 0.5),
    threshold=st.sampled_from([0.01, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_solves_are_those_of_the_matrix(n: int, density: float, threshold: float, seed: int) -> None:
    """A x = b and A^T x = b for rows and columns in any order, with entries on the diagonal that are too small."""
    rng = np.random.default_rng(seed)
    whole = random_array((n, n), density=density, rng=rng).toarray() - 0.5 * np.eye(n)
    whole = whole[rng.permutation(n)] + 1e-12 * np.eye(n)
    if np.linalg.cond(whole) > 1e8:
        return
    lu = factored(csc_array(whole), threshold)
    b = rng.standard_normal((n, 2))
    for trans, matrix in (("N", whole), ("T", whole.T)):
        x = lu.solve(b, trans)
        np.testing.assert_allclose(x[:, 1], lu.solve(np.ascontiguousarray(b[:, 1]), trans), rtol=0, atol=0)
        expected = np.linalg.solve(matrix, b)
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-13 * np.linalg.cond(whole) * np.abs(expected).max() * n)


def test_multipliers_are_bounded_by_the_threshold() -> None:
    """No entry of L exceeds 1 / threshold, and every row is a pivot once."""
    rng = np.random.default_rng(0)
    matrix = csc_array(random_array((200, 200), density=0.03, rng=rng).toarray() + 1e-3 * np.eye(200))
    for threshold in (0.1, 1.0):
        lu = factored(matrix, threshold)
        assert np.abs(lu.lower).max() <= 1 / threshold * (1 + 1e-15)
        assert np.array_equal(np.sort(lu.pivots), np.arange(200))


@pytest.mark.parametrize("entry", [0.0, np.nan, np.inf])
def test_a_matrix_without_a_pivot_is_refused(entry: float) -> None:
    """A column that is zero, or not finite, has no pivot."""
    matrix = csc_array(np.eye(4))
    matrix.data[2] = entry
    with pytest.raises(FloatingPointError):
        factored(matrix, 0.1)
