r"""Modified LLE: several weight vectors a point, so that noise and the ridge of the weights do not bend the embedding.

Where the neighbours are more than the dimension, the reconstruction weights are not unique. With s_i nearly optimal,
linearly independent vectors :math:`w_i^{(1)}, ..., w_i^{(s_i)}` a point, Y minimises
:math:`\sum_i \sum_l |y_i - \sum_j w_{ij}^{(l)} y_j|^2` under :math:`Y^T Y = n I` (Zhang and Wang 2006).
By scikit-learn, its result checked: M is dense up to 3,000 points; above, ARPACK inverts it, and dense is what
is left when that fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import ConvergenceError, InvalidParameterError
from glle_engine.base.validation import require_enough_points
from glle_engine.eigen.eigenproblem import scaled
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.methods.base import Embedding, Method, require_rank
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.parameters import NeighborSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


_DENSE_MOST = 3_000
_FALLBACK_MOST = 5_000
_ACCEPTED = 1e-6


@dataclass(frozen=True, kw_only=True)
class ModifiedLleSpec(NeighborSpec):
    """The parameters of modified LLE: at least p neighbours."""


def run(X: NDArray[np.float64], spec: ModifiedLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by scikit-learn, with the first solver whose vectors are orthonormal and orthogonal to the constant."""
    connected_neighbors(X, spec.n_neighbors, on_progress)
    n = len(X)
    solvers = ["dense"] if n <= _DENSE_MOST else ["arpack", *(["dense"] if n <= _FALLBACK_MOST else [])]
    on_progress(0, 1, "embedding")
    tried: list[str] = []
    for solver in solvers:
        try:
            vectors, error = _solved(X, spec, solver)
        except (ValueError, np.linalg.LinAlgError) as failure:  # scikit-learn says every failure of ARPACK so
            tried.append(f"{solver}: {str(failure).split('. ')[0]}")
            continue
        if reason := _refusal(vectors):
            tried.append(f"{solver}: {reason}")
            continue
        on_progress(1, 1, "embedding")
        figures = {"solver": solver, "reconstruction_error": float(max(error, 0.0)), "rejected": tried}
        return Embedding(scaled(vectors), None, figures, _notes(tried))
    raise ConvergenceError(
        f"No solver found the embedding: {'; '.join(tried)}.",
        remedy="Raise n_neighbors and remove duplicates; data that are flat already are for PCA.",
        details={"tried": tried},
    )


def _solved(X: NDArray[np.float64], spec: ModifiedLleSpec, solver: str) -> tuple[NDArray[np.float64], float]:
    from sklearn.manifold import locally_linear_embedding  # noqa: PLC0415 -- an extra, and it takes a second to load

    centred = X - X.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # duplicates; what is not finite is refused after
        vectors, error = locally_linear_embedding(
            centred / np.abs(centred).max(),
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
    """Return why these vectors are not accepted, or None when they are."""
    if not np.isfinite(vectors).all():
        return "not finite"
    n, p = vectors.shape
    if np.abs(vectors.T @ vectors - np.eye(p)).max() > _ACCEPTED:
        return "not orthonormal"
    constant = float(np.linalg.norm(vectors.sum(axis=0)) / np.sqrt(n))
    return f"the constant is in them ({constant:.1e})" if constant > _ACCEPTED else None


def _notes(tried: list[str]) -> tuple[Note, ...]:
    if not tried:
        return ()
    return (
        Note(
            "solver-fallback",
            f"ARPACK did not find the embedding ({tried[0]}); the dense solver did, in time that grows as n^3. "
            "More neighbours make the problem easier.",
        ),
    )


def refuse(n: int, d: int, spec: ModifiedLleSpec) -> None:
    """Refuse too few points, and fewer neighbours or features than components."""
    require_enough_points(n, spec)
    require_rank(n, d, spec.n_components)
    k, p = spec.n_neighbors, spec.n_components
    if k < p:
        raise InvalidParameterError(
            f"Modified LLE in {p} dimensions needs at least {p} neighbours, not {k}.",
            remedy=f"Give n_neighbors of at least {p}, or fewer components.",
            details={"n_neighbors": k, "least": p},
        )


def cost(n: int, d: int, spec: ModifiedLleSpec) -> Cost:
    """Return the expected cost."""
    row = "modified-lle" if n <= _DENSE_MOST else "modified-lle, sparse"
    return estimate(row, n, d, k=spec.n_neighbors, p=spec.n_components)


METHOD = Method(
    name="modified-lle",
    title="Modified LLE",
    family="spectral",
    about="Each point keeps several independent sets of weights by which its neighbours reconstruct it, not one.",
    source="Zhang and Wang 2006, NIPS 19; scikit-learn",
    spec=ModifiedLleSpec,
    run=run,
    refuse=refuse,
    cost=cost,
    growth="n^3 up to 3,000 points; n and a large constant above",
    libraries=("sklearn",),
    extra="sklearn",
)
