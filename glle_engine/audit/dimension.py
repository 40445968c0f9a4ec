"""Dimension of the data, as the number of coordinates that the maps of two separate halves of the data share.

Both halves are embedded with one coordinate more than the audited map. The squared canonical correlations of the two
maps say how many coordinates they share: three for a 3-ball, none for noise. Coordinates of nearly equal strength mix,
so the true number may be larger.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import GlleError
from glle_engine.base.randomness import generator
from glle_engine.graph.neighbors import intrinsic_dimension, kneighbors
from glle_engine.linalg import dense
from glle_engine.reliability.resamples import SEPARATE, resample
from glle_engine.reliability.thresholds import MIN_EXTRA_DIMENSION, MIN_SQUARED_CANONICAL_CORRELATION

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.reliability.resamples import Embedder

HALF_PAIRS = 2  # this many pairs of halves are embedded with one coordinate more than the audited map has
MAX_HALVED_POINTS = 2000  # halves are made of at most this many points
DIMENSION_NEIGHBORS = 10


def find_dimension(
    wider: Embedder, rows: NDArray[np.intp], seed: int, executor: Executor | None, on_progress: OnProgress
) -> tuple[int | None, int | None]:
    """Return how many coordinates maps of two halves of the data share, and the hidden dimension of the data or None.

    `wider` makes maps with one coordinate more than the audited map, of halves of at most 2,000 of the `rows`. The maps
    share a coordinate if they agree in it, up to a linear transformation (`shared_coordinates`).

    The data have a hidden dimension if the maps share more coordinates than the audited map has, and if the additional
    coordinate is not a function of the others, as it is for points on a curved sheet. The hidden dimension is then the
    number of shared coordinates. Both results are None if the halves cannot be embedded with an additional coordinate.
    """
    if (n := wider.shape[0]) > MAX_HALVED_POINTS:
        rng = generator(seed, n)
        wider = wider.of_rows(np.sort(rng.permutation(rows)[:MAX_HALVED_POINTS]))
    places = np.empty((0, *wider.shape))
    with suppress(GlleError):  # the data may not allow one coordinate more
        maps = resample(wider, 2 * HALF_PAIRS, stream=SEPARATE, seed=seed, executor=executor, on_progress=on_progress)
        places = maps.places[maps.complete_pairs]
    if not len(places):
        return None, None
    filled = intrinsic_dimension(kneighbors(np.ascontiguousarray(places[0]), DIMENSION_NEIGHBORS)[1])
    shared, p = shared_coordinates(places), wider.shape[1] - 1
    return shared, shared if shared > p and filled >= p + MIN_EXTRA_DIMENSION else None


def shared_coordinates(places: NDArray[np.float64]) -> int:
    """Return how many coordinates the maps of two halves of the data share.

    In the maps (2 m, n, p), maps 2 j and 2 j + 1 are a pair. A coordinate is shared if its squared canonical
    correlation is at least .5, in the median over the pairs.
    """
    pairs = zip(places[::2], places[1::2], strict=True)
    squares = np.median([canonical_correlations(a, b) ** 2 for a, b in pairs], axis=0)
    return int((squares >= MIN_SQUARED_CANONICAL_CORRELATION).sum())


def canonical_correlations(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the canonical correlations (p,) of two embeddings (n, p), the largest first (Hotelling 1936)."""
    first, second = (dense.svd(Y - Y.mean(axis=0))[0] for Y in (A, B))
    return np.asarray(dense.svd(dense.cross(first, second))[1])
