r"""Reliability of an ensemble spread: whether points may be ranked by it.

Three figures, each a rank correlation of two spreads over points:

- *reliability* :math:`R`, of two random halves of the embeddings, corrected to all of them: halves that correlate by r
  have :math:`R = 2 r / (1 + r)` (Spearman and Brown, 1910). It is near 1 if there are enough embeddings. Its root is
  the *ceiling*: no quantity is expected to correlate more with this spread.
- *agreement* :math:`A`, of draws and resamples. Both estimate the spread over new samples, draws by a model and
  resamples without one, so that they disagree where the data do not determine it.
- *expected* :math:`R A`, an estimate of the correlation of the ensemble's spread with that over new samples. There is
  no theorem behind the product: it was chosen on nine settings and checked on others, see
  docs/explanation/honesty.md.
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
HIGH, MODERATE = 0.75, 0.6  # of the expected correlation
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
        Expected rank correlation of the spread with that over new samples of the data: reliability times agreement.
    reliability : float in [0, 1]
        Of the spread over the embeddings, by random halves of them.
    ceiling : float in [0, 1]
        Root of the reliability.
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
    split_half = []
    for split in range(SPLITS):
        first, second = zip(*(_halves(stack, split) for stack in stacks), strict=True)
        r = _correlation(_spread(first, factors), _spread(second, factors))
        split_half.append(2 * max(r, 0.0) / (1 + max(r, 0.0)))
        on_progress(split + 1, SPLITS, "reliability")
    reliable = sum(split_half) / SPLITS
    agreement = _correlation(_spread(stacks[:1], factors[:1]), _spread(stacks[1:], factors[1:]))
    return stated(reliable, agreement, saturated=saturated)


def stated(reliable: float, agreement: float, *, saturated: bool = False) -> Reliability:
    """Return the statement for a reliability in [0, 1] and an agreement in [-1, 1]."""
    expected = reliable * max(agreement, 0.0)
    level: Level = "high" if expected >= HIGH else "moderate" if expected >= MODERATE else "low"
    return Reliability(
        level=level,
        reason=" ".join(_sentences(level, reliable, agreement, saturated=saturated)),
        expected=expected,
        reliability=reliable,
        ceiling=math.sqrt(reliable),
        agreement=agreement,
        saturated=saturated,
    )


def _sentences(level: Level, reliable: float, agreement: float, *, saturated: bool) -> Iterator[str]:
    figures = f"(rank correlation {agreement:.2f})"
    if level == "high":
        yield f"Draws and resamples agree which points are uncertain {figures}, so that points can be ranked by spread."
    elif level == "moderate":
        yield (
            f"Draws and resamples agree roughly which points are uncertain {figures}. Compare groups of points by "
            "spread, not single points."
        )
    else:
        yield (
            f"The data do not determine which points are uncertain: draws and resamples agree little {figures}. Do not "
            "rank points by spread; its median is still the typical movement of a point."
        )
    if reliable < ENOUGH:
        yield (
            f"Halves of the embeddings disagree (reliability {reliable:.2f}): take more draws and resamples, or expect "
            "spreads that are nearly equal for all points."
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


def _spread(stacks: Sequence[NDArray[np.float64]], factors: Sequence[float]) -> NDArray[np.float64]:
    return root_trace(mean_covariance([moments(stack)[1] for stack in stacks], factors))


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the rank correlation of two spreads; 0 if one is constant."""
    r = rank_correlation(a, b)
    return 0.0 if math.isnan(r) else r
