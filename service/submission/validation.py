"""Checks of a request before its job is queued; each raises `ProblemError` or `GlleError`, with a remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.texts import Way
from glle_engine.reliability.resamples import resampling_obstacle
from glle_engine.tables.roles import column_order
from service.schemas.resources import MAX_COUNTER
from service.uploads.formats.json_table import table_of
from service.uploads.limits import Limits
from worker.base.disk import DISK_REMEDY, free_bytes
from worker.base.problems import ProblemError, refuse
from worker.records.draws import draws_bytes
from worker.storage.datasets import all_points_equal
from worker.storage.posteriors import neighbors_of, spec_of

if TYPE_CHECKING:
    from glle_engine.base.spec import FitSpec, Source
    from service.schemas.analyses import PointsIn
    from worker.jobs.store import Job
    from worker.records.dataset import Array
    from worker.storage.datasets import Dataset
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

MAX_NEIGHBORS, MAX_COMPONENTS = 200, 50  # largest allowed values for a posterior
MAX_DRAWS = 10_000  # draws in one job, all scales together


def require_success(job: Job) -> None:
    """Raise `ProblemError` if a job failed or was cancelled."""
    if job.error is not None:
        raise ProblemError(job.error)
    if job.status in {"cancelled", "cancelling"}:
        remedy = "Send the request that created the job again."
        raise refuse("job-cancelled", 409, f"Job {job.id} was cancelled.", remedy, job=job.id)


def require_partial(job: Job) -> None:
    """Raise `ProblemError` unless the job is an audit or a comparison: other jobs have no partial result."""
    if job.kind not in {"audit", "comparison"}:
        raise refuse(
            "no-partial-result",
            422,
            f"Job {job.id} is of kind {job.kind}, which has no partial result, only a complete one at its end.",
            "Wait until the job has ended; only audits and comparisons have a partial result.",
            kind=job.kind,
        )


def new_points(stores: Stores, body: PointsIn, training: Dataset) -> tuple[str, tuple[int, int], Array | None]:
    """Return (id, shape, array) of a request's new points; the array is None if the request names a data set.

    Raises `GlleError` unless the new points have the same features as the training data. If the features of a data set
    have names, their order may differ.
    """
    id_, shape, points, names = _given_points(stores, body.data if body.dataset is None else body.dataset)
    if points is None:
        column_order(training.names, names)
    if shape[1] != (d := training.d):
        raise InvalidShapeError(
            f"The new points have shape {shape}; the training data have {d} features.",
            remedy=f"Send a matrix of {d} columns.",
            details={"shape": list(shape), "features": d},
        )
    return id_, shape, points


def audited_coordinates(stores: Stores, id_or_rows: str | list[Any], n: int) -> tuple[str, int, Array | None]:
    """Return (id, number of columns, array) of a map's coordinates, which are a stored data set or rows in the body.

    For rows, the id is the one that they would have as a data set. For a data set, the array is None. Raises
    `InvalidShapeError` unless there are n rows.
    """
    id_, (rows, columns), points, _ = _given_points(stores, id_or_rows)
    require_rows("coordinates", rows, n)
    return id_, columns, points


def require_rows(name: str, rows: int, n: int) -> None:
    """Raise `InvalidShapeError` unless the data in the request's member `name` have a row for each of n points."""
    if rows != n:
        raise InvalidShapeError(
            f"`{name}` has {rows:,} rows, but the data have {n:,} points.",
            remedy=f"Give {n:,} rows of {name}, one for each point in the order of the data.",
            details={"rows": rows, "n_points": n},
        )


def _given_points(
    stores: Stores, id_or_rows: str | list[Any] | None
) -> tuple[str, tuple[int, int], Array | None, list[str] | None]:
    """Return (id, shape, array, feature names) of points, which are a stored data set or rows in the request's body.

    For a data set, the array is None. For rows, the id is the one that they would have as a data set, and the names are
    None.
    """
    if isinstance(id_or_rows, str):
        dataset = stores.datasets.fetch(id_or_rows)
        return dataset.id, (dataset.n, dataset.d), None, dataset.names
    table = table_of({"data": id_or_rows}, Limits.from_settings(stores.settings))
    return stores.datasets.id_of(table), (table.values.shape[0], table.values.shape[1]), table.values, None


def require_not_all_equal(stores: Stores, dataset: Dataset) -> None:
    """Raise `ProblemError` (``degenerate-data``) if all points of a data set are equal."""
    if all_points_equal(stores.datasets.values(dataset.id)):
        remedy = "Check that the data set was uploaded as intended; points have to differ."
        raise refuse("degenerate-data", 422, f"All {dataset.n:,} points of data set {dataset.id} are equal.", remedy)


def require_within(name: str, value: int, allowed: int) -> None:
    """Raise `ProblemError` if the value of the parameter `name` is above `allowed`."""
    if value > allowed:
        detail = f"{Way(name, value)} is too large; {allowed} are allowed."
        raise refuse("over-the-limit", 422, detail, f"Use {Way(name, allowed)} at most.", allowed=allowed)


def obstacle_to_resampling(record: PosteriorRecord, source: Source) -> InvalidParameterError | None:
    """Return the error that says why random halves of the data cannot calibrate a posterior, or None if they can.

    They cannot for draws from the prior, for the published variant, if the request gave the neighbors, and for too few
    points.
    """
    has_given_neighbors = neighbors_of(record.spec) is not None
    return resampling_obstacle(spec_of(record.spec), record.n, source, given_neighbors=has_given_neighbors)


def require_calibratable(record: PosteriorRecord, source: Source = "posterior") -> None:
    """Raise `InvalidParameterError` if random halves of the data cannot calibrate the scale of a posterior's draws.

    `source` is the distribution of these draws, posterior or prior; draws from the prior are never calibrated.
    """
    if (obstacle := obstacle_to_resampling(record, source)) is not None:
        raise obstacle


def require_drawable(record: PosteriorRecord, source: str, *, total: int, last: int) -> None:
    """Raise an error if a posterior cannot make the draws of a job.

    Raises `ProblemError` for too many draws (`total`) or a last index above 2^64 - 1, and `InvalidParameterError` for
    draws from a prior that the posterior does not have.
    """
    if total > MAX_DRAWS:
        detail = f"The job would make {total:,} draws; {MAX_DRAWS:,} are allowed."
        raise refuse(
            "over-the-limit",
            422,
            detail,
            f"Create several jobs with different {Way('first')}.",
            allowed=MAX_DRAWS,
        )
    if last > MAX_COUNTER:
        remedy = f"Lower {Way('first')} or {Way('n_draws')}."
        raise refuse(
            "over-the-limit",
            422,
            f"The index of the last draw, {last}, is larger than 2^64 - 1.",
            remedy,
            allowed=MAX_COUNTER,
        )
    if source == "prior" and "prior_factor" not in record.arrays:
        raise InvalidParameterError(
            f"Posterior {record.id} has no prior to draw from: it is of the published direct method.",
            remedy=f"Use {Way('source', 'posterior')}, or fit with {Way('method', 'em')} or "
            f"{Way('variant', 'constrained')}.",
        )


def require_sample(
    stores: Stores, record: PosteriorRecord, source: str, *, first: int, n_draws: int, scales: int = 1
) -> None:
    """Raise an error if the draws `first`, ..., `first + n_draws - 1` cannot be made, or there is no room for them.

    Raises `ProblemError` for too many draws, an index above 2^64 - 1, or too little room (``quota-exceeded`` or
    ``storage-full``), and `InvalidParameterError` for draws from a prior that the posterior does not have.

    Parameters
    ----------
    scales
        Number of scales, each with `n_draws` draws.

    """
    total = n_draws * scales
    require_drawable(record, source, total=total, last=first + n_draws - 1)
    require_storage(stores, draws_bytes(record.n, record.spec["n_components"], total), f"The {total:,} draws")


def require_storage(stores: Stores, nbytes: int, result: str) -> None:
    """Raise `ProblemError` (``quota-exceeded`` or ``storage-full``) if there is no room for `nbytes` bytes.

    `result` names these bytes in messages, such as "The 8 draws".
    """
    stores.datasets.require_room(nbytes)
    if stores.files.bucket.is_local and nbytes > (free := free_bytes(Path(stores.settings.data_dir))):
        detail = f"{result} would need {nbytes:,} bytes; {free:,} are free on the disk of the data folder."
        raise refuse("storage-full", 507, detail, DISK_REMEDY, free=free, needed=nbytes)


def require_storable(stores: Stores, n: int, spec: FitSpec) -> None:
    """Raise `ProblemError` if there is no room to store the covariance factors (n, k, k) of a posterior."""
    k = spec.n_neighbors
    try:
        require_storage(stores, 8 * n * k * k, f"The posterior of {n:,} points with {k} neighbors")
    except ProblemError as error:
        remedy = "Fit fewer points, or use fewer neighbors; or: " + error.problem.remedy
        raise ProblemError(replace(error.problem, remedy=remedy)) from error


def require_posterior(stores: Stores, id_: str) -> PosteriorRecord:
    """Return the record of a posterior; raise `ProblemError`, with the reason, if it does not exist or not yet."""
    record = stores.posteriors.get(id_)
    if record is not None:
        return record
    job = stores.jobs.claim_holder(id_)
    if job is None or job.status == "succeeded":
        return stores.posteriors.fetch(id_)
    require_success(job)
    raise refuse(
        "posterior-not-ready",
        409,
        f"Job {job.id} is fitting posterior {id_}.",
        f"Wait until it has ended, or cancel it ({Way('cancel-job', job.id)}).",
        job=job.id,
    )
