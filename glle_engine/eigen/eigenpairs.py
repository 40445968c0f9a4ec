"""A few eigenpairs, with how they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Solver = Literal["lanes", "lanes-repinned", "lu", "lu-repinned", "lu-colamd", "shift-invert", "dense"]
# | ||B v||^2 / lambda - 1 |: caught every failure where the forward residual caught none.
ACCEPTED_DEVIATION = 1e-6
# A draw whose own y nearly vanishes at the pin can pass the test above with an angle of 1e-5.
ACCEPTED_PIN = 1e-5
# A pin whose |y| is above this share of the largest |y| costs no digits that another would keep.
GOOD_PIN = 0.01
MAX_STEPS = 60  # of the lanes
LU_STEPS = 300  # of one problem alone: eigenvalues that lie close together need more than 60


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


def start_vector(n: int) -> NDArray[np.float64]:
    """Return the fixed Lanczos start vector of n points: uniform numbers in [-1/2, 1/2), exact on every platform."""
    words = np.random.Philox(key=n).random_raw(n)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53 - 0.5)


def refusal(
    deviation: float, steps: int, accepted: float = ACCEPTED_DEVIATION, *, rounding: float = 0.0, most: int = MAX_STEPS
) -> str | None:
    """Return the reason why pairs found in so many steps are not accepted, or None if they are.

    Parameters
    ----------
    deviation : float
    steps : int
    accepted : float
        The largest deviation accepted, exclusive.
    rounding : float
        The deviation that rounding of the weights alone can cause.
    most : int
        The number of steps after which Lanczos stops without convergence.

    """
    if deviation < max(accepted, rounding) and steps < most:
        return None
    return f"deviation {deviation:.1e} after {steps} steps"


def pin_refusal(strength: float) -> str | None:
    """Return why a pin with this |y| is not accepted, or None when it is."""
    return None if strength >= ACCEPTED_PIN else f"pin {strength:.1e}"
