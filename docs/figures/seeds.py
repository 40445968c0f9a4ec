"""Table of docs/reference/equations.md, which checks equations of the papers in the library and on a service.

`python -m docs.figures.seeds` starts a service and writes the table, in minutes. An item passes in the library if its
error is at most the item's bound, and over HTTP if the service returns the same array as the library. The exit code is
1 if an item does not pass. Most items compare the library with the formula in plain numpy (`docs.figures.oracles`).
"""

from __future__ import annotations

import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn.decomposition import FactorAnalysis
from sklearn.manifold import LocallyLinearEmbedding
from sklearn.neighbors import radius_neighbors_graph

import glle_engine
from demo.service import running_service
from docs.figures import oracles
from docs.figures.methods.tables import put
from glle.client import Client
from glle_engine import manifolds
from glle_engine.base.progress import silent
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS
from glle_engine.methods.linear.pca import fit_ppca, fit_ppca_by_em, principal_axes
from glle_engine.methods.lle_variants.extensions import smoothed
from glle_engine.methods.spectral.diffusion_maps import lump
from glle_engine.weights.published import descend, e_step, m_step_gradient, m_step_objective, published_m_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.posterior.posterior import Posterior

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "equations.md"
X = manifolds.make("s_curve", 200, seed=0).X
APART = cdist(X, X)
TOLERANCE = 1e-6  # an array from the service may differ from the array of the library by at most this
RADIUS = 1.3 * float(minimum_spanning_tree(APART).data.max())  # connects the points
K = 8  # neighbors


class Item(NamedTuple):
    """A row of the table: `run` returns the error of an equation or algorithm, which passes up to `bound`.

    `http` is the route that returns the same array, or "method: parameter" for a parameter to send; empty if there is
    none.
    """

    source: str
    name: str
    run: Callable[[], float]
    bound: float
    http: str = ""


def embed(method: str, **options: object) -> NDArray[np.float64]:
    """Return the embedding of the S-curve X by a method."""
    return METHODS[method].embed(X, METHODS[method].spec(**options)).Y


def _eigenpairs_of_a_draw(**options: Any) -> float:
    """Return how far a draw is from spanning the bottom eigenvectors of (I - W)^T (I - W), relative to the norm."""
    posterior = _fit(**options)
    W = np.zeros((200, 200))
    np.put_along_axis(W, posterior.neighbors.astype(np.intp), posterior.weights(3), axis=1)
    values = np.linalg.svd(np.eye(200) - W, compute_uv=False)[::-1] ** 2
    M = (np.eye(200) - W).T @ (np.eye(200) - W)
    plane = np.linalg.qr(posterior.draw(3).embedding)[0]
    small = plane.T @ M @ plane
    residual, error = M @ plane - plane @ small, np.linalg.eigvalsh(small) - values[1:3]
    return max(_largest(residual), _largest(error)) / float(values[-1])


def _step() -> tuple[NDArray[np.float64], ...]:
    rng = np.random.default_rng(0)
    halves = [rng.standard_normal((size, 2 * size)) / size for size in (5, 2, 5)]
    omega, S1, S2 = (half @ half.T for half in halves)
    return rng.standard_normal((1, 2, 5)), omega[None], S1, S2


def _gradient() -> float:
    raw, omega, S1, S2 = _step()
    direction = np.diag(np.arange(1.0, 6.0))
    ends = [m_step_objective(raw, omega + sign * 1e-6 * direction, S1, S2)[0] for sign in (1, -1)]
    along = float((m_step_gradient(raw, omega, S1, S2)[0] * direction).sum())
    return float(abs((ends[0] - ends[1]) / 2e-6 - along) / abs(along))


def _fitted_gradient() -> float:
    fitted = _fit(**FULL)
    root, arrays = fitted.distribution.prior_factor, fitted.arrays()
    assert root is not None
    expected = []
    for row, omega in zip(fitted.neighbors, root @ root, strict=True):
        V, inverse = X[row].T, np.linalg.inv(omega)
        P = np.linalg.inv(V @ omega @ V.T)
        expected.append(
            inverse @ arrays["second_moment"] @ inverse - inverse + V.T @ (P @ arrays["scatter"] @ P - P) @ V
        )
    return _largest(arrays["gradient"] - np.array(expected)) / _largest(np.array(expected))


def _descent() -> float:
    raw, _, S1, S2 = _step()
    best = published_m_step(raw, S1, S2)
    return float(np.abs(descend(raw, S1, S2, 100_000, 1e-12)[0] - best).max() / np.abs(best).max())


def _scatters() -> float:
    neighbors = _fit().neighbors
    _, covariance, _, second = e_step(X, neighbors, np.broadcast_to(np.eye(8), (200, 8, 8)))
    return float(np.abs(second - covariance.mean(axis=0)).max())


def _factors() -> float:
    data = np.random.default_rng(0).standard_normal((300, 2)) @ np.random.default_rng(1).standard_normal((2, 6))
    data += 0.3 * np.random.default_rng(2).standard_normal((300, 6))
    factor_map = METHODS["factor-analysis"].embed(data, METHODS["factor-analysis"].spec(tol=1e-14, max_iter=5000)).map
    assert factor_map is not None
    W, noise = factor_map.arrays["loadings"], factor_map.arrays["noise_variances"]
    theirs = FactorAnalysis(2, tol=1e-12, max_iter=50_000, svd_method="lapack").fit(data).get_covariance()
    return _largest(W @ W.T + np.diag(noise) - theirs) / _largest(theirs)


def _ppca() -> float:
    data = np.random.default_rng(0).standard_normal((200, 6)) * np.arange(1.0, 7.0)
    by_em, closed = fit_ppca_by_em(data, 2, silent)[0], fit_ppca(data, principal_axes(data, 2, silent))
    return float(abs(by_em.noise_variance / closed.noise_variance - 1))


def _threshold() -> float:
    ten = METHODS["diffusion-maps"].embed(X, METHODS["diffusion-maps"].spec(n_components=10))
    assert ten.eigenvalues is not None
    cut = 1 - float(ten.eigenvalues[3:5].mean())
    return float(abs(embed("diffusion-maps", n_components=10, threshold=cut).shape[1] - 4))


def _lumping() -> float:
    group = np.repeat([0, 1], [4, 6])
    K = np.array([[5.0, 1], [1, 4]])[group][:, group]
    P = K / K.sum(axis=1, keepdims=True)
    lumping = lump(P, group)
    return float(np.abs(P @ lumping.vectors - lumping.vectors * lumping.eigenvalues).max())


def _ragged() -> float:
    posterior = glle_engine.fit(X, neighbors=radius_neighbors_graph(X, RADIUS))
    assert posterior.distribution.kept is not None
    return float(np.abs(posterior.weights(1)[~posterior.distribution.kept]).max())


def _correlated() -> float:
    rows = np.random.default_rng(3).standard_normal((100, 5)) + 2  # rows of three features would lie on a circle
    lle = METHODS["lle"]
    Y = lle.embed(rows, lle.spec(n_neighbors=K, metric="correlation")).Y
    return oracles.difference(Y, oracles.correlation_lle(rows, K))


def _error(name: str, expected: Callable[[], NDArray[np.float64]], **options: object) -> float:
    return oracles.difference(embed(name, **options), expected())


POSTERIOR = "/v1/posteriors/{id}"
FULL: dict[str, Any] = {"variant": "published", "covariance": "full-corrected"}


def _fit(**options: Any) -> Posterior:
    return glle_engine.fit(X, n_neighbors=K, **options)


def _largest(array: NDArray[np.float64]) -> float:
    return float(np.abs(array).max())


def _of_lle() -> float:
    Y = _fit().embedding
    return _largest(Y.T @ Y / 200 - np.eye(2))


def _generated() -> float:
    posterior = _fit()
    w = posterior.weights(1)
    expected = [w[i] @ X[near] for i, near in enumerate(posterior.neighbors)]
    return _largest(posterior.reconstruct(X, w) - expected)


def _as_scikit_learn(name: str, method: str) -> float:
    theirs = LocallyLinearEmbedding(n_neighbors=10, method=method, eigen_solver="dense", tol=0).fit_transform(X)
    return disparity(embed(name), theirs)


def _figure(name: str, figure: str, n: int = 200) -> float:
    return float(METHODS[name].embed(X[:n]).figures[figure])


def _by_pca(name: str, **options: object) -> float:
    return disparity(embed(name, **options), embed("pca"))


def _ppca_noise() -> float:
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True))
    return abs(_figure("ppca", "noise_variance") / float(values[0]) - 1)


def _supervised() -> float:
    return disparity(
        METHODS["supervised-lle"]
        .embed(X, METHODS["supervised-lle"].spec(class_distance=0.0), labels=np.arange(200) % 2)
        .Y,
        embed("lle"),
    )


ITEMS = (
    Item("GLLE, Eq. 7", "weights of a draw sum to one: error", lambda: _largest(_fit().weights(1).sum(axis=1) - 1),
         1e-10, f"{POSTERIOR}/draws/{{index}}/weights"),
    Item("GLLE, Eq. 37-43", "Y^T Y / n = I: error", _of_lle, 1e-10, f"{POSTERIOR}/arrays"),
    *(
        Item(source, f"a draw by {name} has the bottom eigenpairs of its weights: error",
             partial(_eigenpairs_of_a_draw, **options), 1e-10, http)
        for source, name, options, http in (
            ("GLLE, Alg. 1", "em", {}, f"{POSTERIOR}/draws"),
            ("GLLE, Alg. 2", "direct", {"method": "direct"}, "glle: method"),
            ("GLLE, Eq. 35", "direct, with the derived mean", {"method": "direct", "mean": "derived"}, "glle: mean"),
            ("GLLE, Eq. 21-36", "published em", {"variant": "published"}, "glle: variant"),
            ("GLLE, Eq. 21-36", "published direct", {"variant": "published", "method": "direct"}, "glle: variant"),
            ("GLLE, Eq. 21-36", "published em, full", {"variant": "published", "covariance": "full-corrected"},
             "glle: variant"),
        )
    ),
    Item("GLLE", "a draw at scale 0 is LLE: difference",
         lambda: _largest(_fit().draw(4, scale=0).embedding - _fit().embedding), 1e-6, f"{POSTERIOR}/draws/{{index}}"),
    Item("GLLE", "a draw is the same again: difference",
         lambda: _largest(_fit().draw(4).embedding - _fit().draw(4).embedding), 0.0, f"{POSTERIOR}/draws/{{index}}"),
    Item("GLLE, Eq. 3", "generated data are the weighted neighbors: difference", _generated, 1e-12,
         f"{POSTERIOR}/reconstructions"),
    Item("GLLE", "training points as new points: difference",
         lambda: _largest(_fit().extend(X, X[:9]).embed(_fit().embedding) - _fit().embedding[:9]), 0.0,
         f"{POSTERIOR}/transform"),
    *(
        Item("LLE", f"{name} of scikit-learn: disparity", partial(_as_scikit_learn, name, method), 1e-6,
             f"{name}: n_neighbors")
        for name, method in (("lle", "standard"), ("modified-lle", "modified"))
    ),
    Item("LLE", "supervised LLE without class distance is LLE: disparity", _supervised, 1e-12,
         "supervised-lle: class_distance"),
    *(
        Item("LLE", f"{name}: difference from its formula", partial(_error, name, expected, n_neighbors=K, **options),
             1e-8, f"{name}: n_neighbors")
        for name, expected, options in (
            ("hessian-lle", partial(oracles.patches, X, K, hessian=True), {}),
            ("ltsa", partial(oracles.patches, X, K, hessian=False), {}),
            ("isolle", partial(oracles.isolle, X, K, 5), {"n_graph": 5}),
            ("incremental-lle", partial(oracles.incremental_lle, X, K, 120), {"order": "given", "initial_share": 0.6}),
            ("npe", partial(oracles.npe, X, K), {}),
        )
    ),
    Item("LLE", "auto-reg-lle: difference from its formula",
         partial(_error, "auto-reg-lle", partial(oracles.auto_reg_lle, X, K), n_neighbors=K), 1e-8,
         "auto-reg-lle: reg_most"),
    Item("FA-LLE", "PPCA: error of the noise variance, the last eigenvalue", _ppca_noise, 1e-10, "ppca: n_components"),
    Item("MEU 2", "classical scaling is PCA: disparity", partial(_by_pca, "mds"), 1e-12, "mds: dissimilarity"),
    Item("MEU 2", "linear kernel PCA is PCA: disparity", partial(_by_pca, "kernel-pca", kernel="linear"), 1e-12,
         "kernel-pca: kernel"),
    Item("MEU 2", "mvu: error of mean squared distances",
         partial(_figure, "mvu", "mean_squared_distance_error", 80), 0.01, "mvu: slack"),
    Item("MEU 2.5", "meu: error of expected squared distances", partial(_figure, "meu", "violation", 80), 1e-4,
         "meu: mean_precision"),
    Item("MEU, acyclic", "alle: difference from its formula",
         partial(_error, "alle", partial(oracles.alle, X, K), n_neighbors=K), 1e-8, "alle: order"),
    Item("MEU 3", "drill: duality gap a point and feature", lambda: _figure("drill", "duality_gap", 80) / 240, 1e-4,
         "drill: l1"),
    Item("GLLE, Eq. 23", "value and gradient: error of finite differences", _gradient, 1e-4, POSTERIOR),
    Item("GLLE, Eq. 23", "gradient of a fit: difference from its formula", _fitted_gradient, 1e-8,
         f"{POSTERIOR}/arrays?name=gradient"),
    Item("GLLE, Eq. 24, 25", "scatters: error of S2", _scatters, 1e-12, f"{POSTERIOR}/arrays?name=scatter"),
    Item("GLLE, Eq. 26", "gradient descent: distance from the closed form", _descent, 1e-8, "glle: covariance"),
    Item("FA-LLE", "loadings and Psi of scikit-learn: difference of the covariance", _factors, 1e-6,
         "/v1/embeddings/{id}/arrays"),
    Item("FA-LLE", "PPCA by EM: error of the noise variance", _ppca, 1e-5, "ppca: solver"),
    *(
        Item("MEU 2.6; Yao, Alg. 8", f"{name} within a radius: difference from its formula",
             partial(_error, name, expected, radius=RADIUS, **options), 1e-8, f"{name}: radius")
        for name, expected, options in (
            ("laplacian-eigenmaps", partial(oracles.laplacian_eigenmaps, X, RADIUS, 0.3), {"epsilon": 0.3}),
            ("diffusion-maps", partial(oracles.diffusion_maps, X, RADIUS, 0.3), {"epsilon": 0.3}),
            ("isomap", partial(oracles.isomap, X, RADIUS), {}),
        )
    ),
    Item("Yao", "given neighbors of different numbers: weight of others", _ragged, 0.0, "/v1/posteriors"),
    Item("Yao", "columns by the threshold delta: wrong columns", _threshold, 0.0, "diffusion-maps: threshold"),
    Item("Yao", "epsilon and its square: difference", lambda: float(np.abs(
        embed("diffusion-maps", bandwidth=0.7) - embed("diffusion-maps", epsilon=0.49)).max()), 1e-9,
        "diffusion-maps: bandwidth"),
    Item("Yao", "lumpable chain: residual of its vectors", _lumping, 1e-12, "diffusion-maps: lump"),
    Item("Table 2", "relative transformation: difference from its formula",
         partial(_error, "relative-lle", partial(oracles.relative_lle, X, K, 0.05), n_neighbors=K, gamma=0.05), 1e-8,
         "relative-lle: gamma"),
    Item("Table 2", "neighbor smoothing: difference from its formula",
         lambda: _largest(smoothed(X, K, 2) - oracles.smoothed(X, K)), 1e-12, "smoothed-lle: n_neighbors"),
    Item("Table 2", "virtual data: difference from its formula",
         partial(_error, "virtual-lle", partial(oracles.virtual_lle, X, K), n_neighbors=K), 1e-8,
         "virtual-lle: n_neighbors"),
    Item("Table 2", "first searching rule, k nearest: difference from its formula",
         partial(_error, "lle", lambda: oracles.lle(X, oracles.nearest(APART, K)), n_neighbors=K), 1e-8,
         "lle: n_neighbors"),
    Item("Table 2", "second searching rule, a radius: difference from its formula",
         partial(_error, "lle", lambda: oracles.lle(X, oracles.within(APART, RADIUS)), radius=RADIUS), 1e-8,
         "lle: radius"),
    Item("local correlation", "neighbors by correlation: difference from its formula", _correlated, 1e-8,
         "lle: metric"),
    Item("Table 2", "distance-preserving LLE: difference from its formula",
         partial(_error, "distance-lle", partial(oracles.distance_lle, X, K, 5), n_neighbors=K, n_basis=5, tol=1e-12),
         1e-6, "distance-lle: n_basis"),
    Item("Table 2", "MVU on weights: difference from its formula",
         partial(_error, "landmark-mvu", partial(oracles.landmark_mvu, X, K, 6), n_neighbors=K, landmarks=6, tol=1e-10),
         1e-5, "landmark-mvu: landmarks"),
    Item("Table 2", "new distance: difference from its formula",
         partial(_error, "weighted-lle", partial(oracles.weighted_lle, X, K), n_neighbors=K), 1e-8,
         "weighted-lle: strength"),
)  # fmt: skip


# Values with which a service is asked for a parameter, of parameters whose default says nothing.
VALUES: dict[str, Any] = {
    "method": "direct", "mean": "derived", "variant": "published", "class_distance": 0.0, "kernel": "linear",
    "radius": RADIUS, "threshold": 0.05, "bandwidth": 0.7, "solver": "em", "gamma": 0.05, "lump": True,
    "metric": "correlation",
    "covariance": "full-descent",
}  # fmt: skip
MORE: dict[str, dict[str, Any]] = {  # what a value needs beside it
    "derived": {"method": "direct"},
    "full-descent": {"variant": "published", "max_iter": 3},
}
FEW = {"mvu", "meu", "drill", "alle"}  # methods of 80 points


def over_http(http: str, client: Client) -> float:
    """Return the largest difference between arrays of a service and of the library; `http` as in `Item`."""
    if not http.startswith("/"):
        return _by_parameter(client, *http.split(": "))
    if http == "/v1/embeddings/{id}/arrays":
        sent: Any = client.embed(X, "factor-analysis", scores=()).map_arrays()
        local = METHODS["factor-analysis"].embed(X).map
        assert local is not None
        return max(_largest(sent[name] - local.arrays[name]) for name in ("loadings", "noise_variances"))
    if http == "/v1/posteriors":
        graph = radius_neighbors_graph(X, RADIUS)
        near = np.full((200, int(np.diff(graph.indptr).max())), -1)
        for i, row in enumerate(near):
            indices = graph.indices[graph.indptr[i] : graph.indptr[i + 1]]
            row[: len(indices)] = indices
        posterior = client.fit(X, neighbors=near)
        return _largest(posterior.draw(1) - glle_engine.fit(X, neighbors=near).draw(1).embedding)
    posterior, fitted = client.fit(X, n_neighbors=K), _fit()
    ways: dict[str, Callable[[], tuple[Any, Any]]] = {
        "/draws/{index}/weights": lambda: (posterior.weights(3), fitted.weights(3)),
        "": lambda: (
            client.fit(X, n_neighbors=K, **FULL).metadata["diagnostics"]["figures"]["m_step_objective"],
            _fit(**FULL).diagnostics.figures["m_step_objective"],
        ),
        "/arrays?name=scatter": lambda: _array_of_full_fit(client, "scatter"),
        "/arrays?name=gradient": lambda: _array_of_full_fit(client, "gradient"),
        "/arrays": lambda: (posterior.arrays()["embedding"], fitted.embedding),
        "/draws": lambda: (posterior.draws(4), np.array([draw.embedding for draw in fitted.draws(4)])),
        "/draws/{index}": lambda: (posterior.draw(4), fitted.draw(4).embedding),
        "/reconstructions": lambda: (posterior.reconstructions(1)[0], fitted.reconstruct(X, fitted.weights(0))),
        "/transform": lambda: (posterior.transform(X[:9]).embedding, fitted.embedding[:9]),
    }
    one, other = ways[http.removeprefix(POSTERIOR)]()
    return _largest(one - other)


def _array_of_full_fit(client: Client, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    return client.fit(X, n_neighbors=K, **FULL).arrays()[name], _fit(**FULL).arrays()[name]


def _by_parameter(client: Client, name: str, parameter: str) -> float:
    """Return the largest difference between the embeddings of a service and of the library, with one parameter set."""
    spec = METHODS[name].spec
    default = next(each.default for each in fields(spec) if each.name == parameter)
    value = VALUES.get(parameter, default)
    options: dict[str, Any] = {parameter: value, **(MORE.get(value, {}) if isinstance(value, str) else {})}
    if name == "glle":
        local = _fit(**options).draw(3).embedding
        return _largest(client.fit(X, n_neighbors=K, **options).draw(3) - local)
    points = X[:80] if name in FEW else X
    labels = np.arange(len(points)) % 2 if METHODS[name].needs_labels(spec(**options)) else None
    answer = client.embed(points, name, labels=labels, scores=(), **options)
    expected = METHODS[name].embed(points, spec(**options), labels=labels)
    if parameter == "lump":
        return _largest(np.array(answer.figures["lumping"]["chain"]) - expected.figures["lumping"]["chain"])
    return _largest(answer.embedding - expected.Y)


def table(client: Client) -> str:
    """Run all items, and return the table in Markdown."""
    lines = ["| document | item | figure | at most | library | HTTP |", "|---|---|---|---|---|---|"]
    errors = {http: over_http(http, client) for http in dict.fromkeys(item.http for item in ITEMS if item.http)}
    for item in ITEMS:
        figure = item.run()
        there = "yes" if figure <= item.bound else "**no**"
        same = (
            "-" if not item.http else f"`{item.http}`" if errors[item.http] <= TOLERANCE else f"**no**: `{item.http}`"
        )
        lines.append(f"| {item.source} | {item.name} | {figure:.2g} | {item.bound:g} | {there} | {same} |")
    return "\n".join(lines)


def main() -> int:
    """Write the table, and return 1 if an item does not pass."""
    with running_service(2) as url, Client(url, progress=False) as client:
        text = table(client)
    put(PAGE, "seeds", text)
    return int("**no**" in text)


if __name__ == "__main__":
    sys.exit(main())
