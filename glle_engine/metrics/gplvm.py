r"""GP-LVM log likelihood: how well smooth random functions of the embedding explain the data.

In the Gaussian process latent variable model, each feature of the centered data X is a Gaussian process on the
embedding Y. All features have the same covariance

.. math:: K_{ij} = a \exp(-\tfrac{g}{2} |y_i - y_j|^2) + b + s \delta_{ij}

with a radial basis function, a bias and white noise; Y is centered, and each of its columns has unit variance. Then

.. math:: \log p(X | Y) = -\tfrac{d}{2} \log |K| - \tfrac12 tr(K^{-1} X X^T) - \tfrac{n d}{2} \log 2 \pi,

and the score is the maximum over a, g, b and s (Lawrence 2005, JMLR 6, Eq. 7; as a score of embeddings: Lawrence, arXiv
1010.4830, section 4). The likelihood is a density, so that only embeddings of the same data, in the same units, can be
compared.

LAPACK's factorizations and exponentials have other bits on other processors. The score may therefore differ between
processors, in its last digits and by the tolerance of the maximization.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, lapack

from glle_engine.base.errors import ConvergenceError, DegenerateDataError, InvalidParameterError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.validation import require_same_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_LIKELIHOOD_POINTS", "Kernel", "Likelihood", "fit_likelihood", "log_likelihood", "standardize"]

# More points are refused: for 2,000, the score takes a minute or two, and five matrices of 32 MB.
MAX_LIKELIHOOD_POINTS = 2000
# The maximizations from all starts use a sample of this many points; only the best one continues with all n points.
_SEARCH_POINTS = 300
_SAMPLE_SEED = 0
_EVALUATIONS = 200
# The likelihood is maximized from eight starts: each of these inverse squared widths g of the kernel, for coordinates
# of variance 1, with each of these noise variances s and this bias b, as shares of the variance of the data.
_INVERSE_WIDTHS = (0.1, 1.0, 10.0, 100.0)
_NOISES = (1e-1, 1e-3)
_BIAS = 1e-2
# Bounds of the logarithms of the kernel's parameters: variance a, inverse squared width g, bias b and noise variance s.
# a, b and s are shares of the variance of the data. If s were below 1e-8, rounding errors would determine the
# covariance.
_BOUNDS = tuple((np.log(low), np.log(high)) for low, high in ((1e-6, 1e6), (1e-6, 1e8), (1e-8, 1e4), (1e-8, 1e2)))


@dataclass(frozen=True)
class Kernel:
    r"""Parameters of the covariance K of one feature at the points y of an embedding.

    .. math:: K_{ij} = a \exp(-\tfrac{g}{2} |y_i - y_j|^2) + b + s \delta_{ij}

    Attributes
    ----------
    variance : float
        a, in squared units of the data, like `bias` and `white`.
    inverse_width : float
        g, one over the squared length scale, where the columns of the embedding have unit variance.
    bias : float
        b, the covariance that all points have in common.
    white : float
        s, the variance of the noise at each point.

    """

    variance: float
    inverse_width: float
    bias: float
    white: float


@dataclass(frozen=True)
class Likelihood:
    """Largest likelihood of the data over the parameters of the kernel.

    Attributes
    ----------
    log_likelihood : float
        Natural logarithm of the density of the data, which have n d entries.
    kernel : Kernel
        The parameters at the maximum.
    converged : bool
        Whether the optimizer reached a maximum before it ran out of evaluations.

    """

    log_likelihood: float
    kernel: Kernel
    converged: bool


def standardize(Y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Y (n, p) with its columns centered and divided by their standard deviation; a constant column becomes 0.

    Raises
    ------
    DegenerateDataError
        If all points are equal.

    """
    centered = Y - Y.mean(axis=0)
    deviation = centered.std(axis=0)
    constant = deviation <= 1e-12 * max(float(deviation.max()), np.finfo(float).tiny)
    if constant.all():
        raise DegenerateDataError(
            f"All {len(Y)} points of the embedding are equal.", remedy="Check that the embedding was read as intended."
        )
    return np.asarray(np.where(constant, 0.0, centered / np.where(constant, 1.0, deviation)))


def log_likelihood(
    squared: NDArray[np.float64], factor: NDArray[np.float64], d: int, kernel: Kernel
) -> tuple[float, NDArray[np.float64]]:
    r"""Return log p(X | Y) for a kernel, and the gradient (4,) of log p by the logarithms of the kernel's parameters.

    The gradient follows from :math:`\partial \log p / \partial K = \tfrac12 (K^{-1} X X^T K^{-1} - d K^{-1})`.
    `squared` (n, n) are the squared distances in the embedding, `factor` (n, r) is F with :math:`F F^T = X X^T` for the
    centered data, and d is the number of features.

    Raises
    ------
    LinAlgError
        If K is not positive definite in floating point.

    """
    n = len(squared)
    smooth = kernel.variance * np.exp(-0.5 * kernel.inverse_width * squared)
    K = smooth + kernel.bias
    K.flat[:: n + 1] += kernel.white
    root, failed = lapack.dpotrf(K.T, lower=0, clean=1, overwrite_a=1)
    if failed:
        raise LinAlgError("The covariance is not positive definite.")
    half_determinant = float(np.log(root.diagonal()).sum())
    inverse, _ = lapack.dpotri(root, lower=0, overwrite_c=1)
    inverse = np.triu(inverse) + np.triu(inverse, 1).T
    explained = inverse @ factor
    value = -d * half_determinant - 0.5 * float(np.vdot(factor, explained)) - 0.5 * n * d * float(np.log(2 * np.pi))
    slope = 0.5 * (explained @ explained.T - d * inverse)
    gradient = np.array(
        [
            np.vdot(slope, smooth),
            -0.5 * kernel.inverse_width * np.vdot(slope, smooth * squared),
            kernel.bias * slope.sum(),
            kernel.white * slope.trace(),
        ]
    )
    return value, gradient


def fit_likelihood(X: NDArray[np.float64], Y: NDArray[np.float64], on_progress: OnProgress = silent) -> Likelihood:
    """Return the largest log likelihood of the data given the embedding, over the parameters of the kernel.

    L-BFGS maximizes it from eight starting points, in the logarithms of the parameters. For more than 300 points, the
    eight runs use a fixed sample of 300 points, and the best run continues with all points. The features enter only
    through the Gram matrix of the data, so that the time of an evaluation grows as n^3 for any d.

    Parameters
    ----------
    X : (n, d) float64
        The data, in any unit; centered internally.
    Y : (n, p) float64
        The embedding; standardized internally.
    on_progress
        Called with (runs of the optimizer done, all, "gplvm").

    Raises
    ------
    InvalidParameterError
        For more than `MAX_LIKELIHOOD_POINTS`.
    InvalidShapeError
        If X and Y differ in length.
    DegenerateDataError
        If all points of the data, or of the embedding, are equal.
    ConvergenceError
        If the likelihood is not finite for any parameters that were tried.

    """
    n, d = X.shape
    require_same_length(X, Y)
    if n > MAX_LIKELIHOOD_POINTS:
        raise InvalidParameterError(
            f"The GP-LVM log likelihood takes at most {MAX_LIKELIHOOD_POINTS:,} points; the data have {n:,}.",
            remedy=f"Score a sample of at most {MAX_LIKELIHOOD_POINTS:,} points, the same one for every embedding.",
            details={"n_points": n, "most": MAX_LIKELIHOOD_POINTS},
        )
    centered, places = X - X.mean(axis=0), standardize(Y)
    scale = float((centered**2).mean())
    if scale == 0:
        raise DegenerateDataError(
            "All points of the data are equal.", remedy="Check that the data were read as intended."
        )
    rows = np.sort(np.random.default_rng(_SAMPLE_SEED).choice(n, min(n, _SEARCH_POINTS), replace=False))
    few = _Ascent(centered[rows], places[rows], scale)
    starts = [
        np.log([1 - noise, inverse_width, _BIAS, noise]) for inverse_width, noise in product(_INVERSE_WIDTHS, _NOISES)
    ]
    ascents = len(starts) + (n > len(rows))
    summits: list[Likelihood] = []
    for start in starts:
        summits.append(few.climb(start))
        on_progress(len(summits), ascents, "gplvm")
    best = max(summits, key=lambda one: one.log_likelihood)
    if n > len(rows) and np.isfinite(best.log_likelihood):
        best = _Ascent(centered, places, scale).climb(np.log(list(asdict(best.kernel).values())))
        on_progress(ascents, ascents, "gplvm")
    if not np.isfinite(best.log_likelihood):
        raise ConvergenceError(
            "The GP-LVM has no finite likelihood, whatever the parameters of its kernel.",
            remedy="Look for duplicates in the embedding, or for features of very different units in the data.",
        )
    # The data were divided by the root of their variance; the result is the density in the original units.
    a, b, s = (scale * variance for variance in (best.kernel.variance, best.kernel.bias, best.kernel.white))
    value = best.log_likelihood - 0.5 * n * d * float(np.log(scale))
    return Likelihood(value, Kernel(a, best.kernel.inverse_width, b, s), best.converged)


class _Ascent:
    """Maximizes the likelihood of n points over the logarithms of the kernel's parameters.

    The n points are all points of the data, or a sample. `centered` (n, d) are their rows of the centered data, and
    `places` (n, p) their rows of the standardized embedding. `scale` is the variance of all data; `centered` is divided
    by the root of this variance.
    """

    def __init__(self, centered: NDArray[np.float64], places: NDArray[np.float64], scale: float) -> None:
        n, self.d = centered.shape
        square = (places**2).sum(axis=1)
        self.squared = np.maximum(square[:, None] - 2 * places @ places.T + square, 0.0)
        self.squared.flat[:: n + 1] = 0.0
        unit = centered / np.sqrt(scale)
        self.factor = unit if self.d <= n else np.asarray(np.linalg.qr(unit.T, mode="r")).T

    def climb(self, start: NDArray[np.float64]) -> Likelihood:
        """Return the maximum that L-BFGS reaches from `start` (4,), the logarithms of the kernel's parameters."""
        from scipy.optimize import minimize  # noqa: PLC0415 # slow, and not needed by API processes

        result = minimize(
            self._falling,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=_BOUNDS,
            options={"maxfun": _EVALUATIONS, "maxiter": _EVALUATIONS, "ftol": 1e-10, "gtol": 1e-6},
        )
        return Likelihood(-float(result.fun), Kernel(*np.exp(result.x).tolist()), bool(result.success))

    def _falling(self, theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return minus the log likelihood and minus its gradient (4,); infinity and 0 if K is numerically singular."""
        try:
            value, gradient = log_likelihood(self.squared, self.factor, self.d, Kernel(*np.exp(theta)))
        except LinAlgError:
            return np.inf, np.zeros(4)
        return -value, -gradient
