r"""Principal component analysis: the directions of greatest variance.

With centred data :math:`X = U S V^T`, :math:`Y = U_p S_p`; the eigenvalues are those of the covariance,
:math:`S^2 / n`. Of all linear maps to p dimensions it keeps the most variance (Pearson 1901; Hotelling 1933).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.linear.principal_axes import flat_notes, principal_axes
from glle_engine.methods.parameters import MethodSpec
from glle_engine.methods.refusals import require_rank

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class PcaSpec(MethodSpec):
    """The parameters of PCA."""


def run(
    X: NDArray[np.float64], spec: PcaSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the leading principal components."""
    axes = principal_axes(X, spec.n_components, on_progress)
    explained = min(float(axes.values.sum() / axes.total), 1.0)
    return Embedding(axes.scores, axes.values, {"explained_variance": explained}, flat_notes(axes))


def refuse(n: int, d: int, spec: PcaSpec) -> None:
    """Refuse more components than dimensions."""
    require_rank(n, d, spec.n_components)


def cost(n: int, d: int, spec: MethodSpec) -> Cost:
    """Return the cost of the matrix of second moments and of its eigenvectors."""
    m = min(n, d)
    return Cost(seconds=1e-3 + 3e-8 * n * d + 5e-11 * n * d * m + 5e-11 * m**3, bytes=16.0 * n * d + 24.0 * m * m)


METHOD = Method(
    name="pca",
    title="Principal component analysis",
    family="linear and kernel",
    about="The p orthogonal directions of greatest variance, of centred data.",
    source="Pearson 1901; Hotelling 1933",
    spec=PcaSpec,
    run=run,
    refuse=refuse,
    cost=cost,
    growth="n d^2; n^2 d for more features than points",
)
