"""Parameters, initial coordinates, refusals and results shared by the embeddings by affinities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.progress import silent
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import leading_eigenpairs
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.methods.base import Embedding
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.linear.mds import scaling_of
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.methods.neighbor_embedding.affinities import require_perplexity
from glle_engine.methods.parameters import DistanceSpec, choice, integer, number, require_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.graph.relations import Data
    from glle_engine.methods.neighbor_embedding.descent import Descent

_START = 1e-2  # standard deviation, relative to the width of the Gaussians
_USUAL_ITERATIONS = 120
MAX_POINTS = 5000  # matrices of all pairs: 1 GB, and minutes


NOISE = 1e-2  # relative to the start
_USUAL, _NAME = "init", "initialization"


@dataclass(frozen=True, kw_only=True)
class StartSpec(DistanceSpec):
    """Base of the methods with the parameter `initialization`, which umap-learn and openTSNE call `init`."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification of a dictionary with either name; raise `InvalidParameterError` for both."""
        if _USUAL in values and _NAME in values:
            raise InvalidParameterError(
                "init and initialization are two names of one parameter.", remedy="Give one of them."
            )
        return super().from_dict({_NAME if name == _USUAL else name: value for name, value in values.items()})


def noisy(start: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return given coordinates with a little noise, which separates equal points and points on a line."""
    return start + NOISE * np.random.default_rng(seed).standard_normal(start.shape)


@dataclass(frozen=True, kw_only=True)
class PerplexitySpec(StartSpec):
    """Parameters of a method on affinities."""

    perplexity: float = number(
        30.0, "Effective number of neighbors of a point; at most a third of the other points.", above=1
    )
    seed: int = integer(
        0, "Of the random numbers of the start: a little noise on any, all of random.", least=0, most=2**63 - 1
    )
    initialization: str = choice(
        "pca",
        "Where the descent starts: principal components, eigenvectors of the affinities, or noise; scaled small."
        " init means the same.",
        "pca",
        "spectral",
        "random",
    )

    def require_possible(self, n: int, d: int) -> None:
        """Refuse a perplexity too large for n points, and more components than the start has."""
        self.require_rank(n, d if self.initialization == "pca" else n - 1)
        require_perplexity(n, self.perplexity)


@dataclass(frozen=True, kw_only=True)
class DescentSpec(PerplexitySpec):
    """Parameters of a method that descends along the spectral direction."""

    max_iter: int = integer(1000, "The most iterations of the descent.", least=1)
    tol: float = number(1e-7, "Relative decrease of the objective at which the descent has converged.", above=0)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse requests that are impossible for a dense descent."""
        super().require_possible(n, d)
        require_size(n, MAX_POINTS, "A descent over all pairs", "t-sne, which approximates")

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost of a usual number of iterations."""
        return estimate(row, n, d, steps=min(self.max_iter, _USUAL_ITERATIONS))


def initial(X: Data, n_components: int, initialization: str, seed: int) -> NDArray[np.float64]:
    """Return initial coordinates (n, p), the first column (pca) or all (random) of standard deviation one.

    A little noise on the principal components separates equal points, and lets the descent leave the line on which
    the components of data along a line lie.
    """
    noise = np.random.default_rng(seed).standard_normal((len(X), n_components))
    if initialization == "random":
        return noise
    if isinstance(X, Distances):  # classical scaling has the principal components of points with these distances
        Y = scaling_of(X.known, n_components, silent).Y
    elif isinstance(X, SparsePoints):
        Y = sign_convention(X.principal_scores(n_components))
    else:
        Y = principal_axes(X, n_components, silent).scores
    return np.asarray(Y / Y[:, 0].std() + NOISE * noise)


def older_seed(seed: int) -> int:
    """Return a seed of 32 bits, for numpy's older generators in other libraries, from one of 64 bits."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def spectral(joint: NDArray[np.float64], n_components: int) -> NDArray[np.float64]:
    r"""Return the smoothest functions (n, p) on affinities P (n, n): the bottom of :math:`L y = \lambda D y`.

    D has the sums of P, and L = D - P (Belkin and Niyogi 2003); the constant is left out.
    """
    half = np.sqrt(joint.sum(axis=1))
    _, vectors = leading_eigenpairs(joint / (half[:, None] * half), n_components + 1, silent)
    return sign_convention(vectors[:, 1:] / half[:, None])


def begin(
    X: Data, spec: DescentSpec, joint: NDArray[np.float64], given: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return the start of a descent (n, p), small relative to the width of the Gaussians.

    `joint` (n, n) are the affinities, for the spectral start; `given` (n, p) replaces it.
    """
    if given is not None:
        return _START * noisy(given, spec.seed)
    if spec.initialization == "spectral":
        noise = np.random.default_rng(spec.seed).standard_normal((len(X), spec.n_components))
        Y = spectral(joint, spec.n_components)
        return np.asarray(_START * (Y / Y[:, 0].std() + NOISE * noise))
    return _START * initial(X, spec.n_components, spec.initialization, spec.seed)


def embedding_of(descent: Descent, figures: dict[str, Any], notes: tuple[Note, ...], spec: DescentSpec) -> Embedding:
    """Return the embedding of a descent, with its iterations and a note unless it converged."""
    if not descent.converged:
        notes = (
            *notes,
            Note(
                "not-converged",
                f"The descent did not converge in {descent.iterations} iterations (max_iter={spec.max_iter}): "
                "the coordinates are not final. Give a larger max_iter, or a larger tol.",
            ),
        )
    counts = {"iterations": descent.iterations, "evaluations": descent.evaluations, "converged": descent.converged}
    return Embedding(descent.Y, None, {**figures, **counts}, notes)
