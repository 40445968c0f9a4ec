"""Lanczos with full reorthogonalization for one problem at a time, and the accuracy test for results of all solvers.

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
# An eigenpair (lambda, v) of M = B^T B is accepted if | ||B v||^2 / lambda - 1 | is below this bound. In our trials
# this test caught every failure, and a test of the forward residual M v - lambda v caught none.
ACCEPTED_DEVIATION = 1e-6
# A solver makes B nonsingular by adding 1 to the diagonal at one point, the pin. This is the smallest accepted |y| at
# the pin, where y is the left null vector of B. If y nearly vanishes there, eigenvectors can have a small
# | ||B v||^2 / lambda - 1 | although they are wrong by an angle of 1e-5.
ACCEPTED_PIN = 1e-5
# If |y| at the pin is above this share of the largest |y|, where y is the left null vector of B, the pin is kept: no
# other point would make the results more accurate.
GOOD_PIN = 0.01
MAX_LANCZOS_STEPS = 60  # Lanczos stops after this many steps when several draws are solved together
# Lanczos stops after this many steps for a single problem, because close eigenvalues need more than 60.
MAX_LU_STEPS = 300
# Lanczos stops when the residual of each wanted eigenpair is at most this number times the eigenvalue.
RITZ_TOLERANCE = 1e-10
# Beyond `MAX_LANCZOS_STEPS`, convergence is tested only every 10 steps, because a test after m steps takes m^3
# operations.
_STEPS_BETWEEN_TESTS = 10


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenpairs of M = (I - W)^T (I - W) with the smallest eigenvalues, without the first pair, for n points.

    The first eigenvector is constant if weights sum to one. For the weights of the published variant of GLLE it is not,
    and is skipped as in the paper.

    Attributes
    ----------
    values : (m,) float64, ascending
        If the kNN graph has c > 1 closed classes (sets of points that no edge leaves), the first c - 1 values are
        exactly 0.
    vectors : (n, m) float64, orthonormal
    diagnostics : dict
        "solver": the name of the solver. "steps": the number of Lanczos steps. "deviation": the largest
        | ||B v||^2 / lambda - 1 | of the eigenpairs (lambda, v), where B = I - W, which the accuracy test bounds.
        "pin": the smallest |y_i| of the left null vectors y of B at the points i where the solver added 1 to the
        diagonal of B; 1 if it added none. "next_eigenvalue": an estimate of the eigenvalue that follows `values`, with
        a relative error of about 1e-6, or None if it is unknown.

    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    diagnostics: dict[str, Any]


def relative_gap(values: NDArray[np.float64], p: int) -> float:
    """Return (lambda_{p+1} - lambda_p) / lambda_{p+1} for ascending eigenvalues `values`; 0 if lambda_{p+1} is 0.

    If this relative gap is near 0, coordinate p of an embedding may be any mixture of eigenvectors p and p + 1.
    """
    return float((values[p] - values[p - 1]) / values[p]) if values[p] > 0 else 0.0


def start_vector(n: int) -> NDArray[np.float64]:
    """Return the vector (n,) from which Lanczos starts: pseudo-random in [-1/2, 1/2), and a function of n alone."""
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
    """Return the reason to reject eigenpairs because they are too inaccurate, or None to accept them.

    They are accepted if Lanczos converged in fewer than `max_steps` steps, and if the `deviation` is below `accepted`
    or below `rounding`, the deviation that rounding of the weights alone can cause. The deviation is the largest
    | ||B v||^2 / lambda - 1 | of the eigenpairs (lambda, v) of M = B^T B.
    """
    if deviation < max(accepted, rounding) and steps < max_steps:
        return None
    return f"deviation {deviation:.1e} after {steps} steps"


def pin_refusal(strength: float) -> str | None:
    """Return the reason to reject the pin, the point at which a solver added 1 to the diagonal of I - W; None if good.

    `strength` is |y_i| of the left null vector y of I - W at this point i, which must not nearly vanish.
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

    Stops when every wanted Ritz pair :math:`(\theta, x)` has a residual of at most 1e-10 :math:`\theta`, and otherwise
    after `max_steps` steps. The caller has to test whether the result is accurate.

    Parameters
    ----------
    apply : callable
        Takes a vector (n,), and returns the operator times the vector as a new array (n,).
    start : (n,) float64
        The vector from which Lanczos starts; not zero. With the same vector, the result has the same bits.
    wanted : int
    locked : (m, n) float64
        Orthonormal rows, orthogonal to the range of the operator. The Lanczos vectors are kept orthogonal to these
        rows, because a rounding error along a row grows from step to step.
    max_steps : int

    Returns
    -------
    values : (wanted + 1,) float64, descending
        The last value was not asked for. It estimates the eigenvalue that follows the wanted ones, and is never above
        it; if Lanczos stops after about ten steps, as usual, its relative error is about 1e-6. There are fewer values
        if the Krylov space is exhausted.
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
            raise FloatingPointError("the operator returned NaN or infinite numbers")
        exhausted = off[step] <= np.finfo(float).eps * np.abs(diagonal[:size]).max()
        is_due = size <= MAX_LANCZOS_STEPS or size % _STEPS_BETWEEN_TESTS == 0 or size == max_steps
        if (size >= wanted and is_due) or exhausted:
            values, ritz = dense.eigh(np.diag(diagonal[:size]) + np.diag(off[:step], -1))
            top = slice(None, -wanted - 1, -1)  # the largest first; `eigh` returns ascending eigenvalues
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
    """Return the `wanted` largest eigenpairs of an operator, with all eigenvectors of multiple eigenvalues.

    A Krylov sequence finds only one eigenvector of a multiple eigenvalue. If `exhaustive`, further sequences,
    orthogonal to all vectors found before, search for more eigenvectors, until a sequence finds no eigenvalue that
    belongs to the `wanted` largest; if not, there is one sequence. `apply` multiplies a vector by the operator, the
    sequences begin at `start`, and stay orthogonal to the rows of `locked`, as in `lanczos`.

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
