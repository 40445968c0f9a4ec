"""`/v1/posteriors`: fit, list, read, export, name, delete."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine import FitSpec
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.given import checked_neighbors, stored_indices
from glle_engine.posterior.npz import saved_arrays
from service.encoding.arrays import JSON, NPY, NPZ, Dtype
from service.encoding.result import (
    ArraysResult,
    immutable_headers,
    mutable_response,
    named_arrays_response,
    negotiate,
    unless_current,
)
from service.routes import params
from service.routes.params import ACCEPTED, Id, TenantStores, Wait
from service.schemas.derived import ArrayOut
from service.schemas.problems import failures
from service.schemas.resources import PosteriorIn, PosteriorOut, PosteriorPage
from service.submission.jobs import (
    UnfinishedJobError,
    delete_posterior_of,
    finish,
    submit_job,
    wait_until_ended,
)
from service.submission.validation import (
    MAX_COMPONENTS,
    MAX_NEIGHBORS,
    require_not_all_equal,
    require_posterior,
    require_rows,
    require_storable,
    require_within,
)
from worker.jobs.store import Job
from worker.records.job import is_quick_fit
from worker.storage.datasets import Dataset
from worker.storage.posteriors import PosteriorRecord, posterior_id, recorded_parameters
from worker.stores import Stores

router = APIRouter(prefix="/v1/posteriors", tags=["posteriors"])

_NO_POSTERIOR: dict[str, Any] = {"_404": "No such posterior.", "_409": "Not fitted."}
ArrayName = Literal[
    "mean",
    "covariance_factor",
    "neighbors",
    "embedding",
    "eigenvalues",
    "sigma",
    "prior_factor",
    "scatter",
    "second_moment",
    "gradient",
    "landmarks",
    "center",
    "scale",
]


@router.post(
    "",
    summary="Fit a posterior",
    status_code=202,
    response_model=None,
    responses={
        200: {"model": PosteriorOut, "description": "It exists already."},
        201: {"model": PosteriorOut, "description": "The fit ended within the wait."},
        **ACCEPTED,
        **failures(
            **params.ON_DATASET,
            _422="Parameters, k >= n, all points equal; beyond the limits; with `disconnected` error a graph of "
            "several components, if the fit ends within the wait.",
        ),
    },
)
async def fit(body: PosteriorIn, stores: TenantStores, wait: params.Wait = 0.0) -> Response:
    """Fit a posterior over reconstruction weights on a worker.

    The id is the digest of data, specification and engine version. An existing posterior is returned at once, and equal
    requests at the same time share one job.
    """
    result = await run_in_threadpool(_posterior_or_job, stores, body)
    if isinstance(result, PosteriorRecord):
        return _posterior_response(result, 200)
    job = await finish(stores, result, wait)
    return _posterior_response(await run_in_threadpool(stores.posteriors.fetch, job.subject), 201)


params.add_list(router, "posteriors", "List posteriors", "posteriors", PosteriorPage)


@router.get(
    "/{id}",
    summary="Describe a posterior",
    response_model=PosteriorOut,
    responses={
        **params.NOT_MODIFIED,
        **ACCEPTED,
        **failures(_404="No such posterior.", _409="Its job was cancelled.", _422="Its fit failed: the reason."),
    },
)
async def get_posterior(id_: Id, request: Request, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Return a posterior's specification, diagnostics, spectrum and provenance, or the problem of a failed fit."""
    job = await run_in_threadpool(_fit_job, stores, id_)
    if job is not None:
        job = await wait_until_ended(stores, job, wait)
        if job.is_open:
            raise UnfinishedJobError(job)
    record = await run_in_threadpool(require_posterior, stores, id_)
    return mutable_response(request, PosteriorOut.from_record(record).model_dump_json())


@router.get(
    "/{id}/arrays",
    summary="Read a posterior's arrays",
    **params.returns_arrays(
        "The arrays.",
        (NPZ, NPY, JSON),
        ArrayOut,
        may_be_job=False,
        **_NO_POSTERIOR,
        _422="Bad name, or beyond float32.",
    ),
)
def get_arrays(
    id_: Id,
    request: Request,
    stores: TenantStores,
    name: Annotated[
        ArrayName | None, Query(description="One array, as npy or JSON; without a name all, as npz.")
    ] = None,
    dtype: Annotated[Dtype, Query(description="Type of the floating-point arrays.")] = "float64",
) -> Response:
    """Return all arrays of a posterior as npz, or one by name as npy or JSON.

    The ETag is strong, and npy supports Range.
    """
    entry = stores.posteriors.arrays(require_posterior(stores, id_))
    return named_arrays_response(request, "posterior", entry.meta["sha256"], entry.arrays, name, dtype)


@router.get(
    "/{id}/export",
    summary="Export a posterior",
    **params.returns_arrays("The file.", (NPZ,), may_be_job=False, **_NO_POSTERIOR),
)
def export(id_: Id, request: Request, stores: TenantStores) -> Response:
    """Return the posterior as one npz file; `glle.load` reads it without a service, and draws have the same bits.

    The ETag is strong.
    """
    record = require_posterior(stores, id_)
    media = negotiate(request, (NPZ,))
    entry = stores.posteriors.arrays(record)
    headers = immutable_headers(entry.meta["sha256"], media, "", "export")
    attached = headers | {"Content-Disposition": f'attachment; filename="{record.id}.npz"'}
    result = ArraysResult(arrays=saved_arrays(entry.meta["head"], entry.arrays))
    return unless_current(request, headers, lambda: result.response(media, "", attached))


params.add_rename(router, "posteriors", "Name and tag a posterior", PosteriorOut, params.CONTENT_STAYS)


@router.delete(
    "/{id}",
    summary="Delete a posterior",
    status_code=204,
    responses=failures(**_NO_POSTERIOR, _422="Its fit failed: the reason."),
)
def delete_posterior(id_: Id, stores: TenantStores) -> Response:
    """Delete a posterior, its draws and their analyses; its data set stays."""
    delete_posterior_of(stores, require_posterior(stores, id_))
    return Response(status_code=204)


def _fit_job(stores: Stores, id_: str) -> Job | None:
    """Return the last job that was created to fit a posterior, which may be open or have failed.

    Returns None if the posterior exists, or if there is no such job.
    """
    job = stores.jobs.claim_holder(id_)
    return None if job is None or stores.posteriors.get(id_) is not None else job


def _posterior_or_job(stores: Stores, body: PosteriorIn) -> PosteriorRecord | Job:
    """Return the posterior if it exists, else the job that fits it.

    Raises `ProblemError` or `GlleError` if the data or the parameters do not allow the fit, or there is no room for it.
    """
    dataset, spec = _check(stores, body)
    parameters = recorded_parameters(spec, body.neighbors)
    id_ = posterior_id(dataset.id, parameters)

    if (record := stores.posteriors.get(id_)) is not None:
        return record
    stores.posteriors.require_room()
    require_storable(stores, dataset.n, spec)
    require_not_all_equal(stores, dataset)
    fields = {"dataset": dataset.id, "spec": parameters}
    short = is_quick_fit(dataset.n, dataset.d, parameters)
    return submit_job(stores, kind="fit", claim=id_, posterior=id_, spec=fields, total=1, short=short)


def _check(stores: Stores, body: PosteriorIn) -> tuple[Dataset, FitSpec]:
    """Return the data set and the specification of a fit, after the checks that do not need to read the data."""
    spec = body.fit_spec()
    dataset = stores.datasets.fetch(body.dataset)
    if body.neighbors is not None:
        spec = body.fit_spec(_given_neighbors(stores, body.neighbors, dataset.n))
    spec = spec.of_points(dataset.n)
    require_within("n_neighbors", spec.n_neighbors, MAX_NEIGHBORS)
    require_within("n_components", spec.n_components, MAX_COMPONENTS)
    require_enough_points(dataset.n, spec)
    return dataset, spec


def _given_neighbors(stores: Stores, id_: str, n: int) -> int:
    """Return how many neighbors the data set `id_` lists for each of n points; raise an error unless they are valid."""
    dataset = stores.datasets.fetch(id_)
    require_rows("neighbors", dataset.n, n)
    min_neighbors = max(2, dataset.d - 1)  # one less than the columns: a row may also list the point itself
    require_within("n_neighbors", min_neighbors, MAX_NEIGHBORS)
    require_storable(stores, n, FitSpec(n_neighbors=min_neighbors))  # checked before the neighbors are read into memory
    return int(checked_neighbors(stored_indices(stores.datasets.values(id_)), n).shape[1])


def _posterior_response(record: PosteriorRecord, status: int) -> Response:
    body = PosteriorOut.from_record(record).model_dump_json()
    return Response(body, status, {"Location": f"/v1/posteriors/{record.id}"}, "application/json")
