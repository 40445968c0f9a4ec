"""Plan of a fit and of a summary of its posterior: the expected cost, and the limits on time and memory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from fastapi import Query

from glle_engine import FitSpec
from glle_engine.base.errors import InvalidParameterError
from glle_engine.graph.neighbors import EXPECTED_RECALL, approximate_seconds
from glle_engine.posterior.cost.estimate import Cost, Estimate
from glle_engine.reliability.alignment import MIN_EMBEDDINGS
from glle_engine.reliability.calibration import DRAWS, STEPS
from glle_engine.reliability.ensemble import RESAMPLES
from glle_engine.reliability.resamples import STREAMS
from service.schemas.problems import ProblemOut
from service.schemas.resources import First, Seed, SourceQuery
from service.schemas.results import PosteriorEstimateOut
from service.submission.jobs import analysis_job, shards_of
from service.submission.validation import obstacle_to_resampling, require_not_all_equal, require_storage
from worker.analyses.posterior_analyses import MAX_RESAMPLES, MAX_SUMMARIZED, EstimateSpec, SummarySpec
from worker.analyses.resamples import PART, resamples_bytes
from worker.base.problems import Problem, ProblemError, refuse
from worker.base.settings import Settings
from worker.jobs.store import Job
from worker.records.cache_entry import Entry
from worker.records.sharding import PartsSharding
from worker.storage.datasets import Dataset
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

SHORT_VALUES = 2**24  # up to this many values, an interactive task estimates a fit in less than two seconds
SEARCH_FEATURES = 15  # fewer features need no approximate search
MIN_NEIGHBORS = 5  # fewer neighbors seldom connect the graph
COST_MARGIN = 2.0  # safety factor on expected seconds, for machines that are slower than that of the estimates
RESAMPLE_SHARE = 0.8  # time of a resample relative to a fit (`glle_engine.reliability.ensemble`)


@dataclass(frozen=True)
class Allowance:
    """Limits on the expected cost of a fit: seconds, with the safety factor applied, and bytes of memory."""

    seconds: float
    bytes: int

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the limits of the settings."""
        return cls(settings.job_timeout / COST_MARGIN, settings.method_bytes)

    def covers(self, cost: Cost) -> bool:
        """Return whether a cost is within the limits."""
        return cost.seconds <= self.seconds and cost.bytes <= self.bytes

    def refusal(
        self,
        subject: str,
        cost: Cost,
        remedies: Sequence[str],
        details: Mapping[str, Any] = MappingProxyType({}),
        more: str = "",
        longer: str = "raise GLLE_JOB_TIMEOUT",
    ) -> ProblemError:
        """Return ``too-long`` or ``too-much-memory`` for a subject of this cost; `longer` is the remedy for time."""
        if cost.seconds > self.seconds:
            code, last = "too-long", longer
            excess = f"some {three_digits(cost.seconds):,} s; {three_digits(self.seconds):,} are allowed"
        else:
            code, last = "too-much-memory", "raise GLLE_METHOD_BYTES"
            excess = f"some {cost.bytes:,.0f} bytes of memory; {self.bytes:,} are allowed"
        remedy = "; or ".join([*remedies, last])
        return refuse(
            code,
            422,
            f"{subject} takes {excess}.{more}",
            remedy[0].upper() + remedy[1:] + ".",
            **details,
            expected_seconds=three_digits(cost.seconds),
            allowed_seconds=three_digits(self.seconds),
            expected_bytes=three_digits(cost.bytes),
            allowed_bytes=self.bytes,
        )


@dataclass(frozen=True)
class SummaryQuery:
    """Query of a summary: its draws and its resamples."""

    n_draws: Annotated[
        int, Query(ge=2, le=MAX_SUMMARIZED, description="Draws; a hundred or more rank points by their spread.")
    ] = 100
    first: First = 0
    seed: Seed = 0
    scale: Annotated[
        Annotated[float, Query(ge=0, allow_inf_nan=False)] | Literal["auto"] | None,
        Query(
            description="auto, the default where resamples can measure the posterior: the ensemble of calibrated draws "
            "and resamples. A number, else 1: the spread of the draws alone, at this factor on the covariance."
        ),
    ] = None
    n_resamples: Annotated[
        int | None,
        Query(
            ge=MIN_EMBEDDINGS,
            le=MAX_RESAMPLES,
            description=f"Resamples of each of three kinds, with scale=auto; default {RESAMPLES}.",
        ),
    ] = None
    source: SourceQuery = "posterior"


def estimate_spec(dataset: Dataset, spec: FitSpec) -> EstimateSpec:
    """Return the analysis that estimates a fit."""
    return EstimateSpec(dataset=dataset.id, parameters=spec.to_dict())


def estimate_job(stores: Stores, dataset: Dataset, analysis: EstimateSpec) -> Job:
    """Return the job of an estimate, which is interactive unless the data set is large; raises ``degenerate-data``."""
    require_not_all_equal(stores, dataset)
    short = dataset.n * dataset.d <= SHORT_VALUES
    return analysis_job(stores, analysis, posterior=None, priority="interactive", short=short)


def posterior_estimate(stores: Stores, dataset: Dataset, entry: Entry) -> PosteriorEstimateOut:
    """Return a stored estimate with the limits, and with the problem if the fit would exceed them."""
    expected = Estimate.from_dict(entry.meta)
    allowed = Allowance.from_settings(stores.settings)
    problem: Problem | None = None
    try:
        require_storable(stores, expected.n, expected.spec)
        if not allowed.covers(expected.peak):
            raise _too_costly(stores, expected, allowed)
    except ProblemError as error:
        problem = error.problem
    return PosteriorEstimateOut(
        dataset=dataset.id,
        spec=expected.spec.to_dict(),
        n=expected.n,
        n_features=expected.n_features,
        analysed_points=list(expected.factorization.points),
        allowed_seconds=allowed.seconds,
        allowed_bytes=allowed.bytes,
        most_points=expected.most_points(partial(_is_within, stores, allowed)),
        problem=None if problem is None else ProblemOut(**problem.to_dict()),
        **expected.figures(),
    )


def require_storable(stores: Stores, n: int, spec: FitSpec) -> None:
    """Raise ``quota-exceeded`` or ``storage-full`` if there is no room even for the covariance factors (n, k, k)."""
    k = spec.n_neighbors
    try:
        require_storage(stores, 8 * n * k * k, f"The posterior of {n:,} points with n_neighbors={k}")
    except ProblemError as error:
        remedy = f"Fit fewer points, or use fewer neighbors; or: {error.problem.remedy}"
        raise ProblemError(replace(error.problem, remedy=remedy)) from error


def require_possible_fit(stores: Stores, dataset: Dataset, spec: FitSpec) -> None:
    """Raise a problem if a fit cannot finish, because its result has no room or it would take far too long.

    A fit is refused only if, by a stored estimate, it would exceed the time of a job even on a machine that is
    `COST_MARGIN` times as fast as the machine of the estimate. If there is no stored estimate, no fit is
    refused for its time.
    """
    require_storable(stores, dataset.n, spec)
    entry = stores.find_result(estimate_spec(dataset, spec), dataset.id)
    if entry is None:
        return
    expected = Estimate.from_dict(entry.meta)
    if expected.fit.seconds > stores.settings.job_timeout * COST_MARGIN:
        raise _too_costly(stores, expected, Allowance.from_settings(stores.settings))


def summary_spec(record: PosteriorRecord, query: SummaryQuery) -> SummarySpec:
    """Return the summary of a request; without a scale it is the ensemble, or draws at scale 1 if that is impossible.

    Raises
    ------
    InvalidParameterError
        For an ensemble of too few draws, or of a posterior that cannot be resampled; and for `n_resamples` in a summary
        of draws alone, which does not use resamples.

    """
    scale, resamples = query.scale, query.n_resamples
    obstacle = obstacle_to_resampling(record, query.source)
    sample = SummarySpec(n_draws=query.n_draws, first=query.first, seed=query.seed, scale=1.0, source=query.source)
    if scale is None and (obstacle is None or resamples is not None):
        scale = "auto"
    if scale != "auto":
        if resamples is not None:
            raise InvalidParameterError(
                f"n_resamples={resamples} applies only with scale=auto.",
                remedy="Leave `scale` or `n_resamples` out.",
            )
        return replace(sample, scale=1.0 if scale is None else float(scale))
    if obstacle is not None:
        raise obstacle
    if query.n_draws < MIN_EMBEDDINGS:
        raise InvalidParameterError(
            f"n_draws={query.n_draws} draws are too few for the ensemble with resamples.",
            remedy=f"Use n_draws >= {MIN_EMBEDDINGS}, or give the scale as a number for the spread of the draws alone.",
        )
    return replace(sample, calibrated=True, n_resamples=resamples or RESAMPLES)


def require_affordable_summary(stores: Stores, record: PosteriorRecord, spec: SummarySpec) -> PartsSharding | None:
    """Raise a problem if one job cannot make the draws and the missing resamples of an ensemble.

    The expected seconds follow from the seconds that the fit took. Draws and their calibration are one task; resamples
    are made by all live workers.

    Returns
    -------
    The shards of the resamples; None if one task makes all of them.

    """
    if not spec.n_resamples:
        return None
    n, p = record.n, record.spec["n_components"]
    streams = len(STREAMS)
    embeddings = resamples_bytes(n, p, spec.n_resamples) * streams
    require_storage(stores, embeddings, f"The {streams * spec.n_resamples:,} resamples")
    resamples, contains = spec.resamples_of(record.id), stores.results.contains
    missing = [indices.start for found in resamples for indices in found.missing(contains, spec.n_resamples)]
    part_seconds = RESAMPLE_SHARE * record.seconds * PART
    drawing = spec.n_draws * record.draw_seconds
    if stores.posteriors.calibration(record.id) is None:
        drawing += STEPS * DRAWS * record.draw_seconds

    workers = 1

    def seconds_of(resamples: int) -> float:
        made = sum(first < resamples for first in missing)
        return drawing + part_seconds * math.ceil(made / workers)

    seconds, allowed = seconds_of(spec.n_resamples), Allowance.from_settings(stores.settings)
    if seconds > allowed.seconds:
        workers = max(1, stores.queue.live_workers())
        seconds = seconds_of(spec.n_resamples)
    nbytes = 24.0 * n * p * spec.total  # the embeddings, and two aligned copies
    if seconds <= allowed.seconds and nbytes <= allowed.bytes:
        return shards_of(spec, "resamples", part_seconds * len(missing))
    affordable = [r for r in range(MIN_EMBEDDINGS, spec.n_resamples, PART) if seconds_of(r) <= allowed.seconds]
    most = max(affordable, default=None)
    raise allowed.refusal(
        f"A summary of {streams * spec.n_resamples:,} resamples and {spec.n_draws:,} draws by {workers} workers",
        Cost(seconds, nbytes),
        [
            *(
                [f"use n_resamples={most} or fewer, which are kept, so that more then cost the rest alone"]
                if most
                else []
            ),
            "give the scale as a number for the spread of the draws alone",
        ],
        {"most_resamples": most, "workers": workers},
        f" A fit takes some {three_digits(record.seconds):,} s.",
        longer="start more workers, or raise GLLE_JOB_TIMEOUT",
    )


def _is_within(stores: Stores, allowed: Allowance, expected: Estimate) -> bool:
    try:
        require_storable(stores, expected.n, expected.spec)
    except ProblemError:
        return False
    return allowed.covers(expected.peak)


def _too_costly(stores: Stores, expected: Estimate, allowed: Allowance) -> ProblemError:
    """Return ``too-long`` or ``too-much-memory`` with the remedies in order."""
    is_within = partial(_is_within, stores, allowed)
    most, landmarks = expected.most_points(is_within), expected.most_landmarks(is_within)
    fit, peak, spec = expected.fit, expected.peak, expected.spec
    remedies = [f"Fit at most {most:,} points"] if most else []
    if landmarks:
        remedies.append(f"use landmarks={landmarks} or fewer")
    if spec.n_neighbors > MIN_NEIGHBORS:
        remedies.append(f"use fewer neighbors than n_neighbors={spec.n_neighbors}")
    if expected.n_features > max(spec.n_components, MIN_NEIGHBORS):
        remedies.append(f"reduce the {expected.n_features:,} features by PCA first (POST /v1/embeddings)")
    exact, walks = expected.stages["neighbors"], approximate_seconds(expected.n, expected.n_features)
    is_faster = exact > max(fit.seconds / 2, walks)
    if is_faster and spec.search == "exact" and expected.n_features > SEARCH_FEATURES:
        both = f"some {three_digits(walks):,} s in place of {three_digits(exact):,}"
        remedies.append(f"use search='approximate' ({both}; it finds {EXPECTED_RECALL})")
    is_fit = peak.seconds == fit.seconds if peak.seconds > allowed.seconds else peak.bytes == fit.bytes
    dimension = three_digits(expected.factorization.dimension)
    return allowed.refusal(
        f"With {expected.n:,} points of intrinsic dimension {dimension:g} and n_neighbors={spec.n_neighbors}, "
        f"a {'fit' if is_fit else 'draw'}",
        peak,
        remedies,
        {"most_points": most, "most_landmarks": landmarks, "intrinsic_dimension": dimension},
    )


def three_digits(number: float) -> float:
    """Return three digits of an estimate."""
    return float(f"{number:.3g}")
