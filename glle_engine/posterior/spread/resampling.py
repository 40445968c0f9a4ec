r"""Embeddings of random subsamples, which show how an embedding varies over samples of the data.

Resample j of a stream embeds a random share :math:`\varphi` of the points with their own graph, places the other points
by their LLE weights on these, and is rotated to the reference. It is a pure function of (X, spec, reference, stream,
seed, j): any range of a stream is computed anywhere, and the bits agree.

An estimate from :math:`\varphi n` points has :math:`1 / \varphi` times the variance of one from n points, and two
subsamples of one data set share a part of it: :math:`1 - \varphi` is left. So :math:`\varphi / (1 - \varphi)` times the
covariance over resamples estimates the covariance over samples (the delete-d jackknife: Shao and Wu, "A general theory
for jackknife variance estimation", Annals of Statistics 17, 1989). For half-samples the factor is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.validation import finite_data
from glle_engine.graph.relations import Distances, located
from glle_engine.graph.search import neighbors_by
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import procrustes_rotation, turned
from glle_engine.posterior.fit import reference_embedding
from glle_engine.posterior.placement.out_of_sample import hang

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.spec import FitSpec
    from glle_engine.graph.relations import Data

SMALLEST_K, LARGEST_K = 0.7, 1.5  # of random n_neighbors, relative to that of the fit
_RESAMPLES = 1 << 32  # of a stream: the upper bits of the counter are its number


@dataclass(frozen=True)
class Stream:
    """Kind of resamples.

    Attributes
    ----------
    name : str
        Also the stage of the progress reports.
    share : float
        Of the points, or of the landmarks, that are embedded.
    random_neighbors : bool
        Whether n_neighbors is log-uniform on [.7 k, 1.5 k] for each resample, or k.
    number : int
        Different streams of one seed are independent.

    """

    name: str
    share: float
    random_neighbors: bool
    number: int

    @property
    def factor(self) -> float:
        """Factor on the covariance over resamples: share / (1 - share)."""
        return self.share / (1 - self.share)

    def size(self, n: int) -> int:
        """Return the number of embedded points of n, rounded down for halves."""
        return n // 2 if self.share == 0.5 else round(self.share * n)


HALVES = Stream("half-samples", 0.5, random_neighbors=False, number=0)
RANDOM_K = Stream("half-samples, random k", 0.5, random_neighbors=True, number=1)
LARGER = Stream("larger samples", 0.632, random_neighbors=False, number=2)
STREAMS = (HALVES, RANDOM_K, LARGER)


def resamples(
    X: ArrayLike,
    spec: FitSpec,
    reference: NDArray[np.float64],
    count: int,
    *,
    stream: Stream = HALVES,
    first: int = 0,
    seed: int = 0,
    on_progress: OnProgress = silent,
    landmarks: NDArray[np.int32] | None = None,
) -> NDArray[np.float64]:
    """Embed random subsamples of the data, or of the landmarks, and place the other points by their LLE weights.

    Parameters
    ----------
    X : (n, d), dense or sparse
        Half of the points, or of the landmarks, must be more than n_neighbors and p + 2.
    spec : FitSpec
        A subsample with a disconnected graph is bridged, for any value of `disconnected`.
    reference : (n, p) float64
        Each embedding is rotated to it.
    count, first : int
        Resamples first, ..., first + count - 1 of the stream.
    stream : Stream
    seed : int
        In [0, 2^64).
    on_progress
        Called with (resamples done, count, name of the stream), also within a resample. An exception that it raises
        cancels the computation.
    landmarks : (m,) int32, optional
        Of the posterior.

    Returns
    -------
    (count, n, p) float64

    Raises
    ------
    InvalidParameterError
        For too few points.

    """
    count, first = check_integer("count", count, 0), check_integer("first", first, 0)
    seed = check_integer("seed", seed, 0, counter=True)
    data = located(finite_data(X), spec)
    n = len(data)
    rows = np.arange(n) if landmarks is None else landmarks
    require_halves(len(rows), spec, "points" if landmarks is None else "landmarks")
    if first + count > _RESAMPLES:
        raise InvalidParameterError(
            f"first={first} and count={count} go beyond the {_RESAMPLES} resamples of a stream.",
            remedy="Give another seed.",
        )
    placed = np.empty((count, n, spec.n_components))
    for done in range(count):
        counter = np.array([seed, stream.number * _RESAMPLES + first + done], np.uint64)
        rng = np.random.Generator(np.random.Philox(key=counter))
        chosen = np.sort(rows[rng.permutation(len(rows))[: stream.size(len(rows))]])
        k = spec.n_neighbors
        if stream.random_neighbors:
            k = _random_neighbors(rng.random(), k, least=spec.n_components + 1, most=len(chosen) - 1)
        of_sample = replace(spec, n_neighbors=k, disconnected="bridge", landmarks=None)
        placed[done] = _embedded(data, chosen, of_sample, partial(_repeated, on_progress, (done, count, stream.name)))
        placed[done] = turned(placed[done], procrustes_rotation(placed[done], reference))
        on_progress(done + 1, count, stream.name)
    return placed


def require_halves(sampled: int, spec: FitSpec, unit: str = "points") -> None:
    """Raise `InvalidParameterError` if half of `sampled` points cannot be embedded."""
    if sampled // 2 <= max(spec.n_neighbors, spec.n_components + 2):
        raise InvalidParameterError(
            f"Half of {sampled} {unit} is too few for n_neighbors={spec.n_neighbors}.",
            remedy=f"Give n_neighbors below {sampled // 2 - 1}, or more {unit}.",
        )


def _random_neighbors(uniform: float, k: int, *, least: int, most: int) -> int:
    """Return n_neighbors, log-uniform on [.7 k, 1.5 k] within the bounds; `uniform` is in [0, 1)."""
    low, high = dense.log(SMALLEST_K * k), dense.log(LARGEST_K * k)
    return min(max(int(dense.exp(low + (high - low) * uniform) + 0.5), min(least, k)), most)


def _repeated(on_progress: OnProgress, report: tuple[int, int, str], _done: int, _total: int, _stage: str) -> None:
    """Report the same progress again, because within a resample only a cancellation matters."""
    on_progress(*report)


def _embedded(data: Data, chosen: NDArray[Any], spec: FitSpec, on_progress: OnProgress) -> NDArray[np.float64]:
    """Return the embedding (n, p) of the chosen rows, with the others placed by their weights on these."""
    others = np.setdiff1d(np.arange(len(data)), chosen, assume_unique=True)
    sample, rest = _parts(data, chosen, others)
    nearest, _ = neighbors_by(spec.search, sample, spec.n_neighbors, on_progress)
    fitted = reference_embedding(sample, nearest, spec, on_progress)
    extension = hang(
        sample,
        rest,
        spec.n_neighbors,
        spec.reg,
        n_components=spec.n_components,
        noise=spec.noise,
        flatness=fitted.flatness,
    )
    placed = np.empty((len(data), spec.n_components))
    placed[chosen] = fitted.embedding
    placed[others] = extension.embed(fitted.embedding)
    return placed


def _parts(data: Data, chosen: NDArray[Any], others: NDArray[Any]) -> tuple[Data, Data]:
    """Return a part of the data, and the others in relation to it."""
    if isinstance(data, Distances):
        return data.at(chosen), data.of_others(others, chosen)
    if isinstance(data, SparsePoints):
        return data[chosen], data[others]
    return np.ascontiguousarray(data[chosen]), data[others]
