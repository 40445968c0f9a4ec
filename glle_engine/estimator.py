"""Scikit-learn estimators: `GLLE`, which has a posterior, and `Embedding`, for any method of the registry."""

from __future__ import annotations

import numbers
import warnings
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data
except ImportError as error:
    raise ImportError("glle_engine.estimator needs scikit-learn: pip install 'glle[sklearn]'") from error

from glle_engine.base.arrays import require_lossless, require_unmasked
from glle_engine.base.errors import GlleError, InvalidParameterError
from glle_engine.base.parameters import accepts_random_state, check_integer, with_keywords
from glle_engine.base.spec import FitSpec, SpaceSpec
from glle_engine.graph.sparse import require_possible as require_possible_if_sparse
from glle_engine.methods import method as method_of
from glle_engine.methods.base import given_options
from glle_engine.methods.maps import no_inverse
from glle_engine.methods.registry import MAPPED, describe_keywords, method_keywords, no_map
from glle_engine.posterior.fit import fit as fit_posterior
from glle_engine.reliability.calibration import Calibration, calibrate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base import spec as words
    from glle_engine.base.texts import Note
    from glle_engine.graph.given import GivenNeighbors
    from glle_engine.posterior.posterior import Posterior

DEFAULTS = FitSpec()
_WARNINGS = {"bridged": UserWarning, "neighbors-raised": UserWarning, "not-converged": ConvergenceWarning}


class _Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """Base of both estimators: checks data, tells scikit-learn which data are accepted, and has `fit_transform`."""

    embedding_: NDArray[Any]

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Fit the estimator to X (n, d), set `embedding_`, and return the estimator."""
        raise NotImplementedError

    def fit_transform(self, X: ArrayLike, y: object = None, **fit_params: Any) -> NDArray[Any]:
        """Fit X (n, d), and return a copy of its embedding (n, p)."""
        del fit_params
        return np.array(self.fit(X, y).embedding_)

    def _check_data(self, X: ArrayLike, *, reset: bool = False, is_sparse: bool = True, **options: Any) -> Any:
        """Return data (n, d) in float64 or float32, after checking that they are finite and have the fitted features.

        `is_sparse` says whether sparse data are accepted, which are returned as a CSR matrix. With `reset`, the number
        and names of the features are recorded, because the data are those of a fit. `options` are options of
        scikit-learn's `validate_data`; with `y`, the result is the pair of data and labels.
        """
        require_lossless(X, "the data")
        require_unmasked(options.get("y"), "the labels")
        options = {"dtype": [np.float64, np.float32], **options}
        data = validate_data(self, X, accept_sparse="csr" if is_sparse else False, reset=reset, **options)
        if self._precomputed - {"kernel"}:
            check_non_negative(data[0] if "y" in options else data, type(self).__name__)
        return data

    @property
    def _precomputed(self) -> set[str]:
        """Names of the parameters with the value "precomputed", which makes the data a matrix of all pairs."""
        names = ("metric", "dissimilarity", "weights", "kernel")
        return {name for name in names if self.get_params().get(name) == "precomputed"}

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.pairwise = bool(self._precomputed)
        tags.input_tags.positive_only = bool(self._precomputed - {"kernel"})
        return tags


class GLLE(_Embedder):
    r"""Generative locally linear embedding: LLE with a posterior over its weights.

    `fit_transform` returns the LLE embedding Y with (1/n) Y^T Y = I; `sample` draws embeddings from the posterior.

    Parameters
    ----------
    n_neighbors : int or "auto"
        Number of neighbors of each point; "auto" or None: it grows with the square root of the number of points.
    disconnected : {"bridge", "error"}
        If the graph falls into several components: connect them, with a UserWarning, or raise an error.
    random_state : int, RandomState or None
        Seed of the draws of `sample`, or a generator from which each fit takes a seed; None for a random seed at each
        fit.
    n_components, method, variant, reg, variance, mean, covariance, max_iter, tol, noise, neighborhoods, search, \
    landmarks, standardize, metric
        As for `glle_engine.base.spec.FitSpec`.

    Attributes
    ----------
    posterior_ : glle_engine.Posterior
        The fitted posterior.
    embedding_ : (n, p) float64 or float32
        LLE embedding of the data, in their dtype; computed in float64.
    calibration_ : glle_engine.reliability.calibration.Calibration
        Scale at which draws vary as embeddings of random halves of the data do, computed on first use.
    n_iter_ : int
        Number of iterations of the EM algorithm, for variant="published" with method="em"; 1 for all other fits, which
        are computed in closed form.
    seed_ : int
        Seed of the draws of `sample`.
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,) of str
        Defined if the data have column names.

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
        n_neighbors: words.NeighborCount | None = DEFAULTS.n_neighbors,
        n_components: int = DEFAULTS.n_components,
        *,
        method: words.Method = DEFAULTS.method,
        variant: words.Variant = DEFAULTS.variant,
        reg: float = DEFAULTS.reg,
        variance: words.Variance = DEFAULTS.variance,
        mean: words.Mean = DEFAULTS.mean,
        covariance: words.Covariance = DEFAULTS.covariance,
        max_iter: int = DEFAULTS.max_iter,
        tol: float = DEFAULTS.tol,
        disconnected: words.Disconnected = DEFAULTS.disconnected,
        noise: words.Noise = DEFAULTS.noise,
        neighborhoods: words.Adaptation = DEFAULTS.neighborhoods,
        search: words.Search = DEFAULTS.search,
        landmarks: words.LandmarkCount = DEFAULTS.landmarks,
        standardize: words.Standardize = DEFAULTS.standardize,
        metric: words.Metric = DEFAULTS.metric,
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

        If the caller knows the nearest `neighbors` already, they replace the search, as in `glle_engine.fit`.

        Raises
        ------
        glle_engine.GlleError
            A ValueError with a remedy.

        """
        data = self._check_data(X, reset=True, ensure_min_samples=4)
        self.seed_ = _seed(self.random_state)
        self.posterior_: Posterior = fit_posterior(data, neighbors=neighbors, **self._fit_parameters())
        _warn(self.posterior_.notes)
        self._training = data.copy()
        self._calibration: Calibration | None = None
        self.embedding_ = self.posterior_.embedding.astype(data.dtype)
        self.n_iter_ = int(self.posterior_.diagnostics.figures.get("iterations", 1))
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return positions (m, p) of points (m, d) in the embedding; a training point gets exactly its coordinates.

        Each point is placed by its weights on its nearest training points (`glle_engine.posterior.placement`).
        """
        check_is_fitted(self)
        data = self._check_data(X)
        placed = self.posterior_.extend(self._training, data).embed(self.posterior_.embedding)
        return np.asarray(placed.astype(data.dtype))

    @property
    def calibration_(self) -> Calibration:
        """Scale at which draws vary as embeddings of random halves of the data do, with the evidence for it.

        It is computed on first use by `glle_engine.reliability.calibration.calibrate`.
        """
        check_is_fitted(self)
        if self._calibration is None:
            self._calibration = calibrate(self.posterior_, self._training)
        return self._calibration

    @accepts_random_state
    def sample(
        self,
        n_draws: int = 1,
        *,
        X: ArrayLike | None = None,
        first: int = 0,
        seed: int | None = None,
        scale: float | Literal["auto"] = 1.0,
        source: words.Source = "posterior",
        align: words.Align = "procrustes",
    ) -> NDArray[np.float64]:
        """Draw embeddings from the posterior.

        Parameters
        ----------
        n_draws : int
            Number of draws.
        X : (m, d), optional
            Points to place in each draw instead of the training points.
        scale : float or "auto"
            Factor of the covariance of the drawn weights. "auto" is `calibration_.scale`, at which draws vary as
            embeddings of random halves of the data do; a UserWarning says if it is doubtful (`calibration_.notes`).
        seed, random_state : int, optional
            None for `seed_`, which follows from `random_state`.
        first : int
            Index of the first draw; draw i of a seed is always the same.
        source : {"posterior", "prior"}
            Distribution of the weights that are drawn.
        align : {"procrustes", "none"}
            Whether each draw is rotated to the embedding.

        Returns
        -------
        (n_draws, n, p) or (n_draws, m, p) float64

        """
        check_is_fitted(self)
        if scale == "auto":
            if source != "posterior":
                raise InvalidParameterError(
                    "scale='auto' cannot be used with source='prior', because it is calibrated for the posterior.",
                    remedy="Use source='posterior', or give the scale as a number.",
                )
            scale = self.calibration_.scale
            for note in self.calibration_.notes:
                warnings.warn(note.message, UserWarning, stacklevel=2)
        seed = self.seed_ if seed is None else seed
        draws = self.posterior_.draws(n_draws, first=first, seed=seed, scale=scale, source=source, align=align)
        if X is None:
            places = [draw.embedding for draw in draws]
            n_points = len(self.embedding_)
        else:
            new = self._check_data(X, dtype=np.float64)
            extension = self.posterior_.extend(self._training, new)
            places = [extension.embed(draw.embedding) for draw in draws]
            n_points = new.shape[0]
        return np.stack(places) if places else np.empty((0, n_points, self._n_features_out))

    def _fit_parameters(self) -> dict[str, Any]:
        """Return the estimator's parameters without `random_state`: the parameters of `FitSpec`."""
        parameters: dict[str, Any] = self.get_params()
        del parameters["random_state"]
        return parameters

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = _takes_sparse(FitSpec, self._fit_parameters())
        return tags


def _warn(notes: tuple[Note, ...]) -> None:
    """Emit a warning for each note that a graph was bridged, neighbors were added, or a method did not converge."""
    for note in notes:
        if note.code in _WARNINGS:
            warnings.warn(note.message, _WARNINGS[note.code], stacklevel=3)


def _takes_sparse(specification: type[SpaceSpec], parameters: dict[str, Any]) -> bool:
    """Return whether sparse data can be fitted with these parameters; False for parameters that `fit` refuses."""
    try:
        options = {name: value for name, value in parameters.items() if name != "random_state"}
        require_possible_if_sparse(specification.from_dict(options))
    except GlleError:
        return False
    return True


def _seed(random_state: int | np.random.RandomState | None) -> int:
    """Return the seed of draws: an integer `random_state` itself, or else a random integer.

    A `RandomState` draws this integer, and for None numpy's global generator does.
    """
    if isinstance(random_state, numbers.Integral):
        return check_integer("random_state", random_state, 0, counter=True)
    return int(check_random_state(random_state).randint(2**31))


class Embedding(_Embedder):
    """Embedding by any method of the registry.

    Parameters that you leave out have the method's defaults. If the data have too few points or features for the
    default numbers of neighbors or components or the default perplexity, these defaults are lowered. A graph that falls
    into parts is treated as in `glle.embed`, with a UserWarning: the parts are bridged. For "ltsa", "hessian-lle" and
    "modified-lle", which a single edge between two parts does not help, the parts are connected by more neighbors.

    Parameters
    ----------
    name : str
        Name of the method, such as "isomap" or "umap".
    parameters
        Parameters of the method, as for `glle.embed`; `random_state` is another name of `seed`, and `method` is a
        parameter of "glle".

    Attributes
    ----------
    result_ : glle_engine.methods.base.Embedding
        The embedding in float64, with the method's diagnostic numbers and notes.
    embedding_ : (n, p) float64 or float32
        The embedding in the dtype of the data.
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,) of str
        Defined if the data have column names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from glle_engine.estimator import Embedding
    >>> digits = load_digits().data
    >>> model = Embedding("isomap", n_neighbors=12).fit(digits[:900])
    >>> model.transform(digits[900:]).shape
    (897, 2)

    """

    def __init__(self, name: str = "isomap", **parameters: Any) -> None:
        self.name = name
        self._parameters = given_options(parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 # scikit-learn's signature
        """Return the name of the method and the parameters that were set explicitly."""
        return {"name": self.name, **self._parameters}

    def set_params(self, **params: Any) -> Self:
        """Change the method (`name`) or its parameters, and return the estimator; `fit` refuses unknown parameters."""
        self.name = params.pop("name", self.name)
        self._parameters = {**self._parameters, **params}
        return self

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Embed X (n, d), which may be sparse if the method supports it.

        Supervised methods need the class of each point, y (n,). UMAP is supervised if it has a `target_weight`; the
        class -1 then stands for an unknown class.

        Raises
        ------
        glle_engine.GlleError
            A ValueError with a remedy.

        """
        chosen = method_of(self.name)
        needs_labels = chosen.needs_labels(self._given_spec)
        label_option: Any = {"y": y} if needs_labels else {}
        data = self._check_data(X, reset=True, is_sparse=chosen.sparse, ensure_min_samples=2, **label_option)
        data, labels = data if needs_labels else (data, None)
        if labels is not None and labels.dtype.kind == "f" and (labels == np.floor(labels)).all():
            labels = labels.astype(np.int64)
        elif labels is not None and labels.dtype.kind not in "iu":
            labels = np.unique(labels, return_inverse=True)[1]
        result = chosen.embed(data, self._spec(*data.shape), labels=labels)
        _warn(result.notes)
        self.result_ = result
        self.embedding_ = result.Y.astype(data.dtype)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return positions (m, p) of points (m, d), each independently; a training point gets its coordinates.

        Only PCA, PPCA, factor analysis, kernel PCA, NPE, LLE, Isomap, t-SNE, UMAP and PaCMAP have a `transform`.
        """
        check_is_fitted(self)
        data = self._check_data(X, is_sparse=False)
        return self.result_.transform(data).astype(data.dtype)

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return points (m, d) for positions X (m, p), for PCA, PPCA, factor analysis, kernel PCA, NPE and UMAP."""
        check_is_fitted(self)
        require_lossless(X, "the positions")
        places = check_array(X, dtype=[np.float64, np.float32])
        return self.result_.inverse_transform(places).astype(places.dtype)

    def _has_default_neighbors(self, spec: Any) -> bool:
        """Return whether `n_neighbors` was left at the method's default, which `_spec` lowers for few points.

        Returns False if the graph does not come from a number of neighbors, but from a radius or precomputed weights.
        """
        is_default = "n_neighbors" not in self._given and hasattr(spec, "n_neighbors")
        return is_default and getattr(spec, "radius", None) is None and spec.precomputed != "weights"

    @property
    def _given(self) -> set[str]:
        """Names of the parameters that the caller chose; "auto" and None leave the choice to the method."""
        return {name for name, value in self._parameters.items() if not (value is None or str(value) == "auto")}

    @property
    def _given_spec(self) -> Any:
        """Specification of the method: the caller's parameters, and the method's defaults for all others."""
        chosen = method_of(self.name)
        if "method" in self._parameters and "method" not in chosen.spec.parameters():
            method_option = self._parameters["method"]
            raise InvalidParameterError(
                f"{chosen.title} has no parameter method={method_option!r}.",
                remedy=f"Give the name of the method first: glle.Embedding({method_option!r}).",
            )
        return chosen.spec.from_dict(chosen.named_parameters(self._parameters))

    def _spec(self, n: int, d: int) -> Any:
        """Return the method's parameters for n points of d features; defaults too large for the data are reduced."""
        chosen, spec = method_of(self.name), self._given_spec
        limits = {
            "n_components": d,
            **({"n_neighbors": spec.most_neighbors(n)} if self._has_default_neighbors(spec) else {}),
            "k_most": n - 1,
            "perplexity": (n - 1) / 3,
        }
        for name, bound in limits.items():
            value = getattr(spec, name, 0)
            if name not in self._given and not isinstance(value, str) and value > bound:
                spec = replace(spec, **{name: bound})
        while "n_components" not in self._parameters and spec.n_components > 1:
            with suppress(GlleError):
                chosen.require_possible(n, d, spec, labels=chosen.needs_labels(spec))
                break
            spec = replace(spec, n_components=spec.n_components - 1)
        return spec

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        chosen = method_of(self.name)
        tags.input_tags.sparse = chosen.sparse and _takes_sparse(chosen.spec, self._parameters)
        with suppress(GlleError):  # `fit` refuses these parameters
            tags.target_tags.required = chosen.needs_labels(self._given_spec)
        return tags


def _has_map(model: Embedding) -> bool:
    """Return True if the method of an estimator can embed new points; otherwise raise `InvalidParameterError`.

    The error lists the methods that can. It makes scikit-learn's `available_if` raise AttributeError for `transform`.
    """
    chosen = method_of(model.name)
    if chosen.name not in MAPPED:
        raise no_map(chosen.title)
    return True


def _has_inverse(model: Embedding) -> bool:
    """Return True if the method of an estimator can map positions to data; otherwise raise `InvalidParameterError`.

    The error lists the methods that can. It makes scikit-learn's `available_if` raise AttributeError for
    `inverse_transform`.
    """
    chosen = method_of(model.name)
    if not chosen.has_inverse:
        raise no_inverse(chosen.title)
    return True


# This comes after the class, because scikit-learn first wraps `transform` for `set_output`.
Embedding.transform = available_if(_has_map)(Embedding.__dict__["transform"])  # type: ignore[method-assign]
Embedding.inverse_transform = available_if(_has_inverse)(Embedding.inverse_transform)  # type: ignore[method-assign]


def _shown_name(name: str = "isomap", **parameters: Any) -> None:
    """Provide the signature that `help` shows for `Embedding`, whose constructor takes any method's parameters."""


Embedding.__signature__ = signature(with_keywords(method_keywords())(_shown_name))
Embedding.__doc__ = str(Embedding.__doc__).replace(
    "    Attributes\n", f"{indent(describe_keywords(), '    ')}\n\n    Attributes\n", 1
)
