"""Choose the number of neighbors k of a method (``n_neighbors="auto"``) whose embedding keeps the most neighbors.

Each candidate k is tried: the points are embedded by their k nearest neighbors, and the score is the share of the ten
nearest points of each point that are among its ten nearest in the embedding. If there are n > 1,500 points, a sample of
m = 1,500 points is embedded, with k divided by the root of n / m. The neighborhoods of a sheet then reach nearly as far
as among all points, and still hold enough points.

Other scores chose worse numbers of neighbors. Trustworthiness prefers fewer neighbors than the recovery of true
coordinates needs. The residual variance of Euclidean distances prefers embeddings that do not unroll a sheet. The
embeddings with the best Procrustes disparity of neighborhoods (Goldberg and Ritov 2009) keep fewer neighbors of the
digits and of a Swiss roll.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import ConvergenceError
from glle_engine.base.randomness import generator
from glle_engine.base.texts import Note, Way
from glle_engine.graph.connectivity import bridge, closed_classes, require_connected
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import Distances

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data

# Numbers of neighbors that are tried for up to `MAX_SAMPLE_POINTS` points.
CANDIDATE_COUNTS = (8, 10, 14, 18, 24, 31, 40)
MAX_SAMPLE_POINTS = 1500  # of more points, a random sample of this size is embedded for each candidate
COMPARED_NEIGHBORS = 10  # candidates are ranked by how many of each point's 10 nearest points their embedding keeps


def kept_neighbors(nearest: NDArray[np.int32], Y: NDArray[np.float64]) -> float:
    """Return the share of points' neighbors that an embedding Y (n, p) keeps, rescaled so that chance gives 0.

    `nearest` (n, k) are the neighbors of each point. A neighbor is kept if it is among the k nearest points in the
    embedding; the result is 1 if all are kept, and 0 on average for random positions. If `nearest` are the k nearest
    points in the data, the result is R_NX(k) (`glle_engine.metrics.coranking`).
    """
    by_chance: float = nearest.shape[1] / (len(Y) - 1)
    return (kept_share(nearest, Y) - by_chance) / (1 - by_chance)


def kept_share(nearest: NDArray[np.int32], Y: NDArray[np.float64]) -> float:
    """Return the share, in [0, 1], of the neighbors `nearest` (n, k) that are among the k nearest in an embedding Y."""
    map_nearest = kneighbors(np.ascontiguousarray(Y), nearest.shape[1])[0]
    return float((nearest[:, :, None] == map_nearest[:, None, :]).any(axis=2).mean())


@dataclass(frozen=True)
class NeighborCount:
    """How well the embedding by each candidate number of neighbors k keeps the neighbors that points have in the data.

    Attributes
    ----------
    kept : dict of int to float
        Candidate k, ascending, and the score (`kept_neighbors`) of the embedding by k neighbors.
    left_out : list of int
        Candidates without a score, because their directed neighbor graph has several closed classes (sets of points
        that no edge leaves), or because the embedding failed.
    sampled : int or None
        The number of points that were embedded, if these were only a sample.

    """

    kept: dict[int, float]
    left_out: list[int]
    sampled: int | None = None

    @property
    def ranked(self) -> list[int]:
        """The candidates with a score, the best first; among equal scores, the smallest k first."""
        return sorted(self.kept, key=lambda k: (-self.kept[k], k))

    @property
    def figures(self) -> dict[str, Any]:
        """The best k and the second best, all scores, and the candidates without a score, as a JSON-able dictionary.

        The runner-up is None if there is one candidate only.
        """
        best, *others = self.ranked
        curve = [{"n_neighbors": k, "kept": kept} for k, kept in self.kept.items()]
        runner_up = others[0] if others else None
        return {"n_neighbors": best, "runner_up": runner_up, "curve": curve, "left_out": self.left_out}

    def notes(self) -> Iterator[Note]:
        """Yield a note for the user on the chosen k and the second best k, if more than one candidate has a score."""
        best, *others = self.ranked
        if others:
            sample = f" of a sample of {self.sampled:,} points" if self.sampled else ""
            message = (
                f"{Way('n_neighbors', best)} was chosen: of {len(self.kept)} embeddings{sample}, its embedding "
                f"keeps the most neighbors of the data ({self.kept[best]:.2f}; 0 by chance, 1 for all). The "
                f"runner-up, {Way('n_neighbors', others[0])}, keeps {self.kept[others[0]]:.2f}."
            )
            yield Note("neighbors-chosen", message)


def candidates_of(n: int) -> list[int]:
    """Return the numbers of neighbors to try for n points, ascending: at most half of n, or 2 if n is less than 4."""
    spread = math.sqrt(max(n / MAX_SAMPLE_POINTS, 1.0))
    max_neighbors = max(n // 2, 2)
    return [k for k in (round(k * spread) for k in CANDIDATE_COUNTS) if k <= max_neighbors] or [max_neighbors]


def best_neighbor_count(
    X: Data,
    candidates: Sequence[int],
    embed: Callable[[Data, NDArray[np.int32]], NDArray[np.float64]],
    on_progress: OnProgress,
    *,
    bridged: bool = False,
    instead: str = "Or give more neighbors.",
) -> NeighborCount:
    """Embed the points by each candidate number of neighbors, and return how many neighbors each embedding keeps.

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
    candidates : sequence of int
        Ascending; the last one is below n.
    embed : callable
        Called with points (m, d) and their neighbors (m, k); returns an embedding (m, p).
    bridged : bool
        Whether disconnected graphs are connected by additional edges, if no candidate has a connected graph.
    instead : str
        A second remedy for the `DisconnectedGraphError`, after the remedy to take more neighbors.

    Raises
    ------
    DisconnectedGraphError
        If no candidate has a connected graph, unless `bridged`. The error names the smallest k that would connect the
        graph.
    ConvergenceError
        If the embedding fails for every candidate.

    """
    n = len(X)
    nearest, _ = kneighbors(X, candidates[-1], on_progress)
    possible = [k for k in candidates if len(closed_classes(nearest[:, :k])) == 1]
    if bridged and not possible:
        possible = list(candidates)
    if not possible:
        require_connected(X, nearest, instead=instead)
        possible = [candidates[-1]]
    spread, sampled = 1.0, None
    if n > MAX_SAMPLE_POINTS and len(possible) > 1:
        rows = np.sort(generator(0, n).permutation(n)[:MAX_SAMPLE_POINTS])
        X = X.at(rows) if isinstance(X, Distances) else X[rows]
        spread, sampled = math.sqrt(n / MAX_SAMPLE_POINTS), MAX_SAMPLE_POINTS
    sizes = {k: max(2, round(k / spread)) for k in possible}
    compared = max(1, min(COMPARED_NEIGHBORS, (len(X) - 1) // 2))
    if sampled or nearest.shape[1] < compared:
        nearest, _ = kneighbors(X, max(*sizes.values(), compared))
    kept: dict[int, float] = {}
    failure = None
    for done, (k, size) in enumerate(sizes.items()):
        on_progress(done, len(sizes), "numbers of neighbors")
        try:
            Y = embed(X, bridge(X, nearest[:, :size])[0])
        except ConvergenceError as error:
            failure = error
            continue
        kept[k] = kept_neighbors(nearest[:, :compared], Y)
    if not kept and failure is not None:
        raise failure
    return NeighborCount(kept, [k for k in candidates if k not in kept], sampled)
