r"""t-distributed stochastic neighbor embedding: Gaussian affinities in the data, Student's in the embedding.

.. math::
    E(Y) = \sum_{i \ne j} p_{ij} \log(p_{ij} / q_{ij}), \quad
    q_{ij} = (1 + |y_i - y_j|^2)^{-1} / \sum_{k \ne l} (1 + |y_k - y_l|^2)^{-1}

(van der Maaten and Hinton 2008, Eq. 4). Each point has affinities only to its 3 * perplexity nearest neighbors, and the
repulsion is approximated by the tree of Barnes and Hut or by interpolation (van der Maaten 2014; Linderman et al.
2019). The embedding is computed by openTSNE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.linalg import ArpackError

from glle_engine.base.errors import ConvergenceError, InvalidParameterError
from glle_engine.base.parameters import mapping
from glle_engine.base.progress import silent
from glle_engine.base.texts import Note, Text, Way
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.neighbor_embedding.affinities import (
    PerplexitySpec,
    initial,
    noisy,
    older_seed,
    perplexity_notes,
)
from glle_engine.methods.neighbor_embedding.libraries import (
    FurtherDistanceSpec,
    library_options,
    nearest_points,
    nearest_to,
    passed_on,
)
from glle_engine.methods.parameters import choice, integer, number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data
    from glle_engine.methods.neighbor_embedding.affinities import Start

_START_DEVIATION = 1e-4  # standard deviation of the initial coordinates, as in van der Maaten and Hinton 2008
# The start is rounded to its standard deviation / 2^20, because further digits depend on the unit of the data.
_START_GRID = 2.0**20
_PLACING_PERPLEXITY = 5.0  # new points are placed with this perplexity, as in openTSNE
_ITERATIONS_PER_CALLBACK = 25  # each callback costs a computation of the divergence
_SETTLED = 0.01
_MIN_INTERPOLATED_POINTS = 10_000  # from this many points on, the repulsion is interpolated, as in openTSNE
_MAX_BY_TREE, _MAX_BY_INTERPOLATION = 3, 2
# Arguments of openTSNE, and the parameters of this method that set them, where the names differ. The arguments
# `_OF_AFFINITIES` would have no effect, because the affinities are computed before openTSNE's class is called.
_PARAMETERS = {
    "initialization": "init",
    "early_exaggeration_iter": "early_iter",
    "n_iter": "max_iter",
    "random_state": "seed",
}
_OF_AFFINITIES = ("initialization", "metric", "metric_params", "neighbors", "knn_kwargs")


@dataclass(frozen=True, kw_only=True)
class TsneSpec(FurtherDistanceSpec, PerplexitySpec):
    """Parameters of t-SNE."""

    early_exaggeration: float = number(12.0, "Factor on the affinities in the first iterations.", minimum=1)
    early_iter: int = integer(250, "Number of the first iterations, which have early_exaggeration.", minimum=0)
    exaggeration: float = number(1.0, "Factor on the affinities in the iterations that follow.", minimum=1)
    max_iter: int = integer(500, "Number of the iterations that follow.", minimum=1)
    learning_rate: float | str = number(
        "auto", "Step size of the descent; auto is n divided by the exaggeration.", above=0, words=("auto",)
    )
    dof: float = number(1.0, "Degrees of freedom of Student's distribution: below 1, clusters part more.", above=0)
    negative_gradient_method: str = choice(
        "auto",
        "The repulsion by a tree (bh), by interpolation (fft), or by interpolation from 10,000 points on (auto).",
        "auto",
        "bh",
        "fft",
    )
    theta: float = number(0.5, "Accuracy of the tree: 0 is exact, larger is faster.", minimum=0, maximum=1)
    options: dict[str, Any] | None = mapping("Further arguments of `openTSNE.TSNE` by name, passed on as they are.")

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for a perplexity too large for n points, or too many components for the algorithm."""
        super().require_possible(n, d)
        self.require_columns(d)
        algorithm = repulsion_method(n, self)
        limit = _MAX_BY_TREE if algorithm == "bh" else _MAX_BY_INTERPOLATION
        if self.n_components > limit:
            raise InvalidParameterError(
                Text(
                    Way("n_components", self.n_components),
                    f" is more than the {limit} components that ",
                    Way("negative_gradient_method", algorithm),
                    " can have.",
                ),
                remedy=Text(
                    "Give ", Way("n_components"), f" of at most {limit}, or take symmetric-sne or elastic-embedding."
                ),
                details={"n_components": self.n_components, "most": limit},
            )


def repulsion_method(n: int, spec: TsneSpec) -> str:
    """Return the algorithm that computes the repulsion of n points: "bh" (a tree) or "fft" (interpolation)."""
    if spec.negative_gradient_method != "auto":
        return spec.negative_gradient_method
    return "fft" if n >= _MIN_INTERPOLATED_POINTS and spec.n_components <= _MAX_BY_INTERPOLATION else "bh"


class PartialMap(NeighborMap):
    """Map by which openTSNE places a new point: a descent on its affinities to the training points, which stay put."""

    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        from openTSNE import TSNEEmbedding  # noqa: PLC0415 -- an extra, slow to import

        affinities, unit, _ = _affinities(self.points, self.spec, silent)

        def query(places: NDArray[np.float64], k: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
            nearest, distances = nearest_to(self.points, places, k, self.spec)
            return nearest, _rounded(distances / unit)

        affinities.knn_index.query = query
        # openTSNE centers the embedding before it places new points, and does not move the new points back.
        center = (self.embedding.Y.max(axis=0) + self.embedding.Y.min(axis=0)) / 2
        embedding = TSNEEmbedding(
            self.embedding.Y - center, affinities, negative_gradient_method="bh", dof=self.spec.dof, n_jobs=1
        )
        perplexity = min(_PLACING_PERPLEXITY, self.spec.perplexity)
        return np.asarray(center + np.array(embedding.transform(points, perplexity=perplexity), dtype=np.float64))


@Method(
    spec=TsneSpec,
    title="t-distributed stochastic neighbor embedding",
    about="Minimizes the divergence between joint affinities, Gaussian in the data and Student's in the embedding, "
    "whose heavy tails leave room for points that are not near.",
    source="van der Maaten and Hinton 2008, Eq. 4 and 5; openTSNE: Policar, Strazar and Zupan 2024",
    by_distances=True,
    sparse=True,
    neighbor_map=PartialMap,
    growth="n log n, and n^2 d to find neighbors among many features",
    libraries=("openTSNE",),
    extra="tsne",
)
def t_sne(X: Data, spec: TsneSpec, on_progress: OnProgress, *, start: Start = None) -> Embedding:
    """Embed by openTSNE in one thread, with exact neighbors."""
    from openTSNE import TSNE  # noqa: PLC0415 -- an extra, slow to import

    total = spec.early_iter + spec.max_iter
    divergences: dict[int, float] = {}
    stopped: list[Exception] = []

    def record(iteration: int, divergence: float, _: Any) -> None:
        first = spec.early_iter if len(divergences) >= spec.early_iter // _ITERATIONS_PER_CALLBACK else 0
        divergences[first + iteration] = float(divergence)
        try:
            on_progress(first + iteration, total, "descent")
        except Exception as error:
            stopped.append(error)
            raise

    named = {
        "n_components": spec.n_components,
        "perplexity": spec.perplexity,
        "early_exaggeration": spec.early_exaggeration if spec.early_iter else spec.exaggeration,
        "early_exaggeration_iter": spec.early_iter,
        "exaggeration": spec.exaggeration,
        "n_iter": spec.max_iter,
        "negative_gradient_method": repulsion_method(len(X), spec),
        "theta": spec.theta,
        "dof": spec.dof,
        "learning_rate": spec.learning_rate,
        "n_jobs": 1,
        "random_state": older_seed(spec.seed),
        "callbacks": record,
        "callbacks_every_iters": _ITERATIONS_PER_CALLBACK,
        "verbose": False,
    }
    named |= library_options("openTSNE", TSNE, spec, [*named, *_OF_AFFINITIES], _PARAMETERS)
    affinities, _, notes = _affinities(X, spec, on_progress)
    on_progress(0, total, "descent")
    Y = _start(X, spec, affinities.P) if start is None else _START_DEVIATION * noisy(start, spec.seed)
    with passed_on("openTSNE", spec.options, stopped):
        embedding = TSNE(**named).fit(affinities=affinities, initialization=Y)
    on_progress(total, total, "descent")
    divergence = float(embedding.kl_divergence)
    decrease = _last_decrease(divergences, divergence, spec)
    is_settled = decrease is not None and abs(decrease) < _SETTLED
    figures = {
        "kl_divergence": divergence,
        "iterations": total,
        "converged": is_settled,
        "last_decrease": decrease,
        "negative_gradient_method": repulsion_method(len(X), spec),
    }
    if not is_settled:
        notes = (*notes, _not_settled(decrease))
    return Embedding(np.array(embedding, dtype=np.float64), None, figures, notes)


def _affinities(X: Data, spec: TsneSpec, on_progress: OnProgress) -> tuple[Any, float, tuple[Note, ...]]:
    """Return openTSNE's affinities of the data, the mean distance of neighbors, and a note for unmet perplexities.

    Distances are divided by this mean before the affinities are computed. The note is there only if some points do not
    reach the perplexity.
    """
    from openTSNE.affinity import PerplexityBasedNN  # noqa: PLC0415 -- an extra, slow to import
    from openTSNE.nearest_neighbors import PrecomputedNeighbors  # noqa: PLC0415 -- an extra

    nearest, distances = nearest_points(X, math.ceil(3 * spec.perplexity), spec, on_progress)
    on_progress(0, 1, "affinities")
    # The affinities do not depend on the unit of the distances. But openTSNE's search for the widths starts at a fixed
    # width, and would end with other rounding errors in another unit.
    unit = float(distances.mean()) or 1.0
    affinities = PerplexityBasedNN(
        knn_index=PrecomputedNeighbors(nearest.astype(np.int64), _rounded(distances / unit)),
        perplexity=spec.perplexity,
        n_jobs=1,
    )
    return affinities, unit, (*perplexity_notes(distances[:, int(spec.perplexity)] > distances[:, 0], spec.perplexity),)


def _rounded(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return distances rounded to 24 bits.

    Further digits depend on the unit of the data, and the descent would amplify the differences.
    """
    return distances.astype(np.float32).astype(np.float64)


def _last_decrease(divergences: dict[int, float], divergence: float, spec: TsneSpec) -> float | None:
    """Return the relative decrease of the divergence in the last 50 iterations or somewhat more.

    `divergences` maps iterations to the divergence after them, and `divergence` is the final one. The result is None if
    no value after the early exaggeration is at least 2 * `_ITERATIONS_PER_CALLBACK` = 50 iterations old.
    """
    until = spec.early_iter + spec.max_iter - 2 * _ITERATIONS_PER_CALLBACK
    earlier = [iteration for iteration in divergences if spec.early_iter < iteration <= until]
    return (divergences[max(earlier)] - divergence) / max(abs(divergence), _SETTLED) if earlier else None


def _not_settled(decrease: float | None) -> Note:
    """Return the note that the descent may not have converged.

    `decrease` is the relative decrease of the divergence in the last iterations (`_last_decrease`), or None if there
    were too few iterations to tell.
    """
    reason = (
        Text(
            Way("max_iter"),
            f" is below {3 * _ITERATIONS_PER_CALLBACK}, too few to judge whether the divergence has settled",
        )
        if decrease is None
        else f"the divergence still changed by {abs(decrease):.1%} in the last {2 * _ITERATIONS_PER_CALLBACK} "
        "iterations"
    )
    return Note(
        "not-converged", Text("The coordinates may not be final: ", reason, ". Give a larger ", Way("max_iter"), ".")
    )


def _start(X: Data, spec: TsneSpec, P: Any) -> NDArray[np.float64]:
    """Return the initial coordinates (n, p) that `spec.init` names, with a standard deviation of about 1e-4.

    P (n, n) are the sparse affinities, whose eigenvectors are used if `spec.init` is "spectral".
    """
    if spec.init != "spectral":
        Y = initial(X, spec.n_components, spec.init, spec.seed)
        return _START_DEVIATION * np.round(Y * _START_GRID) / _START_GRID
    from openTSNE.initialization import spectral  # noqa: PLC0415 -- an extra, slow to import

    try:
        return sign_convention(np.asarray(spectral(P, spec.n_components, random_state=older_seed(spec.seed))))
    except ArpackError as error:
        raise ConvergenceError(
            f"The eigenvectors of the affinities were not found: {error}.",
            remedy=Text("Give ", Way("init", "pca"), "."),
        ) from error
