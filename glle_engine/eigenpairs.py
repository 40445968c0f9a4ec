"""A few eigenpairs, with how they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    """Return the fixed Lanczos start vector of n points."""
    return np.random.Generator(np.random.Philox(key=n)).standard_normal(n)
