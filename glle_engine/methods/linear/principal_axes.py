r"""The principal axes of data, fast where that costs no digits.

With centred data :math:`X = U S V^T`, the eigenvectors of :math:`X^T X`, or of :math:`X X^T` where d > n, are those of
the singular value decomposition, some ten times sooner. But eigenvalues are then known to rounding of the largest:
:math:`s_p` loses :math:`(s_1 / s_p)^2`. Where that may matter the decomposition itself is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import leading_eigenpairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

ACCURATE = 1e-4  # the least s_p^2 / s_1^2 for which squaring costs no more than four digits of sixteen


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """The p leading principal axes.

    Attributes
    ----------
    scores : (n, p) float64
        The centred data on the axes, signs by `sign_convention`.
    directions : (d, p) float64, orthonormal
    values : (p,) float64
        Eigenvalues of the covariance S^2 / n, descending.
    total : float
        The trace of the covariance.

    """

    scores: NDArray[np.float64]
    directions: NDArray[np.float64]
    values: NDArray[np.float64]
    total: float


def principal_axes(X: NDArray[np.float64], p: int, on_progress: OnProgress) -> PrincipalAxes:
    """Return the p leading principal axes of X (n, d); p at most min(n, d)."""
    n, d = X.shape
    centred = X - X.mean(axis=0)
    values, vectors = leading_eigenpairs(centred @ centred.T if d > n else centred.T @ centred, p, on_progress)
    total = float(np.einsum("ij,ij->", centred, centred))
    if values[-1] < ACCURATE * values[0]:
        U, S, Vt = np.linalg.svd(centred, full_matrices=False)
        values, scores, directions = S[:p] ** 2, U[:, :p] * S[:p], Vt[:p].T
    elif d > n:
        scores = vectors * np.sqrt(values)
        directions = centred.T @ (vectors / np.sqrt(values))
    else:
        scores, directions = centred @ vectors, vectors
    signed = sign_convention(scores)
    signs = np.where(np.einsum("ij,ij->j", signed, scores) < 0, -1.0, 1.0)
    return PrincipalAxes(signed, directions * signs, values / n, total / n)


def flat_notes(axes: PrincipalAxes) -> tuple[Note, ...]:
    """Return the note on axes along which nothing but rounding varies, if there are any."""
    nothing = (max(len(axes.scores), len(axes.directions)) * np.finfo(float).eps) ** 2
    span = int((axes.values > nothing * axes.values[0]).sum())
    if span == len(axes.values):
        return ()
    told = f"The data span {span} dimensions: the other {len(axes.values) - span} coordinates are 0 but for rounding."
    return (Note("flat-components", f"{told} Give n_components of at most {span}."),)
