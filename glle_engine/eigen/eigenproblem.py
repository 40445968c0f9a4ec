r"""Compute the bottom eigenvectors of M = (I - W)^T (I - W) by a chain of solvers, without forming M.

The embedding (GLLE Eq. 37-43) is the p bottom eigenvectors of M other than the constant. We do not form M, because it
has the squared condition number of :math:`B = I - W` and more fill.

If the rows of W sum to one, B has the constant as right null vector, and one left null vector y for each closed class
of the directed kNN graph. (A closed class is a set of points that are connected with each other, and that no edge
leaves.) :math:`B' = B + e_i e_i^T`, where the point i inside the class is called the *pin*, has B's pattern and is
nonsingular, and y is proportional to :math:`B'^{-T} e_i`. For f orthogonal to the right null space, :math:`M^+ f` is
computed in four steps: solve :math:`z = B'^{-T} f`, make z orthogonal to y, solve :math:`x = B'^{-1} z`, and make x
orthogonal to the right null space. This is exact, and takes one sparse LU of B', at the condition number of B. Lanczos
on this operator converges in about ten steps. All draws of a posterior share the pattern, so that the fill-reducing
order is found once.

If there are several closed classes, there are as many null vectors. They come first, with eigenvalue 0. Draws of the
published variant of GLLE, whose weights do not sum to one, have no constant null vector: B itself is factored, and the
first eigenvector is ignored, as in the paper.

All factors, solves and iterations are compiled code of fixed order, with the same bits on every processor. The
fill-reducing order (`glle_engine.eigen.pattern`) is a function of the pattern. B of the mean weights is factored
without pivoting (`glle_engine.eigen.lu`) if possible, else with pivoting (`glle_engine.linalg.sparse_lu`). If the
batched solver (`glle_engine.eigen.batched`) rejects a draw of the published variant, the draw is solved with iterative
refinement before pivoting is tried. The last resort is to factor a shifted M (`glle_engine.eigen.lu`), for which
SuperLU only provides the order.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from glle_engine.base.errors import ConvergenceError, InvalidParameterError
from glle_engine.base.texts import Way
from glle_engine.eigen.batched.solver import LaneSolver
from glle_engine.eigen.eigenpairs import GOOD_PIN, MAX_LANCZOS_STEPS, MAX_LU_STEPS, pin_refusal, refusal
from glle_engine.eigen.lu import factor, factor_mean, factor_refined, few_points, shift_invert
from glle_engine.eigen.pattern import Pattern
from glle_engine.linalg import distances
from glle_engine.linalg.procrustes import aligned_to
from glle_engine.weights.gaussian import WeightDistribution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from glle_engine.eigen.eigenpairs import Eigenpairs, Solver

DENSE_BELOW = 80  # up to this many points, a dense solver is used
# If this many factorizations are expected, any search for a cheaper elimination order is worth its time.
_UNLIMITED_FACTORIZATIONS = 10**9
# Rounding errors in B may move a singular value by this number times the norm of B times machine epsilon.
_MAX_SINGULAR_VALUE_ROUNDINGS = 8.0


@dataclass(frozen=True, eq=False)
class Eigenproblem:
    """Solves for the bottom eigenvectors of M = (I - W)^T (I - W), for any weights W on one kNN graph.

    Attributes
    ----------
    pattern : Pattern
        The kNN graph and its elimination order.
    pins : (c,) int32
        One point in each closed class (a set of points that no edge leaves), at which 1 is added to the diagonal of
        I - W to make I - W nonsingular. Empty for the published variant of GLLE, whose I - W is nonsingular.

    """

    pattern: Pattern
    pins: NDArray[np.int32]

    @classmethod
    def prepare(
        cls,
        neighbors: NDArray[np.int32],
        weights: NDArray[np.float64],
        classes: list[NDArray[np.intp]],
        wanted: int,
        factorizations: int = 1,
        max_flops: float = math.inf,
    ) -> tuple[Self, Eigenpairs]:
        """Choose the elimination order and the pins of a kNN graph, and solve for the mean weights.

        The pins are points, one in each closed class of the graph (a set of points that no edge leaves), at which 1 is
        added to the diagonal of I - W to make I - W nonsingular.

        Parameters
        ----------
        neighbors : (n, k) int32
        weights : (n, k) float64
            The mean weights; rows sum to one.
        classes
            The points of each closed class (`glle_engine.graph.connectivity.closed_classes`).
        wanted : int
            Number of eigenpairs to return. No eigenvector of a multiple eigenvalue is missed.
        factorizations : int
            How many solutions on this graph are expected. The more they are, the longer a cheaper order is searched
            for.
        max_flops : float
            Largest allowed number of operations of a factorization.

        Returns
        -------
        Eigenproblem
        Eigenpairs
            The eigenpairs for the mean weights. For more than `DENSE_BELOW` points, their diagnostics also have
            "elimination", the predicted cost of a factorization (`Pattern.order_for`).

        Raises
        ------
        ConvergenceError
            If the eigenpairs of every solver fail the accuracy test.
        InvalidParameterError
            For more eigenpairs than Lanczos can find, or too many points for int32 indices.
        TooCostlyError
            If a factorization would take more than `max_flops` operations.

        """
        n = len(neighbors)
        require_pairs(n, wanted - 1)
        pins = np.array([members[0] for members in classes], np.int32)
        pattern = Pattern.from_neighbors(neighbors)
        if n <= DENSE_BELOW:
            return cls(pattern, pins), few_points(neighbors, weights, wanted, len(pins))
        pattern, prediction = pattern.order_for(factorizations, max_flops)
        problem, pairs = cls._prepare(pattern, weights, pins, wanted)
        pairs.diagnostics["elimination"] = prediction
        return problem, pairs

    @classmethod
    def _prepare(
        cls, pattern: Pattern, weights: NDArray[np.float64], pins: NDArray[np.int32], wanted: int
    ) -> tuple[Self, Eigenpairs]:
        """Choose a pin in each closed class of the kNN graph, and solve for the mean weights (n, k).

        A closed class is a set of points that no edge leaves, and its pin is the point at which 1 is added to the
        diagonal of I - W. The parameter `pins` has one arbitrary point of each class. With these pins, the left null
        vector of each class is computed, and the point where it is largest becomes the pin of the class. `wanted` is
        the number of eigenpairs to return.
        """
        tried: list[str] = []
        with contextlib.suppress(FloatingPointError):  # then `solve` tries the other solvers
            for _ in range(2):
                solver, factored = factor_mean(pattern, weights, pins)
                null = factored.null_left()
                strength = float(np.abs(null[pins, np.arange(len(pins))]).min())
                is_good = strength >= GOOD_PIN * np.abs(null).max()
                pins = np.sort(np.argmax(np.abs(null), axis=0)).astype(np.int32)
                if not is_good:
                    continue
                pairs = factored.eigenpairs(wanted, null, exhaustive=True)
                pairs.diagnostics.update(solver=solver, pin=strength)
                if _is_accepted(pairs, solver, tried):
                    return cls(pattern, pins), pairs
                break
        problem = cls(pattern, pins)
        return problem, problem.solve(weights, wanted, exhaustive=True, rejected=tried)

    def solve(
        self,
        weights: NDArray[np.float64],
        wanted: int,
        *,
        exhaustive: bool = False,
        rejected: Sequence[str] = (),
    ) -> Eigenpairs:
        """Return the `wanted` bottom eigenpairs of M for weights on this graph.

        Parameters
        ----------
        weights : (n, k) float64
        wanted : int
            Number of eigenpairs, not counting the first pair of M, which is left out. Its eigenvector is constant if
            weights sum to one. For the published variant of GLLE, it is not, and is left out as in the paper.
        exhaustive : bool
            Whether to look for all eigenvectors of a multiple eigenvalue, of which one Krylov sequence finds only one.
            Multiple eigenvalues occur for symmetric data, but not for random draws.
        rejected
            Why the results of earlier solvers were rejected, one text for each; they are added to the diagnostics.

        Raises
        ------
        ConvergenceError
            If the eigenpairs of every solver fail the accuracy test.

        """
        if len(weights) <= DENSE_BELOW:
            return few_points(self.pattern.neighbors, weights, wanted, len(self.pins))
        tried = list(rejected)
        pins = self.pins
        norm = 1 + float(np.abs(weights).sum(axis=1).max())
        # If weights sum to one, I - W is singular, and 1 is added to its diagonal at a few points, the pins. These
        # weights are near 1/k, and factorization with pivoting ("lu") is fast. The published variant needs no pins, but
        # its weights reach 10^5. Pivoting then leaves the elimination order so often that L and U get many more
        # entries, and takes seconds at 5,000 points. Therefore factorization without pivoting, with iteratively refined
        # solutions ("lanes-refined", 20 ms), is tried first.
        solvers: tuple[Solver, ...] = ("lu", "lu-repinned") if len(pins) else ("lanes-refined", "lu")
        for solver in solvers:
            try:
                if solver == "lanes-refined":
                    factored = factor_refined(self.pattern, weights)
                else:
                    factored = factor(self.pattern, weights, pins)
                null, strength = None, 1.0
                if len(pins):
                    null = factored.null_left()
                    strength = float(np.abs(null[pins, np.arange(len(pins))]).min())
                    pins = np.argmax(np.abs(null), axis=0).astype(np.int32)  # better pins for the next solver
                if reason := pin_refusal(strength):
                    tried.append(f"{solver}: {reason}")
                    continue
                pairs = factored.eigenpairs(wanted, null, exhaustive=exhaustive)
            except FloatingPointError as error:  # the matrix is exactly singular, or numbers overflow
                tried.append(f"{solver}: {error}")
                continue
            pairs.diagnostics.update(solver=solver, pin=strength)
            if _is_accepted(pairs, solver, tried, norm):
                return pairs
        pairs = shift_invert(self.pattern, weights, wanted, tried, constrained=len(pins) > 0)
        if _is_accepted(pairs, "shift-invert", tried):
            return pairs
        raise ConvergenceError(
            f"No solver found the embedding: {'; '.join(tried)}.",
            remedy=f"Raise reg or {Way('n_neighbors')}, lower the scale, or remove duplicated points.",
            details={"tried": tried},
        )

    def lane_solver(self, embedding: NDArray[np.float64]) -> LaneSolver | None:
        """Return the solver that computes several draws at once, or None if draws have to be computed one by one.

        It is None for at most `DENSE_BELOW` points, and if the kNN graph has several closed classes (sets of points
        that no edge leaves). Lanczos starts from `embedding` (n, p), which draws resemble.
        """
        if len(self.pattern.neighbors) <= DENSE_BELOW or len(self.pins) > 1:
            return None
        return LaneSolver.prepare(self.pattern.structure, self.pins, embedding)


def _is_accepted(pairs: Eigenpairs, solver: Solver, tried: list[str], norm: float = 1.0) -> bool:
    """Return whether eigenpairs pass the accuracy test; if not, append the reason to `tried`.

    `norm` is the norm of B = I - W, to which the rounding errors of singular values are proportional. A copy of `tried`
    is stored in the diagnostics of the eigenpairs as "rejected".
    """
    smallest = np.sqrt(pairs.values[pairs.values > 0].min(initial=1.0))
    share = _MAX_SINGULAR_VALUE_ROUNDINGS * norm * float(np.finfo(float).eps / smallest)
    reason = refusal(
        pairs.diagnostics["deviation"],
        pairs.diagnostics["steps"],
        rounding=share * (2 + share),  # (1 + share)^2 - 1, since eigenvalues are squares of singular values
        max_steps=MAX_LU_STEPS,
    )
    if reason:
        tried.append(f"{solver}: {reason}")
    pairs.diagnostics["rejected"] = list(tried)
    return reason is None


def require_pairs(n: int, n_components: int) -> None:
    """Raise `InvalidParameterError` if `n_components` is more than Lanczos finds for n points.

    There is no limit for at most `DENSE_BELOW` points, which a dense solver solves.
    """
    if n > DENSE_BELOW and n_components >= MAX_LANCZOS_STEPS:
        raise InvalidParameterError(
            f"{Way('n_components', n_components)} is too large: one computation finds at most "
            f"{MAX_LANCZOS_STEPS - 1} eigenvectors.",
            remedy=f"Give {Way('n_components')} of at most {MAX_LANCZOS_STEPS - 1}.",
            details={"n_components": n_components, "most": MAX_LANCZOS_STEPS - 1},
        )


def sign_convention(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `vectors` (n, p) with signs such that the entry of largest absolute value in each column is positive."""
    largest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=0)[None, :], axis=0)
    return np.asarray(vectors * np.where(largest < 0, -1.0, 1.0))


def scale_embedding(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale orthonormal `vectors` (n, p) to an embedding Y with (1/n) Y^T Y = I, and return Y (GLLE Eq. 37-43).

    In each column of Y, the entry of largest absolute value is positive.
    """
    return float(np.sqrt(len(vectors))) * sign_convention(vectors)


def warm() -> None:
    """Compile all code that draws need, which takes most of a minute, or load it from the cache in 0.1 seconds."""
    n, k = 12, 3
    rows = np.arange(n, dtype=np.int32)
    neighbors = np.sort((rows[:, None] + np.arange(1, k + 1)) % n, axis=1).astype(np.int32)
    pattern, _ = Pattern.from_neighbors(neighbors).order_for(_UNLIMITED_FACTORIZATIONS)
    distribution = WeightDistribution(
        np.full((n, k), 1 / k), np.full((n, k, k), 0.01) * np.eye(k), 0.0, None, constrained=True, sigma=None
    )
    for pins in (rows[:1], rows[:0]):
        LaneSolver.prepare(pattern.structure, pins, np.ones((n, 1))).warm(distribution.mean, distribution.factor)
    weights = distribution.draw((0, 0), 1.0, "posterior")
    embedding = few_points(neighbors, weights, 1, 1).vectors
    for factored in (factor_mean(pattern, weights, rows[:1])[1], factor(pattern, weights, rows[:1])):
        factored.eigenpairs(1, factored.null_left(), exhaustive=False)
    aligned_to(embedding, embedding, centered=True)
    distances.warm()
