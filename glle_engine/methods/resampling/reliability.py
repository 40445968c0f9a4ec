r"""Reliability of the movement of any method: whether points may be ranked by it.

The movements over two random halves of the refits have a rank correlation over points. By Spearman and Brown (1910) it
gives the correlation of two sets of 20 half-samples, the *reproducibility*, and that of two sets as large as this one,
the *reliability*. No quantity is expected to correlate more with this movement than the root of its reliability.

These figures see the noise of resampling alone. One sample does not show whether movement over half-samples ranks
points as movement over new data does (docs/reference/methods.md has measurements). Where the seed explains most of the
variance, the word is at best "moderate".
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.brief import brief
from glle_engine.posterior.spread.calibration import rank_correlation
from glle_engine.posterior.spread.reliability import ENOUGH, HIGH, MODERATE, SPLITS, STANDARD, Level, corrected
from glle_engine.posterior.summary import moments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MOSTLY = 0.5  # share of the variance by the seed, above which it hides the data


@dataclass(frozen=True)
class MovementReliability:
    """Statement on how far to rely on the order of points by their movement.

    Attributes
    ----------
    level : {"high", "moderate", "low"}
        The statement in one word.
    reason : str
        The statement in one or two sentences.
    reliability : float in [0, 1]
        Of the movement over its half-samples, by random halves of them.
    ceiling : float in [0, 1]
        Root of the reliability.
    reproducibility : float in [0, 1]
        Of the movement over 20 half-samples.

    """

    level: Level
    reason: str
    reliability: float
    ceiling: float
    reproducibility: float

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-able dictionary."""
        return asdict(self)


def reliability(aligned: NDArray[np.float64], seed_share: float = 0.0) -> MovementReliability:
    """Return the reliability of the movement over aligned embeddings (m, n, p), m at least 4.

    Parameters
    ----------
    seed_share : float in [0, 1]
        Share of the variance that other seeds explain.

    """
    half, total = len(aligned) // 2, 0.0
    for split in range(SPLITS):
        rng = np.random.Generator(np.random.Philox(key=np.array([split, len(aligned)], np.uint64)))
        order = rng.permutation(len(aligned))
        r = rank_correlation(*(_movement(aligned[np.sort(part)]) for part in (order[:half], order[half:])))
        total += 0.0 if math.isnan(r) else r
    return stated(corrected(total / SPLITS, 2), corrected(total / SPLITS, STANDARD / half), seed_share)


def stated(reliable: float, reproducible: float, seed_share: float = 0.0) -> MovementReliability:
    """Return the statement for a reliability and a reproducibility in [0, 1]."""
    level: Level = "high" if reproducible >= HIGH else "moderate" if reproducible >= MODERATE else "low"
    if seed_share >= MOSTLY and level == "high":
        level = "moderate"
    return MovementReliability(
        level=level,
        reason=" ".join(_sentences(level, reliable, reproducible, seed_share)),
        reliability=reliable,
        ceiling=math.sqrt(reliable),
        reproducibility=reproducible,
    )


def _movement(part: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root of the trace of each point's covariance (n,)."""
    return np.asarray(np.sqrt(np.trace(moments(part)[1], axis1=1, axis2=2)))


def _sentences(level: Level, reliable: float, reproducible: float, seed_share: float) -> Iterator[str]:
    cause = f"the movements over different half-samples have the rank correlation {reproducible:.2f}"
    if level == "high":
        yield f"Half-samples rank points alike by their movement: {cause}. New data may rank them otherwise."
    elif level == "moderate":
        yield f"Compare groups of points by their movement, not single points: {cause}."
    else:
        yield (
            f"Do not rank points by their movement: {cause}. The median movement is still that of a typical point on "
            "half of the data."
        )
    if seed_share >= MOSTLY:
        yield f"{seed_share:.0%} of the variance is that of the seed."
    if reliable < ENOUGH:
        yield f"More half-samples would help (reliability {reliable:.2f}), unless all points move alike."
