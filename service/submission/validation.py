"""What a request must meet before anything is queued: each check raises the problem, with its remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle_engine.base.errors import InvalidParameterError
from service.schemas.resources import MAX_COUNTER
from worker.base.problems import ProblemError, refuse
from worker.records.draws import draws_bytes
from worker.records.priority import quick_draws
from worker.storage.datasets import all_points_equal, not_found

if TYPE_CHECKING:
    from worker.jobs.store import Job
    from worker.records.draws import DrawsSpec
    from worker.storage.datasets import Dataset
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores


def require_success(job: Job) -> None:
    """Raise the problem of a job that failed, or was cancelled."""
    if job.error is not None:
        raise ProblemError(job.error)
    if job.status in {"cancelled", "cancelling"}:
        remedy = "Send the request that created it again."
        raise refuse("job-cancelled", 409, f"Job {job.id} was cancelled.", remedy, job=job.id)


def require_draws(job: Job) -> None:
    """Raise the problem of a job whose result comes only as a whole."""
    if job.kind != "draws":
        raise refuse(
            "no-partial-result",
            422,
            f"Job {job.id} is a {job.kind}: its result is there at its end, as a whole.",
            "Leave `partial` out, and wait with ?wait=; only draws come one by one.",
            kind=job.kind,
        )


def require_dataset(here: Stores, id_: str) -> Dataset:
    """Return a data set's record, or raise the problem that it is not there."""
    if (dataset := here.datasets.get(id_)) is None:
        raise not_found(id_)
    return dataset


def require_not_all_equal(here: Stores, dataset: Dataset) -> None:
    """Raise the problem of a data set whose points are all one point."""
    if all_points_equal(here.datasets.values(dataset.id)):
        remedy = "Check that the data were read as intended."
        raise refuse("degenerate-data", 422, f"All {dataset.n} points are equal.", remedy)


def require_within(here: Stores, name: str, value: int) -> None:
    """Raise the problem of a parameter `n_neighbors` or `n_components` beyond what the settings allow."""
    setting = "max_" + name.partition("_")[2]
    if value > (allowed := getattr(here.settings, setting)):
        remedy = f"Ask for less, or raise GLLE_{setting.upper()}."
        raise refuse("over-the-limit", 422, f"{name}={value}; {allowed} are allowed.", remedy, allowed=allowed)


def require_calibratable(record: PosteriorRecord, source: str = "posterior") -> None:
    """Raise the problem of a law whose scale half-sampling cannot tell: a published one, a prior, too few points."""
    if source != "posterior":
        raise InvalidParameterError(
            "scale='auto' is calibrated for the posterior, not for the prior.",
            remedy="Use source='posterior', or give the scale as a number.",
        )
    if record.spec["variant"] != "constrained":
        raise InvalidParameterError(
            "Only constrained posteriors are calibrated.", remedy="Fit with variant='constrained'."
        )
    k, p = record.spec["n_neighbors"], record.spec["n_components"]
    if record.n // 2 <= max(k, p + 2):
        raise InvalidParameterError(
            f"Half of {record.n} points is too few for n_neighbors={k}.",
            remedy=f"Fit with n_neighbors below {record.n // 2 - 1}, or more points.",
        )


def require_drawable(here: Stores, record: PosteriorRecord, source: str, *, total: int, last: int) -> None:
    """Raise the problem of draws that are too many, that are numbered too high, or that have no law."""
    if total > (allowed := here.settings.max_draws):
        detail = f"{total:,} draws in one job; {allowed:,} are allowed."
        remedy = "Ask for them in several jobs (`first` moves on), or raise GLLE_MAX_DRAWS."
        raise refuse("over-the-limit", 422, detail, remedy, allowed=allowed)
    if last > MAX_COUNTER:
        remedy = "Lower `first`, or ask for fewer."
        raise refuse("over-the-limit", 422, f"The last index, {last}, is beyond 2^64 - 1.", remedy, allowed=MAX_COUNTER)
    if source == "prior" and "prior_factor" not in record.arrays:
        raise InvalidParameterError(
            f"Posterior {record.id} has no prior to draw from: it is of the published direct method.",
            remedy="Use source='posterior', or fit with method='em' or variant='constrained'.",
        )


def require_sample(
    here: Stores, record: PosteriorRecord, source: str, *, first: int, count: int, scales: int = 1
) -> None:
    """Raise the problem of draws that cannot be made, or that the cache cannot keep.

    Every job that makes draws asks this one check, whatever it makes of them: numbers, a summary, a picture.

    Parameters
    ----------
    first, count
        The draws of the stream, at each scale.
    scales
        How many scales.

    """
    total = count * scales
    require_drawable(here, record, source, total=total, last=first + count - 1)
    here.cache.check_size(draws_bytes(record.n, record.spec["n_components"], total), f"The {total:,} draws")


def require_quick(spec: DrawsSpec, seconds: float) -> None:
    """Raise the problem of draws that would make others wait too long, longer than this, if they went first."""
    if not quick_draws(spec, seconds):
        why = "their scale may still be to be calibrated" if spec.is_auto else f"they take some {spec.seconds:.1f} s"
        raise refuse(
            "not-interactive",
            422,
            f"{spec.total:,} draws of {spec.n:,} points cannot go before all others: {why}.",
            f"Leave `priority` out, or ask for less than {seconds:g} s of draws at scales that are numbers.",
            seconds=round(spec.seconds, 3),
            allowed=seconds,
        )


def require_posterior(here: Stores, id_: str) -> PosteriorRecord:
    """Return a posterior's record, or raise the reason why it is not there (yet)."""
    record = here.posteriors.get(id_)
    if record is not None:
        return record
    job = here.jobs.holder(id_)
    if job is None or job.status == "succeeded":
        return here.posteriors.fetch(id_)
    require_success(job)
    raise refuse(
        "posterior-not-ready",
        409,
        f"Posterior {id_} is being fitted by job {job.id}.",
        f"Wait for it with GET /v1/jobs/{job.id}?wait=30.",
        job=job.id,
    )
