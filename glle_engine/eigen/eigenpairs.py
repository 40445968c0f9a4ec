"""Lanczos with full reorthogonalization for single problems, and the accuracy test that the result of any solver takes.

The solvers compute eigenpairs of M = B^T B with B = I - W for weights W.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.linalg import dense
from glle_engine.linalg.rows import combination, norm, project_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Solver = Literal["lanes", "lanes-repinned", "lanes-refined", "lu", "lu-repinned", "shift-invert", "dense"]
# The acceptance test of an eigenpair (lambda, v) of M = B^T B: the bound on | ||B v||^2 / lambda - 1 |. In our tests
# this test caught every failure, and a test of the forward residual M v - lambda v caught none.
ACCEPTED_DEVIATION = 1e-6
# A solver makes B nonsingular by adding 1 to its diagonal at one point, the pin. This is the smallest accepted |y| at
# the pin, where y is the left null vector of B. If y nearly vanishes there, the vectors of a draw can pass the test
# above although they are wrong by an angle of 1e-5.
ACCEPTED_PIN = 1e-5
# If |y| at the pin is above this share of the largest |y|, no other pin is more accurate.
GOOD_PIN = 0.01
MAX_LANCZOS_STEPS = 60  # Lanczos stops after this many steps when several draws are solved together
# Lanczos stops after this many steps for a single problem, because close eigenvalues need more than 60.
MAX_LU_STEPS = 300
RITZ_TOLERANCE = 1e-10  # residual of an eigenpair, relative to its eigenvalue, at which Lanczos stops
_STEPS_BETWEEN_TESTS = 10  # after `MAX_LANCZOS_STEPS`, convergence is tested only after every so many steps


@dataclass(frozen=True)
class Eigenpairs:
    """Bottom eigenpairs of M = (I - W)^T (I - W) for n points, without the first pair.

    The first eigenvector is constant if weights sum to one; for published weights, the paper skips it.

    Attributes
    ----------
    values : (m,) float64, ascending
        Exactly 0 for the null vectors that M has if the graph has several closed classes (sets of points that no edge
        leaves).
    vectors : (n, m) float64, orthonormal
    diagnostics : dict
        "solver": the name of the solver. "steps": steps of Lanczos. "deviation": the error that the accuracy test
        bounds. "pin": the smallest |y_i| of the left null vectors y at the points i where the solver added 1 to the
        diagonal of I - W; 1 if it added none. "next_eigenvalue": an estimate of the eigenvalue after the last of
        `values`, with a relative error of about 1e-6, or None.

    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    diagnostics: dict[str, Any]


def relative_gap(values: NDArray[np.float64], p: int) -> float:
    """Return (lambda_{p+1} - lambda_p) / lambda_{p+1} of ascending eigenvalues; 0 if lambda_{p+1} is 0.

    If the gap is near 0, the last of p coordinates may be any mixture with the next eigenvector.
    """
    return float((values[p] - values[p - 1]) / values[p]) if values[p] > 0 else 0.0


def start_vector(n: int) -> NDArray[np.float64]:
    """Return the vector (n,) from which Lanczos starts: pseudo-random in [-1/2, 1/2), the same on every platform."""
    words = np.random.Philox(key=n).random_raw(n)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53 - 0.5)


def refusal(
    deviation: float,
    steps: int,
    accepted: float = ACCEPTED_DEVIATION,
    *,
    rounding: float = 0.0,
    max_steps: int = MAX_LANCZOS_STEPS,
) -> str | None:
    """Return why eigenpairs are too inaccurate, or None to accept them.

    They are accepted if Lanczos converged before `max_steps`, and if their `deviation` is below `accepted` or below
    `rounding`, the deviation that rounding of the weights alone can cause. The deviation is the largest
    | ||B v||^2 / lambda - 1 | of the eigenpairs (lambda, v) of M = B^T B.
    """
    if deviation < max(accepted, rounding) and steps < max_steps:
        return None
    return f"deviation {deviation:.1e} after {steps} steps"


def pin_refusal(strength: float) -> str | None:
    """Return why the pin is unsuitable, or None to accept it.

    The pin is the point at which a solver adds 1 to the diagonal of I - W. `strength` is the absolute value there of
    the left null vector of I - W, which must not nearly vanish.
    """
    return None if strength >= ACCEPTED_PIN else f"pin {strength:.1e}"


def lanczos(
    apply: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    start: NDArray[np.float64],
    wanted: int,
    locked: NDArray[np.float64],
    max_steps: int = MAX_LU_STEPS,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    r"""Return the `wanted` largest eigenpairs of a symmetric positive semidefinite operator, by one Krylov sequence.

    Stops when every wanted Ritz pair :math:`(\theta, x)` has a residual of at most 1e-10 :math:`\theta`, or after
    `max_steps` without convergence; the caller has to test the result.

    Parameters
    ----------
    apply : callable
        Takes a vector (n,), and returns the operator times the vector as a new array (n,).
    start : (n,) float64
        Not zero. If it is fixed, the result depends on the operator only.
    wanted : int
    locked : (m, n) float64
        Orthonormal rows orthogonal to the range of the operator. The basis is kept orthogonal to them, because a
        rounding error along them grows from step to step.
    max_steps : int

    Returns
    -------
    values : (wanted + 1,) float64, descending
        The last value is only an estimate from below, after ten steps with a relative error of about 1e-6. There are
        fewer values if the Krylov space is exhausted.
    vectors : (wanted, n) float64, orthonormal rows
    steps : int
        How often the operator was applied.

    Raises
    ------
    FloatingPointError
        If the operator returns NaN or infinite entries.

    """
    n = len(start)
    basis = np.empty((min(MAX_LANCZOS_STEPS, max_steps) + 1, n))
    basis[0] = start
    project_out(locked, basis[0])
    basis[0] /= norm(basis[0])
    diagonal, off = np.empty(max_steps), np.empty(max_steps)
    for step in range(max_steps):
        image = apply(basis[step])
        previous = basis[: step + 1]
        diagonal[step] = project_out(previous, image)[step]
        project_out(previous, image)
        project_out(locked, image)
        off[step] = norm(image)
        size = step + 1
        if not (np.isfinite(off[step]) and np.isfinite(diagonal[step])):
            raise FloatingPointError("the operator is not finite")
        exhausted = off[step] <= np.finfo(float).eps * np.abs(diagonal[:size]).max()
        is_due = size <= MAX_LANCZOS_STEPS or size % _STEPS_BETWEEN_TESTS == 0 or size == max_steps
        if (size >= wanted and is_due) or exhausted:
            values, ritz = dense.eigh(np.diag(diagonal[:size]) + np.diag(off[:step], -1))
            top = slice(None, -wanted - 1, -1)  # the largest come last
            residual = off[step] * np.abs(ritz[-1, top])
            if exhausted or size == max_steps or np.all(residual <= RITZ_TOLERANCE * values[top]):
                return values[: -wanted - 2 : -1], combination(ritz[:, top].T, previous), size
        if size == len(basis):
            basis = np.concatenate([basis, np.empty_like(basis)])
        basis[size] = image / off[step]
    raise AssertionError("unreachable: the last step returns")


def largest_eigenpairs(
    apply: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    start: NDArray[np.float64],
    wanted: int,
    locked: NDArray[np.float64],
    *,
    exhaustive: bool = True,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int, float | None]:
    """Return the `wanted` largest eigenpairs of an operator, including copies of multiple eigenvalues.

    A Krylov sequence finds only one eigenvector of a multiple eigenvalue. If `exhaustive`, further sequences,
    orthogonal to all vectors found before, search for more eigenvectors, until a sequence finds no eigenvalue that
    belongs to the `wanted` largest. The other parameters are explained in `lanczos`.

    Returns
    -------
    values : (wanted,) float64, descending
        Fewer if the Krylov space is exhausted.
    vectors : (wanted, n) float64, orthonormal rows
    steps : int
        Number of steps of the longest sequence.
    following : float or None
        Estimate of the next smaller eigenvalue; None if the Krylov space is exhausted.

    """
    rows, top = np.empty((0, len(start))), np.empty(0)
    steps, fixed = 0, locked

    def apply_projected(f: NDArray[np.float64]) -> NDArray[np.float64]:
        x = apply(f)
        project_out(fixed, x)
        return x

    for _ in range(wanted + 1):
        values, vectors, taken = lanczos(apply_projected, start, wanted, fixed)
        steps = max(steps, taken)
        following, values = float(values[wanted]) if len(values) > wanted else None, values[:wanted]
        is_complete = len(top) >= wanted and values[0] <= top[wanted - 1] * (1 + 1e-9)
        rows, top = np.concatenate([rows, vectors[: len(values)]]), np.concatenate([top, values])
        best = np.argsort(-top, kind="stable")[:wanted]
        rows, top = rows[best], top[best]
        if not exhaustive or is_complete:
            break
        fixed = np.concatenate([locked, rows])
        start = np.roll(start, 1)
    return top, rows, steps, following
