"""One sparse LU of B', and the eigenpairs that Lanczos finds through it: the algebra is in `glle_engine.embedding`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.eigenpairs import Eigenpairs, start_vector
from glle_engine.lanczos import lanczos

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse.linalg import SuperLU

    from glle_engine.embedding import Eigenproblem


@dataclass(frozen=True)
class Factored:
    """B'^T = L U in the order of the problem; vectors go in and out in the order of the points."""

    problem: Eigenproblem
    weights: NDArray[np.float64]
    pins: NDArray[np.int32]
    lu: SuperLU
    inverse: NDArray[np.int32]

    def null_left(self) -> NDArray[np.float64]:
        """Return y of each pin's class (n, c), orthonormal: B'^-T e_i, normalised."""
        units = np.zeros((len(self.inverse), len(self.pins)))
        units[self.inverse[self.pins], np.arange(len(self.pins))] = 1.0
        null = np.asarray(self.lu.solve(units))[self.inverse]
        norm = np.linalg.norm(null, axis=0)
        if not np.all(np.isfinite(norm)) or not norm.all():
            raise FloatingPointError("the left null vector is not finite")
        return np.asarray(null / norm)

    def null_right(self) -> NDArray[np.float64]:
        """Return an orthonormal basis (n, c) of B's null space, the constant first."""
        n, c = len(self.inverse), len(self.pins)
        constant = np.full((n, 1), 1 / np.sqrt(n))
        if c == 1:
            return constant
        units = np.zeros((n, c - 1))
        units[self.inverse[self.pins[1:]], np.arange(c - 1)] = 1.0
        hitting = np.asarray(self.lu.solve(units, "T"))[self.inverse]  # 1 on its class, 0 on the others
        basis, _ = np.linalg.qr(np.concatenate([constant, hitting], axis=1))
        basis[:, 0] = constant[:, 0]
        return np.asarray(basis)

    def eigenpairs(self, wanted: int, null: NDArray[np.float64] | None, *, exhaustive: bool) -> Eigenpairs:
        """Run Lanczos on M^+ (constrained) or M^-1 (published), in the order of the factors."""
        order, n = self.problem.order, len(self.inverse)
        if null is None:
            left = right = np.empty((0, n))
            first = 0
        else:
            left, right = null[order].T.copy(), self.null_right()[order].T.copy()
            first = len(right) - 1
        locked = right

        def pseudo_inverse(f: NDArray[np.float64]) -> NDArray[np.float64]:
            z = self.lu.solve(f)
            z -= (left @ z) @ left
            x = self.lu.solve(z, "T")
            x -= (locked @ x) @ locked
            return np.asarray(x)

        found = np.empty((n, 0))
        top = np.empty(0)
        steps, following = 0, None
        need = wanted - first if null is not None else wanted + 1
        start = start_vector(n)[order]
        while need > 0:
            values, vectors, taken = lanczos(pseudo_inverse, start - (locked @ start) @ locked, need)
            steps = max(steps, taken)
            if len(values) < need:
                raise FloatingPointError("the operator is singular to rounding")
            following, values = (float(1 / values[need]) if len(values) > need else None), values[:need]
            enough = len(top) >= need and values[0] <= top[need - 1] * (1 + 1e-9)
            found, top = np.concatenate([found, vectors], axis=1), np.concatenate([top, values])
            best = np.argsort(-top, kind="stable")[:need]
            found, top = found[:, best], top[best]
            if not exhaustive or enough:
                break
            locked = np.concatenate([right, found.T])
            start = np.roll(start, 1)
        in_points = found[self.inverse]
        image = self.problem.apply(self.weights, in_points)
        deviation = np.abs(np.einsum("nm,nm->m", image, image) * top - 1)
        values, vectors = 1 / top, in_points
        if null is None:
            values, vectors = values[1:], vectors[:, 1:]
        else:
            values = np.concatenate([np.zeros(first), values])[:wanted]
            vectors = np.concatenate([right[1:, self.inverse].T, vectors], axis=1)[:, :wanted]
        return Eigenpairs(
            values,
            vectors,
            {"steps": steps, "deviation": float(deviation.max(initial=0.0)), "next_eigenvalue": following},
        )
