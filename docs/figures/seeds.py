"""Run items of the papers in the library, and look them up in the contract: `python -m docs.figures.seeds`.

An item passes if its figure, an error or a share, is at most its bound. The exit code is 1 if one does not pass.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn.neighbors import radius_neighbors_graph

import glle_engine
from glle_engine import manifolds
from glle_engine.base.progress import silent
from glle_engine.methods import METHODS
from glle_engine.methods.linear.pca import fit_ppca, fit_ppca_by_em, principal_axes
from glle_engine.methods.lle_variants.extensions import relative_lle, smoothed
from glle_engine.methods.spectral.diffusion_maps import lump
from glle_engine.methods.spectral.lle import LleSpec
from glle_engine.metrics.ranks import trustworthiness
from glle_engine.weights.published import descend, e_step, m_step_gradient, m_step_objective, published_m_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent.parent
X = manifolds.make("s_curve", 200, seed=0).X
APART = cdist(X, X)
LONGEST = float(minimum_spanning_tree(APART).data.max())


class Item(NamedTuple):
    """An item of the documents: its run returns a figure, which is at most `bound`."""

    source: str
    name: str
    run: Callable[[], float]
    bound: float
    http: str = ""


def embed(method: str, **options: object) -> NDArray[np.float64]:
    """Return the embedding of the S-curve."""
    return METHODS[method].embed(X, METHODS[method].spec(**options)).Y


def _weights_of_a_draw() -> float:
    posterior = glle_engine.fit(X, n_neighbors=8)
    W = np.zeros((200, 200))
    np.put_along_axis(W, posterior.neighbors.astype(np.intp), posterior.weights(3), axis=1)
    bottom = np.linalg.svd(np.eye(200) - W)[2][-3:-1]
    Y = posterior.draw(3).embedding
    return float(np.abs(bottom.T @ (bottom @ Y) - Y).max())


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


def _descent() -> float:
    raw, _, S1, S2 = _step()
    best = published_m_step(raw, S1, S2)
    return float(np.abs(descend(raw, S1, S2, 100_000, 1e-12)[0] - best).max() / np.abs(best).max())


def _scatters() -> float:
    neighbors = glle_engine.fit(X, n_neighbors=8).neighbors
    _, covariance, _, second = e_step(X, neighbors, np.broadcast_to(np.eye(8), (200, 8, 8)))
    return float(np.abs(second - covariance.mean(axis=0)).max())


def _factors() -> float:
    data = np.random.default_rng(0).standard_normal((300, 2)) @ np.random.default_rng(1).standard_normal((2, 6))
    data += 0.3 * np.random.default_rng(2).standard_normal((300, 6))
    found = METHODS["factor-analysis"].embed(data)
    assert found.map is not None
    W, noise = found.map.arrays["loadings"], found.map.arrays["noise_variances"]
    return float(np.abs(W @ W.T + np.diag(noise) - np.cov(data.T, bias=True)).max() / noise.mean())


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
    found = lump(P, group)
    return float(np.abs(P @ found.vectors - found.vectors * found.eigenvalues).max())


def _ragged() -> float:
    posterior = glle_engine.fit(X, neighbors=radius_neighbors_graph(X, 1.1 * LONGEST))
    assert posterior.law.kept is not None
    return float(np.abs(posterior.weights(1)[~posterior.law.kept]).max())


def _smoothing() -> float:
    rng = np.random.default_rng(0)
    plane = np.column_stack([rng.uniform(-1, 1, (400, 2)), 0.05 * rng.standard_normal(400)])
    return float(np.abs(smoothed(plane, 16, 2)[:, 2]).mean() / np.abs(plane[:, 2]).mean())


def _untrust_within(name: str) -> float:
    return _untrust(embed(name, radius=1.3 * LONGEST))


def _untrust(Y: NDArray[np.float64]) -> float:
    return 1 - trustworthiness(X, Y, 10)


ITEMS = (
    Item("GLLE, Alg. 1, 2", "weights of a draw: their bottom eigenvectors are it", _weights_of_a_draw, 1e-6,
         "/v1/posteriors/{id}/draws/{index}/weights"),
    Item("GLLE, Eq. 23", "value and gradient: error of finite differences", _gradient, 1e-4),
    Item("GLLE, Eq. 24, 25", "scatters: error of S2", _scatters, 1e-12),
    Item("GLLE, Eq. 26", "gradient descent: distance from the closed form", _descent, 1e-8),
    Item("FA-LLE", "loadings and Psi: error of the covariance over the noise", _factors, 0.2,
         "/v1/embeddings/{id}/arrays"),
    Item("FA-LLE", "PPCA by EM: error of the noise variance", _ppca, 1e-5, "ppca: solver"),
    *(
        Item("MEU 2.6; Yao, Alg. 8", f"{name} within a radius: 1 - trustworthiness",
             partial(_untrust_within, name), 0.1, f"{name}: radius")
        for name in ("laplacian-eigenmaps", "diffusion-maps", "isomap", "lle", "meu")
),
    Item("MEU, Fig. 9", "meu on all pairs: 1 - trustworthiness", lambda: _untrust(embed("meu", n_neighbors="all")), 0.2,
         "meu: n_neighbors"),
    Item("Yao", "given neighbors of different numbers: weight of others", _ragged, 0.0, "/v1/posteriors"),
    Item("Yao", "columns by the threshold delta: wrong columns", _threshold, 0.0, "diffusion-maps: threshold"),
    Item("Yao", "epsilon and its square: difference", lambda: float(np.abs(
        embed("diffusion-maps", bandwidth=0.7) - embed("diffusion-maps", epsilon=0.49)).max()), 1e-9,
        "diffusion-maps: bandwidth"),
    Item("Yao", "lumpable chain: residual of its vectors", _lumping, 1e-12),
    Item("Table 2", "relative transformation: 1 - trustworthiness",
         lambda: _untrust(relative_lle(X, LleSpec(), gamma=0.05).Y), 0.05),
    Item("Table 2", "neighbor smoothing: share of the noise that is left", _smoothing, 0.5),
    Item("Table 2", "new distance: 1 - trustworthiness", lambda: _untrust(embed("weighted-lle")), 0.05,
         "weighted-lle: strength"),
)  # fmt: skip


def is_over_http(item: Item) -> bool:
    """Return whether the contract has the route, or the method the parameter."""
    if item.http.startswith("/"):
        return item.http in json.loads((ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    name, parameter = item.http.split(": ")
    return parameter in METHODS[name].spec.parameters()


def table() -> str:
    """Return the table of all items, run now."""
    lines = ["| document | item | figure | at most | library | HTTP |", "|---|---|---|---|---|---|"]
    for item in ITEMS:
        figure = item.run()
        over_http = f"`{item.http}`" if item.http and is_over_http(item) else "-"
        there = "there" if figure <= item.bound else "**not there**"
        lines.append(f"| {item.source} | {item.name} | {figure:.2g} | {item.bound:g} | {there} | {over_http} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table, and return 1 if an item does not pass."""
    text = table()
    print(text)
    return int("**not there**" in text)


if __name__ == "__main__":
    sys.exit(main())
