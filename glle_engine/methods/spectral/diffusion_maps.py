r"""Diffusion maps: distances between the random walks from two points after t steps.

:math:`K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon)`, :math:`q = K 1`,
:math:`K^{(\alpha)}_{ij} = K_{ij} / (q_i q_j)^\alpha`, :math:`d = K^{(\alpha)} 1`,
:math:`P = diag(d)^{-1} K^{(\alpha)}`. The eigenvectors :math:`P \psi_l = \lambda_l \psi_l`, with
:math:`\sum_i \pi_i \psi_{l,i}^2 = 1` for the stationary :math:`\pi = d / \sum d`, give
:math:`y_i = (\lambda_1^t \psi_{1,i}, ..., \lambda_p^t \psi_{p,i})` (Coifman and Lafon 2006, sections 2 and 3).
alpha = 0 gives the normalized graph Laplacian, which depends on the density of the points; alpha = 1/2 gives the
Fokker-Planck operator; alpha = 1 gives the Laplace-Beltrami operator of the manifold, which does not depend on the
density.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, diags_array, identity

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError
from glle_engine.base.texts import Note, Way
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import eigenpairs_between
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.radius import symmetric_graph
from glle_engine.graph.relations import Distances
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.parameters import RadiusSpec, boolean, integer, number, require_points
from glle_engine.methods.spectral.laplacian import bottom_pairs, heat_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data

DENSE_MOST = 2_000  # by default, the kernel has all pairs up to this many points, and on request up to twice as many
_TRUNCATED = 32  # for more than DENSE_MOST points, the kernel has by default this many neighbors of each point
_BANDWIDTH_NEIGHBORS = 10
_PAIRS = 30  # at least this many eigenpairs are computed, to count those that matter (`delta`)
_MAX_STEPS = 1_000_000
_SMALLEST = 1e-150  # smallest power of an eigenvalue that is used; squares of smaller coordinates could underflow to 0
_MAX_GROUPS = 100


@dataclass(frozen=True, kw_only=True)
class DiffusionMapsSpec(RadiusSpec):
    """Parameters of diffusion maps."""

    epsilon: float | str = number(
        "auto",
        "Bandwidth of the kernel exp(-|x - y|^2 / epsilon), in squared units of the data; auto: the median squared "
        "distance to the 10th neighbor.",
        above=0,
        words=("auto",),
    )
    bandwidth: float | None = number(
        None, "h of the kernel exp(-|x - y|^2 / h^2), in units of the data: another name of epsilon = h^2.", above=0
    )
    threshold: float | None = number(
        None,
        "Keep only the columns with |lambda_l^t| >= 1 - threshold (Yao's delta), at most n_components of them. Null: "
        "keep n_components columns.",
        above=0,
        maximum=1,
    )
    alpha: float = number(
        1.0,
        "How much of the points' density is divided out of the kernel: 0 nothing, 1/2 as for the Fokker-Planck "
        "operator, 1 all.",
        minimum=0,
        maximum=1,
    )
    t: int | str = integer(
        1,
        "Steps of the random walk; auto: the fewest after which no coordinate beyond n_components counts by delta.",
        minimum=0,
        maximum=_MAX_STEPS,
        words=("auto",),
    )
    delta: float = number(
        0.1, "Relative accuracy: eigenpair l counts where lambda_l^t > delta lambda_1^t.", above=0, below=1
    )
    n_neighbors: int | str = integer(
        "auto",
        "Number of neighbors of a point for which the kernel is computed, and not set to 0; all: every pair of points; "
        "auto: all up to 2,000 points, 32 above.",
        minimum=2,
        words=("auto", "all"),
        counts=True,
    )
    lump: bool = boolean(
        default=False,
        doc="Whether the labels are groups of states, whose Markov chain is reported. The figure lumping then has the "
        "groups (for texts, numbers in the order of the sorted texts), the transition probabilities between groups, "
        "the eigenvalues of this chain, and its deviation, which is 0 if the sequence of groups is a Markov chain.",
    )

    @property
    def uses_labels(self) -> bool:
        """Whether the method needs labels, the group of each point: it does if `lump` is set.

        The method then also reports the Markov chain between the groups.
        """
        return self.lump

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if both bandwidth and epsilon are given."""
        super().check_together()
        if self.bandwidth is not None:
            self.refuse_unused("bandwidth", "epsilon")

    def neighbors_among(self, n: int) -> int | None:
        """Return the number of neighbors for which the kernel of n points is computed; None stands for all pairs."""
        if self.radius is None and (self.n_neighbors == "all" or (self.n_neighbors == "auto" and n <= DENSE_MOST)):
            return None
        return _TRUNCATED if isinstance(self.n_neighbors, str) else self.n_neighbors

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for more than 4,000 points in a kernel of all pairs."""
        require_points(n, self.n_components + 3, f"n_components={self.n_components}")
        k = self.neighbors_among(n)
        if k is None and n > 2 * DENSE_MOST:
            raise InvalidParameterError(
                f"A kernel of all pairs of {n:,} points is too large.",
                remedy=f"Truncate it: give {Way('n_neighbors')}, such as {_TRUNCATED}; or at most {2 * DENSE_MOST:,} "
                "points.",
                details={"n_points": n, "most": 2 * DENSE_MOST},
            )
        if k is not None and self.radius is None:
            require_points(n, k + 1, f"n_neighbors={k}")


def diffusion(K: csr_array, alpha: float) -> tuple[csr_array, NDArray[np.float64]]:
    """Return the symmetric matrix diag(d)^1/2 P diag(d)^-1/2 (n, n) of the random walk, and d (n,).

    P is the transition matrix of the walk, and has the same eigenvalues as the symmetric matrix. d are the row sums of
    the kernel after its entries were divided by the density of both points to the power of alpha.

    Parameters
    ----------
    K : (n, n) sparse
        The kernel, symmetric, with a positive diagonal.
    alpha : float
        From 0 (the density matters) to 1 (the density is divided out).

    """
    q = np.asarray(K.sum(axis=1)).ravel()
    weighted = diags_array(q**-alpha) @ K @ diags_array(q**-alpha)
    d = np.asarray(weighted.sum(axis=1)).ravel()
    S = diags_array(d**-0.5) @ weighted @ diags_array(d**-0.5)
    return csr_array((S + S.T) / 2), d


@Method(
    spec=DiffusionMapsSpec,
    title="Diffusion maps",
    about="Distances are those between random walks after t steps: coordinates lambda_l^t psi_l of the Markov matrix.",
    source="Coifman and Lafon 2006, Applied and Computational Harmonic Analysis 21, sections 2 and 3",
    by_distances=True,
    doubles=lambda spec, n: 4 * n * n if spec.neighbors_among(n) is None else 0,
    growth="n^3 up to 2,000 points; then n^1.3 for few features, up to n^3 for many",
)
def diffusion_maps(
    X: Data, spec: DiffusionMapsSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the leading eigenvectors of a random walk on the points.

    If `spec.lump` is set, `labels` (n,) has the group of each point, and the figure "lumping" of the result describes
    the walk from group to group. The positions do not depend on the labels.
    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 -- slow to import; the API does not need it

    n, p = len(X), spec.n_components
    epsilon = _bandwidth(X, on_progress) if isinstance(spec.epsilon, str) else spec.epsilon
    epsilon = epsilon if spec.bandwidth is None else spec.bandwidth**2
    k = spec.neighbors_among(n)
    bridges: list[tuple[int, int]] = []
    if k is None:
        distances = np.maximum(X.known if isinstance(X, Distances) else cdist(X, X), np.finfo(np.float64).tiny)
        np.fill_diagonal(distances, 0.0)
        graph = csr_array(distances)
    else:
        neighbors, bridges = spec.graph(X, on_progress, k)
        graph = symmetric_graph(*neighbors)
    on_progress(0, 1, "embedding")
    weights, notes = heat_kernel(graph, epsilon, is_given=(spec.epsilon, spec.bandwidth) != ("auto", None))
    S, d = diffusion(csr_array(weights + identity(n, format="csr")), spec.alpha)
    count = min(n - 2, max(_PAIRS, p + 1))
    values, vectors = _leading(S, np.sqrt(d), count, dense=k is None)
    t = _steps(values, spec)
    if values[p - 1] <= 0 or (values[p - 1] / values[0]) ** t < _SMALLEST or values[0] ** t < _SMALLEST:
        raise DegenerateDataError(
            f"After {t} steps of the diffusion coordinate {p} has vanished: its eigenvalue is {values[p - 1]:.3g}.",
            remedy="Give a smaller t or epsilon, or fewer components.",
            details={"t": t, "epsilon": epsilon, "eigenvalues": values[:p].tolist()},
        )
    if spec.threshold is not None:
        p = _columns_above(values[:p], t, spec.threshold)
    psi = vectors[:, :p] / np.sqrt(d / d.sum())[:, None]
    dimension = int(np.sum(np.maximum(values / values[0], 0.0) ** t > spec.delta))
    figures: dict[str, Any] = {
        "epsilon": epsilon,
        "t": t,
        "dimension": dimension,
        "n_neighbors": k if spec.radius is None else None,
    }
    if spec.threshold is not None:
        figures["columns"] = p
    if labels is not None:
        _require_few(labels)
        root = np.sqrt(d)
        lumping = lump(diags_array(1 / root) @ S @ diags_array(root), labels)
        figures["lumping"] = {
            "groups": np.unique(labels).tolist(),
            "chain": lumping.chain.tolist(),
            "eigenvalues": lumping.eigenvalues.tolist(),
            "deviation": lumping.deviation,
        }
    notes = (*notes, *_notes(dimension, count, n, spec))
    return note_bridges(Embedding(sign_convention(psi * values[:p] ** t), values[:p], figures, notes), bridges)


def _columns_above(values: NDArray[np.float64], t: int, threshold: float) -> int:
    """Return how many of the eigenvalues lambda (p,), which descend, have |lambda^t| >= 1 - threshold.

    Raises `DegenerateDataError` if there is none.
    """
    powers = np.abs(values) ** t
    if not (count := int((powers >= 1 - threshold).sum())):
        raise DegenerateDataError(
            f"With a threshold of {threshold:g} no column of the diffusion map is left: columns need |lambda^t| of at "
            f"least {1 - threshold:g}, but the largest is {powers[0]:.3g}.",
            remedy=f"Give threshold of at least {1 - powers[0]:.3g}, or a smaller t.",
            details={"powers": powers.tolist()},
        )
    return count


@dataclass(frozen=True, eq=False)
class Lumping:
    """The Markov chain between groups of states.

    Attributes
    ----------
    chain : (g, g) float64
        Transition probabilities between groups, averaged over the states of the group where a transition begins.
    deviation : float
        The largest difference between a state's probability of moving into a group and the average of this probability
        over the state's own group. It is 0 if the chain is lumpable: the sequence of groups is then a Markov chain.
    eigenvalues : (g,) float64
        Eigenvalues of `chain`, descending.
    vectors : (n, g) float64
        The right eigenvectors of `chain` as functions of the states, constant in each group. If the chain is lumpable,
        they are eigenvectors of the whole chain.

    """

    chain: NDArray[np.float64]
    deviation: float
    eigenvalues: NDArray[np.float64]
    vectors: NDArray[np.float64]


def lump(P: NDArray[np.float64] | csr_array, groups: NDArray[np.integer[Any]]) -> Lumping:
    """Average a Markov chain over groups of states (Meila and Shi 2001).

    The result has the average transition probabilities (g, g) between the g groups, their eigenvalues and eigenvectors,
    and the deviation: the largest difference between a state's probability of moving into a group and the average over
    the state's own group. If it is 0, the chain is lumpable: the sequence of groups is then a Markov chain, too.

    Parameters
    ----------
    P : (n, n) float64, dense or sparse
        Transition probabilities of a reversible chain, rows of sum 1.
    groups : (n,) int
        The group of each state.

    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    member = np.equal.outer(group, np.arange(len(counts))).astype(np.float64)  # (n, g)
    into = P @ member
    chain = member.T @ into / counts[:, None]
    values, vectors = np.linalg.eig(chain)
    order = np.argsort(-values.real)
    return Lumping(chain, float(np.abs(into - chain[group]).max()), values.real[order], vectors.real[:, order][group])


def _require_few(labels: NDArray[np.int64]) -> None:
    """Raise `InvalidParameterError` if the labels have more than 100 groups.

    The result reports the transition probability between any two groups, which would be too many numbers.
    """
    if (count := len(np.unique(labels))) > _MAX_GROUPS:
        raise InvalidParameterError(
            f"{Way('lump', value=True)} takes at most {_MAX_GROUPS} groups; the labels have {count:,}.",
            remedy="Give labels of fewer groups, such as a clustering of the points.",
            details={"groups": count, "most": _MAX_GROUPS},
        )


def _bandwidth(X: Data, on_progress: OnProgress) -> float:
    """Return the median squared distance of a point to its 10th neighbor, the default bandwidth of the kernel.

    Points whose distance is 0, because they have ten duplicates, are left out. Raises `DegenerateDataError` if this
    leaves no point.
    """
    n = len(X)
    _, distances = kneighbors(X, min(_BANDWIDTH_NEIGHBORS, n - 1), on_progress)
    squares = distances[:, -1] ** 2
    if not np.any(squares > 0):
        raise DegenerateDataError(
            f"Every point has at least ten duplicates, so that {Way('epsilon', 'auto')} finds no bandwidth.",
            remedy=f"Give {Way('epsilon')} as a number, or remove duplicates.",
        )
    return float(np.median(squares[squares > 0]))


def _leading(
    S: csr_array, null: NDArray[np.float64], count: int, *, dense: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the `count` greatest eigenvalues of S (n, n) after the eigenvalue 1, descending, and their eigenvectors.

    `null` (n,) is the eigenvector of the eigenvalue 1, of any length. The eigenvectors are (n, count). LAPACK computes
    them if `dense` is true, and a Lanczos method otherwise.
    """
    n = len(null)
    if not dense:
        values, vectors, _ = bottom_pairs(csr_array(identity(n, format="csr") - S), null, count)
        return 1 - values, vectors
    u = null / np.linalg.norm(null)
    values, vectors = eigenpairs_between(S.toarray() - 2 * np.outer(u, u), n - count, n - 1)
    return values[::-1], vectors[:, ::-1]


def _steps(values: NDArray[np.float64], spec: DiffusionMapsSpec) -> int:
    if not isinstance(spec.t, str):
        return spec.t
    p = spec.n_components
    if values[p] <= 0:
        return 1
    ratio = np.log(values[p] / values[0])
    needed = np.log(spec.delta) / ratio if ratio < 0 else np.inf
    if needed > _MAX_STEPS:
        raise DegenerateDataError(
            f"Eigenvalue {p + 1} is so near the first that no t of at most {_MAX_STEPS:,} separates them.",
            remedy=f"Give t as a number, or {Way('n_components', p + 1)}.",
            details={"eigenvalues": values[: p + 1].tolist()},
        )
    return max(1, int(np.ceil(needed)))


def _notes(dimension: int, count: int, n: int, spec: DiffusionMapsSpec) -> Iterator[Note]:
    if dimension > spec.n_components:
        number = f"At least {dimension}" if dimension == count < n - 2 else f"{dimension}"
        yield Note(
            "coordinates-left-out",
            f"{number} coordinates matter at the accuracy {Way('delta', spec.delta)}, but only {spec.n_components} are "
            f"shown. With a larger t, fewer coordinates matter; {Way('t', 'auto')} takes the smallest t for which the "
            "shown coordinates are enough.",
        )
