"""Data of the tests of the methods, and comparisons with what is expected."""

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine.methods import Embedding, method

LIBRARIES = {"umap": "umap", "densmap": "umap", "pacmap": "pacmap"}  # by method


def import_or_skip(library: str) -> Any:
    """Import a library without its warnings; skip the test if the library is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(library)


def embed_or_skip(name: str, X: Any, labels: Any = None, /, **options: Any) -> Embedding:
    """Embed by a method that another library computes; skip the test if the library is not installed."""
    import_or_skip(LIBRARIES.get(name, "openTSNE"))
    return embed(name, X, labels, **options)


def embed(name: str, X: NDArray[np.float64], labels: Any = None, **options: Any) -> Embedding:
    """Return the embedding by the method of this name, with these options."""
    one = method(name)
    return one.embed(X, one.spec(**options), labels=labels)


def values_of(embedding: Embedding) -> NDArray[np.float64]:
    """Return the eigenvalues of an embedding that has them."""
    assert embedding.eigenvalues is not None
    return embedding.eigenvalues


def codes_of(embedding: Embedding) -> list[str]:
    """Return the codes of the notes."""
    return [note.code for note in embedding.notes]


def with_slow_ones(names: Iterable[str]) -> list[Any]:
    """Return names of methods as parameters of a test, marked slow if a library compiles itself for half a minute."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in LIBRARIES)) for name in names]


def same_columns(expected: NDArray[np.float64], found: NDArray[np.float64], tolerance: float) -> None:
    """Assert that columns agree up to their signs, to a tolerance relative to the largest entry."""
    signs = np.sign(np.einsum("ij,ij->j", expected, found))
    np.testing.assert_allclose(found * signs, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def patches_of(X: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Return the indices (n, k + 1) of each point and its k nearest, by sorting all distances."""
    return np.argsort(np.linalg.norm(X[:, None] - X[None], axis=2), axis=1, kind="stable")[:, : k + 1]


def weight_matrix(X: NDArray[np.float64], neighbors: Iterable[Any]) -> NDArray[np.float64]:
    """Return LLE's weights W (n, n) with reg=1e-3, computed point by point, on the `neighbors` of each point."""
    W = np.zeros((len(X), len(X)))
    for i, near in enumerate(neighbors):
        G = (X[near] - X[i]) @ (X[near] - X[i]).T
        w = np.linalg.solve(G + 1e-3 * np.trace(G) * np.eye(len(near)), np.ones(len(near)))
        W[i, near] = w / w.sum()
    return W


def cloud(n: int, d: int) -> NDArray[np.float64]:
    """Return Gaussian points (n, d) of different widths along the features, without other structure."""
    return np.asarray(np.random.default_rng(4).standard_normal((n, d)) * np.linspace(2, 0.5, d))


def factor_data(n: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    """Return points (n, d) with three factors, a noise variance for each feature, and a mean of 5."""
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.3, 1.0, d)
    spread = np.diag([3.0, 2.0, 1.2])
    return np.asarray(
        5 + rng.standard_normal((n, 3)) @ spread @ rng.standard_normal((3, d)) + noise * rng.standard_normal((n, d))
    )


def explained_variance(Y: NDArray[np.float64], coordinate: NDArray[np.float64]) -> float:
    """Return the share of a true coordinate's variance that a linear function of the embedding explains."""
    design = np.column_stack([np.ones(len(Y)), Y])
    rest = coordinate - design @ np.linalg.lstsq(design, coordinate, rcond=None)[0]
    return float(1 - rest.var() / coordinate.var())
