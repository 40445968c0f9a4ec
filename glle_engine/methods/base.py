"""`Method` and `Embedding`: what an embedding method declares, what it checks before it runs, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np

from glle_engine.base.arrays import array_of
from glle_engine.base.errors import (
    DegenerateDataError,
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
    MissingLibraryError,
    TooFewPointsError,
)
from glle_engine.base.parameters import check_positive, with_seed
from glle_engine.base.progress import OnProgress, StageClock, silent
from glle_engine.base.results import PointResult, brief, dimension_notes
from glle_engine.base.space import Space
from glle_engine.base.texts import Note, Way
from glle_engine.base.validation import (
    DENSE,
    checked_matrix,
    finite_data,
    finite_matrix,
    float64_of,
    is_sparse,
    require_finite,
    require_range,
)
from glle_engine.graph.connectivity import distinct_points
from glle_engine.graph.relations import Distances, coordinates, require_differing, require_square
from glle_engine.graph.sparse import SparsePoints, require_possible
from glle_engine.linalg.distances import power_of_two
from glle_engine.methods.maps import AffineMap, Map, NeighborMap, no_inverse
from glle_engine.methods.parameters import MethodSpec, of_pairs
from glle_engine.posterior.findings import bridge_notes, far_points, far_text, scale_figures, scale_notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import csr_array

    from glle_engine.graph.relations import Data

_FAMILIES = {
    "linear": "linear and kernel",
    "spectral": "spectral",
    "entropy": "maximum entropy",
    "neighbor_embedding": "neighbor embedding",
    "lle_variants": "extension of LLE",
    "methods": "generative",
}

S = TypeVar("S", bound=MethodSpec)


class _OfMethod:
    """Type of `OF_METHOD`, the default of a keyword argument whose real default depends on the chosen method."""

    def __repr__(self) -> str:
        return "<of the method>"


OF_METHOD = _OfMethod()
_NOTHING = of_pairs(0)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the caller set: those whose value is not `OF_METHOD`, the placeholder of a default."""
    return {name: value for name, value in options.items() if value is not OF_METHOD}


# An embedding counts as collapsed if its participation ratio, divided by the number of points, is below this bound. Ten
# methods with 8 to 20 neighbors reach .2 to .9 on rolls, sheets and digits. Hessian LLE, which collapses if it has too
# many neighbors, then reaches .01 to .1.
CONCENTRATED = 0.1


@dataclass(frozen=True, eq=False)
class Embedding(PointResult):
    """Coordinates of the points, with the eigenvalues, figures and notes of the method that computed them.

    Attributes
    ----------
    embedding : (n, p) float64
        One row for each point, in the order of the data; `Y` is its short name.
    eigenvalues : (p,) float64, optional
        For spectral methods, in the order of the columns of the embedding.
    figures : dict
        JSON-able results: log_likelihood, iterations, stress, the chosen n_neighbors and so on.
    notes : tuple of Note
        Warnings and findings.
    seconds : dict
        Time by stage, filled by `Method.embed`.
    map : Map, optional
        The function from new points to positions in the embedding; None if there is none for these data.

    """

    embedding: NDArray[np.float64]
    eigenvalues: NDArray[np.float64] | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    map: Map | None = None

    def extended(self, figures: Mapping[str, Any], notes: Iterable[Note] = ()) -> Self:
        """Return a copy of the embedding with `figures` and `notes` added to its own."""
        return replace(self, figures={**self.figures, **figures}, notes=(*self.notes, *notes))

    def transform(self, points: ArrayLike, on_progress: OnProgress = silent) -> NDArray[np.float64]:
        """Return the positions (m, p) of new points (m, d) in this embedding.

        A training point is placed at its row of the embedding, up to rounding.

        Raises
        ------
        InvalidParameterError
            If the method has no map to new points.
        GlleError
            As raised by `Map.transform`.

        """
        if self.map is None:
            raise InvalidParameterError(
                "This embedding cannot place new points, because its method has no map to new points.",
                remedy="Embed by a method that has one, such as pca, isomap or umap; or fit a posterior, which places "
                "new points.",
            )
        return self.map.transform(points, on_progress)

    def inverse_transform(self, places: ArrayLike, *, ridge: float = 1e-3) -> NDArray[np.float64]:
        """Return points (m, d) in the space of the data, for positions (m, p) in this embedding.

        For PCA, PPCA, factor analysis and NPE the points are an affine function of the positions. For kernel PCA they
        come from a ridge regression of the data on the embedding; with the cosine kernel their length is about 1. For
        UMAP they come from umap-learn's inverse transform
        (`glle_engine.methods.neighbor_embedding.umap.UmapMap.inverse`).

        Parameters
        ----------
        places : (m, p) array-like
            The positions.
        ridge : float
            Ridge of kernel PCA's regression, relative to the mean of the kernel's diagonal; above 0. Other methods
            ignore it.

        Raises
        ------
        InvalidParameterError
            If the method has no map, or a map without an inverse.
        InvalidShapeError
            If the positions do not have p columns.

        """
        if self.map is None:
            raise no_inverse("This embedding")
        points, p = finite_matrix(places, "places"), self.Y.shape[1]
        if points.shape[1] != p:
            raise InvalidShapeError(
                f"The positions have shape {points.shape}; the embedding has {p} components.",
                remedy=f"Give a matrix of {p} columns.",
            )
        return self.map.inverse(points, check_positive("ridge", ridge))

    __repr__ = brief


@dataclass(eq=False, kw_only=True)
class Method(Generic[S]):
    """An embedding method: its description, its parameters, and the function that computes the embedding.

    A method is created as the decorator of the function that computes it. The function takes (X, spec, on_progress),
    then the labels if the method needs them, and as keyword `start` the user's initial coordinates if the method has a
    parameter `init`. It returns an `Embedding`. The function's name becomes the name of the method, and the function's
    package the family.

    Attributes
    ----------
    spec : type
        A `MethodSpec` dataclass of the parameters, which also refuses data that the parameters do not allow.
    title : str
        The name for readers, such as "Locally linear embedding".
    about : str
        What the method optimizes or assumes, in one or two sentences, with the key equation in plain symbols.
    source : str
        Paper and equation.
    growth : str
        Growth of the time with n, such as "n log n" or "n^3".
    reproducible : bool
        Whether equal requests give bit-identical embeddings on every processor and with any number of threads. They do
        not if the method calls BLAS, LAPACK or the mathematical library, whose rounding errors depend on the processor
        and on the number of threads.
    labels : bool
        Whether the method always needs labels; other methods may need labels for some parameters (`needs_labels`).
    libraries : tuple of str
        Required modules, besides numpy and scipy.
    extra : str
        The optional extra of the package, as in pip install "glle[umap]", that installs the libraries.
    any_scale : bool
        Whether the embedding does not depend on the scales of the features.
    any_space : bool
        Whether `run` takes the data as they are: it applies `standardize` and `metric` itself, and handles or refuses
        data whose squared distances leave the range of floating-point numbers.
    by_distances : bool
        Whether `run` also takes a matrix of distances, as `glle_engine.graph.relations.Distances`, for
        metric="precomputed".
    sparse : bool
        Whether `run` also takes sparse data: as `glle_engine.graph.sparse.SparsePoints`, or as a CSR matrix if
        `any_space`.
    joins_equal : bool
        Whether points that differ by rounding errors only are embedded as one point, because `run` refuses equal
        neighbors.
    doubles : callable
        Takes (spec, n), and returns a lower bound of how many float64 numbers `run` holds at once: n^2 for each matrix
        of all pairs of points (`of_pairs`), n k^2 if each point has a matrix of its k neighbors (`of_neighborhoods`),
        or 0 if no array grows faster than the data and the neighbor graph.
    compiles : bool
        Whether the method's library compiles code in each new process, which takes about 15 s.
    linear : bool
        Whether the embedding is an affine function of the points after `standardize` and `metric`.
    neighbor_map : type of NeighborMap, optional
        Class of the map that places a new point by its neighbors in the data. Embeddings of distances and of sparse
        data have no such map.
    restore : callable, optional
        Takes (function that returns X, spec, embedding without its map, arrays of the map by name), and returns the
        `Map`, if the method has one. For a `neighbor_map` it is set automatically.
    name : str
        Stable kebab-case name.
    family : str
        The group of methods, such as "spectral".
    run : callable
        The decorated function.

    """

    spec: type[S]
    title: str
    about: str
    source: str
    growth: str
    reproducible: bool = False
    labels: bool = False
    libraries: tuple[str, ...] = ()
    extra: str = ""
    any_scale: bool = False
    any_space: bool = False
    by_distances: bool = False
    sparse: bool = False
    joins_equal: bool = False
    doubles: Callable[[S, int], int] = _NOTHING
    compiles: bool = False
    linear: bool = False
    neighbor_map: type[NeighborMap] | None = None
    restore: Callable[[Callable[[], NDArray[np.float64]], S, Embedding, dict[str, NDArray[np.float64]]], Map] | None = (
        None
    )
    name: str = field(init=False)
    family: str = field(init=False)
    run: Callable[..., Embedding] = field(init=False)

    def __call__(self, run: Callable[..., Embedding]) -> Self:
        """Decorate the function `run`: set the fields `run`, `name` and `family` from it, and return the method."""
        if self.neighbor_map is not None:
            self.restore = self.neighbor_map.restore
        self.run, self.name = run, run.__name__.replace("_", "-")
        self.family = _FAMILIES[run.__module__.split(".")[-2]]
        return self

    def __repr__(self) -> str:
        return f"Method({self.name!r}, {self.title!r})"

    @property
    def random(self) -> bool:
        """Whether the embedding depends on a seed."""
        return "seed" in self.spec.parameters()

    def named_parameters(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a caller's keyword options into parameters of the specification.

        `random_state` is renamed to `seed`, and options whose value is still the default `OF_METHOD` are left out.

        Raises
        ------
        InvalidParameterError
            If a `seed` or `random_state` is given to a method without randomness, if both are given, or if the
            `random_state` is neither an integer nor a generator of numpy.

        """
        options = given_options(options)
        if not self.random and (seeds := [name for name in ("seed", "random_state") if options.get(name) is not None]):
            raise InvalidParameterError(
                f"{self.title} has no {seeds[0]}: it is not random.", remedy=f"Leave {seeds[0]} out."
            )
        return with_seed(options)

    @property
    def has_inverse(self) -> bool:
        """Whether positions in the embedding can be mapped back to points in the space of the data."""
        return self.restore is not None and (self.neighbor_map is None or self.neighbor_map.inverse is not Map.inverse)

    def needs_labels(self, spec: S) -> bool:
        """Whether the method with these parameters needs labels."""
        return self.labels or spec.uses_labels

    def require_available(self) -> None:
        """Raise `MissingLibraryError` unless the libraries of the method are installed; the remedy names the extra."""
        for library in self.libraries:
            if find_spec(library) is None:
                raise MissingLibraryError(
                    f"{self.title} needs {library}, which is not installed.",
                    remedy=f'Install it: pip install "glle[{self.extra}]".',
                    details={"library": library, "extra": self.extra},
                )

    def require_possible(self, n: int, d: int, spec: S, *, labels: bool = False) -> None:
        """Raise a `GlleError` if the method cannot embed n points of d features with the parameters `spec`.

        Only the shape of the data is checked, not the values. `labels` says whether the caller passes labels, which are
        refused if the method does not use them.
        """
        self.require_available()
        if self.needs_labels(spec) and not labels:
            raise InvalidParameterError(
                f"{self.title} needs the class of each point, but `labels` was not given.",
                remedy="Give `labels`, one integer for each point.",
            )
        if labels and not self.needs_labels(spec):
            raise InvalidParameterError(
                f"{self.title} does not use labels, so that `labels` would change nothing.",
                remedy=f"Leave `labels` out, choose a supervised method, or use umap with {Way('target_weight')}.",
            )
        if spec.space[1] == "precomputed" and not (self.by_distances or self.any_space):
            raise InvalidParameterError(
                f"{self.title} needs the coordinates of the points, but the data are distances "
                f"({Way('metric', 'precomputed')}).",
                remedy=f"Give coordinates with another {Way('metric')}, embed the distances by mds first, or use glle, "
                "lle or isomap.",
            )
        if spec.precomputed:
            require_square(n, d)
        spec.require_possible(n, d)

    def least_bytes(self, n: int, spec: S) -> int:
        """Return a lower bound of the memory, in bytes, that it takes to embed n points."""
        return 8 * self.doubles(spec, n)

    def embed(
        self,
        X: ArrayLike,
        spec: S | None = None,
        on_progress: OnProgress | None = None,
        *,
        labels: ArrayLike | None = None,
        init: ArrayLike | None = None,
    ) -> Embedding:
        """Return the embedding of the data X by this method.

        Parameters
        ----------
        X : (n, d) array-like
            Finite numbers, which are converted to float64; sparse data only for methods with `sparse`.
        spec
            The parameters of the method; None for their default values.
        on_progress : callable, optional
            Called with (done, total, stage) between blocks of work; its exceptions end the computation.
        labels : (n,) array-like of integers, optional
            The class of each point: required if `needs_labels(spec)`, and refused otherwise.
        init : (n, p) array-like, optional
            Initial coordinates, for methods with a parameter `init`, which must then have its default value. They are
            centered and scaled like the method's other starts, and a little noise separates equal points.

        Raises
        ------
        GlleError
            With a remedy, if the data or the parameters cannot be used.

        """
        spec = self.spec() if spec is None else spec
        data = self._check_data(X, spec)
        n, d = data.shape
        classes = [] if labels is None else [_checked_labels(labels, n)]
        start = {} if init is None else {"start": self._start(init, n, spec)}
        # A start from principal components requires that the data have enough dimensions. Coordinates that are given as
        # `init` replace this start, and the requirement does not apply.
        possible = replace(spec, init="random") if start else spec  # type: ignore[call-arg] # `_start` checked it
        self.require_possible(n, d, possible, labels=bool(classes))
        require_differing(data if isinstance(data, np.ndarray) else SparsePoints.from_rows(data, "euclidean"))
        clock = StageClock(on_progress or silent)
        points = data if self.any_space else _locate(data, spec)
        try:
            if self.joins_equal:
                embedding = self._embed_distinct(coordinates(points), spec, clock)
            else:
                embedding = self.run(points, spec, clock, *classes, **start)
        except GlleError as error:
            if isinstance(points, np.ndarray) and not spec.precomputed and (far := far_points(points)):
                error.remedy = f"{far_text(far)} Otherwise: " + error.remedy
            raise
        if isinstance(embedding.map, AffineMap) and isinstance(data, np.ndarray) and not self.any_space:
            embedding = replace(embedding, map=_of_data(embedding.map, data, spec))
        if self.neighbor_map is not None and isinstance(data, np.ndarray) and spec.space[1] != "precomputed":
            embedding = replace(embedding, map=self.neighbor_map(data, spec, embedding))
        if not (self.any_scale or self.any_space or isinstance(points, Distances)):
            embedding = replace(embedding, notes=(*embedding.notes, *scale_notes(scale_figures(points), d, spec)))
        further = dimension_notes(d, spec.n_components, spec.space[1])
        # The method glle returns the notes of its posterior, which already include the notes on dimensions.
        notes = (*embedding.notes, *(note for note in further if note not in embedding.notes))
        # The note on far points comes first, because far points can be the cause of the other notes. They can also make
        # the embedding collapse, so that `concentration_notes` would only repeat the finding.
        first = [note for note in notes if note.code == "far-points"]
        notes = (*first, *(note for note in notes if note not in first))
        notes = notes if first else (*notes, *concentration_notes(embedding.Y))
        return replace(embedding, notes=notes, seconds=clock.stop())

    def _embed_distinct(self, points: NDArray[np.float64], spec: S, on_progress: OnProgress) -> Embedding:
        """Embed the distinct rows of `points` (n, q), and give rows that are equal the same position.

        Rows count as equal if they differ by rounding errors only. A note says how many rows equal another one.
        """
        first, twin = distinct_points(points)
        n, m = len(points), len(first)
        if m == n:
            return self.run(points, spec, on_progress)
        try:
            self.require_possible(m, points.shape[1], spec)
        except TooFewPointsError as error:
            message = f"Only {m} of the {n} points are different. " + error.message
            raise TooFewPointsError(message, remedy=error.remedy, details=error.details) from error
        try:
            embedding = self.run(points[first], spec, on_progress)
        except DegenerateDataError as error:
            if not {"point", "points"} & error.details.keys():
                raise
            message = error.message + f" Points are counted among the {m} of {n} points that differ."
            raise DegenerateDataError(message, remedy=error.remedy, details=error.details) from error
        if bridges := embedding.figures.get("bridges"):
            embedding = embedding.extended({"bridges": first[np.array(bridges)].tolist()})
        message = (
            f"{n - m} of {n} points equal another one. {self.title} embeds the {m} different points, and equal points "
            "have the same position."
        )
        return replace(embedding, embedding=embedding.Y[twin], notes=(*embedding.notes, Note("equal-points", message)))

    def _start(self, init: ArrayLike, n: int, spec: S) -> NDArray[np.float64]:
        """Check the initial coordinates that the user gave, and return them (n, p) centered and scaled.

        The widest column of the result has standard deviation one. Raises a `GlleError` if the method has no parameter
        `init`, or if the coordinates cannot be used.
        """
        parameter = "init"
        if parameter not in spec.parameters():
            raise InvalidParameterError(
                f"{self.title} does not start from initial coordinates: init would change nothing.",
                remedy="Leave init out, or take a neighbor embedding such as t-sne or umap.",
            )
        if (word := getattr(spec, parameter)) != getattr(self.spec(), parameter):
            raise InvalidParameterError(
                f"Both {Way('init', word)} and initial coordinates are given, but the descent has one start.",
                remedy="Leave one of the two out.",
            )
        raw = array_of(init, "init")
        if raw.shape != (n, spec.n_components) or raw.dtype.kind not in "fiub":
            raise InvalidShapeError(
                f"`init` has shape {raw.shape} and type {raw.dtype}, but {n} points are embedded in "
                f"{spec.n_components} dimensions.",
                remedy=f"Give coordinates of shape {(n, spec.n_components)}, or the name of a start, such as 'pca'.",
            )
        Y = float64_of(raw)
        require_finite(Y, "init")
        Y = Y / (np.abs(Y).max() or 1.0)
        Y = Y - Y.mean(axis=0)
        width = float(Y.std(axis=0).max())
        if width <= 0:
            raise DegenerateDataError(
                f"All {n} points of `init` have the same position.",
                remedy="Give distinct positions, or leave `init` out.",
            )
        return np.asarray(Y / width)

    def _check_data(self, X: ArrayLike, spec: S) -> NDArray[np.float64] | csr_array:
        """Return the data as a float64 matrix (n, d), or as a CSR matrix (n, d) if they are sparse.

        Raises `InvalidParameterError` if the method, or its parameters, do not allow sparse data.
        """
        if not is_sparse(X):
            return finite_matrix(X) if self.any_space else checked_matrix(X)
        if not self.sparse:
            raise InvalidParameterError(f"The data are sparse, which {self.title} does not support.", remedy=DENSE)
        require_possible(spec)
        rows: Any = finite_data(X)
        if not self.any_space and rows.nnz:
            require_range(np.append(rows.data, 0.0)[:, None])
        return rows


def note_bridges(
    embedding: Embedding, bridges: list[tuple[int, int]], rows: NDArray[np.intp] | None = None
) -> Embedding:
    """Return the embedding with a figure and a note on `bridges`; without bridges, return it unchanged.

    A bridge is a pair of points whose edge was added to connect the neighbor graph. If the graph has only m of the
    points, `rows` (m,) are the rows of these points in the data.
    """
    if not bridges:
        return embedding
    ends = np.array(bridges) if rows is None else rows[np.array(bridges)]
    figures = {**embedding.figures, "bridges": ends.tolist()}
    return replace(embedding, figures=figures, notes=(*bridge_notes(len(bridges)), *embedding.notes))


def note_raised(embedding: Embedding, n_neighbors: int, used: int) -> Embedding:
    """Return the embedding with a figure and a note if `used` neighbors were needed to connect the graph.

    If `used` is `n_neighbors`, the number that was asked for, the embedding is returned unchanged.
    """
    if used == n_neighbors:
        return embedding
    message = (
        f"With {Way('n_neighbors', n_neighbors)} the neighbor graph falls into several parts; "
        f"{Way('n_neighbors', used)} was used, the smallest number that connects it. Where those parts lie in the "
        f"embedding means little. Raise {Way('n_neighbors')} above {used} to join them by more neighbors, embed each "
        f"part as a separate data set, or use {Way('disconnected', 'error')} to refuse such data."
    )
    figures = {**embedding.figures, "n_neighbors": used}
    return replace(embedding, figures=figures, notes=(Note("neighbors-raised", message), *embedding.notes))


def _locate(data: NDArray[np.float64] | csr_array, spec: MethodSpec) -> Data:
    """Return the data in the form that a method's function takes.

    Sparse data become `SparsePoints`, a matrix of precomputed distances becomes `Distances`, and other data become
    points (n, q) after `standardize` and `metric`.
    """
    if not isinstance(data, np.ndarray):
        return SparsePoints.from_rows(data, spec.space[1])
    return Distances.among(data) if spec.space[1] == "precomputed" else Space.from_data(data, spec).points(data)


def _of_data(affine: AffineMap, data: NDArray[np.float64], spec: MethodSpec) -> AffineMap | None:
    """Turn an affine map of the standardized data into a map of the raw data.

    The result is None if the metric is not Euclidean, because the map of the raw data is then not affine.
    """
    if spec.space[1] != "euclidean":
        return None
    space = Space.from_data(data, spec)
    if space.center is None or space.scale is None:
        return affine
    return AffineMap(space.center + space.scale * affine.mean, affine.components / space.scale)


def _checked_labels(labels: ArrayLike, n: int) -> NDArray[np.int64]:
    raw = array_of(labels, "the labels", are_labels=True)
    if raw.shape == (n, 1):
        raw = raw[:, 0]
    is_integer = raw.dtype.kind in "iubf" and bool(((raw == np.round(raw)) & (np.abs(raw) < 2.0**63)).all())
    if raw.shape != (n,) or not is_integer:
        raise InvalidShapeError(
            f"The labels have shape {raw.shape} and type {raw.dtype}, but each of the {n} points needs an integer.",
            remedy=f"Give {n} integers, the class of each point.",
        )
    return raw.astype(np.int64)


def participation_ratio(Y: NDArray[np.float64]) -> float:
    """Return the participation ratio (sum e)^2 / sum e^2 of the squared distances e of the points from their mean.

    The points are the rows of Y (n, p). The ratio says how many points effectively make up the extent of the embedding:
    from 1 to n, or 0 if all points are equal.
    """
    off = Y - Y.mean(axis=0)
    off = off / power_of_two(float(np.abs(off).max()))
    energy = (off * off).sum(axis=1)
    squares = float((energy * energy).sum())
    return float(energy.sum()) ** 2 / squares if squares else 0.0


def concentration_notes(Y: NDArray[np.float64]) -> Iterator[Note]:
    """Yield a note if the embedding Y (n, p) has collapsed: most points lie together, and few are far from them."""
    n, shared = len(Y), participation_ratio(Y)
    if shared < CONCENTRATED * n:
        yield Note(
            "collapsed",
            "Few points hold most of the embedding's extent: the participation ratio of the squared "
            f"distances from the mean is {shared:.3g} of {n} points. The others lie close together. Change "
            f"{Way('n_neighbors')} or the method, or look for outliers in the data.",
        )
