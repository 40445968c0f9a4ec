"""Find the scale at which draws of a posterior vary as much as LLE's embedding would over new samples of the data.

The variation over new samples is estimated from the data alone, by half-sampling (the delete-half jackknife): LLE
embeds random halves of the data (`glle_engine.reliability.resamples`).

`calibrate` searches for the scale a at which the median spread of draws equals the median spread of half-samples. The
spread of draws is nearly a power of the scale, so that a few secant steps in logarithms find a. If the exponent is
small, as with large noise, the spread hardly depends on the scale, so that no scale can be identified; the result then
has `saturated` True.

Draws at the calibrated scale are ordinary draws, a pure function of their arguments:

    scale = calibrate(posterior, X).scale
    draws = posterior.draws(100, scale=scale)

Half-sampling cannot detect bias: an error that LLE makes in every sample alike causes no spread.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import brief
from glle_engine.base.texts import Note, Way
from glle_engine.linalg import dense
from glle_engine.linalg.rank_correlation import rank_correlation
from glle_engine.reliability.alignment import MIN_EMBEDDINGS, Alignment
from glle_engine.reliability.resamples import PosteriorEmbedder, resample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.posterior.posterior import Posterior

HALF_SAMPLES = 20
CALIBRATION_DRAWS = 40
MAX_TRIED_SCALES = 6  # the search for the scale ends after it has tried this many scales
# The search ends when the medians differ by at most this share, which is below the error of 20 half-samples.
MEDIAN_TOLERANCE = 0.1
# Below this slope of log spread over log scale, the scale hardly matters; usual slopes are about .5.
MIN_SPREAD_SLOPE = 0.2
LARGEST, SMALLEST = 1e3, 1e-6  # limits of the scales that are tried
POORLY_CORRELATED = "scale-poorly-correlated"
# At a lower rank correlation, the two spreads share less than a quarter of the variance of their ranks.
MIN_RANK_CORRELATION = 0.5


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scale of a posterior's draws at which they spread as half-samples do, and how well the two spreads agree.

    Half-samples are embeddings of random halves of the data. The spread of a point is the root of the trace of the
    covariance of its position.

    Attributes
    ----------
    scale : float
        The factor on the covariance of the drawn weights at which the draws spread as half-samples do.
    ratio : float
        Median spread of draws at the scale, divided by the median spread of half-samples.
    rank_correlation : float
        Spearman's correlation, over the points, of the spread of draws and the spread of half-samples; 0 if either
        spread is constant.
    slope : float or None
        Measured d log spread / d log scale; None if scale 1, which is tried first, was accepted.
    saturated : bool
        Whether the medians agree at no scale, because the spread of draws hardly depends on the scale (slope below .2).
    half_sample_spread : (n,) float64
        Root of the trace of the covariance of each point's position over half-samples.
    draw_spread : (n,) float64
        Root of the trace of the covariance of each point's position over draws at the scale.
    trace : tuple of (scale, ratio)
        All scales that were tried, in order, each with its ratio of the medians.

    """

    scale: float
    ratio: float
    rank_correlation: float
    slope: float | None
    saturated: bool
    half_sample_spread: NDArray[np.float64]
    draw_spread: NDArray[np.float64]
    trace: tuple[tuple[float, float], ...]

    __repr__ = brief

    @property
    def notes(self) -> tuple[Note, ...]:
        """Warnings for a user of the scale.

        There is one if at no scale the median spread of draws equals that of half-samples, and one if draws and
        half-samples disagree about which points are uncertain.
        """
        return tuple(self._warnings())

    def _warnings(self) -> Iterator[Note]:
        times = f"The median spread of draws is {self.ratio:.2g} times the spread of half-samples"
        if self.saturated:
            yield Note(
                "scale-saturated",
                "No scale can be identified, because the spread of draws hardly depends on it (slope "
                f"{self.slope:.2g} in logarithms). {times} at the scale {self.scale:.3g}, the closest one "
                f"tried. Raise {Way('n_neighbors')} or lower {Way('n_components')}, and compare spreads "
                "within this posterior only.",
            )
        elif not _is_close(self.ratio):
            yield Note(
                "scale-not-matched",
                f"{times} at the scale {self.scale:.3g}, the closest of {len(self.trace)} tried. Multiply or divide "
                "spreads by this factor, or compare them within this posterior only.",
            )
        if self.rank_correlation < MIN_RANK_CORRELATION:
            yield Note(
                POORLY_CORRELATED,
                f"Draws and half-samples disagree about which points are uncertain (rank correlation "
                f"{self.rank_correlation:.2f}). The scale {self.scale:.3g} matches the median spread only: do not rank "
                "single points by their spread.",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the notes as a JSON-able dictionary, without the two arrays of spreads."""
        arrays = {"half_sample_spread", "draw_spread"}
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in arrays}
        notes = [note.to_dict() for note in self.notes]
        return {**values, "trace": [list(pair) for pair in self.trace], "notes": notes}


def calibrate(
    posterior: Posterior,
    X: ArrayLike,
    *,
    n_resamples: int = HALF_SAMPLES,
    n_draws: int = CALIBRATION_DRAWS,
    seed: int = 0,
    halves: NDArray[np.float64] | None = None,
    on_progress: OnProgress = silent,
) -> Calibration:
    """Find the scale at which draws of a posterior spread as embeddings of halves of the data do.

    Parameters
    ----------
    posterior : Posterior
        A posterior of the constrained variant.
    X : (n, d)
        The training data.
    n_resamples, n_draws : int
        How many half-samples, and how many draws at each scale that is tried; at least 4 of each.
    seed : int
        Seed of the half-samples and of the draws.
    halves : (m, n, p) float64, optional
        Embeddings of half-samples 0, ..., m - 1 of the seed, from `resample` with the stream `HALVES`, if the caller
        has computed them already; the first `n_resamples` are used.
    on_progress
        Called with (half-samples done, all, "half-samples") and then with (scales tried, at most 6, "calibration").

    Raises
    ------
    InvalidParameterError
        For a posterior of the published variant, or one that was fitted with neighbors of the caller, which cannot be
        calibrated; for too few points; or if at least half of the points have the same position in all half-samples or
        in all draws, so that the median spread is 0.
    DataMismatchError
        If X is not the data of the fit.

    """
    n_resamples = check_integer("n_resamples", n_resamples, MIN_EMBEDDINGS)
    n_draws = check_integer("n_draws", n_draws, MIN_EMBEDDINGS)
    embed = PosteriorEmbedder.from_posterior(posterior, X)
    if halves is None:
        halves = resample(embed, n_resamples, seed=seed, strict=True, on_progress=on_progress).places
    half_sample_spread = _spread("half-samples", halves[:n_resamples], posterior.embedding)
    trace: list[tuple[float, float]] = []
    spreads: list[NDArray[np.float64]] = []
    scale, slope = 1.0, None
    for step in range(MAX_TRIED_SCALES):
        drawn = np.empty((n_draws, *posterior.embedding.shape))
        for index, draw in enumerate(posterior.draws(n_draws, seed=seed, scale=scale)):
            drawn[index] = draw.embedding
            on_progress(step, MAX_TRIED_SCALES, "calibration")
        spreads.append(_spread("draws", drawn, posterior.embedding))
        trace.append((scale, float(np.median(spreads[-1])) / float(np.median(half_sample_spread))))
        on_progress(step + 1, MAX_TRIED_SCALES, "calibration")
        if _is_close(trace[-1][1]):
            break
        below = [pair for pair in trace if pair[1] < 1]
        above = [pair for pair in trace if pair[1] >= 1]
        if len(trace) > 1:
            slope = _slope(trace)
        if below and above:  # interpolate between the two scales with the ratios nearest to 1 on either side
            scale = _between(max(below, key=lambda pair: pair[1]), min(above, key=lambda pair: pair[1]))
        elif slope is not None and slope < MIN_SPREAD_SLOPE:
            break
        else:
            step_size = -dense.log(trace[-1][1]) / (slope or 0.5)
            scale = min(max(scale * dense.exp(min(max(step_size, -3.0), 3.0)), SMALLEST), LARGEST)
    best = int(np.argmin([abs(dense.log(ratio)) for _, ratio in trace]))
    return Calibration(
        scale=trace[best][0],
        ratio=trace[best][1],
        rank_correlation=rank_correlation(spreads[best], half_sample_spread),
        slope=slope,
        saturated=bool(slope is not None and slope < MIN_SPREAD_SLOPE and not _is_close(trace[best][1])),
        half_sample_spread=half_sample_spread,
        draw_spread=spreads[best],
        trace=tuple(trace),
    )


def _spread(kind: str, embeddings: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each point moves (n,) between embeddings (m, n, p) that are aligned to a reference (n, p).

    Raises `InvalidParameterError`, which names the `kind` of embeddings, if the median of the result is 0.
    """
    spread = Alignment.from_maps(embeddings, reference).spread
    if not np.median(spread):
        raise InvalidParameterError(
            f"The median spread of {kind} is 0, so that no scale can match it.",
            remedy="Give the scale as a number, or check that most points of the data differ.",
        )
    return spread


def _is_close(ratio: float) -> bool:
    """Return whether the ratio of two median spreads is close enough to 1 to accept a scale."""
    return 1 / (1 + MEDIAN_TOLERANCE) <= ratio <= 1 + MEDIAN_TOLERANCE


def _between(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the scale at which the ratio of spreads is 1, by log-linear interpolation of two pairs (scale, ratio)."""
    x0, x1, y0, y1 = (dense.log(value) for value in (a[0], b[0], a[1], b[1]))
    return dense.exp(x0 - y0 * (x1 - x0) / (y1 - y0))


def _slope(trace: Sequence[tuple[float, float]]) -> float:
    """Return d log ratio / d log scale between the last pair and the earlier pair whose scale is nearest to its scale.

    The pairs are (scale, ratio), where the ratio is the median spread of draws at this scale, divided by the median
    spread of half-samples. Returns 0 if the two scales are equal.
    """
    (last, ratio), others = trace[-1], trace[:-1]
    near, other = min(others, key=lambda pair: abs(dense.log(pair[0] / last)))
    return dense.log(ratio / other) / dense.log(last / near) if near != last else 0.0
