"""The analyses there are: what can be asked beside draws, of a posterior or of a data set."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.progress import blocks
from glle_engine.metrics.ranks import local_trustworthiness
from glle_engine.posterior.calibration import DRAWS, HALF_SAMPLES, calibrate
from glle_engine.posterior.out_of_sample import Extension
from glle_engine.posterior.selection import advise
from glle_engine.posterior.summary import summarize
from worker.analyses.base import AnalysisSpec
from worker.records.cache_entry import Array, Entry
from worker.records.draws import DrawKey

if TYPE_CHECKING:
    from glle_engine import Posterior
    from glle_engine.base.progress import OnProgress
    from glle_engine.base.spec import Source
    from worker.analyses.base import Desk

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MOST_SUMMARISED = 1000  # draws: they are aligned to each other, so all are held at once
TRUST_NEIGHBORS = 10
TRUST_BLOCK = 8192  # points between two looks at the wish to cancel
EXTENSION_WORK = 2**28  # distances times features between two such looks, at most: about a second


@dataclass(frozen=True, kw_only=True)
class SampleSpec(AnalysisSpec):
    """An analysis of draws first, first + 1, ... of one stream at one scale."""

    first: int
    seed: int
    scale: float
    source: Source

    def keys(self, count: int) -> list[DrawKey]:
        """Return its draws: the same values, so the same cache entries, as those of draws jobs."""
        return [DrawKey(self.seed, self.first + i, self.scale, self.source, "procrustes") for i in range(count)]


@dataclass(frozen=True, kw_only=True)
class SummarySpec(SampleSpec):
    """What `count` draws say together, and how far each point of the reference is to be trusted.

    Parameters
    ----------
    calibrated
        Whether the draws are at the posterior's calibrated scale; `scale` then has no meaning, and is 1.

    """

    kind = "summary"
    may_be_nan = frozenset({"relative_gaps"})

    count: int
    calibrated: bool = False

    @property
    def total(self) -> int:
        """The number of draws."""
        return self.count

    def run(self, desk: Desk) -> Entry:
        """Return consensus, covariance, spread, stability, local_trust and, a row a draw, the spectrum."""
        posterior, data = desk.posterior(), desk.training()
        told, beside, sample = self.to_dict(), {}, self
        if self.calibrated:
            found = desk.calibration()
            sample = replace(self, scale=found.meta["scale"])
            told |= {"scale": sample.scale, "calibration": calibration_facts(found.meta)}
            beside["half_sample_spread"] = found.arrays["half_sample_spread"]
        draws = desk.draws(posterior, sample.keys(self.count))
        summary = summarize(draws, posterior.embedding, posterior.spec.n_neighbors, desk.tell)
        trust = _local_trust(data, posterior, desk.tell)
        ranked = {"spread": summary.spread, "stability": summary.stability, "local_trust": trust}
        return Entry(
            {
                **told,
                "quantiles": {
                    "levels": list(QUANTILES),
                    **{name: np.quantile(values, QUANTILES).tolist() for name, values in ranked.items()},
                },
                "notes": [*posterior.diagnostics.to_dict()["notes"], *map(asdict, summary.notes)],
            },
            {
                "consensus": summary.consensus,
                "covariance": summary.covariance,
                **ranked,
                **beside,
                "eigenvalues": summary.eigenvalues,
                "relative_gaps": summary.relative_gaps,
                "agreement": summary.agreement,
            },
        )


@dataclass(frozen=True, kw_only=True)
class TransformSpec(SampleSpec):
    """The points of a data set, placed in the reference embedding and, if wanted, in draws."""

    kind = "transform"
    main = "embedding"

    dataset: str
    draws: int

    @property
    def total(self) -> int:
        """The number of draws, or one piece of work."""
        return max(1, self.draws)

    def run(self, desk: Desk) -> Entry:
        """Return embedding and distances; over draws, mean and covariance of each point's place."""
        posterior = desk.posterior()
        new = np.asarray(desk.values(self.dataset), np.float64)
        extension = _extended(posterior, desk.training(), new, desk.tell)
        arrays = {"embedding": extension.embed(posterior.embedding), "distances": extension.distances}
        if self.draws:
            draws = desk.draws(posterior, self.keys(self.draws))
            arrays["mean"], arrays["covariance"] = extension.spread(draws, posterior.embedding, desk.tell)
        return Entry(self.to_dict(), arrays)


@dataclass(frozen=True, kw_only=True)
class ReconstructionsSpec(SampleSpec):
    """Data generated from drawn weights."""

    kind = "reconstructions"
    main = "data"

    count: int

    @property
    def total(self) -> int:
        """The number of data sets that are generated."""
        return self.count

    def run(self, desk: Desk) -> Entry:
        """Return the data (count, n, d)."""
        posterior, training = desk.posterior(), desk.training()
        data = np.empty((self.count, *training.shape))
        for done, key in enumerate(self.keys(self.count)):
            weights = posterior.weights(key.index, seed=self.seed, scale=self.scale, source=self.source)
            data[done] = posterior.reconstruct(training, weights)
            desk.tell(done + 1, self.count, "drawing")
        return Entry(self.to_dict(), {"data": data})


@dataclass(frozen=True, kw_only=True)
class CalibrationSpec(AnalysisSpec):
    """The scale at which draws spread as half-samples of the data do; as it stands, the posterior's own calibration."""

    kind = "calibration"

    half_samples: int = HALF_SAMPLES
    draws: int = DRAWS
    seed: int = 0

    @property
    def total(self) -> int:
        """The half-samples; the draws that follow are as many as it takes."""
        return self.half_samples

    def run(self, desk: Desk) -> Entry:
        """Return the calibration, and the two spreads of each point that it compares."""
        found = calibrate(
            desk.posterior(),
            desk.training(),
            n_half_samples=self.half_samples,
            n_draws=self.draws,
            seed=self.seed,
            on_progress=desk.tell,
        )
        arrays = {"half_sample_spread": found.half_sample_spread, "draw_spread": found.draw_spread}
        return Entry({**self.to_dict(), **found.to_dict()}, arrays)


@dataclass(frozen=True, kw_only=True)
class AdviceSpec(AnalysisSpec):
    """A range of n_neighbors and of n_components, judged on a data set."""

    kind = "advice"

    dataset: str
    n_neighbors: tuple[int, ...]
    n_components: int
    max_components: int
    reg: float

    def __post_init__(self) -> None:
        # The same range, however it was written, is the same request.
        object.__setattr__(self, "n_neighbors", tuple(sorted(set(self.n_neighbors))))

    @property
    def total(self) -> int:
        """Each n_neighbors, and the spectrum."""
        return len(self.n_neighbors) + 1

    def run(self, desk: Desk) -> Entry:
        """Return the engine's advice, without arrays."""
        advice = advise(
            desk.values(self.dataset),
            n_neighbors=self.n_neighbors,
            n_components=self.n_components,
            max_components=self.max_components,
            reg=self.reg,
            on_progress=desk.tell,
        )
        return Entry(advice.to_dict(), {})


def calibration_facts(meta: dict[str, Any]) -> dict[str, Any]:
    """Return what a calibration found out, without what it was asked for."""
    asked = {*CalibrationSpec().to_dict(), "sha256"}
    return {name: value for name, value in meta.items() if name not in asked}


def _local_trust(data: Array, posterior: Posterior, tell: OnProgress) -> Array:
    """Return each point's trustworthiness in the reference embedding (n,)."""
    points = np.arange(len(data))
    k = min(TRUST_NEIGHBORS, (len(data) - 1) // 2)
    parts = [
        local_trustworthiness(data, posterior.embedding, k, points[part])
        for part in blocks(len(data), TRUST_BLOCK, "local trust", tell)
    ]
    return np.concatenate(parts)


def _extended(posterior: Posterior, training: Array, new: Array, tell: OnProgress) -> Extension:
    """Hang new points on the training set, so many at a time: no point's answer depends on the others."""
    rows = max(16, EXTENSION_WORK // training.size)
    parts = [posterior.extend(training, new[part]) for part in blocks(len(new), rows, "placing", tell)]
    return Extension(
        np.concatenate([part.neighbors for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.distances for part in parts]),
    )
