"""Analyses of a posterior: summary, placement of new points, generated data, weights and calibration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.progress import blocks
from glle_engine.base.texts import Note
from glle_engine.metrics.ranks import local_trustworthiness
from glle_engine.posterior.placement import Extension
from glle_engine.posterior.summary import summarize
from glle_engine.reliability.calibration import CALIBRATION_DRAWS, HALF_SAMPLES, calibrate
from glle_engine.reliability.resamples import HALVES, resampling_obstacle
from worker.analyses.base import AnalysisSpec, Part, arrays_of
from worker.analyses.resamples import StoredResamples, posterior_resamples, resample_parts
from worker.base.problems import notes_in_http
from worker.records.cache_entry import Array, Entry
from worker.records.draws import DrawAddress

if TYPE_CHECKING:
    from glle_engine import Posterior
    from glle_engine.base.progress import OnProgress
    from glle_engine.base.spec import Source
    from glle_engine.graph.relations import Data
    from worker.analyses.base import AnalysisContext

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MAX_SUMMARIZED = 1000  # maximum number of draws in a summary, which aligns the draws and holds all in memory
TRUST_NEIGHBORS = 10  # number of neighbors in the local trustworthiness
TRUST_BLOCK = 8192  # number of points between two checks for a cancellation
EXTENSION_WORK = 2**28  # distances times features between two checks for a cancellation: about a second of work


@dataclass(frozen=True, kw_only=True)
class SampleSpec(AnalysisSpec):
    """Base class of analyses that use the draws with the indices `first`, `first` + 1, ..., of a posterior.

    All have one `seed` and one `scale`, which is a factor on the posterior covariance.
    """

    first: int
    seed: int
    scale: float
    source: Source

    def keys(self, n_draws: int) -> list[DrawAddress]:
        """Return the addresses of the draws `first`, ..., `first` + `n_draws` - 1, with Procrustes alignment.

        An address is all that determines a draw from the posterior: seed, index, scale, source and alignment.
        """
        return [DrawAddress(self.seed, self.first + i, self.scale, self.source, "procrustes") for i in range(n_draws)]


@dataclass(frozen=True, kw_only=True)
class SummarySpec(SampleSpec):
    """Parameters of a summary of `n_draws` draws, with the local trustworthiness of each point."""

    kind = "summary"
    may_be_nan = frozenset({"relative_gaps"})

    n_draws: int
    calibrated: bool = False  # whether draws are made at the posterior's calibrated scale, and `scale` is ignored

    @property
    def total(self) -> int:
        """Number of draws."""
        return self.n_draws

    def parts(self) -> list[Part]:
        """Return the work that several tasks can share: to embed random halves of the data.

        The scale of the draws is calibrated by these embeddings. The list is empty if the request has a number as
        scale, so that nothing is calibrated.
        """
        return resample_parts(partial(_halves, seed=CalibrationSpec.seed), HALF_SAMPLES) if self.calibrated else []

    def run(self, context: AnalysisContext) -> Entry:
        """Return the mean of the aligned draws, uncertainty and trust of each point, and the eigenvalues of each draw.

        With `calibrated`, the scale of the draws is calibrated first, unless a calibration is stored.
        """
        posterior, data = context.posterior, context.training()
        request, extra_arrays, sample, warnings = self.to_dict(), {}, self, []
        if self.calibrated:
            calibration = context.calibration()
            sample = replace(self, scale=calibration.meta["scale"])
            request |= {"scale": sample.scale, "calibration": calibration_facts(calibration.meta)}
            extra_arrays["half_sample_spread"] = calibration.arrays["half_sample_spread"]
            warnings = calibration.meta["notes"]
        draws = list(context.draws(posterior, sample.keys(self.n_draws)))
        summary = summarize(draws, posterior.embedding, posterior.spec.n_neighbors, context.on_progress)
        trust = _local_trust(posterior.locate(data), posterior, context.on_progress)
        notes = [*notes_in_http(posterior.notes), *warnings, *notes_in_http(summary.notes)]
        if not self.calibrated:
            has_given = bool(posterior.diagnostics.figures.get("given_neighbors"))
            obstacle = resampling_obstacle(posterior.spec, posterior.n_points, self.source, given_neighbors=has_given)
            if obstacle is not None:
                notes += notes_in_http([Note("not-calibrated", "The scale was not calibrated. " + obstacle.text)])
        ranked = {"spread": summary.spread, "stability": summary.stability, "local_trust": trust}
        return Entry(
            {
                **request,
                "quantiles": {
                    "levels": list(QUANTILES),
                    **{name: np.quantile(values, QUANTILES).tolist() for name, values in ranked.items()},
                },
                "notes": notes,
            },
            {
                "consensus": summary.consensus,
                "covariance": summary.covariance,
                **ranked,
                **extra_arrays,
                "eigenvalues": summary.eigenvalues,
                "relative_gaps": summary.relative_gaps,
                "agreement": summary.agreement,
            },
        )


@dataclass(frozen=True, kw_only=True)
class TransformSpec(SampleSpec):
    """Parameters of a transform: new points are placed in the reference embedding and optionally in draws."""

    kind = "transform"
    main = "embedding"

    dataset: str
    n_draws: int

    @property
    def total(self) -> int:
        """Number of draws; 1 if only the reference embedding is used."""
        return max(1, self.n_draws)

    def run(self, context: AnalysisContext) -> Entry:
        """Return the positions (m, p) of new points, and the distance (m,) of each to its nearest training point.

        If draws are requested, also return the mean (m, p) and the covariance (m, p, p) of each new point's position
        over the draws.
        """
        posterior = context.posterior
        new = np.asarray(context.values(self.dataset, context.dataset), np.float64)
        extension = _extend(posterior, context.training(), new, context.on_progress)
        arrays = {"embedding": extension.embed(posterior.embedding), "distances": extension.distances}
        if self.n_draws:
            draws = context.draws(posterior, self.keys(self.n_draws))
            arrays["mean"], arrays["covariance"] = extension.spread(draws, posterior.embedding, context.on_progress)
        return Entry(self.to_dict(), arrays)


@dataclass(frozen=True, kw_only=True)
class ReconstructionsSpec(SampleSpec):
    """Parameters of reconstructions: data sets that are generated from drawn weights."""

    kind = "reconstructions"
    main = "data"

    n_draws: int

    @property
    def total(self) -> int:
        """Number of generated data sets."""
        return self.n_draws

    def run(self, context: AnalysisContext) -> Entry:
        """Return the generated data (n_draws, n, d), one data set for each draw of the weights."""
        posterior, training = context.posterior, context.training()
        data = np.empty((self.n_draws, *training.shape))
        for done, key in enumerate(self.keys(self.n_draws)):
            weights = posterior.weights(key.index, seed=self.seed, scale=self.scale, source=self.source)
            data[done] = posterior.reconstruct(training, weights)
            context.on_progress(done + 1, self.n_draws, "drawing")
        return Entry(self.to_dict(), {"data": data})


@dataclass(frozen=True, kw_only=True)
class WeightsSpec(SampleSpec):
    """Parameters of a request for the reconstruction weights of one draw, whose index is `first`."""

    kind = "weights"
    main = "weights"

    def run(self, context: AnalysisContext) -> Entry:
        """Return the weights (n, k), and the index of the neighbor (n, k) to which each weight belongs."""
        posterior = context.posterior
        weights = posterior.weights(self.first, seed=self.seed, scale=self.scale, source=self.source)
        context.on_progress(1, 1, "drawing")
        return Entry(
            {**self.to_dict(), "shape": [posterior.n_points] * 2},
            {"weights": weights, "neighbors": posterior.neighbors},
        )


@dataclass(frozen=True, kw_only=True)
class CalibrationSpec(AnalysisSpec):
    """Parameters of a calibration: the search for the scale at which draws vary as much as embeddings of random halves.

    The scale is a factor on the posterior covariance. The calibration with default parameters, `CalibrationSpec()`,
    determines the scale of draws that are requested with ``scale="auto"``.
    """

    kind = "calibration"

    n_resamples: int = HALF_SAMPLES
    n_draws: int = CALIBRATION_DRAWS
    seed: int = 0

    @property
    def total(self) -> int:
        """Number of random halves to embed; the number of draws that follow is not known in advance."""
        return self.n_resamples

    def run(self, context: AnalysisContext) -> Entry:
        """Return the calibrated scale, and the spread of each point over random halves and over draws."""
        posterior, data = context.posterior, context.training()
        halves = _halves(context, seed=self.seed)
        result = calibrate(
            posterior,
            data,
            n_resamples=self.n_resamples,
            n_draws=self.n_draws,
            seed=self.seed,
            halves=halves.load_or_compute(context, self.n_resamples, context.on_progress).embeddings,
            on_progress=context.on_progress,
        )
        return Entry({**self.to_dict(), **result.to_dict(), "notes": notes_in_http(result.notes)}, arrays_of(result))


def _halves(context: AnalysisContext, *, seed: int) -> StoredResamples:
    return posterior_resamples(context.subject, HALVES, seed)


def calibration_facts(meta: dict[str, Any]) -> dict[str, Any]:
    """Return what a calibration has found, such as the scale of draws; `meta` is the metadata of its result.

    The parameters and the digest of the calibration are left out.
    """
    parameters = {*CalibrationSpec().to_dict(), "sha256"}
    return {name: value for name, value in meta.items() if name not in parameters}


def _local_trust(data: Data, posterior: Posterior, on_progress: OnProgress) -> Array:
    """Return the local trustworthiness (n,) of each point in the posterior's reference embedding."""
    points = np.arange(len(data))
    k = min(TRUST_NEIGHBORS, (len(data) - 1) // 2)
    parts = [
        local_trustworthiness(data, posterior.embedding, k, points[block])
        for block in blocks(len(data), TRUST_BLOCK, "local trust", on_progress)
    ]
    return np.concatenate(parts)


def _extend(posterior: Posterior, training: Array, new: Array, on_progress: OnProgress) -> Extension:
    """Return the weights of new points (m, d) on training points (n, d), computed in blocks of new points."""
    rows = max(16, EXTENSION_WORK // training.size)
    extensions = [posterior.extend(training, new[block]) for block in blocks(len(new), rows, "placing", on_progress)]
    names = ("neighbors", "weights", "distances")
    return Extension(*(np.concatenate([getattr(extension, name) for extension in extensions]) for name in names))
