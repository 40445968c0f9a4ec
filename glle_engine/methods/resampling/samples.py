r"""Refits of a method to half-samples of the data, and to the whole data with other seeds.

Half-sample j is a random n / 2 points, a pure function of (n, seed, j), the same as in
`glle_engine.posterior.spread.calibration`. The method is refitted to it with counts of neighbors that shrink with the
sample (`shrunk`), and the held-out points are placed: by the method's own map if it has one or is linear, otherwise by
their LLE weights on the points of the sample. Weights are a poor map of a linear method: they inflate the movement of
PCA 1.6 to 2.8 times.

Two halves of one sample share half of it, and an estimate from n / 2 points has twice the variance of one from n. The
variance over half-samples therefore estimates that over new samples of n points without a factor (the delete-half
jackknife), as far as the embedding is a smooth function of the sample. Samples of a share phi of the points need the
factor phi / (1 - phi), 1.72 for .632 (`glle_engine.posterior.spread.resampling`). They keep neighborhoods and graphs
closer to those of the data, where half of the points are too few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.brief import brief
from glle_engine.base.errors import DisconnectedGraphError, GlleError, InvalidParameterError
from glle_engine.base.maps import AffineMap
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.space import Space
from glle_engine.base.validation import Unit, finite_matrix
from glle_engine.graph.relations import Distances
from glle_engine.methods.costs import Cost, estimate
from glle_engine.posterior.placement.out_of_sample import hang

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.graph.relations import Data
    from glle_engine.methods.base import Embedding, Method
    from glle_engine.methods.parameters import MethodSpec

HALF_SAMPLES = 40
HALF, LARGER = 0.5, 0.632
SHARES = (HALF, LARGER)  # of the points in a sample
REFITS = 8  # of the whole data with other seeds
LEAST_POINTS = 20
LINEAR = ("pca", "ppca", "mds", "factor-analysis", "npe")
"""The methods whose embedding is an affine function of the points in their space."""

COUNTS = ("n_neighbors", "perplexity", "k_least", "k_most", "n_graph", "landmarks", "n_landmarks")
"""The parameters that count points, and shrink with the sample."""

_PLACING = 10  # neighbors among the sample of a held-out point
_REG = 1e-3  # ridge of their weights
_LEAST_COUNT = 5  # below it, neighborhoods of a plane are as likely in parts as not
_SEEDS = 2**63
_SUMMARY = 1e-4  # seconds a point and resample, with the margin: alignment, neighbors and clusters


@dataclass(frozen=True, eq=False)
class Resamples:
    """Embeddings of the data by refits of a method.

    Attributes
    ----------
    places : (m, n, p) float64
        In the unit of each refit, not aligned. NaN where the refit failed.
    problems : tuple of str
        The messages of refits that failed.

    """

    places: NDArray[np.float64]
    problems: tuple[str, ...] = ()

    __repr__ = brief


def sample_size(n: int, share: float) -> int:
    """Return the number of points in a sample, rounded down for halves."""
    return n // 2 if share == HALF else round(share * n)


def shrunk(spec: MethodSpec, share: float = HALF) -> dict[str, Any]:
    r"""Return the changed parameters for a share of the points.

    Perplexity and numbers of neighbors and of landmarks are divided by :math:`\sqrt 2` for half of the points, and by
    :math:`\sqrt{1 / \varphi}` for a share phi, rounded up. For half it is the geometric mean of two rules: divided by
    2, a neighborhood reaches as far as in the data, but the graph of a sheet with k = 10 tears; unchanged, it reaches
    to the next turn of the sheet. None falls below 5, or below its value if that is less.
    """
    changes = {}
    for name in COUNTS:
        value = getattr(spec, name, None)
        if isinstance(value, (int, float)) and value > 0:
            less = value * math.sqrt(share)
            changes[name] = max(less if isinstance(value, float) else math.ceil(less), min(value, _LEAST_COUNT))
    return changes


def require_share(share: float) -> None:
    """Raise `InvalidParameterError` for a share other than .5 and .632."""
    if share not in SHARES:
        raise InvalidParameterError(f"share={share} is not a share of samples.", remedy="Use share=0.5 or share=0.632.")


def require_resamplable(
    n: int, d: int, method: Method[Any], spec: MethodSpec, *, labels: bool = False, share: float = HALF
) -> None:
    """Raise the `GlleError` of a method that cannot be refitted to a share of n points, from the sizes alone."""
    require_share(share)
    method.require_possible(n, d, spec, labels=labels)
    half = sample_size(n, share)
    features = half if _is_precomputed(spec) else d
    if n < LEAST_POINTS:
        raise InvalidParameterError(
            f"{n} points are too few for half-samples.",
            remedy=f"Give at least {LEAST_POINTS} points.",
            details={"n_points": n, "least": LEAST_POINTS},
        )
    refusal: GlleError | None = None
    for changes in _attempts(spec, share):
        try:
            method.require_possible(half, features, replace(spec, **changes, **_of_half(spec, half)), labels=labels)
        except GlleError as error:
            refusal = error
        else:
            return
    assert refusal is not None
    part = "half" if share == HALF else f"{share:.0%}"
    raise InvalidParameterError(
        f"{method.title} cannot be refitted to {part} of the {n} points. {refusal.message}",
        remedy=refusal.remedy,
        details=refusal.details,
    ) from refusal


def cost(
    n: int,
    d: int,
    method: Method[Any],
    spec: MethodSpec,
    count: int = HALF_SAMPLES,
    again: int = REFITS,
    share: float = HALF,
) -> Cost:
    """Return the expected cost of `count` samples, of `again` refits with other seeds, and of their summary."""
    half = sample_size(n, share)
    features = half if _is_precomputed(spec) else d
    one = method.cost(half, features, replace(spec, **shrunk(spec, share), **_of_half(spec, half)))
    placing = estimate("lle", half, features, k=_PLACING, p=spec.n_components)
    whole = method.cost(n, d, spec)
    again = again if method.random else 0
    seconds = count * (one.seconds + placing.seconds) + (again + 1) * whole.seconds + _SUMMARY * n * (count + again)
    kept = 8.0 * n * spec.n_components * 3 * (count + again)  # as made, aligned, and a copy between
    return Cost(seconds, max(one.bytes, whole.bytes, placing.bytes) + kept)


def half_samples(
    X: ArrayLike,
    method: Method[Any],
    spec: MethodSpec,
    indices: Sequence[int] = range(HALF_SAMPLES),
    *,
    seed: int = 0,
    labels: NDArray[np.int64] | None = None,
    share: float = HALF,
    on_progress: OnProgress = silent,
) -> Resamples:
    """Refit a method to half-samples, or samples of another share, of the data, and place the held-out points.

    Parameters
    ----------
    X : (n, d)
        Or distances (n, n), of a specification that says so.
    method, spec
    indices
        The numbers of the half-samples. Half-sample j is a pure function of (X, method, spec, seed, share, j), so that
        ranges can be computed apart. A method with a seed has another for each: that of `spec` plus 1 + j.
    seed : int
        Of the choice of points.
    labels : (n,) int64, optional
        Of a supervised method.
    share : {0.5, 0.632}
        Of the points in a sample; give it to `movement`, too.
    on_progress
        Called with (half-samples done, all, "half-samples"), also within a refit; its exceptions end the computation.

    Raises
    ------
    GlleError
        As `require_resamplable`. The failure of a single half-sample is a problem of the result.

    """
    data = finite_matrix(X)
    n, d = data.shape
    require_resamplable(n, d, method, spec, labels=labels is not None, share=share)
    points, _ = located(data, spec)
    places = np.full((len(indices), n, spec.n_components), np.nan)
    problems = []
    for done, j in enumerate(indices):
        alive = _steady(on_progress, done, len(indices), "half-samples")
        alive(0, 1, "")
        half, others = halves(n, seed, j, share)
        try:
            embedding = _refit(data, half, method, _seeded(method, spec, j), labels, share, alive)
        except GlleError as error:
            problems.append(str(error))
            continue
        places[done, half] = embedding.Y
        places[done, others] = _placed(data, points, half, others, method, embedding)
    on_progress(len(indices), len(indices), "half-samples")
    return Resamples(places, tuple(problems))


def refits(
    X: ArrayLike,
    method: Method[Any],
    spec: MethodSpec,
    indices: Sequence[int] = range(REFITS),
    *,
    labels: NDArray[np.int64] | None = None,
    on_progress: OnProgress = silent,
) -> Resamples:
    """Refit a method to all points with the seeds seed + 1, seed + 2, ...; none of a method without a seed."""
    data = finite_matrix(X)
    numbers = indices if method.random else []
    places = np.full((len(numbers), len(data), spec.n_components), np.nan)
    problems = []
    for done, j in enumerate(numbers):
        alive = _steady(on_progress, done, len(numbers), "other seeds")
        try:
            places[done] = method.embed(data, _seeded(method, spec, j), alive, labels=labels).Y
        except GlleError as error:
            problems.append(str(error))
    return Resamples(places, tuple(problems))


def _steady(on_progress: OnProgress, done: int, total: int, stage: str) -> OnProgress:
    """Return a callback for the work of one refit, which reports the refits instead."""

    def report(_done: int, _total: int, _stage: str) -> None:
        on_progress(done, total, stage)

    return report


def halves(n: int, seed: int, j: int, share: float = HALF) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the points of sample j, n / 2 of them by default, and the others; both ascending."""
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, j], np.uint64)))
    order = rng.permutation(n)
    size = sample_size(n, share)
    return np.sort(order[:size]), np.sort(order[size:])


def _seeded(method: Method[Any], spec: MethodSpec, j: int) -> MethodSpec:
    """Return the specification with the seed of resample j, if the method has one."""
    changes = {"seed": (getattr(spec, "seed", 0) + 1 + j) % _SEEDS} if method.random else {}
    return replace(spec, **changes)


def _is_precomputed(spec: MethodSpec) -> bool:
    """Return whether the data are distances."""
    return spec.space[1] == "precomputed" or getattr(spec, "dissimilarity", "") == "precomputed"


def _attempts(spec: MethodSpec, share: float) -> tuple[dict[str, Any], ...]:
    """Return the changed counts in the order in which they are tried: shrunk, then unchanged."""
    return shrunk(spec, share), {}


def _of_half(spec: MethodSpec, half: int) -> dict[str, Any]:
    """Return the changed parameters of a specification that lists every point: any order of so many."""
    order = getattr(spec, "ordering", "")
    return {"ordering": tuple(range(half))} if isinstance(order, tuple) else {}


def _refit(
    data: NDArray[np.float64],
    half: NDArray[np.intp],
    method: Method[Any],
    spec: MethodSpec,
    labels: NDArray[np.int64] | None,
    share: float,
    on_progress: OnProgress,
) -> Embedding:
    """Embed a sample of the points; counts that are refused, or leave the graph in parts, stay as they are."""
    sample = data[np.ix_(half, half)] if _is_precomputed(spec) else data[half]
    order = getattr(spec, "ordering", "")
    listed: dict[str, Any] = {}
    if isinstance(order, tuple):  # the order of the sample's points among all
        rank = np.argsort(order)
        listed = {"ordering": tuple(np.argsort(rank[half]).tolist())}
    failure: GlleError | None = None
    for changes in _attempts(spec, share):
        try:
            changed = replace(spec, **changes, **listed)
            return method.embed(sample, changed, on_progress, labels=None if labels is None else labels[half])
        except (DisconnectedGraphError, InvalidParameterError) as error:
            failure = error
    assert failure is not None
    raise failure


def located(data: NDArray[np.float64], spec: MethodSpec) -> tuple[Data, int]:
    """Return data in the space of a specification, coordinates or distances, over 2^e, and e."""
    if _is_precomputed(spec):
        exponent = int(np.frexp(float(data.max()))[1])
        return Distances.among(np.ldexp(data, -exponent)), exponent
    points = Space.of(data, spec).points(data)
    unit = Unit.of(points)
    return unit.scaled(points), unit.exponent


def _placed(
    data: NDArray[np.float64],
    points: Data,
    half: NDArray[np.intp],
    others: NDArray[np.intp],
    method: Method[Any],
    embedding: Embedding,
) -> NDArray[np.float64]:
    """Return the places of the held-out points by the map of a sample's embedding, or by their LLE weights."""
    if embedding.map is not None:
        return embedding.map.transform(data[others])
    if isinstance(points, Distances):
        return hang(points.at(half), points.of_others(others, half), min(_PLACING, len(half) - 1), _REG).embed(
            embedding.Y
        )
    assert isinstance(points, np.ndarray)  # `finite_matrix` refuses sparse data
    sample, rest = np.ascontiguousarray(points[half]), points[others]
    if method.name in LINEAR:
        return _affine(sample, embedding.Y).transform(rest)
    return hang(sample, rest, min(_PLACING, len(half) - 1), _REG).embed(embedding.Y)


def _affine(points: NDArray[np.float64], Y: NDArray[np.float64]) -> AffineMap:
    """Return the affine map of points (m, d) to their places (m, p); of several the one with the least components."""
    mean, center = points.mean(axis=0), Y.mean(axis=0)
    components = np.linalg.lstsq(points - mean, Y - center, rcond=None)[0].T
    shift = np.linalg.lstsq(components, center, rcond=None)[0]
    return AffineMap(mean - shift, components)
