r"""Ensemble spread: the mean of four estimates of how far points move over new samples of the data.

.. math::

    C_i = \tfrac{1}{4} \big[C_i(\text{draws at } a^*) + C_i(\tfrac12, k) + C_i(\tfrac12, \kappa) + C_i(.632, k)\big],

where :math:`C_i(\varphi, k)` is the covariance of point i over embeddings of :math:`\varphi n` points
(`glle_engine.reliability.resamples`), :math:`\kappa` is log-uniform on [.7 k, 1.5 k] for each of them, and :math:`a^*`
is the calibrated scale of the draws. This is an empirical calibration: no theory says that these covariances equal the
covariances over samples, but redrawn data do (docs/explanation/honesty.md). All embeddings are aligned together by
generalised Procrustes analysis (Gower 1975), which starts from the reference: from one of the embeddings it more often
ends in a poor minimum. The four estimates err on different points, so that their mean ranks points better than any of
them.

Cost: with the default numbers the time of 110 to 130 fits of the posterior, on one core (measured at n = 800 and 2,000,
neighbor search included). Nearly all of it are resamples, each about .8 of a fit, which can be computed anywhere:
`resample` computes any range of a stream, and `combine` needs only the embeddings.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import Note, PointResult, brief
from glle_engine.linalg.procrustes import root_trace
from glle_engine.posterior.summary import Summary, summarize
from glle_engine.reliability.alignment import MIN_EMBEDDINGS, Alignment, Regions, calibrated_regions
from glle_engine.reliability.calibration import HALF_SAMPLES, POORLY_CORRELATED, Calibration, calibrate
from glle_engine.reliability.resamples import STREAMS, PosteriorEmbedder, resample
from glle_engine.reliability.statements import SpreadReliability, spread_reliability

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.posterior.posterior import Posterior

DRAWS = 100
RESAMPLES = 40  # resamples of each stream
# Median spread of half-samples over the spread of larger samples: .88 to 1.28 if the embedding is stable.
UNSTABLE = 1.38


@dataclass(frozen=True, eq=False, kw_only=True)
class Ensemble(PointResult):
    """Spread of n points over new samples of the data, by draws and resamples.

    Attributes
    ----------
    consensus : (n, p) float64
        Mean of the mean places of the four kinds of embeddings.
    covariance : (n, p, p) float64
        Mean of the four covariances.
    spread : (n,) float64
        Root of the trace of that covariance, in units of the embedding, whose coordinates have unit variance.
    draw_spread, half_sample_spread, random_k_spread, larger_sample_spread : (n,) float64
        The same of each covariance.
    regions : Regions
        50 % and 90 % regions around the reference, for the mean place of a point over samples. `Regions.of_new_sample`
        has the regions of its position in one new sample.
    reliability : SpreadReliability
        Whether to rely on the spread.
    n_draws, n_resamples : int
        Draws, and resamples of each stream.
    calibration : Calibration, optional
        Of the scale of the draws; None for given embeddings.
    draws : Summary, optional
        The summary of the draws alone; None for given embeddings.
    notes : tuple of Note
        Warnings in words, the one on a low reliability first.

    """

    consensus: NDArray[np.float64]
    covariance: NDArray[np.float64]
    spread: NDArray[np.float64]
    draw_spread: NDArray[np.float64]
    half_sample_spread: NDArray[np.float64]
    random_k_spread: NDArray[np.float64]
    larger_sample_spread: NDArray[np.float64]
    regions: Regions
    reliability: SpreadReliability
    n_draws: int
    n_resamples: int
    calibration: Calibration | None = None
    draws: Summary | None = None
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    @property
    def stability(self) -> NDArray[np.float64] | None:
        """Mean share (n,) of a point's neighbors that are its neighbors in a draw (`Summary.stability`)."""
        return None if self.draws is None else self.draws.stability

    def to_dict(self) -> dict[str, Any]:
        """Return all but the arrays as a JSON-able dictionary."""
        return {
            "n_draws": self.n_draws,
            "n_resamples": self.n_resamples,
            "regions": self.regions.to_dict(),
            "reliability": self.reliability.to_dict(),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "notes": [asdict(note) for note in self.notes],
        }

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return every array by name, the half-axes of the regions as "half_axes"."""
        names = ("consensus", "covariance", "spread", "draw_spread", "half_sample_spread", "random_k_spread")
        arrays = {name: getattr(self, name) for name in (*names, "larger_sample_spread")}
        if self.stability is not None:
            arrays["stability"] = self.stability
        return {**arrays, "half_axes": self.regions.half_axes}


def combine(
    draws: NDArray[np.float64],
    resamples: Sequence[NDArray[np.float64]],
    reference: NDArray[np.float64],
    *,
    saturated: bool = False,
    on_progress: OnProgress = silent,
) -> Ensemble:
    """Return the ensemble of given embeddings.

    All embeddings, and two copies of them, are in memory at once.

    Parameters
    ----------
    draws : (m, n, p) float64
        At the calibrated scale; at least 4.
    resamples : sequence of three (m, n, p) float64
        Those of the streams `STREAMS`; at least 4 each.
    reference : (n, p) float64
        `Posterior.embedding`.
    saturated : bool
        `Calibration.saturated` of the scale.
    on_progress
        Called with (done, total, stage). An exception that it raises cancels the computation.

    Raises
    ------
    InvalidShapeError
        For fewer than 4 embeddings of a kind, or of another shape than the reference.

    """
    kinds = (draws, *resamples)
    aligned = Alignment.from_maps(kinds, reference, (1.0,) * len(kinds), start=reference, on_progress=on_progress)
    spreads = [root_trace(part) for part in aligned.covariances]
    reliability = spread_reliability(aligned, saturated=saturated, on_progress=on_progress)
    means = [mean for mean, _ in aligned.moments]
    return Ensemble(
        consensus=sum(means[1:], start=means[0]) / len(means),
        covariance=aligned.covariance,
        spread=aligned.spread,
        draw_spread=spreads[0],
        half_sample_spread=spreads[1],
        random_k_spread=spreads[2],
        larger_sample_spread=spreads[3],
        regions=calibrated_regions(aligned, on_progress),
        reliability=reliability,
        n_draws=len(draws),
        n_resamples=min(map(len, resamples)),
        notes=(*reliability.notes, *_unstable(spreads[1], spreads[3])),
    )


def ensemble(
    posterior: Posterior,
    X: ArrayLike,
    *,
    n_draws: int = DRAWS,
    n_resamples: int = RESAMPLES,
    first: int = 0,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> Ensemble:
    """Compute the ensemble spread of a posterior from its data.

    `calibrate` finds the scale of the draws with its defaults. The ensemble uses its half-samples, too.

    Parameters
    ----------
    posterior : Posterior
        Of the constrained variant.
    X : (n, d)
        The training data.
    n_draws, n_resamples : int
        Draws at the calibrated scale, and resamples of each of three streams; at least 4.
    first : int
        Index of the first draw.
    seed : int
        Of the draws and of the resamples; the calibration has seed 0.
    on_progress
        Called with (done, total, stage). An exception that it raises cancels the computation.

    Raises
    ------
    InvalidParameterError
        For a posterior that cannot be calibrated, too few points, draws or resamples.
    DataMismatchError
        For other data than the data of the fit.

    """
    n_draws = check_integer("n_draws", n_draws, MIN_EMBEDDINGS)
    n_resamples = check_integer("n_resamples", n_resamples, MIN_EMBEDDINGS)
    embed = PosteriorEmbedder.from_posterior(posterior, X)
    stacks = [
        resample(embed, n_resamples, stream=stream, seed=seed, strict=True, on_progress=on_progress).places
        for stream in STREAMS
    ]
    shared = stacks[0] if seed == 0 and n_resamples >= HALF_SAMPLES else None
    calibration = calibrate(posterior, X, halves=shared, on_progress=on_progress)
    draws = []
    for draw in posterior.draws(n_draws, first=first, seed=seed, scale=calibration.scale):
        draws.append(draw)
        on_progress(len(draws), n_draws, "drawing")
    drawn = np.stack([draw.embedding for draw in draws])
    result = combine(drawn, stacks, posterior.embedding, saturated=calibration.saturated, on_progress=on_progress)
    of_fit = [note for note in posterior.notes if note.code == "bridged"]
    # the reliability states with more data how far draws and resamples agree on the order of points
    of_scale = [note for note in calibration.notes if note.code != POORLY_CORRELATED]
    summary = summarize(draws, posterior.embedding, posterior.spec.n_neighbors, on_progress)
    return replace(result, calibration=calibration, draws=summary, notes=(*result.notes, *of_fit, *of_scale))


def _unstable(halves: NDArray[np.float64], larger: NDArray[np.float64]) -> Iterator[Note]:
    """Yield a note if half of the points have another embedding, whose spread says little about all points."""
    times = float(np.median(halves) / np.median(larger)) if np.median(larger) > 0 else 0.0
    if times > UNSTABLE:
        yield Note(
            "resamples-unstable",
            f"Half-samples spread {times:.2g} times as much as larger samples, and 1.31 times is the most of a smooth "
            "map, so that half of the points are too few for this embedding. The spread is then an upper bound, in one "
            "measured setting four times too wide. Give more points, or another n_neighbors.",
        )
