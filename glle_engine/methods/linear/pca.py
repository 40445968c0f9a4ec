r"""Principal component analysis: the directions of greatest variance.

With centered data :math:`X = U S V^T`, :math:`Y = U_p S_p`; the eigenvalues are those of the covariance,
:math:`S^2 / n`. Of all linear maps to p dimensions it keeps the most variance (Pearson 1901; Hotelling 1933).

The eigenvectors of :math:`X^T X`, or of :math:`X X^T` if d > n, take a tenth of the time of the singular value
decomposition. But their eigenvalues are accurate relative to the largest, so that :math:`s_p` loses
:math:`(s_1 / s_p)^2`. If that costs too many digits, the decomposition is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.maps import AffineMap
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import leading_eigenpairs
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.parameters import MethodSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

ACCURATE = 1e-4  # the least s_p^2 / s_1^2 for which squaring costs at most four digits of sixteen


@dataclass(frozen=True, eq=False)
class PcaFit:
    """The p leading principal axes.

    Attributes
    ----------
    scores : (n, p) float64
        The centered data on the axes, signs by `sign_convention`.
    directions : (d, p) float64, orthonormal
    values : (p,) float64
        Eigenvalues of the covariance S^2 / n, descending.
    mean : (d,) float64
        Of the data.
    total : float
        The trace of the covariance.

    """

    scores: NDArray[np.float64]
    directions: NDArray[np.float64]
    values: NDArray[np.float64]
    mean: NDArray[np.float64]
    total: float

    @property
    def explained_variance(self) -> float:
        """Share of the variance along the axes."""
        return min(float(self.values.sum() / self.total), 1.0)

    def notes(self) -> tuple[Note, ...]:
        """Return a note on axes whose variance is rounding, if any."""
        rounding = (max(len(self.scores), len(self.directions)) * np.finfo(float).eps) ** 2
        span = int((self.values > rounding * self.values[0]).sum())
        flat = len(self.values) - span
        if not flat:
            return ()
        message = f"The data span {span} dimensions: the other {flat} coordinates are 0 but for rounding."
        return (Note("flat-components", f"{message} Give n_components of at most {span}."),)


def principal_axes(X: NDArray[np.float64], p: int, on_progress: OnProgress) -> PcaFit:
    """Return the p leading principal axes of X (n, d); p at most min(n, d)."""
    n, d = X.shape
    mean = X.mean(axis=0)
    centered = X - mean
    values, vectors = leading_eigenpairs(centered @ centered.T if d > n else centered.T @ centered, p, on_progress)
    total = float(np.einsum("ij,ij->", centered, centered))
    if values[-1] < ACCURATE * values[0]:
        U, S, Vt = np.linalg.svd(centered, full_matrices=False)
        values, scores, directions = S[:p] ** 2, U[:, :p] * S[:p], Vt[:p].T
    elif d > n:
        scores = vectors * np.sqrt(values)
        directions = centered.T @ (vectors / np.sqrt(values))
    else:
        scores, directions = centered @ vectors, vectors
    signed = sign_convention(scores)
    signs = np.where(np.einsum("ij,ij->j", signed, scores) < 0, -1.0, 1.0)
    return PcaFit(signed, directions * signs, values / n, mean, total / n)


@Method(
    spec=MethodSpec,
    title="Principal component analysis",
    about="The p orthogonal directions of greatest variance, of centred data.",
    source="Pearson 1901; Hotelling 1933",
    growth="n d^2; n^2 d for more features than points",
    restore=AffineMap.restore,
)
def pca(X: NDArray[np.float64], spec: MethodSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the leading principal components."""
    axes = principal_axes(X, spec.n_components, on_progress)
    figures = {"explained_variance": axes.explained_variance}
    return Embedding(axes.scores, axes.values, figures, axes.notes(), map=AffineMap(axes.mean, axes.directions.T))
