r"""Probabilistic principal component analysis: a Gaussian in p dimensions, seen through a linear map with equal noise.

:math:`x = W z + \mu + e`, :math:`z \sim N(0, I_p)`, :math:`e \sim N(0, \sigma^2 I_d)`. With the eigenvalues
:math:`\lambda_j` and eigenvectors U of the covariance, the likelihood is largest at
:math:`\sigma^2 = \sum_{j > p} \lambda_j / (d - p)` and :math:`W = U_p (\Lambda_p - \sigma^2 I)^{1/2}` (Tipping and
Bishop 1999, Eq. 7-8), where it is :math:`-\frac n2 (d \log 2\pi + \sum_{j \le p} \log \lambda_j +
(d - p) \log \sigma^2 + d)`. The embedding is :math:`E[z | x] = \Lambda_p^{-1} W^T (x - \mu)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import DegenerateDataError
from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.linear import pca
from glle_engine.methods.linear.principal_axes import principal_axes
from glle_engine.methods.parameters import MethodSpec
from glle_engine.methods.refusals import require_noise_dimension

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.linear.principal_axes import PrincipalAxes

NO_NOISE = 1e-20  # of the variance: what rounding leaves of data in p dimensions
EQUAL = 1e-9  # relative excess of a variance over the noise's which is none


@dataclass(frozen=True, kw_only=True)
class PpcaSpec(MethodSpec):
    """The parameters of probabilistic PCA."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The maximum of the likelihood.

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


def fit_ppca(X: NDArray[np.float64], axes: PrincipalAxes) -> Fit:
    """Return the maximum of the likelihood in closed form.

    Raises
    ------
    DegenerateDataError
        Where the data lie in p dimensions: the noise is 0 and the likelihood unbounded.

    """
    n, d = X.shape
    p = len(axes.values)
    # From what is left of each point: a difference of variances would lose what is small.
    rest = X - X.mean(axis=0) - axes.scores @ axes.directions.T
    left = float(np.einsum("ij,ij->", rest, rest)) / n
    if left <= NO_NOISE * axes.total:
        raise DegenerateDataError(
            f"The data lie in {p} dimensions or fewer: nothing is left for the noise.",
            remedy="Lower n_components, or take PCA, which has no noise.",
            details={"n_components": p},
        )
    noise = left / (d - p)
    spread = np.sqrt(np.maximum(axes.values - noise, 0.0))  # below 0 by rounding alone: a mean of smaller ones
    own = float(np.log(axes.values).sum()) + (d - p) * float(np.log(noise))
    return Fit(axes.directions * spread, noise, -0.5 * n * (d * float(np.log(2 * np.pi)) + own + d))


def run(
    X: NDArray[np.float64], spec: PpcaSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the posterior means."""
    axes = principal_axes(X, spec.n_components, on_progress)
    fit = fit_ppca(X, axes)
    signal = np.maximum(1 - fit.noise_variance / axes.values, 0.0)
    figures = {
        "log_likelihood": fit.log_likelihood,
        "noise_variance": fit.noise_variance,
        "posterior_variance": (1 - signal).tolist(),
        "explained_variance": min(float(axes.values.sum() / axes.total), 1.0),
    }
    notes = []
    if buried := int((signal <= EQUAL).sum()):
        told = f"{buried} of {spec.n_components} components vary no more than the noise: their coordinates are 0."
        notes.append(Note("components-of-noise", f"{told} Lower n_components."))
    return Embedding(axes.scores * np.sqrt(signal / axes.values), axes.values, figures, tuple(notes))


def refuse(n: int, d: int, spec: PpcaSpec) -> None:
    """Refuse components that leave no dimension for the noise."""
    require_noise_dimension(n, d, spec.n_components, "Probabilistic PCA")


def cost(n: int, d: int, spec: PpcaSpec) -> Cost:
    """Return the cost of PCA, and of the residual."""
    own = pca.cost(n, d, spec)
    return Cost(own.seconds + 1e-8 * n * d + 1e-10 * n * d * spec.n_components, own.bytes + 16.0 * n * d)


METHOD = Method(
    name="ppca",
    title="Probabilistic PCA",
    family="linear and kernel",
    about="Maximum likelihood of x = W z + mu + e, with z standard normal in p dimensions and noise of one variance.",
    source="Tipping and Bishop 1999, J. R. Stat. Soc. B 61, Eq. 7-8",
    spec=PpcaSpec,
    run=run,
    refuse=refuse,
    cost=cost,
    growth="n d^2; n^2 d for more features than points",
)
