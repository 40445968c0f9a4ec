"""Leading eigenpairs and principal axes, against the singular value decomposition."""

import numpy as np
import pytest

from glle_engine.base.progress import silent
from glle_engine.eigen.leading import leading_eigenpairs, least_eigenvalue
from glle_engine.methods.linear.pca import principal_axes
from tests.engine.methods.linear.factors import correlated


@pytest.mark.parametrize("shape", [(80, 6), (30, 90), (700, 650), (300, 3)])
def test_principal_axes_are_those_of_the_decomposition(shape: tuple[int, int]) -> None:
    """Tall, wide and large data: scores, directions and eigenvalues agree with the SVD to some ten digits."""
    X = correlated(*shape)
    axes = principal_axes(X, 3, silent)
    S = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(axes.values, S[:3] ** 2 / len(X), rtol=1e-10)
    np.testing.assert_allclose(axes.scores, (X - X.mean(axis=0)) @ axes.directions, atol=1e-8)
    np.testing.assert_allclose(axes.directions.T @ axes.directions, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(axes.total, (S**2).sum() / len(X), rtol=1e-12)


def test_a_small_component_keeps_its_digits() -> None:
    """A direction 1e-10 times as wide as the first would drown in the squares; it is found to five digits."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    X = rng.standard_normal((200, 4)) * [1.0, 1e-10, 0.0, 0.0]
    wide = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[1]
    assert np.sqrt(principal_axes(X @ turn, 2, silent).values[1] * 200) == pytest.approx(wide, rel=1e-5)


def test_lanczos_finds_the_copies_of_a_multiple_eigenvalue() -> None:
    """Above the size of LAPACK, five equal eigenvalues are five; the least is found, too."""
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((700, 700)))[0]
    spectrum = np.concatenate([[9.0, 4, 4, 4, 4, 4], np.linspace(1, -0.5, 694)])
    matrix = (Q * spectrum) @ Q.T
    values, vectors = leading_eigenpairs(matrix, 5, silent)
    np.testing.assert_allclose(values, [9, 4, 4, 4, 4], rtol=1e-10)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-8)
    assert least_eigenvalue(matrix, 9.0, silent) == pytest.approx(-0.5, abs=1e-4)


def test_lanczos_can_be_cancelled() -> None:
    """What progress raises between two products leaves the search."""
    spread = np.random.default_rng(0).standard_normal((700, 700))
    result: list[str] = []

    def cancel(done: int, total: int, stage: str) -> None:
        result.append(stage)
        if len(result) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leading_eigenpairs(spread @ spread.T, 3, cancel)
    assert result == ["eigenvectors"] * 3
