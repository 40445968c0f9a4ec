r"""Reliability of an ensemble spread: whether points may be ranked by it.

All figures are rank correlations of two spreads over points. Random halves of the embeddings, whose spreads correlate
by r, give the reliability of f times as many embeddings as a half: :math:`f r / (1 + (f - 1) r)` (Spearman and Brown,
1910).

- *reliability*: of the ensemble with all its embeddings, f = 2. It is near 1 if there are enough embeddings. Its root
  is the *ceiling*: no quantity is expected to correlate more with this spread.
- *reproducibility* :math:`R`: of the spread of 20 resamples of one kind, the mean over the kinds, whatever their
  number. It is low if points hardly differ, or if few resamples determine the spread.
- *agreement* :math:`A`, of draws and resamples. Both estimate the spread over new samples, draws by a model and
  resamples without one, so that they disagree where the data do not determine it.
- *expected* :math:`\sqrt{R A}`, an estimate of the correlation of the ensemble's spread with that over new samples.
  There is no theorem behind the geometric mean: it and the limits of the words were chosen on nine settings, and
  checked on others that were chosen afterwards (docs/explanation/honesty.md).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.base.brief import brief
from glle_engine.base.diagnostics import Note
from glle_engine.base.progress import OnProgress, silent
from glle_engine.posterior.spread.calibration import rank_correlation
from glle_engine.posterior.spread.regions import mean_covariance, root_trace
from glle_engine.posterior.summary import moments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Level = Literal["high", "moderate", "low"]
SPLITS = 6
HIGH, MODERATE = 0.8, 0.65  # of the expected correlation
STANDARD = 20  # resamples, so that the reproducibility does not depend on their number
ENOUGH = 0.9  # reliability: below it, more embeddings help


@dataclass(frozen=True)
class Reliability:
    """Statement on how far to rely on a spread.

    Attributes
    ----------
    level : {"high", "moderate", "low"}
        The statement in one word.
    reason : str
        The statement in one or two sentences.
    expected : float in [0, 1]
        Expected rank correlation of the spread with that over new samples of the data.
    reliability : float in [0, 1]
        Of the spread over the embeddings, by random halves of them.
    ceiling : float in [0, 1]
        Root of the reliability.
    reproducibility : float in [0, 1]
        Of the spread of 20 resamples of one kind.
    agreement : float in [-1, 1]
        Rank correlation of the spread of draws with that of resamples; 0 if one of them is constant.
    saturated : bool
        Whether the scale of the draws could not be identified.

    """

    level: Level
    reason: str
    expected: float
    reliability: float
    ceiling: float
    reproducibility: float
    agreement: float
    saturated: bool

    __repr__ = brief

    @property
    def notes(self) -> tuple[Note, ...]:
        """A note if the level is low."""
        return (Note("spread-unreliable", self.reason),) if self.level == "low" else ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-able dictionary."""
        return asdict(self)


def reliability(
    stacks: Sequence[NDArray[np.float64]],
    factors: Sequence[float],
    *,
    saturated: bool = False,
    on_progress: OnProgress = silent,
) -> Reliability:
    """Return the reliability of the spread of an ensemble.

    Parameters
    ----------
    stacks : sequence of (m, n, p) float64
        Aligned embeddings: draws first, then the kinds of resamples; at least 4 in each.
    factors : sequence of float
        On the covariance of each stack.
    saturated : bool
        `Calibration.saturated` of the scale of the draws.
    on_progress
        Called with (splits done, splits, "reliability").

    """
    pairs: list[list[float]] = []  # for each split, of the ensemble and of each kind of resamples
    for split in range(SPLITS):
        halves = [_halves(stack, split) for stack in stacks]
        first, second = ([moments(half[side])[1] for half in halves] for side in (0, 1))
        whole = _correlation(mean_covariance(first, factors), mean_covariance(second, factors))
        pairs.append([whole, *(_correlation(a, b) for a, b in zip(first[1:], second[1:], strict=True))])
        on_progress(split + 1, SPLITS, "reliability")
    whole, *kinds = (sum(column) / SPLITS for column in zip(*pairs, strict=True))
    each = [corrected(r, STANDARD / (len(stack) // 2)) for r, stack in zip(kinds, stacks[1:], strict=True)]
    drawn = moments(stacks[0])[1]
    resampled = mean_covariance([moments(stack)[1] for stack in stacks[1:]], factors[1:])
    return stated(corrected(whole, 2), sum(each) / len(each), _correlation(drawn, resampled), saturated=saturated)


def corrected(r: float, times: float) -> float:
    """Return the reliability of a number of times as many embeddings as those that correlate by r; 0 for r below 0."""
    return times * r / (1 + (times - 1) * r) if r > 0 else 0.0


def stated(reliable: float, reproducible: float, agreement: float, *, saturated: bool = False) -> Reliability:
    """Return the statement for a reliability and a reproducibility in [0, 1] and an agreement in [-1, 1]."""
    expected = math.sqrt(reproducible * max(agreement, 0.0))
    level: Level = "high" if expected >= HIGH else "moderate" if expected >= MODERATE else "low"
    return Reliability(
        level=level,
        reason=" ".join(_sentences(level, reliable, reproducible, agreement, saturated=saturated)),
        expected=expected,
        reliability=reliable,
        ceiling=math.sqrt(reliable),
        reproducibility=reproducible,
        agreement=agreement,
        saturated=saturated,
    )


def _sentences(
    level: Level, reliable: float, reproducible: float, agreement: float, *, saturated: bool
) -> Iterator[str]:
    cause = (
        f"draws and resamples have the rank correlation {agreement:.2f}, and different resamples of the data "
        f"{reproducible:.2f}"
    )
    if level == "high":
        yield f"Points can be ranked by their spread: {cause}."
    elif level == "moderate":
        yield f"Compare groups of points by their spread, not single points: {cause}."
    else:
        yield (
            f"Do not rank points by their spread, because the data hardly determine which of them are more uncertain: "
            f"{cause}. The median spread is still the typical movement of a point."
        )
    if reliable < ENOUGH:
        yield (
            f"More draws and resamples would help (reliability {reliable:.2f}), unless all points are equally "
            "uncertain."
        )
    if saturated:
        yield (
            "The scale of the draws is saturated: their spread hardly depends on it, so that only the resamples "
            "determine its size."
        )


def _halves(stack: NDArray[np.float64], split: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two random halves of a stack, the same for the same length and split."""
    rng = np.random.Generator(np.random.Philox(key=np.array([split, len(stack)], np.uint64)))
    order, half = rng.permutation(len(stack)), len(stack) // 2
    return stack[np.sort(order[:half])], stack[np.sort(order[half:])]


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the rank correlation of the spreads of two covariances (n, p, p); 0 if one spread is constant."""
    r = rank_correlation(root_trace(first), root_trace(second))
    return 0.0 if math.isnan(r) else r
