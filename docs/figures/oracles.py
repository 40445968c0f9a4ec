"""The formulas of the papers in plain numpy, with which `docs.figures.seeds` compares the engine.

Nothing here imports the engine. Neighbors are lists of indices (k,), one for each point of X (n, d). Embeddings have
columns of length sqrt(n), of any sign.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.optimize import least_squares, minimize
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Neighbors = Sequence[NDArray[np.intp]] | NDArray[np.intp]

REG = 1e-3  # ridge of the weights, relative to the trace


def difference(Y: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return the largest difference of two embeddings up to signs of columns, relative to the largest entry."""
    signs = np.sign(np.einsum("ij,ij->j", Y, expected))
    return float(np.abs(Y * signs - expected).max() / np.abs(expected).max())


def nearest(distances: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Return the indices (n, k) of each point's k nearest other points, from distances (n, n)."""
    apart = distances.copy()
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1, kind="stable")[:, :k]


def within(distances: NDArray[np.float64], radius: float) -> list[NDArray[np.intp]]:
    """Return the indices of the other points within a radius of each point, from distances (n, n)."""
    return [np.flatnonzero((row <= radius) & (np.arange(len(row)) != i)) for i, row in enumerate(distances)]


def weights(x: NDArray[np.float64], points: NDArray[np.float64], reg: float = REG) -> NDArray[np.float64]:
    """Return LLE's weights (k,) of a point (d,) on its neighbors (k, d)."""
    gram = (points - x) @ (points - x).T
    solution = np.linalg.solve(gram + reg * np.trace(gram) * np.eye(len(gram)), np.ones(len(gram)))
    return np.asarray(solution / solution.sum())


def weight_matrix(X: NDArray[np.float64], neighbors: Neighbors, reg: Sequence[float] = ()) -> NDArray[np.float64]:
    """Return LLE's weights as a matrix (n, n); `reg` has the relative ridge of each point, by default 1e-3."""
    W = np.zeros((len(X), len(X)))
    for i, near in enumerate(neighbors):
        W[i, near] = weights(X[i], X[near], reg[i] if len(reg) else REG)
    return W


def bottom(W: NDArray[np.float64], p: int = 2) -> NDArray[np.float64]:
    """Return LLE's embedding (n, p) for weights W (n, n): the bottom singular vectors of I - W, except the constant."""
    right = np.linalg.svd(np.eye(len(W)) - W)[2]
    return np.asarray(np.sqrt(len(W)) * right[-2 : -2 - p : -1].T)


def lle(X: NDArray[np.float64], neighbors: Neighbors, reg: Sequence[float] = ()) -> NDArray[np.float64]:
    """Return the embedding of LLE."""
    return bottom(weight_matrix(X, neighbors, reg))


def isolle(X: NDArray[np.float64], k: int, g: int) -> NDArray[np.float64]:
    """Return LLE with the k neighbors that are nearest along the graph of g nearest neighbors."""
    return lle(X, nearest(_paths(cdist(X, X), nearest(cdist(X, X), g)), k))


def weighted_lle(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return LLE with the k neighbors of least d_ij / sqrt(M_i M_j), where M is the mean distance to k neighbors."""
    D = cdist(X, X)
    mean = np.take_along_axis(D, nearest(D, k), axis=1).mean(axis=1)
    return lle(X, nearest(D / np.sqrt(np.outer(mean, mean)), k))


def relative_lle(X: NDArray[np.float64], k: int, gamma: float | None) -> NDArray[np.float64]:
    """Return LLE whose neighbors are found among the points' vectors of distances to all points.

    The distances are measured in the space of a Gaussian kernel with `gamma`; None stands for Euclidean distances.
    """
    squares = cdist(X, X, "sqeuclidean")
    moved = np.sqrt(squares if gamma is None else 2 - 2 * np.exp(-gamma * squares))
    return lle(X, nearest(cdist(moved, moved), k))


def virtual_lle(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return LLE of X with the nearest foot of each point on the segments between its k nearest neighbors."""
    added = []
    for x, near in zip(X, nearest(cdist(X, X), k), strict=True):
        feet = []
        for a, b in combinations(near, 2):
            t = (x - X[a]) @ (X[b] - X[a]) / ((X[b] - X[a]) @ (X[b] - X[a]))
            if 0 < t < 1:
                feet.append(X[a] + t * (X[b] - X[a]))
        added += sorted(feet, key=lambda foot: float(np.linalg.norm(foot - x)))[:1]
    points = np.concatenate([X, added])
    return lle(points, nearest(cdist(points, points), k))[: len(X)]


def correlation_lle(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return LLE of the rows of X, centered and scaled to length 1, whose distances are sqrt(2 - 2 correlation)."""
    rows = X - X.mean(axis=1, keepdims=True)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return lle(rows, nearest(1 - np.asarray(np.corrcoef(X)), k))


def auto_reg_lle(X: NDArray[np.float64], k: int, p: int = 2) -> NDArray[np.float64]:
    """Return LLE whose ridge is the mean of the k - p smallest eigenvalues of each Gram matrix, over its trace."""
    near = nearest(cdist(X, X), k)
    spectra = [np.linalg.eigvalsh((X[row] - x) @ (X[row] - x).T) for x, row in zip(X, near, strict=True)]
    return lle(X, near, [float(np.clip(values[:-p].mean() / values.sum(), 1e-6, 1)) for values in spectra])


def incremental_lle(X: NDArray[np.float64], k: int, first: int) -> NDArray[np.float64]:
    """Return LLE of the first points, with each other point placed by its weights on the k nearest first points."""
    start = X[:first]
    Y = lle(start, nearest(cdist(start, start), k))
    added = []
    for x in X[first:]:
        near = np.argsort(np.linalg.norm(start - x, axis=1))[:k]
        added.append(weights(x, start[near]) @ Y[near])
    return np.concatenate([Y, added])


def npe(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return NPE: the linear functions of X along the bottom eigenvectors of X^T M X a = lambda X^T X a."""
    Z = X - X.mean(axis=0)
    rest = Z - weight_matrix(X, nearest(cdist(X, X), k)) @ Z
    axes = scipy.linalg.eigh(rest.T @ rest, Z.T @ Z)[1][:, :2]
    return np.asarray(np.sqrt(len(X)) * Z @ axes)


def patches(X: NDArray[np.float64], k: int, *, hessian: bool) -> NDArray[np.float64]:
    """Return Hessian LLE or LTSA: the bottom eigenvectors of a sum of projections over the patches of k neighbors.

    A patch's projection is orthogonal to its affine functions; Hessian LLE projects on the quadratic functions among
    these.
    """
    M = np.zeros((len(X), len(X)))
    for i, near in enumerate(nearest(cdist(X, X), k)):
        patch = np.append(i, near)
        a, b = np.linalg.svd(X[patch] - X[patch].mean(axis=0))[0][:, :2].T
        affine = np.stack([np.ones(k + 1), a, b], axis=1)
        rest = np.eye(k + 1) - affine @ np.linalg.pinv(affine)
        if hessian:
            quadratic = rest @ np.stack([a * a, a * b, b * b], axis=1)
            rest = quadratic @ np.linalg.pinv(quadratic)
        M[np.ix_(patch, patch)] += rest
    return np.asarray(np.sqrt(len(X)) * np.linalg.eigh(M)[1][:, 1:3])


def alle(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return acyclic LLE: the principal coordinates of (M M^T)^-1, where a point has weights on later points only."""
    n, d = X.shape
    Z = X - X.mean(axis=0)
    M = np.zeros((n, n))
    M[-1, -1] = 1 / np.sqrt((Z**2).sum() / (n * d))
    for i in range(n - 1):
        near = i + 1 + np.argsort(np.linalg.norm(X[i + 1 :] - X[i], axis=1))[:k]
        w = weights(X[i], X[near])
        ridge = REG * ((X[near] - X[i]) ** 2).sum()
        # The least of |x - sum w y|^2 + ridge |w|^2, less the ridge's share if all weights were equal.
        minimum = ((X[i] - w @ X[near]) ** 2).sum() + ridge * (w**2).sum()
        M[np.append(i, near), i] = np.append(1, -w) / np.sqrt((minimum - ridge / len(near)) / d)
    return _principal(np.asarray(np.linalg.inv(M @ M.T), np.float64))


def laplacian_eigenmaps(X: NDArray[np.float64], radius: float, epsilon: float) -> NDArray[np.float64]:
    """Return Laplacian eigenmaps: the bottom eigenvectors of (D - W) y = lambda D y, with heat weights in a radius."""
    D = cdist(X, X)
    W = np.exp(-(D**2) / epsilon) * (radius >= D)
    np.fill_diagonal(W, 0)
    degrees = np.diag(W.sum(axis=1))
    return np.asarray(np.sqrt(degrees.sum()) * scipy.linalg.eigh(degrees - W, degrees)[1][:, 1:3])


def diffusion_maps(X: NDArray[np.float64], radius: float, epsilon: float) -> NDArray[np.float64]:
    """Return diffusion maps: lambda psi of the Markov matrix of a kernel in a radius, normalized by the density."""
    D = cdist(X, X)
    K = np.exp(-(D**2) / epsilon) * (radius >= D)
    q = K.sum(axis=1)
    K /= np.outer(q, q)
    stationary = K.sum(axis=1) / K.sum()
    values, vectors = np.linalg.eig(K / K.sum(axis=1, keepdims=True))
    order = np.argsort(-values.real)[1:3]
    psi = vectors.real[:, order]
    return np.asarray(values.real[order] * psi / np.sqrt(stationary @ psi**2))


def isomap(X: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return Isomap: classical scaling of the shortest paths over edges that are no longer than a radius."""
    D = cdist(X, X)
    return _principal(-(_paths(D, within(D, radius)) ** 2) / 2)


def smoothed(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return X with each point projected onto the principal plane of the point and its k nearest neighbors."""
    moved = []
    for i, near in enumerate(nearest(cdist(X, X), k)):
        cloud = X[np.append(i, near)]
        axes = np.linalg.eigh(np.cov(cloud.T))[1][:, -2:]
        moved.append(cloud.mean(axis=0) + axes @ axes.T @ (X[i] - cloud.mean(axis=0)))
    return np.array(moved)


def distance_lle(X: NDArray[np.float64], k: int, q: int) -> NDArray[np.float64]:
    """Return U F, whose squared distances of neighbors have least error, with LLE's q bottom eigenvectors U."""
    near = nearest(cdist(X, X), k)
    U = bottom(weight_matrix(X, near), q)
    A, squared = _edges(X, U, near)

    def slopes(f: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(2 * (A[:, :, None] * (A @ f.reshape(q, q))[:, None]).reshape(len(A), -1))

    found = least_squares(
        lambda f: ((A @ f.reshape(q, q)) ** 2).sum(axis=1) - squared,
        np.sqrt(squared.mean()) * np.eye(q).ravel(),
        slopes,
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    F = U @ found.x.reshape(q, q)
    return _principal(F @ F.T)


def landmark_mvu(X: NDArray[np.float64], k: int, m: int) -> NDArray[np.float64]:
    """Return U F of greatest variance that lengthens no edge, with a basis U of what m landmarks determine."""
    D = cdist(X, X)
    near = nearest(D, k)
    paths = _paths(D, near)
    marks = [0]
    while len(marks) < m:
        marks.append(int(paths[marks].min(axis=0).argmax()))
    rest, residual = np.setdiff1d(np.arange(len(X)), marks), np.eye(len(X)) - weight_matrix(X, near)
    Q = np.zeros((len(X), m))
    Q[marks] = np.eye(m)
    Q[rest] = -np.linalg.lstsq(residual[:, rest], residual[:, marks])[0]
    U = np.linalg.svd(Q - Q.mean(axis=0), full_matrices=False)[0][:, :-1]
    A, squared = _edges(X, U, near)
    A /= np.sqrt(squared)[:, None]
    q = m - 1
    start = np.eye(q).ravel() / (2 * np.sqrt((A**2).sum(axis=1).max()))
    within_edges = {
        "type": "ineq",
        "fun": lambda f: 1 - ((A @ f.reshape(q, q)) ** 2).sum(axis=1),
        "jac": lambda f: -2 * (A[:, :, None] * (A @ f.reshape(q, q))[:, None]).reshape(len(A), -1),
    }
    found = minimize(
        lambda f: (-f @ f / (start @ start), -2 * f / (start @ start)),
        start,
        jac=True,
        method="SLSQP",
        constraints=within_edges,
        options={"maxiter": 2000, "ftol": 1e-13},
    )
    F = U @ found.x.reshape(q, q)
    return _principal(F @ F.T)


def _edges(
    X: NDArray[np.float64], U: NDArray[np.float64], neighbors: Neighbors
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the differences of U along the edges between neighbors, each once, and their squared distances in X."""
    pairs = {(min(i, int(j)), max(i, int(j))) for i, near in enumerate(neighbors) for j in near}
    i, j = np.array(sorted(pairs)).T
    return U[i] - U[j], ((X[i] - X[j]) ** 2).sum(axis=1)


def _paths(D: NDArray[np.float64], neighbors: Neighbors) -> NDArray[np.float64]:
    """Return the shortest paths (n, n) along edges to neighbors."""
    graph = np.full(D.shape, np.inf)
    for i, near in enumerate(neighbors):
        graph[i, near] = graph[near, i] = D[i, near]
    return np.asarray(shortest_path(graph, method="FW"))


def _principal(K: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the two leading principal coordinates of a kernel (n, n), after centering."""
    J = np.eye(len(K)) - 1 / len(K)
    values, vectors = np.linalg.eigh(J @ K @ J)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0)))[:, :-3:-1])
