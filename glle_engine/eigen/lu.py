"""Solvers for one set of weights: sparse LU factors of B = I - W, and eigenpairs of M = B^T B by Lanczos with them.

`glle_engine.eigen.eigenproblem` explains the algebra. B is singular if weights sum to one. B' is B with 1 added to the
diagonal at a few points, the pins, which makes B' nonsingular.

With at most one pin, the mean weights are factored without pivoting, by the kernels of the batched solver
(`glle_engine.eigen.batched`), which then compute one draw in place of four (`SingleLU`). If the batched solver rejects
a draw of the published variant of GLLE, the draw is also factored without pivoting, and its solutions are refined
iteratively (`RefinedLU`). All other factorizations of B' pivot (`glle_engine.linalg.sparse_lu`). Two solvers need no
factors of B': a dense solver for few points, and the last resort, which factors a shifted M.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.sparse import csc_array, csr_array, identity
from scipy.sparse.linalg import spilu

from glle_engine.base.errors import ConvergenceError
from glle_engine.base.texts import Way
from glle_engine.eigen.batched.factorization import SCRATCH, factorize
from glle_engine.eigen.batched.solves import (
    solve_lower,
    solve_lower_transposed,
    solve_upper,
    solve_upper_transposed,
)
from glle_engine.eigen.batched.structure import addresses, packed_addresses
from glle_engine.eigen.eigenpairs import ACCEPTED_DEVIATION, Eigenpairs, largest_eigenpairs, start_vector
from glle_engine.linalg import dense
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.rows import norm, project_out
from glle_engine.linalg.sparse_lu import SparseLU
from glle_engine.linalg.vectors import address

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.eigen.batched.structure import Structure
    from glle_engine.eigen.eigenpairs import Solver
    from glle_engine.eigen.pattern import Pattern

# A pivot must be at least this share of the largest entry of its column: with 1 the fill has no bound, and with 0
# digits are lost.
_PIVOT_THRESHOLD = 0.01
_MAX_UNREFINED_DEVIATION = 1e-9  # eigenpairs with a larger relative error of ||B v||^2 are refined
_TAG = (0,)  # of length 1: the kernels of the batched solver compute as many draws at once as their tag is long
_RELATIVE_SHIFT = 1e-9  # the shift of M over the norm of M: far above rounding errors, far below wanted eigenvalues


@dataclass(frozen=True)
class Factored:
    """LU factors of B'^T for one set of weights W, from which the eigenpairs of M = B^T B are computed.

    B is I - W, and B' is B with 1 added to the diagonal at the points `pins`, which makes B' nonsingular.

    Attributes
    ----------
    pattern : Pattern
        The kNN graph and its elimination order.
    weights : (n, k) float64
        The weights W, with rows in the order of the points.
    pins : (c,) int32
    lu : SparseLU, SingleLU or RefinedLU
        The factors. The method `solve` solves systems with B'^T, or with ``trans="T"`` systems with B'; rows are in
        the order of elimination.
    order, inverse : (n,) int32
        Position j in the order of elimination is point order[j], and inverse[order[j]] is j.

    """

    pattern: Pattern
    weights: NDArray[np.float64]
    pins: NDArray[np.int32]
    lu: SparseLU | SingleLU | RefinedLU
    order: NDArray[np.int32]
    inverse: NDArray[np.int32]

    def null_left(self) -> NDArray[np.float64]:
        """Return an orthonormal basis (n, c) of the left null space of B = I - W, with one column for each of c pins.

        The pins are the points at which 1 was added to the diagonal of B, which gives B'. The column of pin i is
        B'^-T e_i, normalized, where e_i is a unit vector. The columns are orthogonal, because the column of a pin is 0
        outside the closed class (a set of points that no edge leaves) to which the pin belongs. Rows are in the order
        of the points. Raises `FloatingPointError` if a vector is not finite.
        """
        units = np.zeros((len(self.inverse), len(self.pins)))
        units[self.inverse[self.pins], np.arange(len(self.pins))] = 1.0
        null = np.asarray(self.lu.solve(units))[self.inverse]
        length = np.sqrt((null * null).sum(axis=0))
        if not np.all(np.isfinite(length)) or not length.all():
            raise FloatingPointError("the left null vector of I - W is not finite: the factorization is inaccurate")
        return np.asarray(null / length)

    def null_right(self) -> NDArray[np.float64]:
        """Return an orthonormal basis (c, n) of the right null space of B = I - W, the constant vector first.

        c is the number of closed classes (sets of points that no edge of the kNN graph leaves). Columns are in the
        order of elimination.
        """
        n, c = len(self.inverse), len(self.pins)
        basis = np.empty((c, n))
        basis[0] = 1 / np.sqrt(n)
        for i, pin in enumerate(self.pins[1:], start=1):
            unit = np.zeros(n)
            unit[self.inverse[pin]] = 1.0
            # The solution is 1 in the closed class of this pin, and 0 in the other closed classes. At other points, it
            # is the probability that a random walk along the edges ends in the class, if no weight is negative.
            hitting = np.asarray(self.lu.solve(unit, "T"))
            project_out(basis[:i], hitting)
            project_out(basis[:i], hitting)
            basis[i] = hitting / norm(hitting)
        return basis

    def eigenpairs(self, wanted: int, null: NDArray[np.float64] | None, *, exhaustive: bool) -> Eigenpairs:
        """Return the `wanted` smallest eigenpairs of M = B^T B, B = I - W, by Lanczos on the (pseudo-)inverse of M.

        For weights W that sum to one, `null` is the basis of the left null space of B from `null_left`, and the first
        eigenvector, which is constant, is left out. For the published variant of GLLE, whose B is nonsingular, `null`
        is None, and the first eigenvector is skipped as in the paper. With `exhaustive`, no eigenvector of a multiple
        eigenvalue is missed. Raises `FloatingPointError` if M is singular to rounding.
        """
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
            following = 1 / inverse if inverse else None
        if len(top) < need or not top.all():
            raise FloatingPointError("the operator is singular to rounding")
        values, deviation = 1 / top, float(np.abs(self._images(ritz) * top - 1).max(initial=0.0))
        if not deviation < _MAX_UNREFINED_DEVIATION:
            ritz, values = self._refine(ritz, left, right)
            deviation = float(np.abs(values * top - 1).max(initial=0.0))
            # Eigenvalues that are still inaccurate are dominated by rounding errors; the next one is then unknown, too.
            if not deviation < ACCEPTED_DEVIATION:
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

    def _images(self, ritz: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ||B v||^2 (m,) with B = I - W for each row v of `ritz` (m, n), with columns in elimination order."""
        image = self.pattern.apply(self.weights, ritz[:, self.inverse].T)
        return np.asarray((image * image).sum(axis=0))

    def _refine(
        self, ritz: NDArray[np.float64], left: NDArray[np.float64], right: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Make inaccurate eigenvectors more accurate by one step of inverse iteration, whose solutions are refined.

        Applies the pseudo-inverse of M = B^T B, B = I - W, to each row v of `ritz` (m, n). Returns the new orthonormal
        rows, and ||B v||^2 for each of them. `left` and `right` are bases of the left and right null spaces of B, with
        columns in the order of elimination.

        A solution of a system with the factors has a component in the null space of B, which is projected out
        afterwards. The rounding errors of the solution are in proportion to this component too, and remain. If B has
        singular values near machine precision, these rounding errors are large. Each solution is therefore refined,
        which reduces its rounding errors.
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
    """Factor I - W for the mean weights (n, k), with 1 added to the diagonal at the points `pins`.

    Returns the name of the solver for the diagnostics, and the factors. With at most one pin, the factorization does
    not pivot.
    """
    if len(pins) > 1:
        return "lu", factor(pattern, weights, pins)
    structure = pattern.structure
    lu = SingleLU.factor(structure, weights, pins)
    return "lanes", Factored(pattern, weights, pins, lu, structure.order, structure.position)


def factor(pattern: Pattern, weights: NDArray[np.float64], pins: NDArray[np.int32]) -> Factored:
    """Factor I - W for weights (n, k) with threshold pivoting, with 1 added to the diagonal at the points `pins`."""
    n, k = pattern.neighbors.shape
    row, source, inverse = pattern.transposed
    values = np.empty((n, k + 1))
    values[:, 0] = 1.0
    values[pins, 0] = 2.0
    np.negative(weights, out=values[:, 1:])
    entries = values.ravel()[source]
    del values  # to free memory for the factors
    indptr = np.arange(0, n * (k + 1) + 1, k + 1, dtype=np.int32)
    lu = SparseLU.factor(indptr, row, entries, _PIVOT_THRESHOLD)
    return Factored(pattern, weights, pins, lu, pattern.order, inverse)


def factor_refined(pattern: Pattern, weights: NDArray[np.float64]) -> Factored:
    """Factor I - W without pivoting for weights (n, k) of the published variant, for iteratively refined solutions."""
    structure, pins = pattern.structure, np.empty(0, np.int32)
    lu = RefinedLU(pattern, weights, SingleLU.factor(structure, weights, pins))
    return Factored(pattern, weights, pins, lu, structure.order, structure.position)


@dataclass(frozen=True, eq=False)
class SingleLU:
    """Factors B' = L U without pivoting for one set of weights W, by the kernels of the batched solver.

    B' is I - W with 1 added to the diagonal at one point, or I - W itself.

    Attributes
    ----------
    structure : Structure
        The symbolic factorization: where the entries of L and U are stored.
    fields : (20,) int64
        The memory addresses of the structure's arrays (`glle_engine.eigen.batched.structure.packed_addresses`).
    lower, upper : flat float64
        The entries of L and U, from `glle_engine.eigen.batched.factorization.factorize`.

    """

    structure: Structure
    fields: NDArray[np.int64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @classmethod
    def factor(cls, structure: Structure, weights: NDArray[np.float64], pins: NDArray[np.int32]) -> Self:
        """Factor I - W without pivoting, with 1 added to the diagonal at the point in `pins`, which may be empty.

        Parameters
        ----------
        structure : Structure
            The symbolic factorization for the kNN graph of W.
        weights : (n, k) float64
            The weights W, with rows in the order of the points.
        pins : (c,) int32
            At most one point.

        """
        fields = packed_addresses(structure)
        lower, upper = np.empty(structure.lower_size), np.empty(structure.upper_size)
        pin = structure.position[pins] if len(pins) else np.full(1, -1, np.int32)
        factorize(
            _TAG,
            fields,
            weights[structure.order].ravel(),
            pin,
            lower,
            upper,
            np.empty(structure.block_size),
            np.empty(SCRATCH),
        )
        return cls(structure, fields, lower, upper)

    def solve(self, b: NDArray[np.float64], trans: str = "N") -> NDArray[np.float64]:
        """Return x with B'^T x = b, or with B' x = b for trans="T"; b and x are (n,) or (n, 1), in elimination order.

        B' is I - W with 1 added to the diagonal at one point, or I - W itself. The transpose is the default because
        `Factored.lu` may also be a `SparseLU`, which factors B'^T: its `solve` solves with B'^T by default.
        """
        x = b.ravel().copy()
        _solve(self.fields, self.lower, self.upper, x, trans != "T")
        return x.reshape(b.shape)


@dataclass(frozen=True, eq=False)
class RefinedLU:
    r"""Factors of B = I - W without pivoting, with one step of iterative refinement in each solution.

    The factors are exact factors of some B + E, where without pivoting E grows with the weights. To first order, E
    moves a singular value :math:`\sigma` of B with singular vectors u and v by :math:`u^T E v`, so that the deviation
    in the acceptance test is :math:`2 u^T E v / \sigma`. With :math:`F = (B + E)^{-1}` a refined solution is

    .. math:: F b + F (b - B F b) = (2 F - F B F) b = B^{-1} (I - (E F)^2) b,

    so that its error is the square of the error of F b. The transpose of this operator is the refined solution with
    :math:`B^T`, so that the inverse of M stays symmetric (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
    chapter 12).

    Attributes
    ----------
    pattern : Pattern
        The kNN graph and its elimination order.
    weights : (n, k) float64
        The weights W, with rows in the order of the points.
    lu : SingleLU
        Factors of I - W for these weights; nothing was added to the diagonal.

    """

    pattern: Pattern
    weights: NDArray[np.float64]
    lu: SingleLU

    def solve(self, b: NDArray[np.float64], trans: str = "N") -> NDArray[np.float64]:
        """Return x with B^T x = b, or with B x = b for trans="T"; b and x (n,) are in the order of elimination.

        B is I - W. `trans` refers to B^T, not to B, because `Factored.lu` may also be a `SparseLU`, which factors B^T:
        "N" solves with B^T, and "T" with the transpose of B^T, which is B.
        """
        structure = self.lu.structure
        x = self.lu.solve(b, trans)
        points = x[structure.position]
        if trans == "T":
            image = self.pattern.apply(self.weights, points[:, None])[:, 0]
        else:
            image = self.pattern.apply_transposed(self.weights, points)
        return x + self.lu.solve(b - image[structure.order], trans)


@compiled
def _solve(
    fields: NDArray[np.int64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    x: NDArray[np.float64],
    transposed: bool,  # noqa: FBT001 -- numba's calls are positional
) -> None:
    """Overwrite x (n,) with U^-1 L^-1 x, or with L^-T U^-T x if `transposed`; `fields` is from `packed_addresses`."""
    tree, low, up, vector = addresses(fields), address(lower), address(upper), address(x)
    if transposed:
        solve_upper_transposed(_TAG, tree, up, vector)
        solve_lower_transposed(_TAG, tree, low, vector)
    else:
        solve_lower(_TAG, tree, low, vector)
        solve_upper(_TAG, tree, up, vector)


def shift_invert(
    pattern: Pattern, weights: NDArray[np.float64], wanted: int, tried: list[str], *, constrained: bool
) -> Eigenpairs:
    """Return the bottom eigenpairs of M = B^T B, B = I - W, by Lanczos on the inverse of M + s I, the last resort.

    This works even if B is singular to rounding. M has the squared condition number of B, so that vectors are accurate
    only to an angle of about 1e-7. The eigenvectors are replaced by the singular vectors of B in their span, which
    separates vectors with nearly zero eigenvalues. If `constrained`, weights sum to one, so that the constant is a null
    vector, and it is left out; otherwise the first eigenvector is left out. `tried` says why the other solvers were
    rejected; these reasons are part of the `ConvergenceError` that is raised if this solver fails, too.
    """
    n, k = pattern.neighbors.shape
    indptr = np.arange(0, n * k + 1, k)
    residual = identity(n, format="csr") - csr_array((weights.ravel(), pattern.neighbors.ravel(), indptr), shape=(n, n))
    gram = (residual.T @ residual).tocsc()
    gram.sort_indices()
    norm = float(abs(gram).sum(axis=0).max())
    locked = np.full((1, n), 1 / np.sqrt(n)) if constrained else np.empty((0, n))
    need = wanted if constrained else wanted + 1
    try:
        solve = _factor((gram + _RELATIVE_SHIFT * norm * identity(n, format="csc")).tocsc())
        rows = largest_eigenpairs(solve, start_vector(n), need, locked)[1]
        singular, rotations = dense.svd(pattern.apply(weights, np.ascontiguousarray(rows.T)))[1:]
    except (RuntimeError, FloatingPointError, np.linalg.LinAlgError) as error:
        raise ConvergenceError(
            f"No solver found the embedding: {'; '.join(tried)}; shift-invert: {error}.",
            remedy=f"Raise reg or {Way('n_neighbors')}, lower the scale, or remove duplicated points.",
            details={"tried": tried},
        ) from error
    vectors = dense.cross(rows, np.ascontiguousarray(rotations[::-1].T))[:, need - wanted :]
    values = singular[::-1][need - wanted :] ** 2
    off = gram @ vectors - vectors * values
    return Eigenpairs(
        values,
        np.ascontiguousarray(vectors),
        {
            "solver": "shift-invert",
            "steps": 0,
            "deviation": float(np.sqrt((off * off).sum(axis=0).max())) / norm,
            "pin": 1.0,
            "next_eigenvalue": None,
        },
    )


def _factor(matrix: csc_array) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Factor a sparse positive definite matrix (n, n); return a function that solves for a right-hand side (n,)."""
    order = _minimum_degree(matrix)
    permuted = matrix[order][:, order].tocsc()
    permuted.sort_indices()
    factors = SparseLU.factor(permuted.indptr.astype(np.int32), permuted.indices, permuted.data, 0.0)
    position = np.argsort(order, kind="stable")
    return lambda f: factors.solve(f[order])[position]


def _minimum_degree(matrix: csc_array) -> NDArray[np.intp]:
    """Return a fill-reducing elimination order (n,) of a symmetric matrix with a full diagonal, from SuperLU.

    The order depends only on the positions of the nonzero entries. scipy returns it only with a factorization.
    Therefore the entries are replaced by 1 on the diagonal and 0 elsewhere, and this matrix is factored incompletely,
    which takes little time.
    """
    pattern = matrix.copy()
    pattern.data = (pattern.indices == np.repeat(np.arange(matrix.shape[0]), np.diff(pattern.indptr))).astype(float)
    options = {"SymmetricMode": True}
    factors = spilu(
        pattern, drop_tol=1.0, fill_factor=1.0, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
    )
    return np.argsort(factors.perm_c, kind="stable")


def few_points(neighbors: NDArray[np.int32], weights: NDArray[np.float64], wanted: int, n_classes: int) -> Eigenpairs:
    """Return the `wanted` bottom eigenpairs of M = B^T B by a dense SVD of B = I - W, for few points.

    The points have the weights W (n, k) on `neighbors` (n, k). `n_classes` is the number of closed classes of the kNN
    graph (sets of points that no edge leaves), each of which adds a null vector. It is 0 for the published variant of
    GLLE, which has none.

    Raises
    ------
    ConvergenceError
        If squares of the weights overflow.

    """
    n = len(weights)
    residual = np.eye(n)
    np.subtract.at(residual, (np.arange(n)[:, None], neighbors), weights)
    if n_classes:  # a constant row is added, so that the constant vector gets the largest singular value in place of 0
        residual = np.vstack([residual, np.full(n, 10 * dense.norm(residual) / np.sqrt(n))])
    # Eigenvectors of the Gram matrix are fast to compute but inexact; a few rotations turn them into singular vectors.
    try:
        near = dense.eigh(dense.cross(residual, residual))[1]
        _, singular, rotations = dense.svd(dense.matmul(residual, near))
    except np.linalg.LinAlgError as error:
        raise ConvergenceError(
            f"The dense solver found no embedding: {error} The largest weight is {np.abs(weights).max():.2g}.",
            remedy=f"Raise reg or {Way('n_neighbors')}, or lower the scale.",
        ) from error
    right = dense.matmul(rotations, np.ascontiguousarray(near.T))
    skip = 0 if n_classes else 1
    values = singular[::-1][skip : skip + wanted] ** 2
    vectors = right[::-1][skip : skip + wanted].T
    values[: max(0, n_classes - 1)] = 0.0
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
