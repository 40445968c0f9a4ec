r"""State how far to rely on a spread: a level and its reason.

All numbers are rank correlations of two spreads over points.

- *reliability* of the spread over all its embeddings (`alignment`): near 1 if there are enough embeddings. The root of
  it is the *ceiling*: we expect no quantity to correlate more with this spread.
- *reproducibility* :math:`R`: the reliability of the spread over 20 resamples of one kind, averaged over the kinds,
  whatever the number of resamples. It is low if points hardly differ, or if few resamples determine the spread.
- *agreement* :math:`A` of draws and resamples. Both estimate the spread over new samples, draws by a model and
  resamples without one. They disagree where the data do not determine the spread.
- *expected* :math:`\sqrt{R A}`: an estimate of the correlation between the ensemble's spread and the spread over new
  samples. There is no theorem behind the geometric mean. It and the thresholds were chosen on nine settings, and
  checked on others that were chosen afterwards (docs/explanation/honesty.md).

The movement of a method has no draws. Its level covers the noise of resampling alone: one sample does not show whether
movement over half-samples ranks points as movement over new data does (docs/reference/methods.md has measurements).
Where the seed explains most of the variance, the level is at best "moderate".
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import Note, brief
from glle_engine.reliability.alignment import mean_covariance, spearman_brown, spread_correlation
from glle_engine.reliability.thresholds import HIGH_CORRELATION, MODERATE_CORRELATION

if TYPE_CHECKING:
    from glle_engine.reliability.alignment import Alignment

Level = Literal["high", "moderate", "low"]
STANDARD = 20  # resamples, so that the reproducibility does not depend on their number
SUFFICIENT_RELIABILITY = 0.9  # below it, more embeddings help
MOSTLY = 0.5  # share of the variance by the seed, above which it hides the data
_SPREAD = {
    "high": "Points can be ranked by their spread: {}",
    "moderate": "Compare groups of points by their spread, not single points: {}",
    "low": "Do not rank points by their spread, because the data hardly determine which of them are more uncertain: {} "
    "The median spread is still the typical movement of a point.",
}
_MOVEMENT = {
    "high": "Half-samples rank points alike by their movement: {} New data may rank them otherwise.",
    "moderate": "Compare groups of points by their movement, not single points: {}",
    "low": "Do not rank points by their movement: {} The median movement still describes a typical point on half of "
    "the data.",
}


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Statement on how far to rely on the order of points by their movement.

    Attributes
    ----------
    level : {"high", "moderate", "low"}
        How far to rely on the order of the points.
    reason : str
        The statement in one or two sentences.
    reliability : float in [0, 1]
        Of the spread over its embeddings, by random halves of them.
    reproducibility : float in [0, 1]
        Of the spread of 20 resamples of one kind.

    """

    level: Level
    reason: str
    reliability: float
    reproducibility: float

    __repr__ = brief

    @property
    def ceiling(self) -> float:
        """Root of the reliability."""
        return math.sqrt(self.reliability)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the ceiling as a JSON-able dictionary."""
        return {**asdict(self), "ceiling": self.ceiling}


@dataclass(frozen=True, kw_only=True)
class SpreadReliability(Reliability):
    """Statement on how far to rely on the spread of an ensemble of draws and resamples.

    Attributes
    ----------
    expected : float in [0, 1]
        Expected rank correlation between this spread and the spread over new samples of the data.
    agreement : float in [-1, 1]
        Rank correlation of the spread of draws with the spread of resamples; 0 if one of them is constant.
    saturated : bool
        Whether the scale of the draws could not be identified.

    """

    expected: float
    agreement: float
    saturated: bool

    __repr__ = brief

    @property
    def notes(self) -> tuple[Note, ...]:
        """A note if the level is low."""
        return (Note("spread-unreliable", self.reason),) if self.level == "low" else ()


def spread_reliability(
    aligned: Alignment, *, saturated: bool = False, on_progress: OnProgress = silent
) -> SpreadReliability:
    """Return the reliability of the spread of an ensemble: draws first, then the kinds of resamples.

    `saturated` is `Calibration.saturated` of the scale of the draws. `on_progress` is called with (splits done, splits,
    "reliability").
    """
    whole, _, *kinds = aligned.split_half_correlations(on_progress)
    each = [spearman_brown(r, STANDARD / (len(kind) // 2)) for r, kind in zip(kinds, aligned.kinds[1:], strict=True)]
    drawn, *covariances = aligned.covariances
    agreement = spread_correlation(drawn, mean_covariance(covariances, aligned.factors[1:]))
    return state_spread(spearman_brown(whole, 2), sum(each) / len(each), agreement, saturated=saturated)


def movement_reliability(aligned: Alignment, seed_share: float = 0.0) -> Reliability:
    """Return the reliability of the movement over one kind of embeddings.

    `seed_share` in [0, 1] is the share of the variance that other seeds explain.
    """
    r, *_ = aligned.split_half_correlations()
    return state_movement(spearman_brown(r, 2), spearman_brown(r, STANDARD / (len(aligned.kinds[0]) // 2)), seed_share)


def state_spread(
    reliable: float, reproducible: float, agreement: float, *, saturated: bool = False
) -> SpreadReliability:
    """Return the statement for a reliability and a reproducibility in [0, 1] and an agreement in [-1, 1]."""
    expected = math.sqrt(reproducible * max(agreement, 0.0))
    level = _level(expected)
    reason = _SPREAD[level].format(
        f"draws and resamples have the rank correlation {agreement:.2f}, and different resamples of the data "
        f"{reproducible:.2f}."
    )
    if reliable < SUFFICIENT_RELIABILITY:
        reason += (
            f" More draws and resamples would help (reliability {reliable:.2f}), unless all points are equally "
            "uncertain."
        )
    if saturated:
        reason += (
            " The scale of the draws is saturated: their spread hardly depends on it, so that only the resamples "
            "determine its size."
        )
    return SpreadReliability(
        level=level,
        reason=reason,
        expected=expected,
        reliability=reliable,
        reproducibility=reproducible,
        agreement=agreement,
        saturated=saturated,
    )


def state_movement(reliable: float, reproducible: float, seed_share: float = 0.0) -> Reliability:
    """Return the statement for a reliability and a reproducibility in [0, 1]."""
    level = _level(reproducible)
    if seed_share >= MOSTLY and level == "high":
        level = "moderate"
    reason = _MOVEMENT[level].format(
        f"the movements over different half-samples have the rank correlation {reproducible:.2f}."
    )
    if seed_share >= MOSTLY:
        reason += f" {seed_share:.0%} of the variance comes from the seed."
    if reliable < SUFFICIENT_RELIABILITY:
        reason += f" More half-samples would help (reliability {reliable:.2f}), unless all points move alike."
    return Reliability(level=level, reason=reason, reliability=reliable, reproducibility=reproducible)


def _level(value: float) -> Level:
    return "high" if value >= HIGH_CORRELATION else "moderate" if value >= MODERATE_CORRELATION else "low"
