"""`glle.fit`, `glle.embed`, `glle.audit` and `glle.load`, which compute in this process, without a service."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from inspect import Parameter, signature
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from glle.arguments import (
    is_maker,
    looks_like_distances,
    method_parameters,
    require_features,
)
from glle.comparison import Scored, classes_of, compare
from glle.inputs import set_blocks_apart
from glle.progress import watched
from glle.reading import ColumnOptions, DataPoints, TableOptions, read_features, read_points, table_options
from glle_engine import manifolds as datasets
from glle_engine.audit.audit import audit as engine_audit
from glle_engine.audit.groups import require_groups
from glle_engine.audit.options import AUDIT_NEIGHBORS
from glle_engine.audit.result import Audit
from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.parameters import accepts_random_state, require_known_names, seed_of, with_keywords
from glle_engine.base.progress import silent
from glle_engine.base.spec import FitParameters, FitSpec
from glle_engine.base.texts import Note
from glle_engine.methods import Embedding
from glle_engine.methods import method as method_of
from glle_engine.methods.base import OF_METHOD, given_options
from glle_engine.methods.registry import describe_keywords, method_keywords
from glle_engine.metrics.registry import score
from glle_engine.posterior import fit as engine_fit
from glle_engine.posterior import posterior as engine_posterior
from glle_engine.posterior.npz import inconsistent
from glle_engine.reliability.calibration import Calibration, calibrate
from glle_engine.reliability.resamples import resampling_obstacle

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from typing import Unpack

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.base.spec import Align, Metric, NeighborCount, Source, Standardize
    from glle_engine.graph.given import GivenNeighbors
    from glle_engine.posterior.placement import Extension
    from glle_engine.posterior.sampler import Draw
    from glle_engine.posterior.summary import Summary

_TABLE_ARRAYS = ("labels", "colors", "ids")  # names of the arrays of a table that are saved with a posterior
_GIVE_PRECOMPUTED = "If it is such a matrix, give metric='precomputed'."
_GIVE_SCALING = (
    "An audit needs features. If it is such a matrix, audit coordinates with these distances: "
    "glle.embed(X, 'mds', dissimilarity='precomputed', n_components=10).Y."
)
_AS_FEATURES = Note(
    "looks-like-distances",
    "The data look like the distances between points, and their columns were read as features. For coordinates with "
    "these distances, use glle.embed(X, 'mds', dissimilarity='precomputed').",
)

__all__ = ["audit", "compare", "datasets", "embed", "fit", "load"]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TableResult:
    """Base class of results that keep the labels, colors, ids, row index and feature names of their data.

    Attributes
    ----------
    labels, colors, ids : (n,) array, optional
        Labels, colors and ids of the points.
    index : (n,) index of pandas or array, optional
        Index of the pandas frame, without the rows that were dropped for missing values. Without a frame: the numbers
        of the rows that were kept, or None if no row was dropped.
    names : list of str, optional
        Names of the features.
    options : dict
        Roles of the columns, also those that were guessed, so that a table of new points is read in the same way.

    """

    labels: NDArray[Any] | None = field(default=None, repr=False)
    colors: NDArray[np.float64] | None = field(default=None, repr=False)
    ids: NDArray[Any] | None = field(default=None, repr=False)
    index: Any = field(default=None, repr=False)
    names: list[str] | None = field(default=None, repr=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_result(cls, result: Any, points: DataPoints) -> Self:
        """Return the engine's `result` with the labels, colors, ids and names of `points`; arrays are not copied."""
        beside = {name: getattr(points, name) for name in ("labels", "colors", "ids", "names", "options")}
        members = {each.name: getattr(result, each.name) for each in fields(result)}
        return cls(**members, **beside, index=points.kept_index)

    def __str__(self) -> str:
        result: Any = self
        return "\n".join([repr(self), *(note.message for note in result.notes)])

    def _features(self, X: Any, *, is_new: bool = False) -> Any:
        return read_features(X, self.options, self.names, is_new=is_new)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TableEmbedding(TableResult, Embedding):
    """Embedding that `glle.embed` returns, with its `scores` by name."""

    scores: dict[str, float] = field(default_factory=dict)

    def transform(self, points: Any, on_progress: OnProgress = silent) -> NDArray[np.float64]:
        """Return the coordinates (m, p) of new points, which are an array (m, d) or a table with the data's columns."""
        return super().transform(self._features(points, is_new=True), on_progress)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TableAudit(TableResult, Audit):
    """Audit that `glle.audit` returns; `print` shows the verdict and the notes."""

    __str__ = Audit.__str__


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FittedPosterior(TableResult, engine_posterior.Posterior):
    """Posterior that `glle.fit` returns; it can also calibrate the scale of its draws by random halves of its data.

    The scale is a factor on the covariance of the weights. The data and new points that the methods take may be tables
    with the columns of the fit, in any order.

    Attributes
    ----------
    data : (n, d) array, sparse matrix, or None
        The features of the fit; None for a posterior that was read from a file.

    """

    data: Any = field(default=None, repr=False)

    @accepts_random_state
    def weights(
        self, index: int, *, seed: int = 0, scale: float | Literal["auto"] = 1.0, source: Source = "posterior"
    ) -> NDArray[np.float64]:
        """Draw reconstruction weights (n, k) like `Posterior.weights`.

        `scale` is a factor on the covariance of the weights; "auto" stands for the factor that `calibration` finds.
        """
        return super().weights(index, seed=seed, scale=self._scale_of(scale, source), source=source)

    @accepts_random_state
    def draw(
        self,
        index: int,
        *,
        seed: int = 0,
        scale: float | Literal["auto"] = 1.0,
        source: Source = "posterior",
        align: Align = "procrustes",
    ) -> Draw:
        """Draw one embedding like `Posterior.draw`.

        `scale` is a factor on the covariance of the weights; "auto" stands for the factor that `calibration` finds.
        """
        return super().draw(index, seed=seed, scale=self._scale_of(scale, source), source=source, align=align)

    @accepts_random_state
    def draws(
        self,
        n_draws: int,
        *,
        first: int = 0,
        seed: int = 0,
        scale: float | Literal["auto"] = 1.0,
        source: Source = "posterior",
        align: Align = "procrustes",
    ) -> Iterator[Draw]:
        """Return an iterator over the draws first, ..., first + n_draws - 1, like `Posterior.draws`.

        `scale` is a factor on the covariance of the weights; "auto" stands for the factor that `calibration` finds.
        """
        number = self._scale_of(scale, source)
        return super().draws(n_draws, first=first, seed=seed, scale=number, source=source, align=align)

    @accepts_random_state
    def summary(
        self,
        n_draws: int = 100,
        *,
        first: int = 0,
        seed: int = 0,
        scale: float | Literal["auto"] | None = None,
        source: Source = "posterior",
    ) -> Summary:
        """Return a `Summary` of how far points move from draw to draw.

        Parameters
        ----------
        n_draws
            Number of draws.
        first, seed
            First draw, and seed of the draws.
        scale
            Factor on the covariance of the weights, or "auto" for the factor that `calibration` finds. The default is
            "auto" if the posterior has its data and can be calibrated, otherwise 1.
        source : {"posterior", "prior"}
            Distribution of the weights.

        Raises
        ------
        InvalidParameterError
            For "auto", if the posterior cannot be calibrated, or does not have its data.

        """
        if scale is None:
            scale = "auto" if self.data is not None and self._obstacle(source) is None else 1.0
        number = self._scale_of(scale, source)
        return super().summary(n_draws, first=first, seed=seed, scale=number, source=source)

    @cached_property
    def calibration(self) -> Calibration:
        """Result of `calibrate` with the data of the fit and all defaults, computed at the first use.

        Its `scale` is the factor on the covariance of the weights at which draws spread as much as embeddings of random
        halves of the data.
        """
        return calibrate(self, self._data())

    def _scale_of(self, scale: float | Literal["auto"], source: Source) -> float:
        """Return `scale` as a number; for "auto" return the calibrated scale.

        Raises `InvalidParameterError` for "auto" if the posterior cannot be calibrated, or does not have its data.
        """
        if scale != "auto":
            return scale
        if obstacle := self._obstacle(source):
            raise obstacle
        return self.calibration.scale

    def _obstacle(self, source: Source) -> InvalidParameterError | None:
        """Return why random halves of the data cannot calibrate the scale of draws, as an error; None if they can."""
        has_neighbors = bool(self.diagnostics.figures.get("given_neighbors"))
        return resampling_obstacle(self.spec, self.n_points, source, given_neighbors=has_neighbors)

    def _data(self) -> Any:
        """Return the features of the fit; raise `InvalidParameterError` for a posterior that was read from a file."""
        if self.data is None:
            raise InvalidParameterError(
                "A posterior that was read from a file does not have the data, which scale='auto' needs.",
                remedy="Use posterior.calibrate(X).scale with the data X of the fit, or give the scale as a number.",
            )
        return self.data

    def extend(self, X: Any, new: Any) -> Extension:
        """Return the `Extension` that embeds new points (m, d) by their neighbors in the data X (n, d) of the fit.

        Raises `InvalidShapeError` for another number of points or features, `DataMismatchError` if X is not the data of
        the fit, and `NotFiniteError` for new points with NaN or infinite values.
        """
        return super().extend(self._features(X), self._features(new, is_new=True))

    def reconstruct(self, X: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Generate data (n, d) from weights (n, k) like `Posterior.reconstruct`; X (n, d) are the data of the fit."""
        return super().reconstruct(self._features(X), weights)

    def head(self) -> dict[str, Any]:
        """Return the JSON-able metadata that `save` writes, with the names of the features and the roles of columns."""
        return {**super().head(), "table": {"names": self.names, "options": self.options}}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that `save` writes, by name.

        These are the arrays of the fit, and the labels, colors, ids and row index that the data have.
        """
        beside = {name: getattr(self, name) for name in _TABLE_ARRAYS}
        if (index := self.index) is not None:  # an index of dates or numbers is stored as it is, any other as texts
            beside["index"] = np.array(index if index.dtype.kind in "iufM" else [str(each) for each in index])
        return {**super().arrays(), **{name: array for name, array in beside.items() if array is not None}}

    @classmethod
    def from_parts(cls, head: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the posterior with this `head()` and these `arrays()`, as they were read from a file.

        If `glle_engine` wrote the file, it has no labels, colors, ids, row index or names of features; the posterior
        then has none either.
        """
        beside: Any = {name: arrays.get(name) for name in (*_TABLE_ARRAYS, "index")}
        table = {"names": None, "options": {}, **head.get("table", {})}
        if not (isinstance(table["names"], list | None) and isinstance(table["options"], dict)):
            raise inconsistent("the names of the features, or the options of the table, are missing or of a wrong type")
        return replace(super().from_parts(head, arrays), **beside, **table)

    @accepts_random_state
    @with_keywords(calibrate)
    def calibrate(self, X: ArrayLike, **options: Any) -> Calibration:
        """Find the scale at which draws spread as much as embeddings of random halves of X (n, d), the data of the fit.

        The scale, the attribute `scale` of the result, is a factor on the covariance of the weights. Options are the
        same as for `glle_engine.reliability.calibration.calibrate`. Raises `InvalidParameterError` if this posterior
        cannot be calibrated, and `DataMismatchError` if X is not the data of the fit.
        """
        return calibrate(self, self._features(X), **options)


class TableFitParameters(FitParameters, TableOptions):
    """Keyword arguments of `fit`."""


@with_keywords(FitSpec, TableOptions)
def fit(
    X: Any,
    spec: FitSpec | None = None,
    *,
    neighbors: GivenNeighbors | None = None,
    verbose: bool | None = None,
    on_progress: OnProgress | None = None,
    **parameters: Unpack[TableFitParameters],
) -> FittedPosterior:
    """Fit a posterior over LLE's reconstruction weights of data (n, d), in this process.

    Parameters and errors are the same as for `glle_engine.fit`: `n_neighbors`, `n_components`, `method` and others. The
    data may also be a table (of pandas, or with an Arrow stream) or an AnnData. Then `id`, `features`, `ignore` and
    `one_hot` name columns, and `obsm` names the points of an AnnData. `labels` and `colors` name a column, or have one
    value for each row; the fit does not use them, but plots and tables do. For data with missing values, `missing` is
    "drop" or "median". Notes of the posterior say which roles of columns were guessed. `verbose` shows a line of
    progress on stderr after two seconds: None in terminals and notebooks, True always, False never.

    Examples
    --------
    >>> import glle
    >>> posterior = glle.fit(glle.datasets.make("swiss_roll", 1000).X)
    >>> posterior.draw(7).embedding.shape
    (1000, 2)

    """
    if is_maker(spec) and not isinstance(spec, type):
        raise InvalidParameterError(
            f"{spec!r:.60} is not a FitSpec: `fit` fits the posterior of LLE.",
            remedy=f"Embed by another method with glle.embed(X, {spec!r:.60}).",
        )
    if "random_state" in parameters or "seed" in parameters:
        raise InvalidParameterError(
            "A fit is not random: it has no seed.", remedy="Give the seed to the draws: glle.fit(X).draws(100, seed=0)."
        )
    options, rest = table_options(parameters, FitSpec.parameters())
    require_features(X, rest.get("metric", getattr(spec, "metric", None)), _GIVE_PRECOMPUTED)
    points = read_points(X, options)
    if neighbors is not None and points.kept is not None:
        raise InvalidParameterError(
            "`neighbors` are numbers of rows, which change if rows with missing values are dropped.",
            remedy="Drop these rows, and then find the neighbors.",
        )
    with watched("fit", verbose, on_progress) as report:
        fitted = engine_fit.fit(points.X, spec, neighbors=neighbors, on_progress=report, **rest)
    diagnostics = replace(fitted.diagnostics, notes=points.all_notes(fitted.diagnostics.notes))
    posterior = FittedPosterior.from_result(replace(fitted, diagnostics=diagnostics), points)
    return replace(posterior, data=points.X)


def load(path: str | os.PathLike[str]) -> FittedPosterior:
    """Read a posterior from the npz file that `Posterior.save` wrote, or that a service exported.

    Raises `StorageError` if the file has another format or is damaged.
    """
    return FittedPosterior.load(path)


@with_keywords(ColumnOptions, method_keywords())
def audit(
    X: Any,
    Y: Any = None,
    *,
    method: str | Callable[[NDArray[np.float64]], ArrayLike] | Any | None = None,
    parameters: Mapping[str, Any] | None = None,
    labels: ArrayLike | str | None = None,
    blocks: ArrayLike | str | None = None,
    n_neighbors: NeighborCount | None = None,
    standardize: Standardize | None = None,
    metric: Metric | None = None,
    is_own_map: bool = False,
    score_neighbors: int = AUDIT_NEIGHBORS,
    names: Sequence[str] | None = None,
    seed: int = 0,
    random_state: Any = None,
    executor: Executor | None = None,
    threads: int | None = None,
    verbose: bool | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> TableAudit:
    """Audit an embedding: whether to believe it, and which parts of it.

    Parameters
    ----------
    X
        The data (n, d), or any data of `fit`.
    Y
        Coordinates (n, p) from anywhere, or a posterior of the data; or, in place of `method`, a method.
    method
        How the coordinates are made: a method by name, a function of points (m, d) to coordinates (m, p), or an
        estimator. Without a method, the audit can judge only fidelity, tears and islands.
    parameters
        Parameters of a method by name, which may also be keywords: ``glle.audit(X, "umap", min_dist=0.3)``.
    labels
        Groups of the points (n,), or the name of a column; a missing label is the empty text.
    blocks
        Subject, series or replicate of each point (n,), or the name of a column, which is then not a feature. The audit
        divides the data into random halves; all points of a block are then in the same half.
    n_neighbors
        Number of neighbors, if `method` is a name, and the method has this parameter.
    standardize, metric
        Standardization of the features ("zscore" or "robust") and metric of the data, such as "cosine", as in `fit`.
    is_own_map
        Whether the method itself made the coordinates. The audit then does not check whether they look like a map of
        the method.
    score_neighbors
        Number of neighbors of each point that are compared between maps.
    names
        Names of the features of an array, for the verdict.
    seed, random_state
        Seed of permutations and of random halves of the data, by either name. The seed of a method is one of its
        `parameters`.
    executor, threads
        A `ThreadPoolExecutor`, or a number of threads, that embed random halves of the data in parallel; results do not
        depend on them.
        By default there are as many threads as processors.
    verbose
        Whether to show a line of progress on stderr after two seconds. None: in terminals and notebooks.
    on_progress
        Called with (done, total, stage).
    options
        Options of a table, as for `fit` (`missing`, `ignore` and others), and parameters of the method, as for `embed`.

    Raises
    ------
    GlleError
        If something cannot be audited; the message has a remedy.

    """
    if method is None and is_maker(Y):
        Y, method = None, Y
    if getattr(Y, "ndim", None) == 1:
        raise InvalidShapeError(
            f"Y has shape {Y.shape}, but the coordinates of a map have shape (n, p).",
            remedy="If Y are labels, give them by name: glle.audit(X, method, labels=y). If Y is a single "
            "coordinate, give Y[:, None].",
        )
    options = given_options(options)
    of_method = {} if n_neighbors is None else {"n_neighbors": n_neighbors}
    of_table = {name: value for name, value in options.items() if name in TableOptions.__annotations__}
    of_method |= {name: value for name, value in options.items() if name not in of_table}
    if isinstance(method, str):
        _require_own_names(method, of_method)
        of_map = method_parameters(method, {**(parameters or {}), **of_method}, ())
    else:
        require_known_names(options, _keywords(audit))
        _require_no_neighbors(n_neighbors)
        of_map = dict(parameters or {})
    require_features(X, metric or of_map.get("metric"), _GIVE_SCALING)
    blocks, of_table = set_blocks_apart(X, blocks, {**of_table, "labels": labels})
    points = read_points(X, of_table)
    if points.labels is not None:
        require_groups(*np.unique(points.labels, return_inverse=True))
    with watched("audit", verbose, on_progress) as report:
        result = engine_audit(
            points.X,
            points.rows(Y, "the coordinates"),
            method=method,
            parameters=of_map,
            standardize=standardize,
            metric=metric,
            labels=points.labels,
            blocks=points.column(blocks) if isinstance(blocks, str) else points.rows(blocks, "the blocks"),
            ids=points.ids,
            id_names=points.options.get("id", ()),
            is_own_map=is_own_map,
            score_neighbors=score_neighbors,
            names=points.names if names is None else names,
            executor=executor,
            threads=threads,
            on_progress=report,
            seed=seed_of(seed, random_state),
        )
    return TableAudit.from_result(replace(result, notes=points.all_notes(result.notes)), points)


def _require_own_names(method: str, options: Mapping[str, Any]) -> None:
    """Raise `InvalidParameterError` for a keyword that is a parameter neither of `glle.audit` nor of the method."""
    chosen = method_of(method)
    if "n_neighbors" in options and "n_neighbors" not in chosen.spec.parameters():
        _require_no_neighbors(options["n_neighbors"], chosen.title)
    require_known_names(options, [*chosen.spec.parameters(), *_keywords(audit)])


def _require_no_neighbors(n_neighbors: Any, title: str = "Without a method by name, an audit") -> None:
    if n_neighbors is not None:
        raise InvalidParameterError(
            f"{title} has no n_neighbors={n_neighbors!r:.60}.",
            remedy=f"Give score_neighbors={n_neighbors!r:.60} to compare this number of neighbors.",
        )


@with_keywords(ColumnOptions, method_keywords())
def embed(
    X: Any,
    method: str | None = None,
    /,
    *,
    labels: ArrayLike | str | None = None,
    truth: ArrayLike | None = None,
    scores: Sequence[str] | None = (),
    score_neighbors: int | Literal["auto"] | None = "auto",
    init: ArrayLike | str | None = None,
    verbose: bool | None = None,
    on_progress: OnProgress | None = None,
    **parameters: Any,
) -> TableEmbedding:
    """Embed data (n, d) by a method, in this process, and return the embedding.

    Parameters
    ----------
    X
        Finite numbers (n, d), or any data of `fit`, with the options of a table.
    method
        Name of the method, such as "isomap" or "t-sne".
    labels
        Class of each point, integers or words, or the name of a column. Scores, plots and supervised methods use the
        classes; other methods do not.
    truth
        True coordinates (n, q) of the points, for scores.
    scores
        Names of scores. None for all fast scores; those that need `labels` or `truth` only if you pass them. By default
        there are no scores.
    score_neighbors
        Number of neighbors for the scores. "auto" or None means 10, or fewer if there are less than 21 points.
    init
        Name of an initialization, or initial coordinates (n, p), for methods that have one.
    verbose
        Whether to show a line of progress on stderr after two seconds. None: in terminals and notebooks.
    on_progress
        Called with (done, total, stage).
    parameters
        Options of a table, as for `fit`, and parameters of the method, which are listed below.

    Raises
    ------
    GlleError
        For an unknown method or parameter, or for data that the method refuses; the message has a remedy.

    """
    name = parameters.pop("method", None) if method is None else method
    if not isinstance(name, str):
        raise InvalidParameterError(
            "No method was named." if name is None else f"{name!r:.60} is not the name of a method.",
            remedy='Give a name such as "umap". Coordinates by a function or an estimator need no `embed`: audit them '
            "by glle.audit(X, method=...).",
        )
    chosen = method_of(name)
    known = [*chosen.spec.parameters(), *TableOptions.__annotations__]
    options, parameters = table_options(method_parameters(name, parameters, known), known)
    says_space = next((each for each in ("metric", "dissimilarity") if each in chosen.spec.parameters()), None)
    if says_space is not None:
        remedy = f"If it is such a matrix, give {says_space}='precomputed'."
        require_features(X, parameters.get(says_space), remedy, says_space)
    points = read_points(X, {**options, "labels": labels})
    if says_space is None and "precomputed" not in parameters.values() and looks_like_distances(X):
        points = replace(points, notes=(*points.notes, _AS_FEATURES))
    if isinstance(init, str):
        parameters["init"], init = init, None
    spec = chosen.spec.from_dict(parameters)
    with watched(name, verbose, on_progress) as report:
        embedding = chosen.embed(
            points.X,
            spec,
            report,
            labels=classes_of(points.labels) if chosen.needs_labels(spec) else None,
            init=points.rows(init, "init"),
        )
    scored = Scored(points.X, points.labels, points.rows(truth, "the truth"), score_neighbors)
    names = scored.names(scores)
    result = TableEmbedding.from_result(replace(embedding, notes=points.all_notes(embedding.notes)), points)
    return replace(result, scores=score(points.X, embedding.Y, names, **scored.options()) if names else {})


embed.__doc__ = f"{str(embed.__doc__).rstrip()}\n\n{indent(describe_keywords(), '    ')}\n"


def _keywords(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's own keyword-only parameters.

    Left out are parameters of embedding methods, such as `perplexity`, which `with_keywords` added to the signature:
    they have the default `OF_METHOD`.
    """
    shown = signature(function).parameters.items()
    return [name for name, each in shown if each.kind is Parameter.KEYWORD_ONLY and each.default is not OF_METHOD]
