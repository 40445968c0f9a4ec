"""Movement of an embedding when its method is refitted to half-samples of the data.

May import the other modules of `glle_engine.methods` but its registry. Read `samples.py` first, then `movement.py`;
`reliability.py` says how far to rely on it.
"""

from glle_engine.methods.resampling.movement import LEAST, MOST_CLASSES, Movement, MovementFigures, movement
from glle_engine.methods.resampling.reliability import MovementReliability
from glle_engine.methods.resampling.samples import (
    HALF,
    HALF_SAMPLES,
    REFITS,
    SHARES,
    Resamples,
    cost,
    half_samples,
    refits,
    require_resamplable,
    shrunk,
)

__all__ = [
    "HALF",
    "HALF_SAMPLES",
    "LEAST",
    "MOST_CLASSES",
    "REFITS",
    "SHARES",
    "Movement",
    "MovementFigures",
    "MovementReliability",
    "Resamples",
    "cost",
    "half_samples",
    "movement",
    "refits",
    "require_resamplable",
    "shrunk",
]
