r"""Probabilistic principal component analysis: a linear map of a Gaussian in p dimensions, with isotropic noise.

:math:`x = W z + \mu + e`, :math:`z \sim N(0, I_p)`, :math:`e \sim N(0, \sigma^2 I_d)`. With the eigenvalues
:math:`\lambda_j` and eigenvectors U of the covariance, the likelihood is largest at
:math:`\sigma^2 = \sum_{j > p} \lambda_j / (d - p)` and :math:`W = U_p (\Lambda_p - \sigma^2 I)^{1/2}` (Tipping and
Bishop 1999, Eq. 7-8), with the value :math:`-\frac n2 (d \log 2\pi + \sum_{j \le p} \log \lambda_j +
(d - p) \log \sigma^2 + d)`. The embedding is :math:`E[z | x] = \Lambda_p^{-1} W^T (x - \mu)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import DegenerateDataError
from glle_engine.base.maps import AffineMap
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.linear.pca import PcaFit, principal_axes
from glle_engine.methods.parameters import MethodSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

NO_NOISE = 1e-20  # of the variance: rounding, for data in p dimensions
EQUAL = 1e-9  # relative excess over the noise variance that is rounding


class PpcaSpec(MethodSpec):
    """Parameters of probabilistic PCA."""

    def require_possible(self, n: int, d: int) -> None:
        """Refuse components that leave no dimension for the noise."""
        self.require_noise_dimension(n, d, "Probabilistic PCA")


@dataclass(frozen=True, eq=False)
class Fit:
    """Maximum of the likelihood.

    Attributes
    ----------
    loadings : (d, p) float64
        W, in the unit of the data.
    noise_variance : float
        sigma^2, in the square of that unit.
    log_likelihood : float
        Of all n points, in nats.

    """

    loadings: NDArray[np.float64]
    noise_variance: float
    log_likelihood: float


def fit_ppca(X: NDArray[np.float64], axes: PcaFit) -> Fit:
    """Return the maximum of the likelihood in closed form.

    Raises
    ------
    DegenerateDataError
        If the data lie in p dimensions: the noise is 0 and the likelihood unbounded.

    """
    n, d = X.shape
    p = len(axes.values)
    # From the residual of each point, because a difference of variances loses small ones.
    residuals = X - X.mean(axis=0) - axes.scores @ axes.directions.T
    total = float(np.einsum("ij,ij->", residuals, residuals)) / n
    if total <= NO_NOISE * axes.total:
        raise DegenerateDataError(
            f"The data lie in {p} dimensions or fewer: nothing is left for the noise.",
            remedy="Lower n_components, or take PCA, which has no noise.",
            details={"n_components": p},
        )
    noise = total / (d - p)
    spread = np.sqrt(np.maximum(axes.values - noise, 0.0))  # rounding may take a difference below 0
    log_det = float(np.log(axes.values).sum()) + (d - p) * float(np.log(noise))
    return Fit(axes.directions * spread, noise, -0.5 * n * (d * float(np.log(2 * np.pi)) + log_det + d))


@Method(
    spec=PpcaSpec,
    title="Probabilistic PCA",
    about="Maximum likelihood of x = W z + mu + e, with z standard normal in p dimensions and noise of one variance.",
    source="Tipping and Bishop 1999, J. R. Stat. Soc. B 61, Eq. 7-8",
    growth="n d^2; n^2 d for more features than points",
    restore=AffineMap.restore,
)
def ppca(X: NDArray[np.float64], spec: PpcaSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the posterior means."""
    axes = principal_axes(X, spec.n_components, on_progress)
    fit = fit_ppca(X, axes)
    signal = np.maximum(1 - fit.noise_variance / axes.values, 0.0)
    figures = {
        "log_likelihood": fit.log_likelihood,
        "noise_variance": fit.noise_variance,
        "posterior_variance": (1 - signal).tolist(),
        "explained_variance": axes.explained_variance,
    }
    notes = []
    if buried := int((signal <= EQUAL).sum()):
        message = f"{buried} of {spec.n_components} components vary no more than the noise: their coordinates are 0."
        notes.append(Note("components-of-noise", f"{message} Lower n_components."))
    shrinkage = np.sqrt(signal / axes.values)
    linear = AffineMap(axes.mean, (axes.directions * shrinkage).T)
    return Embedding(axes.scores * shrinkage, axes.values, figures, tuple(notes), map=linear)
