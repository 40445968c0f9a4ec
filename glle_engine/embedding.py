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
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.sparse import csc_array, csr_array, identity
from scipy.sparse.linalg import ArpackError, eigsh, splu

from glle_engine.errors import ConvergenceError
from glle_engine.graph import closed_classes
from glle_engine.lanczos import MAX_STEPS, lanczos

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse.linalg import SuperLU

# | ||B v||^2 / lambda - 1 |: caught every failure where the forward residual caught none.
ACCEPTED_DEVIATION = 1e-6
# A draw whose own y nearly vanishes at the pin can pass the test above with an angle of 1e-5.
ACCEPTED_PIN = 1e-5
DENSE_BELOW = 80

Solver = Literal["lu", "lu-repinned", "lu-colamd", "eigsh", "dense"]


@dataclass(frozen=True)
class Eigenpairs:
    """Bottom eigenpairs of M, the constant left out (constrained) or the first (published).

    Attributes
    ----------
    values : (m,) float64, ascending
        Exactly 0 for the null vectors of further closed classes.
    vectors : (n, m) float64, orthonormal
    diagnostics : dict
        "solver" (which one of the chain passed), "steps" of Lanczos, "deviation" (the acceptance
        test's figure), "pin" (the smallest |y_i| over the pins; 1 where there is none) and
        "next_eigenvalue", the first one left out, an estimate that is good to some 1e-6 (None where
        the solver gives none).

    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    diagnostics: dict[str, Any]


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
    classes : (c,) int32
        The sizes of the closed classes.

    """

    neighbors: NDArray[np.int32]
    order: NDArray[np.int32]
    pins: NDArray[np.int32]

    @classmethod
    def prepare(cls, neighbors: NDArray[np.int32], weights: NDArray[np.float64], *, constrained: bool = True) -> Self:
        """Find the order and the pins from the pattern and one set of weights, the mean.

        Parameters
        ----------
        neighbors : (n, k) int32
        weights : (n, k) float64
            Rows sum to one when constrained.
        constrained : bool

        """
        n = len(neighbors)
        first = [members[0] for members in closed_classes(neighbors)] if constrained else []
        pins = np.array(first, np.int32)
        trial = cls(neighbors, np.arange(n, dtype=np.int32), pins)
        if n <= DENSE_BELOW:
            return trial
        factored = trial._factor(weights, pins, "MMD_AT_PLUS_A")
        order = np.argsort(factored.lu.perm_c).astype(np.int32)
        if constrained:
            with contextlib.suppress(FloatingPointError):  # the draws move their pins themselves
                pins = np.sort(np.argmax(np.abs(factored.null_left()), axis=0)).astype(np.int32)
        return cls(neighbors, order, pins)

    def solve(self, weights: NDArray[np.float64], wanted: int, *, exhaustive: bool = False) -> Eigenpairs:
        """Return the `wanted` bottom eigenpairs of M for weights on this pattern.

        Parameters
        ----------
        weights : (n, k) float64
        wanted : int
            How many, the constant (or, published, the first) not counted.
        exhaustive : bool
            Look for further copies of multiple eigenvalues, which one Krylov sequence cannot see.
            They occur in symmetric data, not in random draws.

        Raises
        ------
        ConvergenceError
            When every solver of the chain fails the acceptance test.

        """
        if len(weights) <= DENSE_BELOW:
            return self._dense(weights, wanted)
        tried: list[str] = []
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
                factored = self._factor(weights, pins, permutation)
                null = factored.null_left() if len(pins) else None
                strength = float(np.abs(null[pins, np.arange(len(pins))]).min()) if null is not None else 1.0
                if null is not None:
                    pins = np.argmax(np.abs(null), axis=0).astype(np.int32)  # for the next solver
                if strength < ACCEPTED_PIN:
                    tried.append(f"{solver}: pin {strength:.1e}")
                    continue
                pairs = factored.eigenpairs(wanted, null, exhaustive=exhaustive)
            except (RuntimeError, FloatingPointError) as error:  # SuperLU: exactly singular; overflow
                tried.append(f"{solver}: {error}")
                continue
            pairs.diagnostics.update(solver=solver, pin=strength)
            if self._accept(pairs, solver, tried):
                return pairs
        pairs = self._shift_invert(weights, wanted, tried)
        if self._accept(pairs, "eigsh", tried):
            return pairs
        raise ConvergenceError(
            f"No solver found the embedding: {'; '.join(tried)}.",
            remedy="Raise reg or n_neighbors, or lower the scale; duplicated points make this likelier.",
            details={"tried": tried},
        )

    @staticmethod
    def _accept(pairs: Eigenpairs, solver: Solver, tried: list[str]) -> bool:
        deviation = pairs.diagnostics["deviation"]
        steps = pairs.diagnostics["steps"]
        accepted = bool(deviation < ACCEPTED_DEVIATION and steps < MAX_STEPS)
        if not accepted:
            tried.append(f"{solver}: deviation {deviation:.1e} after {steps} steps")
        pairs.diagnostics["rejected"] = list(tried)
        return accepted

    def apply(self, weights: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (I - W) V for V (n, m)."""
        image = np.array(vectors)
        for j, column in enumerate(vectors.T.copy()):  # a gather of contiguous numbers is twice as fast
            image[:, j] -= np.einsum("nk,nk->n", weights, column[self.neighbors])
        return image

    @cached_property
    def _pattern(self) -> tuple[NDArray[np.int32], NDArray[np.intp], NDArray[np.int32]]:
        """Row indices of B'^T by columns, in the order; where each value comes from; the inverse order."""
        n, k = self.neighbors.shape
        inverse = np.empty(n, np.int32)
        inverse[self.order] = np.arange(n, dtype=np.int32)
        points = np.arange(n, dtype=np.int32)[:, None]
        row = inverse[np.concatenate([points, self.neighbors], axis=1)[self.order]]
        sort = np.argsort(row, axis=1)
        source = self.order[:, None].astype(np.intp) * (k + 1) + sort
        return np.take_along_axis(row, sort, axis=1).ravel(), source.ravel(), inverse

    def _factor(self, weights: NDArray[np.float64], pins: NDArray[np.int32], permutation: str) -> _Factored:
        n, k = self.neighbors.shape
        row, source, inverse = self._pattern
        values = np.empty((n, k + 1))
        values[:, 0] = 1.0
        values[pins, 0] = 2.0
        np.negative(weights, out=values[:, 1:])
        indptr = np.arange(0, n * (k + 1) + 1, k + 1, dtype=np.int32)
        transposed = csc_array((values.ravel()[source], row, indptr), shape=(n, n))
        if permutation == "COLAMD":
            lu = splu(transposed, permc_spec=permutation, diag_pivot_thresh=1.0)
        else:
            # Threshold 1 fills without bound and 0 loses digits; panel_size=1 takes a fifth off. relax stays
            # alone: above its default SuperLU writes past the end of its statistics (stat->panel_histo).
            lu = splu(
                transposed,
                permc_spec=permutation,
                diag_pivot_thresh=0.01,
                panel_size=1,
                options={"SymmetricMode": True},
            )
        return _Factored(self, weights, pins, lu, inverse)

    def _shift_invert(self, weights: NDArray[np.float64], wanted: int, tried: list[str]) -> Eigenpairs:
        """Last resort: ARPACK on M, shifted. Less accurate (1e-7 in angle), and the diagnostics say so."""
        n, k = self.neighbors.shape
        indptr = np.arange(0, n * k + 1, k)
        residual = identity(n, format="csr") - csr_array(
            (weights.ravel(), self.neighbors.ravel(), indptr), shape=(n, n)
        )
        gram = (residual.T @ residual).tocsc()
        norm = abs(gram).sum(axis=0).max()
        null = max(1, len(self.pins))
        try:
            values, vectors = eigsh(gram, wanted + null, sigma=-1e-9 * norm, v0=_start(n), tol=0.0)
        except (ArpackError, RuntimeError) as error:
            raise ConvergenceError(
                f"No solver found the embedding: {'; '.join(tried)}; eigsh: {error}.",
                remedy="Raise reg or n_neighbors, or lower the scale; duplicated points make this likelier.",
                details={"tried": tried},
            ) from error
        ascending = np.argsort(values)
        values, vectors = values[ascending], vectors[:, ascending]
        vectors = _without_constant(vectors) if len(self.pins) else vectors[:, 1:]
        image = self.apply(weights, vectors)
        measured = np.einsum("nm,nm->m", image, image)
        gram_residual = np.linalg.norm(gram @ vectors - vectors * measured, axis=0).max() / norm
        return Eigenpairs(
            measured,
            vectors,
            {
                "solver": "eigsh",
                "steps": 0,
                "deviation": float(gram_residual),
                "pin": 1.0,
                "next_eigenvalue": None,
            },
        )

    def _dense(self, weights: NDArray[np.float64], wanted: int) -> Eigenpairs:
        """Singular vectors of B, for a handful of points."""
        n = len(weights)
        residual = np.eye(n)
        np.subtract.at(residual, (np.arange(n)[:, None], self.neighbors), weights)
        if len(self.pins):  # one more row lifts the constant off the bottom, exactly
            residual = np.vstack([residual, np.full(n, 10 * np.linalg.norm(residual) / np.sqrt(n))])
        _, singular, right = np.linalg.svd(residual)
        skip = 0 if len(self.pins) else 1
        values = singular[::-1][skip : skip + wanted] ** 2
        vectors = right[::-1][skip : skip + wanted].T
        values[: max(0, len(self.pins) - 1)] = 0.0
        following = float(singular[::-1][skip + wanted] ** 2) if skip + wanted < n - 1 else None
        return Eigenpairs(
            values,
            np.ascontiguousarray(vectors),
            {
                "solver": "dense",
                "steps": 0,
                "deviation": 0.0,
                "pin": 1.0,
                "next_eigenvalue": following,
                "rejected": [],
            },
        )


@dataclass(frozen=True)
class _Factored:
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
        start = _start(n)[order]
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


def _start(n: int) -> NDArray[np.float64]:
    """Return the fixed Lanczos start vector of n points."""
    return np.random.Generator(np.random.Philox(key=n)).standard_normal(n)


def _without_constant(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotate an orthonormal basis whose span holds the constant so that the constant drops out."""
    overlap = vectors.sum(axis=0)
    drop = int(np.argmax(np.abs(overlap)))
    rest = np.delete(vectors, drop, axis=1)
    rest -= rest.mean(axis=0)
    basis, triangle = np.linalg.qr(rest)
    return np.asarray(basis * np.sign(np.diag(triangle)))


def sign_convention(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Flip columns so that the entry of largest absolute value is positive."""
    largest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=0)[None, :], axis=0)
    return np.asarray(vectors * np.where(largest < 0, -1.0, 1.0))


def scaled(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale orthonormal vectors to an embedding, (1/n) Y^T Y = I (GLLE Eq. 37-43)."""
    return float(np.sqrt(len(vectors))) * sign_convention(vectors)
