"""Scikit-learn estimator of the posterior (extra `sklearn`)."""

from __future__ import annotations

import numbers
import warnings
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("glle_engine.estimator needs scikit-learn: pip install 'glle[sklearn]'") from error

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.spec import FitSpec
from glle_engine.base.validation import require_unmasked
from glle_engine.posterior.fit import fit as fit_posterior
from glle_engine.reliability.calibration import Calibration, calibrate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.spec import (
        Adaptation,
        Align,
        Covariance,
        Disconnected,
        Mean,
        Method,
        Metric,
        Noise,
        Search,
        Source,
        Standardize,
        Variance,
        Variant,
    )
    from glle_engine.graph.given import GivenNeighbors
    from glle_engine.posterior.posterior import Posterior

DEFAULTS = FitSpec()


class GLLE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    r"""Generative locally linear embedding: LLE with a posterior over its weights.

    `fit_transform` returns the LLE embedding, (1/n) Y^T Y = I; `sample` draws further ones.

    Parameters
    ----------
    n_neighbors : int, optional
        None for the default of `glle_engine.base.spec.FitSpec`, which grows with the root of the number of points.
    disconnected : {"bridge", "error"}
        A graph in several components is bridged, with a UserWarning, or an error.
    random_state : int, RandomState or None
        Number of the stream of draws of `sample`, or a source of it; None for another one at each fit.
    n_components, method, variant, reg, variance, mean, covariance, max_iter, tol, noise, neighborhoods, search, \
    landmarks, standardize, metric
        As for `glle_engine.base.spec.FitSpec`.

    Attributes
    ----------
    posterior_ : glle_engine.Posterior
    embedding_ : (n, p) float64 or float32
        Of the type of the data; computed in float64.
    calibration_ : glle_engine.reliability.calibration.Calibration
        Calibration by half-sampling, computed on first use.
    n_iter_ : int
        Of the published em; 1 for the closed forms.
    seed_ : int
        Stream of draws of `sample`.
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,) of str
        If the data have column names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from glle_engine.estimator import GLLE
    >>> model = GLLE(n_neighbors=15).fit(load_digits().data)
    >>> model.sample(3).shape
    (3, 1797, 2)

    """

    def __init__(
        self,
        n_neighbors: int | None = None,
        n_components: int = DEFAULTS.n_components,
        *,
        method: Method = DEFAULTS.method,
        variant: Variant = DEFAULTS.variant,
        reg: float = DEFAULTS.reg,
        variance: Variance = DEFAULTS.variance,
        mean: Mean = DEFAULTS.mean,
        covariance: Covariance = DEFAULTS.covariance,
        max_iter: int = DEFAULTS.max_iter,
        tol: float = DEFAULTS.tol,
        disconnected: Disconnected = DEFAULTS.disconnected,
        noise: Noise = DEFAULTS.noise,
        neighborhoods: Adaptation = DEFAULTS.neighborhoods,
        search: Search = DEFAULTS.search,
        landmarks: int | None = DEFAULTS.landmarks,
        standardize: Standardize = DEFAULTS.standardize,
        metric: Metric = DEFAULTS.metric,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.method = method
        self.variant = variant
        self.reg = reg
        self.variance = variance
        self.mean = mean
        self.covariance = covariance
        self.max_iter = max_iter
        self.tol = tol
        self.disconnected = disconnected
        self.noise = noise
        self.neighborhoods = neighborhoods
        self.search = search
        self.landmarks = landmarks
        self.standardize = standardize
        self.metric = metric
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: object = None,  # noqa: ARG002  # scikit-learn's signature
        *,
        neighbors: GivenNeighbors | None = None,
    ) -> Self:
        """Fit the posterior to X (n, d), dense or sparse; y is ignored.

        `neighbors` replaces the search, as in `glle_engine.fit`.

        Raises
        ------
        glle_engine.GlleError
            A ValueError with a remedy.

        """
        require_unmasked(X, "the data")
        data = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=4)
        spec = self.get_params()
        self.seed_ = _seed(spec.pop("random_state"))
        if spec["n_neighbors"] is None:
            spec["n_neighbors"] = DEFAULTS.n_neighbors
        self.posterior_: Posterior = fit_posterior(data, neighbors=neighbors, **spec)
        for note in self.posterior_.diagnostics.notes:
            if note.code == "bridged":
                warnings.warn(note.message, UserWarning, stacklevel=2)
        self._training = data.copy()
        self._calibration: Calibration | None = None
        self.embedding_ = self.posterior_.embedding.astype(data.dtype)
        self.n_iter_ = int(self.posterior_.diagnostics.figures.get("iterations", 1))
        return self

    def fit_transform(self, X: ArrayLike, y: object = None, **fit_params: Any) -> NDArray[Any]:
        """Fit, and return the embedding of X (n, p)."""
        del fit_params
        return np.array(self.fit(X, y).embedding_)

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Embed points (m, d), each independently; a training point gets exactly its coordinates.

        See `glle_engine.posterior.placement.out_of_sample`.
        """
        check_is_fitted(self)
        require_unmasked(X, "the data")
        data = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        placed = self.posterior_.extend(self._training, data).embed(self.posterior_.embedding)
        return np.asarray(placed.astype(data.dtype))

    @property
    def calibration_(self) -> Calibration:
        """The posterior's calibration (`glle_engine.reliability.calibration.calibrate`, with its defaults)."""
        check_is_fitted(self)
        if self._calibration is None:
            self._calibration = calibrate(self.posterior_, self._training)
        return self._calibration

    def sample(
        self,
        n_draws: int = 1,
        *,
        X: ArrayLike | None = None,
        first: int = 0,
        seed: int | None = None,
        scale: float | Literal["auto"] = 1.0,
        source: Source = "posterior",
        align: Align = "procrustes",
    ) -> NDArray[np.float64]:
        """Draw embeddings from the posterior.

        Parameters
        ----------
        n_draws : int
        X : (m, d), optional
            Points to place in each draw instead of the training points.
        scale : float or "auto"
            "auto" is `calibration_.scale`, found by half-sampling; a UserWarning if it is doubtful
            (`calibration_.notes`).
        seed : int, optional
            None for `seed_`, which follows from `random_state`.
        first, source, align
            As for `glle_engine.Posterior.draws`.

        Returns
        -------
        (n_draws, n, p) or (n_draws, m, p) float64

        """
        check_is_fitted(self)
        if scale == "auto":
            if source != "posterior":
                raise InvalidParameterError(
                    "scale='auto' is calibrated for the posterior, not for the prior.",
                    remedy="Use source='posterior', or give the scale as a number.",
                )
            scale = self.calibration_.scale
            for note in self.calibration_.notes:
                warnings.warn(note.message, UserWarning, stacklevel=2)
        seed = self.seed_ if seed is None else seed
        draws = self.posterior_.draws(n_draws, first=first, seed=seed, scale=scale, source=source, align=align)
        if X is None:
            places = [draw.embedding for draw in draws]
        else:
            require_unmasked(X, "the data")
            new = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
            extension = self.posterior_.extend(self._training, new)
            places = [extension.embed(draw.embedding) for draw in draws]
        return np.stack(places) if places else np.empty((0, *self.embedding_.shape))

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
