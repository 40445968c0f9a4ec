r"""Factor analysis: a linear map of a Gaussian in p dimensions, with a noise variance for each feature.

:math:`x = W z + \mu + e`, :math:`z \sim N(0, I_p)`, :math:`e \sim N(0, \Psi)`, :math:`\Psi` diagonal. By expectation
maximisation (Rubin and Thayer 1982) on the covariance S: with :math:`M = I + W^T \Psi^{-1} W` and
:math:`B = M^{-1} W^T \Psi^{-1}`, :math:`W \leftarrow S B^T (M^{-1} + B S B^T)^{-1}` and
:math:`\Psi \leftarrow \mathrm{diag}(S - W B S)`. No step lowers the likelihood. With :math:`\Psi = \sigma^2 I` the
limit is probabilistic PCA, which has a closed form (`ppca`). The embedding is :math:`E[z | x] = B (x - \mu)`, turned so
that :math:`W^T \Psi^{-1} W` is diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.methods.parameters import MethodSpec, integer, number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

LEAST_NOISE = 1e-6  # of a feature's variance: the bound of an unbounded likelihood


@dataclass(frozen=True, kw_only=True)
class FactorAnalysisSpec(MethodSpec):
    """Parameters of factor analysis."""

    tolerance: float = number(1e-6, "Gain of log likelihood a point, in nats, at which to stop.", above=0)
    max_iterations: int = integer(2000, "Steps of expectation maximisation at most.", least=1)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse factors that leave no dimension for the noise."""
        self.require_noise_dimension(n, d, "Factor analysis")

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost."""
        steps = min(self.max_iterations, 500)  # a usual number
        return estimate(row, n, d, p=self.n_components, steps=steps)


@dataclass(frozen=True, eq=False)
class Model:
    """State of the iteration, in the unit in which the variance of the data is 1.

    Attributes
    ----------
    loadings : (d, p) float64
        W.
    noise : (d,) float64
        The diagonal of Psi.

    """

    loadings: NDArray[np.float64]
    noise: NDArray[np.float64]


def step(root: NDArray[np.float64], model: Model) -> tuple[Model, float]:
    """Return the model after one step, and the mean log likelihood of a point before it.

    Parameters
    ----------
    root : (r, d) float64
        The covariance is root^T root.
    model

    """
    W, noise = model.loadings, model.noise
    d, p = W.shape
    variance = np.einsum("ij,ij->j", root, root)
    weighted = W / noise[:, None]
    precision = np.eye(p) + W.T @ weighted
    regression = np.linalg.solve(precision, weighted.T)
    cross = root.T @ (root @ regression.T)
    likelihood = -0.5 * float(
        d * np.log(2 * np.pi)
        + np.log(noise).sum()
        + np.linalg.slogdet(precision)[1]
        + (variance / noise).sum()
        - (weighted * cross).sum()
    )
    second = np.linalg.inv(precision) + regression @ cross
    loadings = np.asarray(np.linalg.solve(second, cross.T).T, np.float64)
    residual = variance - np.einsum("ij,ij->i", loadings, cross)
    return Model(loadings, np.maximum(residual, LEAST_NOISE * float(variance.mean()))), likelihood


def maximise(
    root: NDArray[np.float64], start: Model, spec: FactorAnalysisSpec, on_progress: OnProgress
) -> tuple[Model, list[float], bool]:
    """Return the model, the mean log likelihood before each step and at the end, and whether it converged."""
    model, likelihoods = start, [-np.inf]
    for i in range(spec.max_iterations):
        following, likelihood = step(root, model)
        likelihoods.append(likelihood)
        if likelihood - likelihoods[-2] < spec.tolerance:
            return model, likelihoods[1:], True
        model = following
        on_progress(i + 1, spec.max_iterations, "expectation maximisation")
    likelihoods.append(step(root, model)[1])
    return model, likelihoods[1:], likelihoods[-1] - likelihoods[-2] < spec.tolerance


def posterior_means(centered: NDArray[np.float64], model: Model) -> NDArray[np.float64]:
    """Return E[z | x] (n, p), rotated so that W^T Psi^-1 W is diagonal and descends."""
    weighted = model.loadings / model.noise[:, None]
    signal, rotation = np.linalg.eigh(model.loadings.T @ weighted)
    return sign_convention((centered @ weighted @ rotation / (1 + signal))[:, ::-1])


@Method(
    spec=FactorAnalysisSpec,
    title="Factor analysis",
    about="Maximum likelihood of x = W z + mu + e, with z standard normal in p dimensions and noise of a variance for "
    "each feature.",
    source="Rubin and Thayer 1982, Psychometrika 47; Ghojogh et al., FA-LLE",
    growth="n d^2 once; a step takes d^2 p, or n d p for more features than points",
)
def factor_analysis(X: NDArray[np.float64], spec: FactorAnalysisSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the posterior means."""
    n = len(X)
    varying = np.ptp(X, axis=0) > 0
    used = X[:, varying]
    centered = used - used.mean(axis=0)
    unit = np.sqrt(np.mean(centered**2, axis=0))  # the factors are the same in any unit of a feature
    centered /= unit
    spec.require_noise_dimension(n, used.shape[1], "Factor analysis of the features that vary")
    axes = principal_axes(centered, spec.n_components, on_progress)
    loadings = axes.directions * np.sqrt(axes.values)
    residual = np.maximum(np.mean(centered**2, axis=0) - (loadings**2).sum(axis=1), 0.01)
    start = Model(loadings, residual)
    root = np.linalg.qr(centered, mode="r") / np.sqrt(n) if n > used.shape[1] else centered / np.sqrt(n)
    model, likelihoods, converged = maximise(root, start, spec, on_progress)
    noise = model.noise * unit**2
    figures: dict[str, Any] = {
        "log_likelihood": n * (likelihoods[-1] - float(np.log(unit).sum())),
        "iterations": len(likelihoods) - 1,
        "converged": converged,
        "noise_variance": float(noise.mean()),
        "noise_variance_least": float(noise.min()),
        "noise_variance_most": float(noise.max()),
        "constant_features": int((~varying).sum()),
    }
    notes = [
        *([] if converged else [_not_converged(spec)]),
        *_doubts(spec, used.shape[1], model, n_constant=int((~varying).sum())),
    ]
    return Embedding(posterior_means(centered, model), None, figures, tuple(notes))


def _not_converged(spec: FactorAnalysisSpec) -> Note:
    return Note(
        "not-converged",
        f"After {spec.max_iterations} steps the likelihood still grows. Raise max_iterations or tolerance.",
    )


def _doubts(spec: FactorAnalysisSpec, d: int, model: Model, n_constant: int) -> list[Note]:
    """Return notes on features and factors that the likelihood does not determine."""
    notes = []
    p = spec.n_components
    if n_constant:
        message = f"{n_constant} features are constant: they have no noise variance and no part in the likelihood."
        notes.append(Note("constant-features", message))
    if (d - p) ** 2 < d + p:
        message = f"{p} factors of {d} features have more parameters than the covariance: other factors are as likely."
        notes.append(Note("not-identified", f"{message} Lower n_components, or take PPCA."))
    if exact := int((model.noise <= 1.5 * LEAST_NOISE).sum()):
        message = (
            f"{exact} of {d} features have almost no noise (a Heywood case): a factor explains them alone, and their "
            f"noise is held at {LEAST_NOISE:g} of a variance. Lower n_components, or take PPCA."
        )
        notes.append(Note("heywood", message))
    return notes
