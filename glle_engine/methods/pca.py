r"""Principal component analysis: the directions of greatest variance.

With centred data :math:`X = U S V^T`, :math:`Y = U_p S_p`; the eigenvalues are those of the covariance,
:math:`S^2 / n`. Of all linear maps to p dimensions it keeps the most variance (Pearson 1901; Hotelling 1933).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.embedding import sign_convention
from glle_engine.methods.method import Cost, Embedding, Method
from glle_engine.methods.parameters import MethodSpec
from glle_engine.methods.refusals import require_rank

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class PcaSpec(MethodSpec):
    """The parameters of PCA."""


def principal_components(X: NDArray[np.float64], p: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the scores (n, p) on the p leading principal axes and all min(n, d) eigenvalues of the covariance."""
    U, S, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return sign_convention(U[:, :p] * S[:p]), S**2 / len(X)


def run(
    X: NDArray[np.float64], spec: PcaSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the leading principal components."""
    on_progress(0, 1, "decomposition")
    Y, values = principal_components(X, spec.n_components)
    on_progress(1, 1, "decomposition")
    kept = values[: spec.n_components]
    return Embedding(Y, kept, {"explained_variance": float(kept.sum() / values.sum())})


def refuse(n: int, d: int, spec: PcaSpec) -> None:
    """Refuse more components than dimensions."""
    require_rank(n, d, spec.n_components)


def cost(n: int, d: int, spec: PcaSpec) -> Cost:
    """Return the cost of one thin singular value decomposition."""
    return Cost(seconds=1e-3 + 6e-10 * n * d * min(n, d), bytes=32.0 * n * d)


METHOD = Method(
    name="pca",
    title="Principal component analysis",
    family="linear and kernel",
    about="The p orthogonal directions of greatest variance, by the singular value decomposition of the centred data.",
    source="Pearson 1901; Hotelling 1933",
    spec=PcaSpec,
    run=run,
    refuse=refuse,
    cost=cost,
    growth="n",
)
