r"""Linear maps to the directions of greatest variance: PCA, probabilistic PCA and factor analysis.

Principal component analysis: the centered data are :math:`X = U S V^T`, and :math:`Y = U_p S_p`. The eigenvalues belong
to the covariance, :math:`S^2 / n`. Of all linear maps to p dimensions, this one keeps the most variance (Pearson 1901;
Hotelling 1933).

To compute the eigenvectors of :math:`X^T X`, or of :math:`X X^T` if d > n, takes a tenth of the time of the singular
value decomposition. But the eigenvalues are accurate only relative to the largest, so that :math:`s_p` loses a factor
of :math:`(s_1 / s_p)^2` in accuracy. If this costs too many digits, the decomposition is computed.

Probabilistic principal component analysis: a linear map of a Gaussian in p dimensions, with isotropic noise.

:math:`x = W z + \mu + e`, :math:`z \sim N(0, I_p)`, :math:`e \sim N(0, \sigma^2 I_d)`. With the eigenvalues
:math:`\lambda_j` and eigenvectors U of the covariance, the likelihood is largest at
:math:`\sigma^2 = \sum_{j > p} \lambda_j / (d - p)` and :math:`W = U_p (\Lambda_p - \sigma^2 I)^{1/2}` (Tipping and
Bishop 1999, Eq. 7-8), with the value :math:`-\frac n2 (d \log 2\pi + \sum_{j \le p} \log \lambda_j +
(d - p) \log \sigma^2 + d)`. The embedding is :math:`E[z | x] = \Lambda_p^{-1} W^T (x - \mu)`.

Bayesian PCA (`prior="ard"`): column j of W has the prior :math:`N(0, \alpha_j^{-1} I_d)`, and
:math:`\alpha_j = d / |w_j|^2` is estimated with W (Bishop 1999, *Bayesian PCA*, NIPS 11). Columns that the data do not
need go to 0, so that the number of components follows from the data.

Factor analysis: a linear map of a Gaussian in p dimensions, with a noise variance for each feature.

:math:`x = W z + \mu + e`, :math:`z \sim N(0, I_p)`, :math:`e \sim N(0, \Psi)`, :math:`\Psi` diagonal. By expectation
maximization (Rubin and Thayer 1982) on the covariance S: with :math:`M = I + W^T \Psi^{-1} W` and
:math:`B = M^{-1} W^T \Psi^{-1}`, :math:`W \leftarrow S B^T (M^{-1} + B S B^T)^{-1}` and
:math:`\Psi \leftarrow \mathrm{diag}(S - W B S)`. No step lowers the likelihood. With :math:`\Psi = \sigma^2 I` the
limit is probabilistic PCA, which has a closed form (`ppca`). The embedding is :math:`E[z | x] = B (x - \mu)`, rotated
so that :math:`W^T \Psi^{-1} W` is diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import DegenerateDataError
from glle_engine.base.texts import Note, Way
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import leading_eigenpairs
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.maps import AffineMap
from glle_engine.methods.parameters import MethodSpec, choice, integer, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.progress import OnProgress

# If s_p^2 / s_1^2 is at least this, eigenvectors of X^T X lose at most four of sixteen digits.
MIN_EIGENVALUE_RATIO = 1e-4
# A noise of at most this share of the total variance is a rounding error: the data lie in p dimensions.
MAX_ROUNDING_SHARE = 1e-20
# An eigenvalue that exceeds the noise variance by at most this share of the noise variance counts as equal to it.
MAX_RELATIVE_EXCESS = 1e-9
# Expectation maximization of probabilistic PCA stops when a step raises the log likelihood by less than EM_GAIN nats
# per point, or after EM_STEPS steps.
EM_GAIN, EM_STEPS = 1e-13, 100_000
# Bayesian PCA stops when a step changes the length of every column of loadings and the noise variance by less than
# this, for data that are scaled so that the mean variance of a feature is 1.
EM_TOLERANCE = 1e-12
MIN_NOISE = 1e-6  # smallest noise, as a share of the variance of a feature; without it the likelihood is unbounded


@dataclass(frozen=True, eq=False)
class PcaFit:
    """The p leading principal axes of data X (n, d), with the scores of the points and the variances.

    Attributes
    ----------
    scores : (n, p) float64
        The centered data projected on the axes, with signs by `sign_convention`.
    directions : (d, p) float64
        The axes, orthonormal columns.
    values : (p,) float64
        Eigenvalues of the covariance of the data, descending: the variances of the scores.
    mean : (d,) float64
        Mean of the data.
    total : float
        The trace of the covariance: the variance of all features together.

    """

    scores: NDArray[np.float64]
    directions: NDArray[np.float64]
    values: NDArray[np.float64]
    mean: NDArray[np.float64]
    total: float

    @property
    def explained_variance(self) -> float:
        """Share of the total variance that the p axes explain, from 0 to 1."""
        return min(float(self.values.sum() / self.total), 1.0)

    def notes(self) -> Iterator[Note]:
        """Yield a note if the data span fewer than p dimensions, so that the last scores are only rounding errors."""
        rounding = (max(len(self.scores), len(self.directions)) * np.finfo(float).eps) ** 2
        span = int((self.values > rounding * self.values[0]).sum())
        if flat := len(self.values) - span:
            message = f"The data span {span} dimensions: the other {flat} coordinates are 0 but for rounding."
            yield Note("flat-components", f"{message} Give {Way('n_components')} of at most {span}.")


def principal_axes(X: NDArray[np.float64], p: int, on_progress: OnProgress) -> PcaFit:
    """Return the p leading principal axes of X (n, d), which is centered here; p is at most min(n, d)."""
    n, d = X.shape
    mean = X.mean(axis=0)
    centered = X - mean
    values, vectors = leading_eigenpairs(centered @ centered.T if d > n else centered.T @ centered, p, on_progress)
    total = float(np.einsum("ij,ij->", centered, centered))
    if values[-1] < MIN_EIGENVALUE_RATIO * values[0]:
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
    about="The p orthogonal directions of greatest variance, of centered data.",
    source="Pearson 1901; Hotelling 1933",
    linear=True,
    growth="n d^2; n^2 d for more features than points",
    restore=AffineMap.restore,
)
def pca(X: NDArray[np.float64], spec: MethodSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the leading principal components of the centered data."""
    axes = principal_axes(X, spec.n_components, on_progress)
    figures = {"explained_variance": axes.explained_variance}
    return Embedding(axes.scores, axes.values, figures, (*axes.notes(),), map=AffineMap(axes.mean, axes.directions.T))


@dataclass(frozen=True, eq=False)
class FactorMap(AffineMap):
    """Map of probabilistic PCA and factor analysis: it places x at the posterior mean E[z | x] = C (x - m).

    The model is x = W z + m + e, with z standard normal and noise e of diagonal covariance Psi.

    Attributes
    ----------
    loadings : (d, p) float64
        W, in the units of the data.
    noise_variances : (d,) float64
        The diagonal of Psi, in squared units of the data; 0 for a constant feature.

    """

    loadings: NDArray[np.float64]
    noise_variances: NDArray[np.float64]

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays to store, by name: mean, components, loadings and noise variances."""
        return {**super().arrays, "loadings": self.loadings, "noise_variances": self.noise_variances}

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The covariance (d, d) of a point x in the fitted model, W W^T + Psi."""
        return self.loadings @ self.loadings.T + np.diag(self.noise_variances)

    def log_likelihoods(self, points: ArrayLike) -> NDArray[np.float64]:
        """Return the log density (m,) of points (m, d) in the fitted model, in nats.

        Features that were constant in the training data are ignored.
        """
        centered = self._check(points) - self.mean
        varying = self.noise_variances > 0
        W, noise, centered = self.loadings[varying], self.noise_variances[varying], centered[:, varying]
        weighted = W / noise[:, None]
        precision = np.eye(W.shape[1]) + W.T @ weighted  # precision of z, given x
        explained = centered @ weighted
        squares = (centered**2 / noise).sum(axis=1) - (explained * np.linalg.solve(precision, explained.T).T).sum(
            axis=1
        )
        log_det = np.log(noise).sum() + np.linalg.slogdet(precision)[1]
        return np.asarray(-0.5 * (len(noise) * np.log(2 * np.pi) + log_det + squares))

    def inverse(self, places: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
        """Return the mean E[x | z] = W z + m of a point x for each row z of `places`.

        `ridge` is not used: other maps compute x by a ridge regression, but here the fit has already found W and m.
        """
        return np.asarray(self.mean + places @ self.loadings.T)


@dataclass(frozen=True, kw_only=True)
class PpcaSpec(MethodSpec):
    """Parameters of probabilistic PCA."""

    solver: str = choice(
        "closed-form", "The maximum in closed form, or by expectation maximization, which converges to it.",
        "closed-form", "em",
    )  # fmt: skip
    prior: str = choice(
        "flat", "Prior of the columns of W: flat, or normal with an estimated precision for each column (ard: "
        "automatic relevance determination, Bayesian PCA), so that components that the data do not need become 0.",
        "flat", "ard",
    )  # fmt: skip

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if prior="ard", which is fitted in its own way, is given with another `solver`.

        Only the default of `solver` is accepted with this prior.
        """
        super().check_together()
        if self.prior == "ard":
            self.refuse_unused("prior", "solver")

    def require_possible(self, n: int, d: int) -> None:
        """Raise `InvalidParameterError` unless n_components < min(n - 1, d).

        The n centered points of d features span at most min(n - 1, d) dimensions, and the components must leave at
        least one of them for the noise.
        """
        self.require_noise_dimension(n, d, "Probabilistic PCA")


@dataclass(frozen=True, eq=False)
class Fit:
    """The fitted parameters of probabilistic PCA, x = W z + mean + noise, and their likelihood.

    Attributes
    ----------
    loadings : (d, p) float64
        W, in the unit of the data.
    noise_variance : float
        Variance of the noise of each feature, in squared units of the data.
    log_likelihood : float
        Log likelihood of all n points, in nats.

    """

    loadings: NDArray[np.float64]
    noise_variance: float
    log_likelihood: float


def fit_ppca_by_em(
    X: NDArray[np.float64], p: int, on_progress: OnProgress, max_iter: int = EM_STEPS
) -> tuple[Fit, int]:
    """Fit probabilistic PCA to X (n, d) by expectation maximization; return the parameters and the number of steps.

    The steps start from random loadings, not from the eigenvectors of the covariance. The final loadings are rotated so
    that W^T W is diagonal (Tipping and Bishop 1999, Eq. 27-28).
    """
    n, d = X.shape
    centered = X - X.mean(axis=0)
    unit = float(np.sqrt(np.mean(centered**2)))
    root = centered / (unit * np.sqrt(n))
    root = np.asarray(np.linalg.qr(root, mode="r"), np.float64) if n > d else root
    start = Model(np.random.default_rng(0).standard_normal((d, p)), np.ones(d))
    model, likelihoods, _ = maximize(root, start, EM_GAIN, max_iter, on_progress, isotropic=True)
    left, spread, _ = np.linalg.svd(model.loadings, full_matrices=False)
    noise = float(model.noise[0]) * unit**2
    return Fit(left * spread * unit, noise, n * (likelihoods[-1] - d * float(np.log(unit)))), len(likelihoods) - 1


def fit_ppca(X: NDArray[np.float64], axes: PcaFit) -> Fit:
    """Return the maximum-likelihood parameters of probabilistic PCA in closed form.

    `axes` are the p leading principal axes of X (n, d).

    Raises
    ------
    DegenerateDataError
        If the data lie in p dimensions, so that the noise is 0 and the likelihood is unbounded.

    """
    n, d = X.shape
    p = len(axes.values)
    # The noise is computed from the residual of each point. A difference of variances would lose a small noise in
    # rounding errors.
    residuals = X - X.mean(axis=0) - axes.scores @ axes.directions.T
    total = float(np.einsum("ij,ij->", residuals, residuals)) / n
    if total <= MAX_ROUNDING_SHARE * axes.total:
        raise DegenerateDataError(
            f"The data lie in a plane of {p} or fewer dimensions, so that {Way('n_components', p)} leaves no dimension "
            "for the noise.",
            remedy=f"Lower {Way('n_components')}, or use PCA, which has no noise.",
            details={"n_components": p},
        )
    noise = total / (d - p)
    spread = np.sqrt(np.maximum(axes.values - noise, 0.0))  # rounding errors may make a difference negative
    log_det = float(np.log(axes.values).sum()) + (d - p) * float(np.log(noise))
    return Fit(axes.directions * spread, noise, -0.5 * n * (d * float(np.log(2 * np.pi)) + log_det + d))


def fit_bayesian_ppca(X: NDArray[np.float64], axes: PcaFit, on_progress: OnProgress) -> tuple[Fit, int]:
    r"""Fit Bayesian PCA (automatic relevance determination); return the parameters and the number of steps.

    Expectation maximization starts at the maximum of the likelihood (Bishop 1999). The p columns of the loadings stay
    along the principal axes of X (n, d), so that a step only updates their lengths w and the noise variance
    :math:`\sigma^2`. For each column, let :math:`\lambda` be the variance of the data along its axis,
    :math:`m = w^2 + \sigma^2`, :math:`c = \lambda w / m` and :math:`s = \sigma^2 / m + \lambda w^2 / m^2`. The step is
    :math:`w \leftarrow c / (s + \sigma^2 d / (n w^2))`, and :math:`\sigma^2` becomes the expected squared residual per
    feature. A length becomes 0 if its square is at most `MAX_RELATIVE_EXCESS` times :math:`\sigma^2`.

    Raises
    ------
    DegenerateDataError
        If the data lie in p dimensions, so that the noise is 0 and the likelihood is unbounded.

    """
    n, d = X.shape
    start, unit = fit_ppca(X, axes), axes.total / d
    values, total = axes.values / unit, float(d)
    w, noise = np.sqrt((start.loadings**2).sum(axis=0) / unit), start.noise_variance / unit
    for steps in range(1, EM_STEPS + 1):
        m = w**2 + noise
        c, s = values * w / m, noise / m + values * (w / m) ** 2
        w = np.where(w**2 > MAX_RELATIVE_EXCESS * noise, w, 0.0)
        following = c * w**2 / (s * w**2 + noise * d / n)
        left = (total - 2 * (c * following).sum() + (s * following**2).sum()) / d
        moved = max(float(np.abs(following - w).max()), abs(left - noise))
        w, noise = following, float(left)
        if moved < EM_TOLERANCE:
            break
        if steps % 100 == 0:
            on_progress(steps, EM_STEPS, "expectation maximization")
    m = w**2 + noise
    log_det = float(np.log(m).sum()) + (d - len(m)) * float(np.log(noise)) + d * float(np.log(unit))
    distance = float((values / m).sum()) + (total - float(values.sum())) / noise
    likelihood = -0.5 * n * (d * float(np.log(2 * np.pi)) + log_det + distance)
    return Fit(axes.directions * w * np.sqrt(unit), noise * unit, likelihood), steps


@Method(
    spec=PpcaSpec,
    title="Probabilistic PCA",
    about="Maximum likelihood of x = W z + mu + e, with z standard normal in p dimensions and noise of one variance.",
    source="Tipping and Bishop 1999, J. R. Stat. Soc. B 61, Eq. 7-8",
    linear=True,
    growth="n d^2; n^2 d for more features than points",
    restore=FactorMap.restore,
)
def ppca(X: NDArray[np.float64], spec: PpcaSpec, on_progress: OnProgress) -> Embedding:
    """Embed each point x at its posterior mean E[z | x] in the model of probabilistic PCA."""
    axes = principal_axes(X, spec.n_components, on_progress)
    fit, explained = fit_ppca(X, axes), axes.explained_variance
    figures: dict[str, Any] = {}
    if spec.prior == "ard":
        fit, figures["iterations"] = fit_bayesian_ppca(X, axes, on_progress)
        squares = (fit.loadings**2).sum(axis=0)
        axes = replace(axes, values=squares + fit.noise_variance)
        figures["relevance"] = [X.shape[1] / float(square) if square else None for square in squares]
        figures["relevant_components"] = int((squares > 0).sum())
    if spec.solver == "em":
        by_em, figures["iterations"] = fit_ppca_by_em(X, spec.n_components, on_progress)
        signs = np.where(np.einsum("ij,ij->j", by_em.loadings, axes.directions) < 0, -1.0, 1.0)
        values = (by_em.loadings**2).sum(axis=0) + by_em.noise_variance
        directions = by_em.loadings * signs / np.sqrt(values - by_em.noise_variance)
        scores = (X - axes.mean) @ directions
        axes, fit = replace(axes, values=values, directions=directions, scores=scores), by_em
    signal = np.maximum(1 - fit.noise_variance / axes.values, 0.0)
    figures |= {
        "log_likelihood": fit.log_likelihood,
        "noise_variance": fit.noise_variance,
        "posterior_variance": (1 - signal).tolist(),
        "explained_variance": explained,
    }
    notes = []
    if buried := int((signal <= MAX_RELATIVE_EXCESS).sum()):
        message = f"{buried} of {spec.n_components} components vary no more than the noise: their coordinates are 0."
        notes.append(Note("components-of-noise", f"{message} Lower {Way('n_components')}."))
    shrinkage = np.sqrt(signal / axes.values)
    noise = np.full(X.shape[1], fit.noise_variance)
    loadings = axes.directions * np.sqrt(axes.values * signal)
    linear = FactorMap(axes.mean, (axes.directions * shrinkage).T, loadings, noise)
    return Embedding(axes.scores * shrinkage, axes.values, figures, tuple(notes), map=linear)


@dataclass(frozen=True, kw_only=True)
class FactorAnalysisSpec(MethodSpec):
    """Parameters of factor analysis."""

    tol: float = number(1e-6, "Gain of log likelihood per point, in nats, below which the steps stop.", above=0)
    max_iter: int = integer(2000, "Largest number of steps of expectation maximization.", minimum=1)

    def require_possible(self, n: int, d: int) -> None:
        """Raise `InvalidParameterError` unless n_components < min(n - 1, d): the noise needs a dimension."""
        self.require_noise_dimension(n, d, "Factor analysis")


@dataclass(frozen=True, eq=False)
class Model:
    """Fitted parameters of probabilistic PCA or factor analysis, for data that are scaled to variance 1.

    Attributes
    ----------
    loadings : (d, p) float64
        W of the model x = W z + mean + noise.
    noise : (d,) float64
        The noise variance of each feature.

    """

    loadings: NDArray[np.float64]
    noise: NDArray[np.float64]


def step(root: NDArray[np.float64], model: Model, *, isotropic: bool = False) -> tuple[Model, float]:
    """Take a step of expectation maximization; return the new model, and the log likelihood per point of `model`.

    Parameters
    ----------
    root : (r, d) float64
        Square root of the covariance of the data, which is root^T root.
    model : Model
        The parameters before the step.
    isotropic : bool
        Whether all features have the same noise variance, as in probabilistic PCA.

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
    if isotropic:
        residual = np.full(d, residual.mean())
    return Model(loadings, np.maximum(residual, MIN_NOISE * float(variance.mean()))), likelihood


def maximize(
    root: NDArray[np.float64],
    start: Model,
    tol: float,
    max_iter: int,
    on_progress: OnProgress,
    *,
    isotropic: bool = False,
) -> tuple[Model, list[float], bool]:
    """Maximize the likelihood of probabilistic PCA or factor analysis by expectation maximization, from `start`.

    `step` is repeated until it raises the log likelihood per point by less than `tol`, in nats, or `max_iter` steps are
    made. `root` (r, d), a square root of the covariance of the data, and `isotropic` are as for `step`. Returns the
    last model, the log likelihood per point of every model from `start` on, and whether the last gain was below `tol`.
    """
    model, likelihoods = start, [-np.inf]
    for i in range(max_iter):
        following, likelihood = step(root, model, isotropic=isotropic)
        likelihoods.append(likelihood)
        if likelihood - likelihoods[-2] < tol:
            return model, likelihoods[1:], True
        model = following
        on_progress(i + 1, max_iter, "expectation maximization")
    likelihoods.append(step(root, model)[1])
    return model, likelihoods[1:], likelihoods[-1] - likelihoods[-2] < tol


def posterior_means(
    centered: NDArray[np.float64], model: Model
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the posterior means E[z | x] = C x of the points (n, p), the matrix C (p, d), and the loadings W (d, p).

    `centered` (n, d) are the points x minus their mean. The factors z are rotated so that W^T Psi^-1 W is diagonal,
    where Psi is the noise covariance of `model`.
    """
    weighted = model.loadings / model.noise[:, None]
    signal, rotation = np.linalg.eigh(model.loadings.T @ weighted)
    components, loadings = (weighted @ rotation / (1 + signal))[:, ::-1], (model.loadings @ rotation)[:, ::-1]
    means = centered @ components
    signed = sign_convention(means)
    signs = np.where(np.einsum("ij,ij->j", signed, means) < 0, -1.0, 1.0)
    return signed, (components * signs).T, loadings * signs


@Method(
    spec=FactorAnalysisSpec,
    title="Factor analysis",
    about="Maximum likelihood of x = W z + mu + e, with z standard normal in p dimensions and noise of a variance for "
    "each feature.",
    source="Rubin and Thayer 1982, Psychometrika 47; Ghojogh et al., FA-LLE",
    linear=True,
    growth="n d^2 once; a step takes d^2 p, or n d p for more features than points",
    any_scale=True,
    restore=FactorMap.restore,
)
def factor_analysis(X: NDArray[np.float64], spec: FactorAnalysisSpec, on_progress: OnProgress) -> Embedding:
    """Embed each point x at its posterior mean E[z | x] in the model of factor analysis."""
    n = len(X)
    varying = np.ptp(X, axis=0) > 0
    used = X[:, varying]
    centered = used - used.mean(axis=0)
    exponents = np.frexp(np.abs(centered).max(axis=0))[1]
    centered = np.ldexp(centered, -exponents)  # scaling by powers of 2 is exact; afterwards no variance underflows
    unit = np.sqrt(np.mean(centered**2, axis=0))  # the factors do not depend on the units of the features
    centered /= unit
    unit = np.ldexp(unit, exponents)
    spec.require_noise_dimension(n, used.shape[1], "Factor analysis of the features that vary")
    axes = principal_axes(centered, spec.n_components, on_progress)
    loadings = axes.directions * np.sqrt(axes.values)
    residual = np.maximum(np.mean(centered**2, axis=0) - (loadings**2).sum(axis=1), 0.01)
    start = Model(loadings, residual)
    root = np.linalg.qr(centered, mode="r") / np.sqrt(n) if n > used.shape[1] else centered / np.sqrt(n)
    model, likelihoods, converged = maximize(root, start, spec.tol, spec.max_iter, on_progress)
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
    means, components, loadings = posterior_means(centered, model)
    p, d = spec.n_components, X.shape[1]
    linear = FactorMap(X.mean(axis=0), np.zeros((p, d)), np.zeros((d, p)), np.zeros(d))
    linear.components[:, varying], linear.loadings[varying] = components / unit, loadings * unit[:, None]
    linear.noise_variances[varying] = noise
    return Embedding(means, None, figures, (*_notes(figures, spec, used.shape[1], model),), map=linear)


def _notes(figures: dict[str, Any], spec: FactorAnalysisSpec, d: int, model: Model) -> Iterator[Note]:
    """Yield a note for each of four problems that the fit has.

    The problems are: no convergence, constant features, factors that are not unique, and features with almost no noise.
    `d` is the number of features that vary.
    """
    p = spec.n_components
    if not figures["converged"]:
        message: str = f"After {spec.max_iter} steps the likelihood still grows. Raise {Way('max_iter')} or tol."
        yield Note("not-converged", message)
    if n_constant := figures["constant_features"]:
        message = f"{n_constant} features are constant: they have no noise variance and no part in the likelihood."
        yield Note("constant-features", message)
    if (d - p) ** 2 < d + p:
        message = f"{p} factors of {d} features have more parameters than the covariance: other factors are as likely."
        yield Note("not-identified", f"{message} Lower {Way('n_components')}, or take PPCA.")
    if exact := int((model.noise <= 1.5 * MIN_NOISE).sum()):
        message = (
            f"{exact} of {d} features have almost no noise (a Heywood case): a factor explains them alone, and "
            f"their noise is held at {MIN_NOISE:g} of a variance. Lower {Way('n_components')}, or take PPCA."
        )
        yield Note("heywood", message)
