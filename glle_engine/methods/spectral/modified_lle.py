r"""Modified LLE: several weight vectors for each point, so that noise and the ridge do not bend the embedding.

With more neighbors than dimensions the reconstruction weights are not unique. With s_i nearly optimal, linearly
independent vectors :math:`w_i^{(1)}, ..., w_i^{(s_i)}` for each point, Y minimizes
:math:`\sum_i \sum_l |y_i - \sum_j w_{ij}^{(l)} y_j|^2` under :math:`Y^T Y = n I` (Zhang and Wang 2006). By
scikit-learn, with its result checked. M is dense up to 3,000 points; above, ARPACK inverts it, and the dense solver is
the fallback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import ConvergenceError
from glle_engine.eigen.eigenproblem import scale_embedding
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.parameters import NeighborSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.costs import Cost


_DENSE_MOST = 3_000
_FALLBACK_MOST = 5_000
_ACCEPTED = 1e-6


class ModifiedLleSpec(NeighborSpec):
    """Parameters of modified LLE."""

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points, and fewer neighbors or features than components."""
        super().require_possible(n, d)
        self.require_rank(n, d)
        self.require_neighbors("Modified LLE", self.n_components, f"at least {self.n_components}")

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost."""
        return super().cost(row if n <= _DENSE_MOST else f"{row}, sparse", n, d)


@Method(
    spec=ModifiedLleSpec,
    title="Modified LLE",
    about="Each point keeps several independent sets of weights by which its neighbors reconstruct it, not one.",
    source="Zhang and Wang 2006, NIPS 19; scikit-learn",
    growth="n^3 up to 3,000 points; n and a large constant above",
    libraries=("sklearn",),
    extra="sklearn",
)
def modified_lle(X: NDArray[np.float64], spec: ModifiedLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by scikit-learn, with the first solver that gives orthonormal vectors orthogonal to the constant."""
    connected_neighbors(X, spec.n_neighbors, on_progress)
    n = len(X)
    solvers = ["dense"] if n <= _DENSE_MOST else ["arpack", *(["dense"] if n <= _FALLBACK_MOST else [])]
    on_progress(0, 1, "embedding")
    rejected: list[str] = []
    for solver in solvers:
        try:
            vectors, error = _solve(X, spec, solver)
        except (ValueError, np.linalg.LinAlgError) as failure:  # scikit-learn's errors of ARPACK
            rejected.append(f"{solver}: {str(failure).split('. ')[0]}")
            continue
        if reason := _refusal(vectors):
            rejected.append(f"{solver}: {reason}")
            continue
        figures = {"solver": solver, "reconstruction_error": float(max(error, 0.0)), "rejected": rejected}
        return Embedding(scale_embedding(vectors), None, figures, _notes(rejected))
    raise ConvergenceError(
        f"No solver found the embedding: {'; '.join(rejected)}.",
        remedy="Raise n_neighbors and remove duplicates; data that are flat already are for PCA.",
        details={"tried": rejected},
    )


def _solve(X: NDArray[np.float64], spec: ModifiedLleSpec, solver: str) -> tuple[NDArray[np.float64], float]:
    from sklearn.manifold import locally_linear_embedding  # noqa: PLC0415 -- an extra, a second to import

    centered = X - X.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # of duplicates; the result is checked
        vectors, error = locally_linear_embedding(
            centered / np.abs(centered).max(),
            n_neighbors=spec.n_neighbors,
            n_components=spec.n_components,
            method="modified",
            eigen_solver=solver,
            tol=0.0,
            max_iter=300,
            random_state=0,
        )
    return vectors, float(error)


def _refusal(vectors: NDArray[np.float64]) -> str | None:
    """Return the reason to reject these vectors, or None."""
    if not np.isfinite(vectors).all():
        return "not finite"
    n, p = vectors.shape
    if np.abs(vectors.T @ vectors - np.eye(p)).max() > _ACCEPTED:
        return "not orthonormal"
    constant = float(np.linalg.norm(vectors.sum(axis=0)) / np.sqrt(n))
    return f"the constant is in them ({constant:.1e})" if constant > _ACCEPTED else None


def _notes(rejected: list[str]) -> tuple[Note, ...]:
    if not rejected:
        return ()
    return (
        Note(
            "solver-fallback",
            f"ARPACK did not find the embedding ({rejected[0]}); the dense solver did, in time that grows as n^3. "
            "More neighbors make the problem easier.",
        ),
    )
