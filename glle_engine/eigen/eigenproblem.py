r"""The eigenproblem: the bottom eigenvectors of M = (I - W)^T (I - W), without forming M.

M squares the condition number of :math:`B = I - W` and fills in. Instead (GLLE Eq. 37-43 ask for the p bottom
eigenvectors other than the constant):

With rows of W summing to one, B has a null vector to the right (the constant) and one to the left (y) for each
closed class of the directed kNN graph. :math:`B' = B + e_i e_i^T`, the pin i inside the class, has B's pattern and is
nonsingular; y is proportional to :math:`B'^{-T} e_i`. For f orthogonal to the right null space,
:math:`z = B'^{-T} f`, z made orthogonal to y, :math:`x = B'^{-1} z`, x made orthogonal to the right null space, is
:math:`M^+ f` exactly, with one sparse LU of B' and at the condition number of B. Lanczos on that operator
converges in some ten steps. All draws of a posterior share the pattern, so the fill-reducing order is found once.

Several closed classes: as many null vectors, one a class; they come first, with eigenvalue 0.

Published draws have no constant null vector: B itself is factored, and the first eigenvector is ignored, as
the paper says.

With numba all factors, solves and iterations are compiled code of fixed order, whose bits do not depend on the
processor. The mean is factored by the lanes' elimination with one lane (`glle_engine.eigen.batched.numeric.single`), else with pivoting
(`glle_engine.linalg.sparse_lu`). Of SuperLU only the fill-reducing order remains, a function of the pattern. The last
resort inverts M, shifted (`glle_engine.eigen.fallbacks`). Without numba SuperLU and numpy compute the same to rounding.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.linalg import splu

from glle_engine.base.errors import ConvergenceError, InvalidParameterError
from glle_engine.eigen.eigenpairs import GOOD_PIN, LU_STEPS, MAX_STEPS, pin_refusal, refusal
from glle_engine.eigen.fallbacks import few_points, fill_reducing_order, shift_invert
from glle_engine.eigen.lu import Factored
from glle_engine.linalg import dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from glle_engine.eigen.batched.solver import LaneSolver
    from glle_engine.eigen.batched.symbolic.structure import Structure
    from glle_engine.eigen.eigenpairs import Eigenpairs

DENSE_BELOW = 80
_ROUNDINGS = 8.0  # of the entries of B, each of which moves a singular value by the machine precision
_THRESHOLD = 0.01  # of pivoting: 1 fills without bound and 0 loses digits

Solver = Literal["lanes", "lanes-repinned", "lu", "lu-repinned", "lu-colamd", "shift-invert", "dense"]


@dataclass(frozen=True, eq=False)
class Eigenproblem:
    """What the eigenproblems of one kNN pattern share.

    Attributes
    ----------
    neighbors : (n, k) int32
    order : (n,) int32
        Fill-reducing order: position j of the factored matrix is point order[j].
    pins : (c,) int32
        One point in each closed class; empty for the published variant.

    """

    neighbors: NDArray[np.int32]
    order: NDArray[np.int32]
    pins: NDArray[np.int32]

    @classmethod
    def prepare(
        cls,
        neighbors: NDArray[np.int32],
        weights: NDArray[np.float64],
        classes: list[NDArray[np.intp]],
        wanted: int,
    ) -> tuple[Self, Eigenpairs]:
        """Find the order from the pattern and the pins from one set of weights, the mean; solve for these weights.

        Parameters
        ----------
        neighbors : (n, k) int32
        weights : (n, k) float64
            Rows sum to one.
        classes
            The closed classes of the graph (`glle_engine.graph.connectivity.closed_classes`).
        wanted : int
            Eigenpairs, as for `solve`, which looks for further copies of multiple ones here.

        Raises
        ------
        ConvergenceError, InvalidParameterError

        """
        n = len(neighbors)
        require_pairs(n, wanted - 1)
        pins = np.array([members[0] for members in classes], np.int32)
        problem = cls(neighbors, np.arange(n, dtype=np.int32), pins)
        if n <= DENSE_BELOW:
            return problem, few_points(problem, weights, wanted)
        problem = problem._reordered("MMD_AT_PLUS_A")
        tried: list[str] = []
        with contextlib.suppress(FloatingPointError):  # the draws move their pins themselves
            for _ in range(2):
                solver, factored = problem.factor_mean(weights)
                null = factored.null_left()
                strength = float(np.abs(null[problem.pins, np.arange(len(pins))]).min())
                is_good = strength >= GOOD_PIN * np.abs(null).max()
                problem = problem.with_pins(np.sort(np.argmax(np.abs(null), axis=0)).astype(np.int32))
                if not is_good:
                    continue
                pairs = factored.eigenpairs(wanted, null, exhaustive=True)
                pairs.diagnostics.update(solver=solver, pin=strength)
                if cls._accept(pairs, solver, tried):
                    return problem, pairs
                break
        return problem, problem.solve(weights, wanted, exhaustive=True, rejected=tried)

    def with_pins(self, pins: NDArray[np.int32]) -> Self:
        """Return the same pattern and order with other pins; the analysis of the pattern is shared."""
        other = type(self)(self.neighbors, self.order, pins)
        shared = ("structure", "_pattern", "_by_columns")
        other.__dict__.update({name: self.__dict__[name] for name in shared if name in self.__dict__})
        return other

    def solve(
        self,
        weights: NDArray[np.float64],
        wanted: int,
        *,
        exhaustive: bool = False,
        rejected: Sequence[str] = (),
    ) -> Eigenpairs:
        """Return the `wanted` bottom eigenpairs of M for weights on this pattern.

        Parameters
        ----------
        weights : (n, k) float64
        wanted : int
            How many, the constant (or, published, the first) not counted.
        exhaustive : bool
            Look for further copies of multiple eigenvalues, which one Krylov sequence cannot see.
            They occur in symmetric data, not in random draws.
        rejected
            What was tried before, for the diagnostics.

        Raises
        ------
        ConvergenceError
            When every solver of the chain fails the acceptance test.

        """
        if len(weights) <= DENSE_BELOW:
            return few_points(self, weights, wanted)
        tried = list(rejected)
        pins = self.pins
        solvers: tuple[tuple[Solver, str], ...] = (
            ("lu", "NATURAL"),
            ("lu-repinned", "NATURAL"),
            ("lu-colamd", "COLAMD"),
        )
        for solver, permutation in solvers:
            if solver == "lu-repinned" and not len(pins):
                continue
            try:
                factored = self.factor(weights, pins, permutation)
                null = factored.null_left() if len(pins) else None
                strength = float(np.abs(null[pins, np.arange(len(pins))]).min()) if null is not None else 1.0
                if null is not None:
                    pins = np.argmax(np.abs(null), axis=0).astype(np.int32)  # for the next solver
                if reason := pin_refusal(strength):
                    tried.append(f"{solver}: {reason}")
                    continue
                pairs = factored.eigenpairs(wanted, null, exhaustive=exhaustive)
            except (RuntimeError, FloatingPointError) as error:  # SuperLU: exactly singular; overflow
                tried.append(f"{solver}: {error}")
                continue
            pairs.diagnostics.update(solver=solver, pin=strength)
            if self._accept(pairs, solver, tried, 1 + float(np.abs(weights).sum(axis=1).max())):
                return pairs
        pairs = shift_invert(self, weights, wanted, tried)
        if self._accept(pairs, "shift-invert", tried):
            return pairs
        raise ConvergenceError(
            f"No solver found the embedding: {'; '.join(tried)}.",
            remedy="Raise reg or n_neighbors, or lower the scale; duplicated points make this likelier.",
            details={"tried": tried},
        )

    @staticmethod
    def _accept(pairs: Eigenpairs, solver: Solver, tried: list[str], norm: float = 1.0) -> bool:
        """Record whether the pairs pass; `norm` is that of B, of which rounding moves singular values by a share."""
        smallest = np.sqrt(pairs.values[pairs.values > 0].min(initial=1.0))
        share = _ROUNDINGS * norm * float(np.finfo(float).eps / smallest)
        reason = refusal(
            pairs.diagnostics["deviation"],
            pairs.diagnostics["steps"],
            rounding=share * (2 + share),  # of a square
            most=LU_STEPS,
        )
        if reason:
            tried.append(f"{solver}: {reason}")
        pairs.diagnostics["rejected"] = list(tried)
        return reason is None

    def apply(self, weights: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (I - W) V for V (n, m)."""
        image = np.array(vectors)
        for j, column in enumerate(vectors.T.copy()):  # a gather of contiguous numbers is twice as fast
            image[:, j] -= (weights * column[self.neighbors]).sum(axis=1)
        return image

    def apply_transposed(self, weights: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (I - W)^T v for v (n,)."""
        spread = np.bincount(self.neighbors.ravel(), (weights * vector[:, None]).ravel(), len(vector))
        return np.asarray(vector - spread)

    @cached_property
    def structure(self) -> Structure:
        """Symbolic factorisation that the mean and all draws share; needs numba."""
        from glle_engine.eigen.batched.symbolic.structure import analyse  # noqa: PLC0415 -- numba takes a while to load

        return analyse(self.neighbors, self.order)

    @cached_property
    def _by_columns(self) -> Self:
        """The problem in the order for partial pivoting (COLAMD)."""
        return self._reordered("COLAMD")

    def _reordered(self, permutation: str) -> Self:
        """Return the problem in a fill-reducing order, which depends on the pattern alone."""
        n, k = self.neighbors.shape
        row, _, _ = self._pattern
        order = fill_reducing_order(np.arange(0, n * (k + 1) + 1, k + 1, dtype=np.int32), row, permutation)
        return type(self)(self.neighbors, self.order[order], self.pins)

    @cached_property
    def _pattern(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Row indices of B'^T by columns, in the order; where each value comes from; the inverse order."""
        n, k = self.neighbors.shape
        inverse = np.empty(n, np.int32)
        inverse[self.order] = np.arange(n, dtype=np.int32)
        points = np.arange(n, dtype=np.int32)[:, None]
        row = inverse[np.concatenate([points, self.neighbors], axis=1)[self.order]]
        sort = np.argsort(row, axis=1, kind="stable")
        source = (self.order[:, None].astype(np.intp) * (k + 1) + sort).astype(np.int32).ravel()
        return np.take_along_axis(row, sort, axis=1).ravel(), source, inverse

    def factor_mean(self, weights: NDArray[np.float64]) -> tuple[Solver, Factored]:
        """Factor without pivoting where the lanes can; else as a draw outside the lanes."""
        if len(self.pins) > 1 or not dense.has_compiler():
            return "lu", self.factor(weights, self.pins, "NATURAL")
        from glle_engine.eigen.batched.numeric.single import SingleLU  # noqa: PLC0415 -- numba takes a while to load

        lu = SingleLU.factor(self.structure, weights, self.pins)
        return "lanes", Factored(self, weights, self.pins, lu, self.structure.order, self.structure.position)

    def factor(self, weights: NDArray[np.float64], pins: NDArray[np.int32], permutation: str) -> Factored:
        """Factor with pivoting, in the order of the problem ("NATURAL"), or with partial pivoting ("COLAMD")."""
        if permutation == "COLAMD":
            return self._by_columns.pivoted(weights, pins, 1.0)
        return self.pivoted(weights, pins, _THRESHOLD)

    def pivoted(self, weights: NDArray[np.float64], pins: NDArray[np.int32], threshold: float) -> Factored:
        """Factor in the order of the problem, with a threshold of pivoting."""
        n, k = self.neighbors.shape
        row, source, inverse = self._pattern
        values = np.empty((n, k + 1))
        values[:, 0] = 1.0
        values[pins, 0] = 2.0
        np.negative(weights, out=values[:, 1:])
        entries = values.ravel()[source]
        del values  # the factors need the memory
        indptr = np.arange(0, n * (k + 1) + 1, k + 1, dtype=np.int32)
        if dense.has_compiler():
            from glle_engine.linalg.sparse_lu import SparseLU  # noqa: PLC0415 -- numba takes a while to load

            return Factored(self, weights, pins, SparseLU.factor(indptr, row, entries, threshold), self.order, inverse)
        # panel_size=1 takes a fifth off. relax stays alone: above its default SuperLU writes past the end of its
        # statistics (stat->panel_histo).
        lu = splu(
            csc_array((entries, row, indptr), shape=(n, n)),
            permc_spec="NATURAL",
            diag_pivot_thresh=threshold,
            panel_size=1,
            options={"SymmetricMode": threshold < 1},
        )
        return Factored(self, weights, pins, lu, self.order, inverse)


def require_pairs(n: int, n_components: int) -> None:
    """Raise `InvalidParameterError` for more components than Lanczos has steps, but for a handful of points."""
    if n > DENSE_BELOW and n_components >= MAX_STEPS:
        raise InvalidParameterError(
            f"n_components={n_components} is more than the {MAX_STEPS - 1} eigenvectors that are found at once.",
            remedy=f"Give n_components of at most {MAX_STEPS - 1}.",
            details={"n_components": n_components, "most": MAX_STEPS - 1},
        )


def lane_solver(problem: Eigenproblem, wanted: int) -> LaneSolver | None:
    """Return what solves several problems of the pattern at once, or None.

    None without numba (the extra ``fast``), for a handful of points, and for several closed classes, whose null
    vectors the lanes do not know.
    """
    if len(problem.neighbors) <= DENSE_BELOW or len(problem.pins) > 1 or not dense.has_compiler():
        return None
    from glle_engine.eigen.batched.solver import LaneSolver  # noqa: PLC0415 -- numba takes a while to load

    return LaneSolver.prepare(problem.structure, problem.pins, wanted)


def sign_convention(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Flip columns so that the entry of largest absolute value is positive."""
    largest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=0)[None, :], axis=0)
    return np.asarray(vectors * np.where(largest < 0, -1.0, 1.0))


def scaled(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale orthonormal vectors to an embedding, (1/n) Y^T Y = I (GLLE Eq. 37-43)."""
    return float(np.sqrt(len(vectors))) * sign_convention(vectors)
