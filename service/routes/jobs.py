"""`/v1/jobs`: list, follow, fetch results, cancel."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service.encoding.arrays import JSON, Dtype
from service.encoding.result import RESULT_MEDIA, Draws, Points, mutable_response, negotiate, reject_slice
from service.responses.analyses import ResultQuery, ids_of, result_response
from service.responses.draws import calibrated_spec, draws_response, missing_shards
from service.routes import params
from service.routes.params import Id, TenantStores
from service.schemas.problems import failures
from service.schemas.resources import JobOut, JobPage, PosteriorOut
from service.schemas.results import JobResultOut
from service.submission.jobs import accepted_response, result_gone, wait_until_ended
from service.submission.pagination import Cursor, Limit, page_response, position
from service.submission.validation import require_partial, require_success
from worker.analyses.registry import analysis_of
from worker.jobs.store import RECORDS_PER_READ, Job, Kind, Status
from worker.records.draws import DrawsSpec
from worker.records.ids import DEFAULT
from worker.stores import Stores

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get("", summary="List jobs", response_model=JobPage, responses=failures(_422="Bad cursor or filter."))
async def list_jobs(
    stores: TenantStores,
    limit: Limit = 20,
    cursor: Cursor = None,
    status: Annotated[Status | None, Query(description="Only jobs of this status.")] = None,
    kind: Annotated[Kind | None, Query(description="Only jobs of this kind.")] = None,
) -> Response:
    """List the jobs, the newest first; a record expires GLLE_JOB_TTL after the job's end.

    A tenant's quota limits the bytes of the records of ended jobs, of which the oldest are removed first.
    """
    together = RECORDS_PER_READ if status or kind else min(limit + 1, RECORDS_PER_READ)
    records = stores.jobs.iterate(position(cursor), status, kind, together)
    return await page_response(records, limit, JobOut.from_job)


@router.get("/{id}", summary="Follow a job", responses=failures(_404="No such job."))
async def get_job(id_: Id, stores: TenantStores, response: Response, wait: params.Wait = 0.0) -> JobOut:
    """Return the status and progress of a job; with `wait`, once the job has ended or `wait` seconds have passed."""
    job = await wait_until_ended(stores, await run_in_threadpool(stores.jobs.fetch, id_), wait)
    if job.is_open:
        response.headers["Retry-After"] = "1"
    return JobOut.from_job(job)


@router.get(
    "/{id}/result",
    summary="Fetch a job's result",
    **params.returns_arrays(
        "Embeddings of draws, the posterior of a fit, the result of an analysis.",
        RESULT_MEDIA,
        JobResultOut,
        has_scale=True,
        _404="No such job.",
        _409="The job was cancelled.",
        _410="The result has expired, or was deleted.",
        _422="The job failed: the problem it failed with; or a slice that is out of range, or no partial result.",
    ),
)
async def get_result(
    id_: Id,
    request: Request,
    stores: TenantStores,
    dtype: params.DtypeQuery = "float64",
    points: Points = None,
    draws: Draws = None,
    wait: params.Wait = 0.0,
    *,
    partial: Annotated[
        bool,
        Query(
            description="Before the job's end: the latest statements of an audit, or the methods of a comparison that "
            "are done."
        ),
    ] = False,
) -> Response:
    """Return the result of a job, or 202 while the job is in progress.

    The result of draws is

    - in npy, the embeddings: (n_draws, n, p) or (scales, n_draws, n, p);
    - in npz, the arrays `embeddings`, `eigenvalues`, `indices` and `scales`;
    - in JSON, shape, dtype and data of the embeddings, then `eigenvalues`, `diagnostics`, index and scale of each draw,
      and `notes` if a calibrated scale is doubtful;
    - in CSV and Arrow, a row for each point of each draw: draw, scale if there are several, point, y1 to yp.

    The header Glle-Scale has the scales, and Glle-Notes the codes of the notes. The result of an analysis is

    - in JSON, all members, with `arrays` by name, and in npz the arrays;
    - in npy, the `embedding` of a transform, the `data` of reconstructions, or the `weights` of a draw;
    - in CSV and Arrow, a row for each point; of reconstructions, a row for each point of each generated data set: draw,
      point, x1 to xd.

    If the points have ids, these are the first column, id, of CSV and Arrow. `points` and `draws` select some of the
    points and draws. The ETag is strong; npy supports Range.

    With `partial`, a job in progress answers with its latest partial result, or 202 before the first one. More pairs of
    halves refine the result of an audit, and a comparison has the rows of the methods that are done.
    """
    job = await wait_until_ended(stores, await run_in_threadpool(stores.jobs.fetch, id_), wait)
    if partial:
        require_partial(job)
        if job.is_open and job.status != "cancelling":
            return await run_in_threadpool(_partial, stores, job, request, dtype)
    if job.is_open and job.status != "cancelling":
        return accepted_response(job)
    require_success(job)
    respond = {"fit": _posterior, "draws": _draws}.get(job.kind, _analysis)
    return await run_in_threadpool(respond, stores, job, ResultQuery(request, dtype, points, draws))


@router.delete(
    "/{id}",
    summary="Cancel a job",
    response_model=JobOut,
    responses={
        202: {"model": JobOut, "description": "It is running, and will stop."},
        **failures(_404="No such job.", _409="With `record`: the job has not ended."),
    },
)
def cancel(
    id_: Id,
    stores: TenantStores,
    *,
    record: Annotated[bool, Query(description="Remove the record and the results of a job that has ended.")] = False,
) -> Response:
    """Cancel a job: a queued one at once, a running one within two seconds; an ended job is unchanged.

    A worker kills a long computation that does not check for the cancellation. With `record`, the record and the
    results of an ended job are removed, and the answer is the job's last state. Posteriors and embeddings stay.
    """
    if record:
        job = _delete(stores, id_)
    else:
        stores.jobs.fetch(id_)  # raises `ProblemError` unless the tenant has the job
        job = stores.queue.withdraw(stores.jobs.cancel(id_))
    if job.is_open:
        return accepted_response(job)
    return Response(JobOut.from_job(job).model_dump_json(), 200, media_type="application/json")


def _delete(stores: Stores, id_: str) -> Job:
    """Remove the record and the results of an ended job of the tenant, and return the job.

    If the record has expired, the results are removed, and `ProblemError` (``job-not-found``) is raised.
    """
    job = stores.jobs.get(id_)
    if job is None or not job.is_open:
        stores.results.delete_of(id_, stores.tenant or DEFAULT)
    return stores.jobs.delete(id_)


def _posterior(stores: Stores, job: Job, query: ResultQuery) -> Response:
    negotiate(query.request, (JSON,))
    reject_slice("points", query.points)
    reject_slice("draws", query.draws)
    body = PosteriorOut.from_record(stores.posteriors.fetch(job.subject)).model_dump_json()
    return mutable_response(query.request, body, **{"Content-Location": f"/v1/posteriors/{job.subject}"})


def _analysis(stores: Stores, job: Job, query: ResultQuery) -> Response:
    spec = analysis_of(job)
    entry = stores.find_result(spec, job.subject)
    if entry is None:
        for owner in spec.owners(job.subject):
            stores.owner(owner).fetch(owner)  # raises `ProblemError` if what the result is about is gone
        raise result_gone(job)
    return result_response(spec, entry, replace(query, ids=ids_of(stores, job.subject, spec)))


def _partial(stores: Stores, job: Job, request: Request, dtype: Dtype) -> Response:
    analysis = analysis_of(job)
    entry = stores.cache.find_partial(analysis.key(job.subject))
    query = ResultQuery(request, dtype, ids=ids_of(stores, job.subject, analysis), is_partial=True)
    return result_response(analysis, entry, query) if entry else accepted_response(job)


def _draws(stores: Stores, job: Job, query: ResultQuery) -> Response:
    negotiate(query.request, RESULT_MEDIA)
    stores.posteriors.fetch(job.subject)  # raises `ProblemError` if the posterior was deleted
    spec, notes = calibrated_spec(stores, job.subject, DrawsSpec.from_dict(job.spec))
    if spec is None or missing_shards(stores, job.subject, spec):
        raise result_gone(job)
    query = replace(query, ids=ids_of(stores, job.subject), notes=notes)
    return draws_response(stores.results, job.subject, spec, query)
