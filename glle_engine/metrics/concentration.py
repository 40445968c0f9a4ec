r"""Collapsed embeddings: few points hold most of the extent, and the others lie close together.

The participation ratio of the squared distances :math:`e_i = |y_i - \bar y|^2` from the mean,
:math:`(\sum e_i)^2 / \sum e_i^2`, is the number of points that share the extent: n if all are equally far, 1 if
one point holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.linalg.distances import power_of_two

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Share of the points. Ten methods with 8 to 20 neighbors have .2 to .9 on rolls, sheets and digits; Hessian LLE has .01
# to .1 where too many neighbors make it collapse.
CONCENTRATED = 0.1


def participation_ratio(Y: NDArray[np.float64]) -> float:
    """Return the number of points that share the extent of an embedding Y (n, p), from 1 to n; 0 without extent."""
    off = Y - Y.mean(axis=0)
    off = off / power_of_two(float(np.abs(off).max()))
    energy = (off * off).sum(axis=1)
    squares = float((energy * energy).sum())
    return float(energy.sum()) ** 2 / squares if squares else 0.0


def concentration_notes(Y: NDArray[np.float64]) -> tuple[Note, ...]:
    """Return the note on a collapsed embedding."""
    n, shared = len(Y), participation_ratio(Y)
    if shared >= CONCENTRATED * n:
        return ()
    return (
        Note(
            "collapsed",
            f"Few points hold most of the embedding's extent: the participation ratio of the squared distances from "
            f"the mean is {shared:.3g} of {n} points. The others lie close together. Change n_neighbors or the "
            "method, or look for outliers in the data.",
        ),
    )
