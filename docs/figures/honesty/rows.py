"""Rows of the study: one for each setting, noise model, truth and candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from docs.figures.honesty import measures
from docs.figures.honesty.goals import COVERAGE
from glle_engine import fit
from glle_engine.posterior.spread.calibration import calibrate
from glle_engine.posterior.spread.resampling import resamples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from docs.figures.honesty.settings import Setting, Truth
    from glle_engine import FitSpec, Posterior
    from glle_engine.base.spec import Noise

SCALE_1, CALIBRATED, HALVES, MIXED = "draws, scale 1", "draws, calibrated", "half-samples", "mixed"
OTHERS = 6  # samples beside the base data, to measure the dependence of a spread on its sample


@dataclass(frozen=True)
class Row:
    """Comparison of a candidate with a truth.

    Attributes
    ----------
    data, group, law, truth, candidate : str
        mixed: the mean of the covariances of calibrated draws and of half-samples. averaged: the mean of the
        covariances of a point and its neighbors.
    scale : float or None
        Of the draws; None for half-samples.
    saturated : bool
        Whether the calibration is saturated.
    rho : float
        Spearman's correlation of the two spreads over points.
    ratio : float
        The candidate's median spread over the true one's.
    coverage : float
        Share of points whose mean place over replicates lies in the candidate's 90 % ellipse.
    bias : float or None
        Share of points further from the true coordinates than one true spread.
    reliable_truth, reliable_candidate : float
        Reliability of the two spreads; NaN for a candidate that is not a plain spread over draws.
    rho_local : float
        rho after removing the neighbors' common motion from both.
    between : float
        Correlation of the candidate's spreads from two samples with common probes, corrected for its unreliability;
        NaN if not measured.
    rho_many : float
        rho of the candidate's spread averaged over `OTHERS` samples; NaN if not measured.
    own_coverage : float
        Coverage by the true covariance, the mean over replicates in place of the base data.
    own_within : float
        Share of the replicates whose coverage meets the goal.

    """

    data: str
    group: str
    law: str
    truth: str
    candidate: str
    scale: float | None
    saturated: bool
    rho: float
    ratio: float
    coverage: float
    bias: float | None
    reliable_truth: float
    reliable_candidate: float
    rho_local: float
    between: float
    rho_many: float
    own_coverage: float
    own_within: float

    @property
    def ceiling(self) -> float:
        """Highest expected rho against this truth."""
        return float(np.sqrt(max(0.0, self.reliable_truth)))

    @property
    def one_sample(self) -> float:
        """Highest expected rho of a spread from one sample."""
        return float(np.sqrt(np.maximum(0.0, self.reliable_truth * self.between)))

    @property
    def corrected(self) -> float:
        """Rho for infinitely many replicates and draws."""
        return self.rho / float(np.sqrt(self.reliable_truth * self.reliable_candidate))

    @property
    def line(self) -> str:
        """The row as Markdown."""
        scale = "" if self.scale is None else f"{self.scale:.3g}{' (saturated)' if self.saturated else ''}"
        bias = "-" if self.bias is None else f"{self.bias:.2f}"
        figures = (self.rho, self.ceiling, self.corrected, self.one_sample, self.rho_many, self.rho_local, self.ratio)
        shown = " | ".join("-" if np.isnan(value) else f"{value:.2f}" for value in (*figures, self.coverage))
        return f"| {self.data} | {self.law} | {self.truth} | {self.candidate} | {scale} | {shown} | {bias} |"


HEAD = (
    "| data | law | truth | candidate | scale | rho | ceiling | corrected | one sample | many samples | local | ratio "
    "| coverage | bias |\n|" + "---|" * 14
)


def judge(setting: Setting, law: Noise, replicates: int, draws: int) -> Iterator[Row]:
    """Yield the rows of one setting."""
    X = setting.data()
    posterior = fit(X, noise=law, disconnected="bridge")
    calibration = calibrate(posterior, X)
    stacks = {
        SCALE_1: _drawn(posterior, draws, 1.0),
        CALIBRATED: _drawn(posterior, draws, calibration.scale),
        HALVES: resamples(X, posterior.spec, posterior.embedding, draws // 2),
    }
    scales = {SCALE_1: 1.0, CALIBRATED: calibration.scale}
    around = np.concatenate([np.arange(len(X))[:, None], posterior.neighbors], axis=1)
    for truth in setting.truths(replicates):
        kept, samples = truth.kept, list(truth.samples)
        sampled = np.stack([_embedded(Z, posterior.spec)[:kept] for Z in samples])
        places, base = measures.turned(sampled, posterior.embedding[:kept], kept)
        mean = base + truth.factor * (places.mean(axis=0) - base)
        true = truth.factor * measures.spread(measures.covariance(places))
        true_local = measures.spread(measures.covariance(measures.local(places, base)))
        reliable = measures.reliability(places)
        covered = measures.own_coverage(places)
        aligned = {name: measures.turned(stack, posterior.embedding, kept)[0] for name, stack in stacks.items()}
        matrices = {name: measures.covariance(stack) for name, stack in aligned.items()}
        own = {name: measures.covariance(measures.local(stack[:, :kept], base)) for name, stack in aligned.items()}
        for every in (matrices, own):
            every[MIXED] = (every[CALIBRATED] + every[HALVES]) / 2
        for name in (CALIBRATED, MIXED):
            matrices[f"{name}, averaged"] = matrices[name][around].mean(axis=1)
        redrawn = truth.name != "noise"
        between, many = _other_samples(samples[:OTHERS], posterior.spec, truth, draws // 2) if redrawn else ({}, {})
        for name, every_point in matrices.items():
            covariance = every_point[:kept]
            spread = measures.spread(covariance)
            yield Row(
                data=str(setting),
                group=setting.group,
                law=law,
                truth=truth.name,
                candidate=name,
                scale=scales.get(name),
                saturated=name == CALIBRATED and calibration.saturated,
                rho=measures.rank_correlation(spread, true),
                ratio=float(np.median(spread) / np.median(true)),
                coverage=measures.coverage(mean, base, covariance),
                bias=_biased(setting, mean, true),
                reliable_truth=reliable,
                reliable_candidate=measures.reliability(aligned[name][:, :kept]) if name in aligned else np.nan,
                rho_local=measures.rank_correlation(measures.spread(own[name]), true_local) if name in own else np.nan,
                between=between.get(name, np.nan),
                rho_many=measures.rank_correlation(many[name], true) if name in many else np.nan,
                own_coverage=float(covered.mean()),
                own_within=float(((covered >= COVERAGE[0]) & (covered <= COVERAGE[1])).mean()),
            )


def _drawn(posterior: Posterior, count: int, scale: float) -> NDArray[np.float64]:
    return np.stack([draw.embedding for draw in posterior.draws(count, scale=scale)])


def _embedded(X: NDArray[np.float64], spec: FitSpec) -> NDArray[np.float64]:
    return fit(X, **spec.to_dict()).embedding


def _biased(setting: Setting, mean: NDArray[np.float64], true: NDArray[np.float64]) -> float | None:
    coordinates = setting.coordinates()
    return None if coordinates is None else float((measures.bias(mean, coordinates[: len(mean)]) > true).mean())


def _other_samples(
    samples: list[NDArray[np.float64]], spec: FitSpec, truth: Truth, draws: int
) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
    """Return the correlation of a candidate's spreads from two samples, and its spread averaged over samples."""
    kept = truth.kept
    spreads: dict[str, list[NDArray[np.float64]]] = {SCALE_1: [], HALVES: [], MIXED: []}
    reliable: dict[str, list[float]] = {SCALE_1: [], HALVES: []}
    for X in samples:
        posterior = fit(X, **spec.to_dict())
        stacks = {
            SCALE_1: _drawn(posterior, draws, 1.0),
            HALVES: resamples(X, spec, posterior.embedding, draws // 2),
        }
        for name, stack in stacks.items():
            places = measures.turned(stack, posterior.embedding, kept)[0][:, :kept]
            spread = measures.spread(measures.covariance(places))
            spreads[name].append(spread / np.median(spread))
            reliable[name].append(measures.reliability(places))
        spreads[MIXED].append(np.hypot(spreads[SCALE_1][-1], spreads[HALVES][-1]))
    between = {}
    for name, values in reliable.items():
        pairs = [measures.rank_correlation(a, b) for i, a in enumerate(spreads[name]) for b in spreads[name][:i]]
        between[name] = float(np.mean(pairs) / np.mean(values))
    return between, {name: np.mean(every, axis=0) for name, every in spreads.items()}
