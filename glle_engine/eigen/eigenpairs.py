"""Bottom eigenpairs with their diagnostics, the acceptance test of all solvers, and Lanczos for single problems.

Lanczos finds the few largest eigenpairs of a symmetric operator, with full reorthogonalization.
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
# The smallest accepted |y| at the pin, where y is the left null vector of B. If y nearly vanishes at the pin, the
# vectors of a draw can pass the test above although they are wrong by an angle of 1e-5.
ACCEPTED_PIN = 1e-5
# If |y| at the pin is above this share of the largest |y|, the pin is as accurate as any other.
GOOD_PIN = 0.01
MAX_STEPS = 60  # Lanczos steps when four draws are solved together
LU_STEPS = 300  # Lanczos steps for a single problem, because close eigenvalues need more than 60
RITZ_TOLERANCE = 1e-10
_STRIDE = 10  # steps between tests of convergence in a long run


@dataclass(frozen=True)
class Eigenpairs:
    """Bottom eigenpairs of M = (I - W)^T (I - W), in ascending order.

    The first pair is left out: with constrained weights it is the constant; with published weights the paper skips it.

    Attributes
    ----------
    values : (m,) float64, ascending
        Exactly 0 for the null vectors of further closed classes.
    vectors : (n, m) float64, orthonormal
    diagnostics : dict
        "solver" that was accepted, "steps" of Lanczos, "deviation" (the number that the acceptance test bounds), "pin"
        (the smallest |y_i| of left null vectors y over the pins i; 1 without pins) and "next_eigenvalue", an estimate
        of the eigenvalue after the last of `values`, with a relative error of about 1e-6 (None if the solver gives no
        estimate).

    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    diagnostics: dict[str, Any]


def relative_gap(values: NDArray[np.float64], p: int) -> float:
    """Return (lambda_{p+1} - lambda_p) / lambda_{p+1} of ascending eigenvalues; 0 if coordinate p is not determined."""
    return float((values[p] - values[p - 1]) / values[p]) if values[p] > 0 else 0.0


def start_vector(n: int) -> NDArray[np.float64]:
    """Return the fixed Lanczos start vector of n points: uniform numbers in [-1/2, 1/2), exact on every platform."""
    words = np.random.Philox(key=n).random_raw(n)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53 - 0.5)


def refusal(
    deviation: float,
    steps: int,
    accepted: float = ACCEPTED_DEVIATION,
    *,
    rounding: float = 0.0,
    max_steps: int = MAX_STEPS,
) -> str | None:
    """Return the reason to reject eigenpairs, or None to accept them.

    Deviations must be below `accepted`. `rounding` is the deviation that rounding of the weights alone can cause, and
    `max_steps` is the number of steps after which Lanczos stops without convergence.
    """
    if deviation < max(accepted, rounding) and steps < max_steps:
        return None
    return f"deviation {deviation:.1e} after {steps} steps"


def pin_refusal(strength: float) -> str | None:
    """Return the reason to reject a pin, or None to accept it; `strength` is |y| at the pin, y the left null vector."""
    return None if strength >= ACCEPTED_PIN else f"pin {strength:.1e}"


def lanczos(
    apply: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    start: NDArray[np.float64],
    wanted: int,
    locked: NDArray[np.float64],
    max_steps: int = LU_STEPS,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    r"""Return the `wanted` largest eigenpairs of a symmetric positive semidefinite operator.

    Stops when every wanted Ritz pair :math:`(\theta, x)` has a residual of at most 1e-10 :math:`\theta`, or after
    `max_steps`; the caller tests the result.

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
        The last one is an estimate from below (in ten steps good to 1e-6); fewer values if the Krylov space is
        exhausted.
    vectors : (wanted, n) float64, orthonormal rows
    steps : int
        Applications of the operator.

    Raises
    ------
    FloatingPointError
        If the operator is not finite.

    """
    n = len(start)
    basis = np.empty((min(MAX_STEPS, max_steps) + 1, n))
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
        is_due = size <= MAX_STEPS or size % _STRIDE == 0 or size == max_steps
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

    A Krylov sequence finds only one copy of a multiple eigenvalue. If `exhaustive`, further sequences, orthogonal to
    all previous vectors, search for more copies, until a sequence finds no eigenvalue that belongs to the `wanted`
    largest. The parameters are explained in `lanczos`.

    Returns
    -------
    values : (wanted,) float64, descending
        Fewer if the Krylov space is exhausted.
    vectors : (wanted, n) float64, orthonormal rows
    steps : int
        Number of steps of the longest sequence.
    following : float or None
        Estimate of the next eigenvalue, from the last sequence.

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
