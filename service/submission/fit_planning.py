"""Plan of a fit: its estimate, made by a worker and cached, and the limits on its time and memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from glle_engine.graph.search import EXPECTED_RECALL
from glle_engine.graph.search_cost import approximate_seconds
from glle_engine.posterior.cost.estimate import Estimate
from service.schemas.estimates import PosteriorEstimateOut
from service.schemas.problems import ProblemOut
from service.submission.jobs import analysis_job
from service.submission.planning import Allowance
from worker.analyses.posterior_analyses import EstimateSpec
from worker.base.problems import Problem, ProblemError, refuse
from worker.records.priority import Terms

if TYPE_CHECKING:
    from glle_engine import FitSpec
    from worker.jobs.store import Job
    from worker.records.cache_entry import Entry
    from worker.storage.datasets import Dataset
    from worker.stores import Stores

SHORT_VALUES = 2**24  # of a data set whose estimate an executor makes in less than two seconds
SEARCH_FEATURES = 15  # fewer features need no approximate search
LEAST_NEIGHBORS = 5  # fewer neighbors seldom connect the graph


def estimate_spec(stores: Stores, dataset: Dataset, spec: FitSpec) -> EstimateSpec:
    """Return the analysis that estimates a fit."""
    return EstimateSpec(dataset=dataset.id, parameters=spec.to_dict(), engine=stores.queue.numbers_for_new())


def estimate_job(stores: Stores, dataset: Dataset, analysis: EstimateSpec) -> Job:
    """Return the job of an estimate; an executor runs it unless the data set is large."""
    short = dataset.n * dataset.d <= SHORT_VALUES
    return analysis_job(stores, analysis, posterior=None, terms=Terms(priority="interactive"), short=short)


def cached_estimate(stores: Stores, dataset: Dataset, spec: FitSpec) -> Estimate | None:
    """Return the estimate of a fit if it is cached."""
    entry = stores.cache.view(estimate_spec(stores, dataset, spec).cache_key(dataset.id))
    return None if entry is None else estimate_of(entry)


def estimate_of(entry: Entry) -> Estimate:
    """Return the estimate of a cache entry."""
    return Estimate.from_dict(entry.meta)


def described(stores: Stores, dataset: Dataset, expected: Estimate, deadline: float | None) -> PosteriorEstimateOut:
    """Return an estimate with the limits, and the problem of a fit beyond them."""
    allowed = Allowance.of(stores.settings, deadline)
    is_within = partial(_is_within, stores, allowed)
    problem: Problem | None = None
    most = expected.most_points(is_within)
    try:
        require_storable(stores, expected.n, expected.spec)
        _require_affordable(expected, allowed, most, expected.most_landmarks(is_within))
    except ProblemError as error:
        problem = error.problem
    return PosteriorEstimateOut(
        dataset=dataset.id,
        spec=expected.spec.to_dict(),
        n=expected.n,
        d=expected.d,
        analysed_points=list(expected.factorization.points),
        allowed_seconds=allowed.seconds,
        allowed_bytes=allowed.bytes,
        most_points=most,
        problem=None if problem is None else ProblemOut(**problem.to_dict()),
        **expected.figures(),
    )


def require_storable(stores: Stores, n: int, spec: FitSpec) -> None:
    """Raise ``cache-too-small`` or ``store-too-small`` if the covariance factors (n, k, k) alone leave no room."""
    k = spec.n_neighbors
    try:
        stores.cache.check_size(8 * n * k * k, f"The posterior of {n:,} points with n_neighbors={k}")
    except ProblemError as error:
        remedy = f"Fit fewer points, or use fewer neighbors; or: {error.problem.remedy}"
        raise ProblemError(replace(error.problem, remedy=remedy)) from error


def require_possible_fit(stores: Stores, dataset: Dataset, spec: FitSpec) -> None:
    """Raise a problem if a fit cannot end: no room for its result, or a cached estimate far beyond the time limit.

    A fit is refused only if it exceeds the time of a job on a machine that is faster by GLLE_COST_MARGIN than that of
    the estimate. Without a cached estimate no fit is refused for its time.
    """
    require_storable(stores, dataset.n, spec)
    expected = cached_estimate(stores, dataset, spec)
    if expected is None:
        return
    settings = stores.settings
    if expected.fit.seconds > settings.job_timeout * settings.cost_margin:
        allowed = Allowance.of(settings)
        is_within = partial(_is_within, stores, allowed)
        raise _too_costly(expected, allowed, expected.most_points(is_within), expected.most_landmarks(is_within))


def _is_within(stores: Stores, allowed: Allowance, expected: Estimate) -> bool:
    try:
        require_storable(stores, expected.n, expected.spec)
    except ProblemError:
        return False
    return _is_affordable(expected, allowed)


def _is_affordable(expected: Estimate, allowed: Allowance) -> bool:
    nbytes = max(expected.fit.bytes, expected.draw.bytes)
    return max(expected.fit.seconds, expected.single_draw_seconds) <= allowed.seconds and nbytes <= allowed.bytes


def _require_affordable(expected: Estimate, allowed: Allowance, most: int | None, landmarks: int | None) -> None:
    if not _is_affordable(expected, allowed):
        raise _too_costly(expected, allowed, most, landmarks)


def _too_costly(expected: Estimate, allowed: Allowance, most: int | None, landmarks: int | None) -> ProblemError:
    """Return ``too-long`` or ``too-much-memory`` with the remedies in order."""
    fit, draw, spec = expected.fit, expected.draw, expected.spec
    seconds, nbytes = max(fit.seconds, expected.single_draw_seconds), max(fit.bytes, draw.bytes)
    remedies = [f"Fit at most {most:,} points"] if most else []
    if landmarks:
        remedies.append(f"use landmarks={landmarks} or fewer")
    if spec.n_neighbors > LEAST_NEIGHBORS:
        remedies.append(f"use fewer neighbors than n_neighbors={spec.n_neighbors}")
    if expected.d > max(spec.n_components, LEAST_NEIGHBORS):
        remedies.append(f"reduce the {expected.d:,} features by PCA first (POST /v1/embeddings)")
    exact, walks = expected.stages["neighbors"], approximate_seconds(expected.n, expected.d)
    is_faster = exact > max(fit.seconds / 2, walks)
    if is_faster and spec.search == "exact" and expected.d > SEARCH_FEATURES:
        both = f"some {_rounded(walks):,} s in place of {_rounded(exact):,}"
        remedies.append(f"use search='approximate' ({both}; it finds {EXPECTED_RECALL})")
    if seconds > allowed.seconds:
        code = "too-long"
        part = "fit" if seconds == fit.seconds else "draw"
        excess = f"a {part} takes some {_rounded(seconds):,} s; {_rounded(allowed.seconds):,} are allowed"
        remedies.append("set a longer deadline, or raise GLLE_JOB_TIMEOUT")
    else:
        code = "too-much-memory"
        part = "fit" if nbytes == fit.bytes else "draw"
        excess = f"a {part} takes some {nbytes:,.0f} bytes of memory; {allowed.bytes:,} are allowed"
        remedies.append("raise GLLE_METHOD_BYTES")
    details: dict[str, Any] = {
        "most_points": most,
        "most_landmarks": landmarks,
        "intrinsic_dimension": _rounded(expected.factorization.dimension),
        "expected_seconds": _rounded(seconds),
        "allowed_seconds": _rounded(allowed.seconds),
        "expected_bytes": _rounded(nbytes),
        "allowed_bytes": allowed.bytes,
    }
    remedy = "; or ".join(remedies)
    return refuse(
        code,
        422,
        f"With {expected.n:,} points of intrinsic dimension {details['intrinsic_dimension']:g} and "
        f"n_neighbors={spec.n_neighbors}, {excess}.",
        remedy[0].upper() + remedy[1:] + ".",
        **details,
    )


def _rounded(number: float) -> float:
    """Return three digits of an estimate."""
    return float(f"{number:.3g}")
