"""Bottom eigenpairs with their diagnostics, and the acceptance test of all solvers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Solver = Literal["lanes", "lanes-repinned", "lu", "lu-repinned", "shift-invert", "dense"]
# Bound of | ||B v||^2 / lambda - 1 |, which caught every failure; the forward residual caught none.
ACCEPTED_DEVIATION = 1e-6
# If y nearly vanishes at the pin, a draw can pass the test above with an angle of 1e-5.
ACCEPTED_PIN = 1e-5
# Above this share of the largest |y| a pin is as accurate as any other.
GOOD_PIN = 0.01
MAX_STEPS = 60  # of the lanes
LU_STEPS = 300  # of a single problem: eigenvalues close together need more than 60


@dataclass(frozen=True)
class Eigenpairs:
    """Bottom eigenpairs of M without the constant (constrained) or without the first (published).

    Attributes
    ----------
    values : (m,) float64, ascending
        Exactly 0 for the null vectors of further closed classes.
    vectors : (n, m) float64, orthonormal
    diagnostics : dict
        "solver" that was accepted, "steps" of Lanczos, "deviation" (the figure of the acceptance test), "pin" (the
        smallest |y_i| over the pins; 1 without pins) and "next_eigenvalue", an estimate of the first one left out, good
        to some 1e-6 (None if the solver gives none).

    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    diagnostics: dict[str, Any]


def start_vector(n: int) -> NDArray[np.float64]:
    """Return the fixed Lanczos start vector of n points: uniform numbers in [-1/2, 1/2), exact on every platform."""
    words = np.random.Philox(key=n).random_raw(n)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53 - 0.5)


def refusal(
    deviation: float, steps: int, accepted: float = ACCEPTED_DEVIATION, *, rounding: float = 0.0, most: int = MAX_STEPS
) -> str | None:
    """Return the reason to reject eigenpairs, or None.

    `accepted` is the largest accepted deviation, exclusive; `rounding` is the deviation that rounding of the weights
    alone can cause; `most` is the number of steps after which Lanczos stops without convergence.
    """
    if deviation < max(accepted, rounding) and steps < most:
        return None
    return f"deviation {deviation:.1e} after {steps} steps"


def pin_refusal(strength: float) -> str | None:
    """Return the reason to reject a pin with this |y|, or None."""
    return None if strength >= ACCEPTED_PIN else f"pin {strength:.1e}"
