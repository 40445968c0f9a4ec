r"""Factor analysis: a Gaussian in p dimensions, seen through a linear map with noise of a variance for each feature.

:math:`x = W z + \mu + e`, :math:`z \sim N(0, I_p)`, :math:`e \sim N(0, \Psi)`, :math:`\Psi` diagonal. By expectation
maximisation (Rubin and Thayer 1982) on the covariance S: with :math:`M = I + W^T \Psi^{-1} W` and
:math:`B = M^{-1} W^T \Psi^{-1}`, :math:`W \leftarrow S B^T (M^{-1} + B S B^T)^{-1}` and
:math:`\Psi \leftarrow \mathrm{diag}(S - W B S)`. No step lowers the likelihood. With :math:`\Psi = \sigma^2 I` the
mean of that diagonal is taken, and the limit is probabilistic PCA. The embedding is :math:`E[z | x] = B (x - \mu)`,
turned so that :math:`W^T \Psi^{-1} W` is diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.linear.principal_axes import principal_axes
from glle_engine.methods.parameters import MethodSpec, choice, integer, number
from glle_engine.methods.refusals import require_noise_dimension

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

LEAST_NOISE = 1e-6  # of a feature's variance: a likelihood that grows without bound stops there


@dataclass(frozen=True, kw_only=True)
class FactorAnalysisSpec(MethodSpec):
    """The parameters of factor analysis."""

    noise: str = choice(
        "diagonal", "One noise variance for each feature, or one for all, which is PPCA.", "diagonal", "isotropic"
    )
    tolerance: float = number(1e-6, "Gain of log likelihood a point, in nats, at which to stop.", above=0)
    max_iterations: int = integer(2000, "Steps of expectation maximisation at most.", least=1)


@dataclass(frozen=True, eq=False)
class Model:
    """A state of the iteration, in the unit in which the variance of the data is 1.

    Attributes
    ----------
    loadings : (d, p) float64
        W.
    noise : (d,) float64
        The diagonal of Psi.

    """

    loadings: NDArray[np.float64]
    noise: NDArray[np.float64]


def step(root: NDArray[np.float64], model: Model, *, isotropic: bool) -> tuple[Model, float]:
    """Return the model after one step, and the log likelihood of a point before it.

    Parameters
    ----------
    root : (r, d) float64
        The covariance is root^T root.
    model
        Before the step.
    isotropic : bool
        Whether all features have the mean of the noise variances.

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
    left = variance - np.einsum("ij,ij->i", loadings, cross)
    left = np.full(d, float(left.mean())) if isotropic else left
    return Model(loadings, np.maximum(left, LEAST_NOISE * float(variance.mean()))), likelihood


def maximise(
    root: NDArray[np.float64], start: Model, spec: FactorAnalysisSpec, on_progress: OnProgress
) -> tuple[Model, list[float], bool]:
    """Return the model, the log likelihoods of a point, one before each step and the last, and whether they settled."""
    model, told = start, [-np.inf]
    for i in range(spec.max_iterations):
        following, likelihood = step(root, model, isotropic=spec.noise == "isotropic")
        told.append(likelihood)
        if likelihood - told[-2] < spec.tolerance:
            return model, told[1:], True
        model = following
        on_progress(i + 1, spec.max_iterations, "expectation maximisation")
    told.append(step(root, model, isotropic=spec.noise == "isotropic")[1])
    return model, told[1:], told[-1] - told[-2] < spec.tolerance


def posterior_means(centred: NDArray[np.float64], model: Model) -> NDArray[np.float64]:
    """Return E[z | x] (n, p), turned so that W^T Psi^-1 W is diagonal and descends."""
    weighted = model.loadings / model.noise[:, None]
    signal, turn = np.linalg.eigh(model.loadings.T @ weighted)
    return sign_convention((centred @ weighted @ turn / (1 + signal))[:, ::-1])


def run(
    X: NDArray[np.float64], spec: FactorAnalysisSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the posterior means."""
    n = len(X)
    isotropic = spec.noise == "isotropic"
    varying = np.ptp(X, axis=0) > 0
    own = X if isotropic else X[:, varying]
    # Factors do not know the units: each feature's own, or one for all where they share their noise.
    centred = own - own.mean(axis=0)
    unit = np.sqrt(np.mean(centred**2, axis=None if isotropic else 0))
    centred /= unit
    require_noise_dimension(n, own.shape[1], spec.n_components, "Factor analysis of the features that vary")
    axes = principal_axes(centred, spec.n_components, on_progress)
    loadings = axes.directions * np.sqrt(axes.values)
    left = np.maximum(np.mean(centred**2, axis=0) - (loadings**2).sum(axis=1), 0.01)
    start = Model(loadings, np.full_like(left, left.mean()) if isotropic else left)
    root = np.linalg.qr(centred, mode="r") / np.sqrt(n) if n > own.shape[1] else centred / np.sqrt(n)
    model, told, converged = maximise(root, start, spec, on_progress)
    noise = model.noise * unit**2
    figures: dict[str, Any] = {
        "log_likelihood": n * (told[-1] - float(np.log(np.broadcast_to(unit, own.shape[1:])).sum())),
        "iterations": len(told) - 1,
        "converged": converged,
        "noise_variance": float(noise.mean()),
        "noise_variance_least": float(noise.min()),
        "noise_variance_most": float(noise.max()),
        "constant_features": int((~varying).sum()),
    }
    notes = [
        *([] if converged else [_unsettled(spec)]),
        *_doubts(spec, own.shape[1], model, left_out=0 if isotropic else int((~varying).sum())),
    ]
    return Embedding(posterior_means(centred, model), None, figures, tuple(notes))


def _unsettled(spec: FactorAnalysisSpec) -> Note:
    return Note(
        "not-converged",
        f"After {spec.max_iterations} steps the likelihood still grows. Raise max_iterations or tolerance.",
    )


def _doubts(spec: FactorAnalysisSpec, d: int, model: Model, left_out: int) -> list[Note]:
    """Say what makes the maximum other than it should be."""
    notes = []
    p = spec.n_components
    if left_out:
        told = f"{left_out} features are constant: they have no noise variance and are not part of the likelihood."
        notes.append(Note("constant-features", told))
    if spec.noise == "diagonal" and (d - p) ** 2 < d + p:
        told = f"{p} factors of {d} features have more parameters than the covariance: other factors are as likely."
        notes.append(Note("not-identified", f"{told} Lower n_components, or give noise='isotropic'."))
    if exact := int((model.noise <= 1.5 * LEAST_NOISE).sum()):
        told = f"{exact} of {d} features have next to no noise (a Heywood case): a factor is theirs alone, and their"
        notes.append(
            Note("heywood", f"{told} noise is held at {LEAST_NOISE:g} of a variance. Lower n_components, or take PPCA.")
        )
    return notes


def refuse(n: int, d: int, spec: FactorAnalysisSpec) -> None:
    """Refuse factors that leave no dimension for the noise."""
    require_noise_dimension(n, d, spec.n_components, "Factor analysis")


def cost(n: int, d: int, spec: FactorAnalysisSpec) -> Cost:
    """Return the cost of a triangular factor of the data and of a usual number of steps."""
    r = min(n, d)
    each = 4e-5 + 2e-9 * r * d * spec.n_components
    steps = min(spec.max_iterations, 500)
    return Cost(2e-3 + 2e-8 * n * d + 3e-10 * n * d * r + steps * each, bytes=32.0 * n * d + 16.0 * d * r)


METHOD = Method(
    name="factor-analysis",
    title="Factor analysis",
    family="linear and kernel",
    about="Maximum likelihood of x = W z + mu + e, with z standard normal in p dimensions and noise of a variance for "
    "each feature.",
    source="Rubin and Thayer 1982, Psychometrika 47; Ghojogh et al., FA-LLE",
    spec=FactorAnalysisSpec,
    run=run,
    refuse=refuse,
    cost=cost,
    growth="n d^2 once; a step takes d^2 p, or n d p for more features than points",
)
