"""Rows of the study: a comparison with the truth for each sample of a setting that serves as the data.

A spread estimated from few replicates is the true one with noise, which lowers every correlation. Reliability is the
correlation of two estimates of the same size: if the halves of the replicates correlate by r, all of them have
2 r / (1 + r) (Spearman and Brown). No candidate is expected to correlate with the truth by more than the root of the
truth's reliability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from docs.figures.honesty.settings import FIT
from glle_engine import fit
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import generalized_procrustes, moments, root_trace
from glle_engine.reliability.alignment import rank_correlation
from glle_engine.reliability.calibration import calibrate
from glle_engine.reliability.ensemble import DRAWS, RESAMPLES, combine
from glle_engine.reliability.resamples import STREAMS, PosteriorEmbedder, resample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from docs.figures.honesty.settings import Setting
    from glle_engine import Posterior
    from glle_engine.reliability.ensemble import Ensemble

SPLITS = 20


def center(places: NDArray[np.float64], kept: int) -> NDArray[np.float64]:
    """Return the first `kept` points of embeddings (..., n, 2), around their mean."""
    return np.asarray(places[..., :kept, :] - places[..., :kept, :].mean(axis=-2, keepdims=True))


def reliability(places: NDArray[np.float64]) -> float:
    """Return the reliability of the spread over aligned places, the mean over random splits."""
    reliabilities = []
    for split in range(SPLITS):
        order = np.random.default_rng([split, 8]).permutation(len(places))
        half = len(places) // 2
        r = rank_correlation(
            root_trace(moments(places[order[:half]])[1]), root_trace(moments(places[order[half : 2 * half]])[1])
        )
        reliabilities.append(2 * r / (1 + r))
    return float(np.mean(reliabilities))


DRAWN, HALVES, RANDOM_K, LARGER, MIXED, ENSEMBLE = (
    "draws, calibrated",
    "half-samples",
    "half-samples, random k",
    "samples of .632",
    "draws and half-samples",
    "ensemble",
)
BASELINE = "distance to 10 neighbors"
LEVELS = (0.5, 0.9)


@dataclass(frozen=True)
class Row:
    """Comparison of the spread from one sample with the truth, which the other samples give.

    Attributes
    ----------
    setting : str
    held_out : bool
        Whether the setting was chosen after the method.
    n : int
    sample : int
    rho : dict
        Spearman's correlation with the true spread over probes, by candidate.
    ratio : dict
        Median spread over the true one, by candidate.
    coverage : tuple of float
        For 50 % and 90 %: share of probes and samples whose mean place lies in a region of the size of this sample's,
        put around the place in that sample.
    reliable_truth : float
        Reliability of the true spread.
    level : {"high", "moderate", "low"}
        Stated.
    expected : float
        Stated rank correlation with the truth.

    """

    setting: str
    held_out: bool
    n: int
    sample: int
    rho: dict[str, float]
    ratio: dict[str, float]
    coverage: tuple[float, float]
    reliable_truth: float
    level: str
    expected: float

    @property
    def line(self) -> str:
        """The row as Markdown."""
        figures = (self.rho[ENSEMBLE], self.ratio[ENSEMBLE], *self.coverage, self.expected)
        shown = " | ".join(f"{value:.2f}" for value in figures)
        return f"| {self.setting} | {self.sample} | {shown} | {self.level} |"


HEAD = "| setting | sample | rho | ratio | 50 % | 90 % | expected | stated |\n|" + "---|" * 8


@dataclass(frozen=True)
class _Candidate:
    """Spreads from one sample, all points (`whole`) and in the frame of the probes."""

    whole: Ensemble
    probes: Ensemble
    reference: NDArray[np.float64]
    baseline: NDArray[np.float64]


def judge(setting: Setting, *, samples: int = 40, data: int = 3) -> Iterator[Row]:
    """Yield a row for each of the first `data` samples; the other `samples` give the truth."""
    drawn = [np.ascontiguousarray(setting.sample(j)) for j in range(samples + 1)]
    posteriors = [fit(X, **(FIT | setting.options)) for X in drawn[:data]]
    embeddings = [posterior.embedding for posterior in posteriors]
    embeddings += [fit(X, **(FIT | setting.options)).embedding for X in drawn[data:]]
    kept = setting.probes
    places = np.stack([Y[:kept] for Y in embeddings])
    candidates = [_candidate(posterior, X, kept) for posterior, X in zip(posteriors, drawn, strict=False)]
    for i, candidate in enumerate(candidates):
        others = generalized_procrustes(center(np.delete(places, i, axis=0), kept), center(candidate.reference, kept))
        off = setting.factor * (others - others.mean(axis=0))
        true = root_trace(moments(off)[1])
        stated, found = candidate.whole.reliability, candidate.probes
        estimates = _estimates(candidate)
        low, high = (_coverage(found, off * np.sqrt(len(off) / (len(off) - 1)), level) for level in LEVELS)
        yield Row(
            setting=setting.name,
            held_out=setting.held_out,
            n=len(drawn[i]),
            sample=i,
            rho={name: rank_correlation(spread, true) for name, spread in estimates.items()},
            ratio={
                name: float(np.median(spread) / np.median(true))
                for name, spread in estimates.items()
                if name != BASELINE
            },
            coverage=(low, high),
            reliable_truth=reliability(others),
            level=stated.level,
            expected=stated.expected,
        )


def _candidate(posterior: Posterior, X: NDArray[np.float64], kept: int) -> _Candidate:
    """Return the ensemble of all points, for the statement, and that in the frame of the probes, for the comparison."""
    reference = posterior.embedding
    embed = PosteriorEmbedder.from_posterior(posterior, X)
    stacks = [resample(embed, RESAMPLES, stream=stream, strict=True).places for stream in STREAMS]
    calibration = calibrate(posterior, X, halves=stacks[0])
    draws = np.stack([draw.embedding for draw in posterior.draws(DRAWS, scale=calibration.scale)])
    saturated = calibration.saturated
    drawn, *probes = (center(stack, kept) for stack in (draws, *stacks))
    return _Candidate(
        combine(draws, stacks, reference, saturated=saturated),
        combine(drawn, probes, center(reference, kept), saturated=saturated),
        reference,
        kneighbors(X, 10)[1].mean(axis=1)[:kept],
    )


def _estimates(candidate: _Candidate) -> dict[str, NDArray[np.float64]]:
    found = candidate.probes
    return {
        DRAWN: found.draw_spread,
        HALVES: found.half_sample_spread,
        RANDOM_K: found.random_k_spread,
        LARGER: found.larger_sample_spread,
        MIXED: np.sqrt((found.draw_spread**2 + found.half_sample_spread**2) / 2),
        ENSEMBLE: found.spread,
        BASELINE: candidate.baseline,
    }


def _coverage(found: Ensemble, off: NDArray[np.float64], level: float) -> float:
    """Return the share of deviations (m, n, 2) inside regions of the sizes of an ensemble."""
    center = found.regions.center
    return float(np.mean([found.regions.contains(center + each, level) for each in off]))


def read(values: dict[str, Any]) -> Row:
    """Return the row of a JSON object."""
    return Row(**{**values, "coverage": tuple(values["coverage"])})
