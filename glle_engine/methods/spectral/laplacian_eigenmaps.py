r"""Laplacian eigenmaps: coordinates that vary least along the edges of the neighbor graph.

:math:`\min_Y \sum_{ij} W_{ij} |y_i - y_j|^2`, with :math:`W_{ij} = \exp(-|x_i - x_j|^2 / t)` (heat) or 1 (simple) if
either is a neighbor of the other, :math:`L = D - W`, :math:`D = diag(W 1)`. Normalized, :math:`L y = \lambda D y` and
:math:`Y^T D Y = tr(D) I` (Belkin and Niyogi 2003, section 2); not normalized, :math:`L y = \lambda y` and
:math:`Y^T Y = n I`. The constant is excluded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, diags_array

from glle_engine.base.errors import InvalidParameterError
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.parameters import NeighborSpec, boolean, choice, number
from glle_engine.methods.spectral.laplacian import bottom_pairs, heat_kernel, symmetric_graph

if TYPE_CHECKING:
    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data


@dataclass(frozen=True, kw_only=True)
class LaplacianEigenmapsSpec(NeighborSpec):
    """Parameters of Laplacian eigenmaps."""

    weights: str = choice("heat", "Of an edge: exp(-|x - y|^2 / t), or 1.", "heat", "simple")
    t: float | str = number(
        "auto",
        "Bandwidth of the heat kernel, in squared units of the data; auto: the mean squared length of the edges.",
        above=0,
        words=("auto",),
    )
    normalized: bool = boolean(default=True, doc="Solve L y = lambda D y, rather than L y = lambda y.")

    def check_together(self) -> None:
        """Refuse a bandwidth without a kernel."""
        if self.weights == "simple" and self.t != "auto":
            raise InvalidParameterError(
                f"t={self.t} has no meaning for simple weights.", remedy='Leave t away, or give weights="heat".'
            )


@Method(
    spec=LaplacianEigenmapsSpec,
    title="Laplacian eigenmaps",
    about="The smoothest functions on the graph of neighbors: bottom eigenvectors of its Laplacian L y = lambda D y.",
    source="Belkin and Niyogi 2003, Neural Computation 15",
    by_distances=True,
    sparse=True,
    growth="n^1.3 for few features; n^2 to n^3 among many, by how many dimensions the data have",
)
def laplacian_eigenmaps(X: Data, spec: LaplacianEigenmapsSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the bottom eigenvectors of the Laplacian of the neighbor graph."""
    graph = symmetric_graph(*connected_neighbors(X, spec.n_neighbors, on_progress))
    on_progress(0, 1, "embedding")
    figures: dict[str, object] = {}
    if spec.weights == "heat":
        t = float(np.mean(graph.data**2)) if isinstance(spec.t, str) else spec.t
        W = heat_kernel(graph, t, "t")
        figures["t"] = t
    else:
        W = graph.copy()
        W.data = np.ones_like(W.data)
    degree = np.asarray(W.sum(axis=1)).ravel()
    scale = 1 / np.sqrt(degree) if spec.normalized else np.ones(len(X))
    half = diags_array(scale)
    A = csr_array(half @ (diags_array(degree) - W) @ half)
    p = spec.n_components
    values, vectors, solver = bottom_pairs(csr_array((A + A.T) / 2), 1 / scale, p + 1)
    size = float(np.sqrt(degree.sum() if spec.normalized else len(X)))
    figures |= {"solver": solver, "relative_gap": float((values[p] - values[p - 1]) / values[p])}
    return Embedding(sign_convention(size * scale[:, None] * vectors[:, :p]), values[:p], figures)
