r"""Classical multidimensional scaling: points whose inner products are those of the dissimilarities.

With :math:`J = I - 1 1^T / n` and the squares of the dissimilarities, :math:`B = -\frac12 J D^{(2)} J = U \Lambda U^T`
and :math:`Y = U_p \Lambda_p^{1/2}` (Torgerson 1952; Gower 1966), which minimizes the strain
:math:`\|B - Y Y^T\|_F`. Of the Euclidean distances of X, :math:`B = X X^T` with X centered, and Y is PCA's, so that
no distance is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import DegenerateDataError, InvalidShapeError
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import leading_eigenpairs, least_eigenvalue
from glle_engine.graph.relations import ROUNDING, checked_distances
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.methods.parameters import MethodSpec, choice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.costs import Cost

NEGATIVE = 1e-6  # of the largest eigenvalue: smaller negative ones are those of distances


@dataclass(frozen=True, kw_only=True)
class MdsSpec(MethodSpec):
    """Parameters of classical MDS."""

    dissimilarity: str = choice(
        "euclidean",
        "Of the points, or precomputed: X is then the symmetric n x n matrix of dissimilarities, its diagonal 0.",
        "euclidean",
        "precomputed",
    )

    def require_possible(self, n: int, d: int) -> None:
        """Refuse more components than dimensions, and dissimilarities that are not square."""
        if self.dissimilarity == "precomputed" and n != d:
            raise InvalidShapeError(
                f"A matrix of dissimilarities is square, not {n} x {d}.",
                remedy="Give the dissimilarities of all pairs, or dissimilarity='euclidean' for points.",
                details={"rows": n, "columns": d},
            )
        self.require_rank(n, d)

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost."""
        return super().cost(f"{row}, precomputed" if self.dissimilarity == "precomputed" else row, n, d)


def double_center(matrix: NDArray[np.float64]) -> None:
    """Replace a symmetric K (n, n) by J K J, J = I - 1 1^T / n, in place."""
    means = matrix.mean(axis=0)
    matrix -= means
    matrix -= (means - means.mean())[:, None]


@Method(
    spec=MdsSpec,
    title="Classical multidimensional scaling",
    about="Points whose inner products best fit those of the dissimilarities, by eigenvectors of -J D^2 J / 2.",
    source="Torgerson 1952; Gower 1966",
    growth="as PCA from points; n^2 from dissimilarities",
)
def mds(X: NDArray[np.float64], spec: MdsSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the leading eigenvectors of the inner products."""
    if spec.dissimilarity == "precomputed":
        return scaling_of(checked_distances(X), spec.n_components, on_progress)
    axes = principal_axes(X, spec.n_components, on_progress)
    centered = X - X.mean(axis=0)
    centered /= np.abs(centered).max()  # fourth powers stay in range
    moment = centered.T @ centered if len(X) >= X.shape[1] else centered @ centered.T
    shares = axes.values * (float(np.trace(moment)) / axes.total)
    figures = {"strain": _strain(float(np.linalg.norm(moment)), shares)}
    return Embedding(axes.scores, axes.values * len(X), figures, axes.notes())


def scaling_of(D: NDArray[np.float64], p: int, on_progress: OnProgress) -> Embedding:
    """Embed n points by their dissimilarities.

    Parameters
    ----------
    D : (n, n) float64
        Exactly symmetric, not negative, with a diagonal of 0.
    p : int
    on_progress

    Returns
    -------
    Embedding
        Eigenvalues of B; figures strain, sqrt(||B - Y Y^T||_F^2 / ||B||_F^2), and least_eigenvalue.

    Raises
    ------
    DegenerateDataError
        If fewer than p eigenvalues are positive.

    """
    on_progress(0, 1, "inner products")
    unit = float(D.max())  # squares stay in range
    B = -0.5 * (D / unit) ** 2
    double_center(B)
    norm = float(np.linalg.norm(B))
    values, vectors = leading_eigenpairs(B, p, on_progress)
    least = least_eigenvalue(B, norm, on_progress)
    if values[-1] <= ROUNDING**2 * norm:
        most = int((values > ROUNDING**2 * norm).sum())
        raise DegenerateDataError(
            f"The dissimilarities have {most} positive eigenvalues, fewer than n_components={p}.",
            remedy=f"Give n_components of at most {most}." if most else "Check that they are dissimilarities.",
            details={"most": most},
        )
    figures = {"strain": _strain(norm, values), "least_eigenvalue": unit**2 * least}
    notes: tuple[Note, ...] = ()
    if least < -NEGATIVE * values[0]:
        message = (
            f"The least eigenvalue is {-least / values[0]:.2g} of the largest, negative: no points of any dimension"
        )
        notes = (
            Note(
                "not-euclidean",
                f"{message} have these dissimilarities. The embedding keeps the positive part; where that share is "
                "large, add a constant to them all or take their roots.",
            ),
        )
    return Embedding(unit * sign_convention(vectors * np.sqrt(values)), unit**2 * values, figures, notes)


def _strain(norm: float, values: NDArray[np.float64]) -> float:
    """Return sqrt(||B - Y Y^T||_F^2 / ||B||_F^2) from ||B||_F and the eigenvalues kept."""
    return float(np.sqrt(max(1 - float(((values / norm) ** 2).sum()), 0.0)))
