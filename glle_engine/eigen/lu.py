"""Sparse LU factors of B', and eigenpairs by Lanczos on them; the algebra is in `glle_engine.eigen.eigenproblem`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from glle_engine.eigen.batched.numeric.single import SingleLU
from glle_engine.eigen.eigenpairs import ACCEPTED_DEVIATION, Eigenpairs, start_vector
from glle_engine.eigen.lanczos import largest_eigenpairs
from glle_engine.linalg.rows import norm, project_out
from glle_engine.linalg.sparse_lu import SparseLU

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.eigen.eigenpairs import Solver
    from glle_engine.eigen.pattern import Pattern

_THRESHOLD = 0.01  # of pivoting: 1 fills without bound and 0 loses digits
_EXACT = 1e-9  # deviation above which eigenpairs are refined


class LU(Protocol):
    """Factors of B'^T by `glle_engine.linalg.sparse_lu` or `glle_engine.eigen.batched.numeric.single`."""

    def solve(self, b: NDArray[np.float64], trans: str = "N") -> NDArray[np.float64]:
        """Solve B'^T x = b, or B' x = b for trans="T", for (n,) or (n, m)."""


@dataclass(frozen=True)
class Factored:
    """Factors of B'^T in an order, position j of which is point order[j]; `inverse` is the inverse order."""

    pattern: Pattern
    weights: NDArray[np.float64]
    pins: NDArray[np.int32]
    lu: LU
    order: NDArray[np.int32]
    inverse: NDArray[np.int32]

    def null_left(self) -> NDArray[np.float64]:
        """Return y of each pin's class (n, c), orthonormal: B'^-T e_i, normalized."""
        units = np.zeros((len(self.inverse), len(self.pins)))
        units[self.inverse[self.pins], np.arange(len(self.pins))] = 1.0
        null = np.asarray(self.lu.solve(units))[self.inverse]
        length = np.sqrt((null * null).sum(axis=0))
        if not np.all(np.isfinite(length)) or not length.all():
            raise FloatingPointError("the left null vector is not finite")
        return np.asarray(null / length)

    def null_right(self) -> NDArray[np.float64]:
        """Return an orthonormal basis (c, n) of B's null space in the order of the factors, the constant first."""
        n, c = len(self.inverse), len(self.pins)
        basis = np.empty((c, n))
        basis[0] = 1 / np.sqrt(n)
        for i, pin in enumerate(self.pins[1:], start=1):
            unit = np.zeros(n)
            unit[self.inverse[pin]] = 1.0
            hitting = np.asarray(self.lu.solve(unit, "T"))  # 1 on its class, 0 on the others
            project_out(basis[:i], hitting)
            project_out(basis[:i], hitting)
            basis[i] = hitting / norm(hitting)
        return basis

    def eigenpairs(self, wanted: int, null: NDArray[np.float64] | None, *, exhaustive: bool) -> Eigenpairs:
        """Run Lanczos on M^+ (constrained) or M^-1 (published), in the order of the factors."""
        n = len(self.inverse)
        if null is None:
            left = right = np.empty((0, n))
            first = 0
        else:
            left, right = null[self.order].T.copy(), self.null_right()
            first = len(right) - 1

        def pseudo_inverse(f: NDArray[np.float64]) -> NDArray[np.float64]:
            z = np.asarray(self.lu.solve(f))
            project_out(left, z)
            return np.asarray(self.lu.solve(z, "T"))

        ritz, top = np.empty((0, n)), np.empty(0)
        steps, following = 0, None
        need = wanted - first if null is not None else wanted + 1
        if need > 0:
            start = start_vector(n)[self.order]
            top, ritz, steps, inverse = largest_eigenpairs(pseudo_inverse, start, need, right, exhaustive=exhaustive)
            following = None if inverse is None else 1 / inverse
        if len(top) < need:
            raise FloatingPointError("the operator is singular to rounding")
        values, deviation = 1 / top, self._deviation(ritz, top)
        if not deviation < _EXACT:
            ritz, values = self._refine(ritz, left, right)
            deviation = float(np.abs(values * top - 1).max(initial=0.0))
            if not deviation < ACCEPTED_DEVIATION:  # too close to the machine precision for an estimate
                following = None
        vectors = ritz[:, self.inverse].T
        if null is None:
            values, vectors = values[1:], vectors[:, 1:]
        else:
            values = np.concatenate([np.zeros(first), values])[:wanted]
            vectors = np.concatenate([right[1:, self.inverse].T, vectors], axis=1)[:, :wanted]
        return Eigenpairs(
            values,
            np.ascontiguousarray(vectors),
            {"steps": steps, "deviation": deviation, "next_eigenvalue": following},
        )

    def _deviation(self, ritz: NDArray[np.float64], top: NDArray[np.float64]) -> float:
        return float(np.abs(self._images(ritz) * top - 1).max(initial=0.0))

    def _images(self, ritz: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return |B v|^2 of rows v."""
        image = self.pattern.apply(self.weights, ritz[:, self.inverse].T)
        return np.asarray((image * image).sum(axis=0))

    def _refine(
        self, ritz: NDArray[np.float64], left: NDArray[np.float64], right: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Apply M^+ once more to rows, with iterative refinement of both solves; return them and their |B v|^2.

        The removal of the constant from a solution leaves rounding errors of the constant's size. These matter if B
        has singular values near the machine precision.
        """
        rows = np.empty_like(ritz)
        for i, v in enumerate(ritz):
            z = np.asarray(self.lu.solve(v))
            project_out(left, z)
            residual = v - self.pattern.apply_transposed(self.weights, z[self.inverse])[self.order]
            project_out(right, residual)
            z += self.lu.solve(residual)
            project_out(left, z)
            x = np.asarray(self.lu.solve(z, "T"))
            project_out(right, x)
            residual = z - self.pattern.apply(self.weights, x[self.inverse][:, None])[:, 0][self.order]
            project_out(left, residual)
            x += self.lu.solve(residual, "T")
            project_out(right, x)
            for _ in range(2):
                x /= norm(x)
                project_out(rows[:i], x)
            rows[i] = x / norm(x)
        return rows, self._images(rows)


def factor_mean(pattern: Pattern, weights: NDArray[np.float64], pins: NDArray[np.int32]) -> tuple[Solver, Factored]:
    """Factor the mean weights, without pivoting if there is at most one closed class."""
    if len(pins) > 1:
        return "lu", factor(pattern, weights, pins)
    structure = pattern.structure
    lu = SingleLU.factor(structure, weights, pins)
    return "lanes", Factored(pattern, weights, pins, lu, structure.order, structure.position)


def factor(pattern: Pattern, weights: NDArray[np.float64], pins: NDArray[np.int32]) -> Factored:
    """Factor with threshold pivoting in the order of the pattern."""
    n, k = pattern.neighbors.shape
    row, source, inverse = pattern.transposed
    values = np.empty((n, k + 1))
    values[:, 0] = 1.0
    values[pins, 0] = 2.0
    np.negative(weights, out=values[:, 1:])
    entries = values.ravel()[source]
    del values  # the factors need the memory
    indptr = np.arange(0, n * (k + 1) + 1, k + 1, dtype=np.int32)
    lu = SparseLU.factor(indptr, row, entries, _THRESHOLD)
    return Factored(pattern, weights, pins, lu, pattern.order, inverse)
