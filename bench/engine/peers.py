"""The computations of other libraries: LLE by scikit-learn and tapkee, eigenproblems by eigsh and LAPACK, and METIS."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array, identity
from scipy.sparse.linalg import eigsh

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


def residual_matrix(posterior: Posterior, weights: NDArray[np.float64]) -> csr_array:
    """Return I - W (n, n) for weights (n, k) on the posterior's neighbors."""
    n, k = posterior.neighbors.shape
    pattern = (posterior.neighbors.ravel(), np.arange(0, n * k + 1, k))
    return identity(n, format="csr") - csr_array((weights.ravel(), *pattern), shape=(n, n))


def by_eigsh(posterior: Posterior, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Embed weights as scikit-learn's LLE does: bottom eigenvectors of (I - W)^T (I - W) by ARPACK, shift-invert."""
    residual = residual_matrix(posterior, weights)
    start = np.random.default_rng(0).uniform(-1, 1, residual.shape[0])
    wanted = posterior.spec.n_components + 1
    _, vectors = eigsh((residual.T @ residual).tocsc(), wanted, sigma=0.0, v0=start)
    return np.asarray(vectors[:, 1:])


def by_dense(posterior: Posterior, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Embed weights as the paper describes it (GLLE, Algorithm 1): all eigenvectors of the dense (I - W)^T (I - W)."""
    residual = residual_matrix(posterior, weights).toarray()
    _, vectors = eigh(residual.T @ residual)
    return np.asarray(vectors[:, 1 : posterior.spec.n_components + 1])


def fit_sklearn(X: NDArray[np.float64], n_neighbors: int = 10) -> NDArray[np.float64]:
    """Return the embedding by scikit-learn's LLE with its sparse solver."""
    from sklearn.manifold import LocallyLinearEmbedding

    model = LocallyLinearEmbedding(n_neighbors=n_neighbors, n_components=2, eigen_solver="arpack", random_state=0)
    return np.asarray(model.fit_transform(X))


def has_tapkee() -> bool:
    """Return whether tapkee's Python binding is installed (extra `bench`)."""
    return find_spec("tapkee") is not None


def fit_tapkee(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the embedding by tapkee's LLE with 10 neighbors."""
    import tapkee

    return np.asarray(tapkee.embed(np.asfortranarray(X.T), method="lle", num_neighbors=10, target_dimension=2))


def has_metis() -> bool:
    """Return whether the Python binding of METIS is installed (extra `bench`)."""
    return find_spec("pymetis") is not None


def metis_order(start: NDArray[np.int64], adjacent: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return METIS's elimination order (n,) of an undirected graph whose adjacency lists include each vertex itself."""
    import pymetis

    rows = np.repeat(np.arange(len(start) - 1), np.diff(start))
    is_edge = rows != adjacent
    ends = np.append(0, np.cumsum(np.bincount(rows[is_edge], minlength=len(start) - 1)))
    order, _ = pymetis.nested_dissection(xadj=ends.tolist(), adjncy=adjacent[is_edge].tolist())
    return np.array(order, np.int32)
