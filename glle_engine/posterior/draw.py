"""Key of a draw, and the embedding that it determines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glle_engine.base.brief import brief
from glle_engine.base.parameters import check_integer, check_positive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.spec import Align, Source


@dataclass(frozen=True)
class DrawKey:
    """Key of a draw within a posterior; numpy numbers become Python's, so that keys are JSON-able.

    Attributes
    ----------
    index, seed : int
        Position in a random stream, and the stream; in [0, 2^64).
    scale : float
        Factor on the covariance of the weights, >= 0.

    Raises
    ------
    InvalidParameterError
        For a value outside its domain.

    """

    index: int
    seed: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", check_integer("index", self.index, 0, counter=True))
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0, counter=True))
        object.__setattr__(self, "scale", check_positive("scale", self.scale, zero=True))


@dataclass(frozen=True, eq=False)
class Draw:
    """Embedding drawn from a posterior, a pure function of the posterior and the first five fields.

    Attributes
    ----------
    index, seed, scale
        See `DrawKey`.
    source : {"posterior", "prior"}
    align : {"procrustes", "none"}
    embedding : (n, p) float64
        (1/n) Y^T Y = I; columns sum to zero for constrained posteriors.
    eigenvalues : (p,) float64, ascending
        Of M = (I - W)^T (I - W), without the constant's.
    diagnostics : dict
        JSON-able: "solver" that was accepted, "steps", "deviation" of the acceptance test, |y| at the "pin", solvers
        that were "rejected", "next_eigenvalue", and "disparity" to the reference embedding.

    """

    index: int
    seed: int
    scale: float
    source: Source
    align: Align
    embedding: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    diagnostics: dict[str, Any]

    __repr__ = brief
