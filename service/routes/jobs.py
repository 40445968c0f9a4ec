"""`/v1/jobs`: follow, fetch, cancel."""

from functools import partial as partial_of
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import WithJsonSchema
from starlette.concurrency import run_in_threadpool

from service.encoding.arrays import JSON, NPY, Dtype, negotiate
from service.encoding.selection import Draws, Points, reject_slice
from service.responses import draws as drawn
from service.responses.analyses import ResultQuery, picture_response, result_response
from service.responses.conditional import RANGE_RESPONSES, SCALE_DOCUMENTED, body_headers, is_not_modified, scale_header
from service.responses.partial_draws import partial_npy_response
from service.responses.sse import EVENTS, events, has_seen_end
from service.responses.streaming import LimitedStreamingResponse
from service.routes.posteriors import ACCEPTED, LATE, Wait
from service.schemas.problems import documented
from service.schemas.resources import JobOut, JobPage, PosteriorOut
from service.submission.dependencies import Here, accepted, look, made_again, settle, wait_for_it_again
from service.submission.pagination import Cursor, Limit, listed, position
from service.submission.validation import require_draws, require_success
from worker.analyses.registry import analysis_of
from worker.jobs.store import LISTED, Job, Kind, Status
from worker.records.draws import DrawsSpec
from worker.records.tenants import DEFAULT
from worker.stores import Stores

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get("", summary="List jobs", response_model=JobPage, responses=documented(_422="Bad cursor or filter."))
async def list_jobs(
    request: Request,
    here: Here,
    limit: Limit = 20,
    cursor: Cursor = None,
    status: Annotated[Status | None, Query(description="Only jobs of this status.")] = None,
    kind: Annotated[Kind | None, Query(description="Only jobs of this kind.")] = None,
) -> Response:
    """List the jobs, the newest first; a record is kept for GLLE_JOB_TTL after the job's end.

    Of the records of ended jobs a tenant keeps the newest GLLE_QUOTA_RECORDS.
    """
    found = here.jobs.listed(position(cursor), status, kind, min(limit + 1, LISTED))
    return await listed(request, found, limit, lambda items, at: JobPage(items=list(map(JobOut.of, items)), next=at))


@router.get("/{id}", summary="Follow a job", responses=documented(_404="No such job."))
async def get_job(id: str, here: Here, response: Response, wait: Wait = 0.0) -> JobOut:  # noqa: A002 # the name in the path
    """Tell status and progress; with `wait`, once the job has ended or after so many seconds."""
    job = await settle(here, await run_in_threadpool(here.jobs.fetch, id), wait)
    if job.is_open:
        response.headers["Retry-After"] = "1"
    return JobOut.of(job)


@router.get(
    "/{id}/events",
    summary="Follow a job by its events",
    response_class=Response,
    responses={
        200: {
            "description": "Events: `progress` (status, done, total, stage, eta), then `end` (the job).",
            "content": {EVENTS: {}},
        },
        204: {"description": "Last-Event-ID names the end: there is nothing more to come."},
        **documented(_404="No such job.", _406="text/event-stream is not accepted.", _422="Bad Last-Event-ID."),
    },
)
async def follow(
    id: str,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    last_event_id: Annotated[
        int | None,
        Header(ge=0, description="The id of the last event that came; only what is new follows."),
        WithJsonSchema({"type": "integer", "minimum": 0}),  # a header is not null, but away
    ] = None,
) -> Response:
    """Tell each change of a job as it comes, its end the last, as server-sent events; then the connection is closed.

    At most ten `progress` events a second come. An id numbers the changes of the job: it grows, and with Last-Event-ID
    a client whose connection broke gets the state that it has not seen yet, or 204 when it has seen the end.
    """
    negotiate(request, (EVENTS,))
    job = await run_in_threadpool(look, here, id)
    if has_seen_end(job, last_event_id):
        return Response(status_code=204)
    streams = request.app.state.stream_limiter
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # no proxy is to hold it back
    content = partial_of(events, here, streams, job, last_event_id)
    return LimitedStreamingResponse(streams, here.tenant or DEFAULT, content, headers=headers, media_type=EVENTS)


@router.get(
    "/{id}/result",
    summary="Fetch a job's result",
    response_class=Response,
    responses={
        200: {
            "description": "Embeddings of draws, the posterior of a fit, the result of an analysis.",
            "content": {media: {} for media in drawn.MEDIA},
            "headers": SCALE_DOCUMENTED,
        },
        **RANGE_RESPONSES,
        **ACCEPTED,
        **documented(
            _404="No such job.",
            _406="No offered type is accepted.",
            _409="The job was cancelled.",
            _416="A Range behind the last byte.",
            _422="The job failed: the problem it failed with; or a slice that is out of range, or no partial result.",
            **LATE,
        ),
    },
)
async def get_result(
    id: str,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    dtype: Annotated[Dtype, Query(description="float32 halves the bytes.")] = "float64",
    points: Points = None,
    draws: Draws = None,
    wait: Wait = 0.0,
    *,
    partial: Annotated[
        bool, Query(description="Of draws, as npy: begin before the job's end, and send each draw as it is made.")
    ] = False,
) -> Response:
    """Return what the job made; 202 while it works, or when what was evicted is made again.

    Draws: npy has the embeddings, (count, n, p) or (scales, count, n, p); npz has `embeddings`, `eigenvalues`,
    `indices` and `scales`; JSON has shape, dtype and data, then `eigenvalues`, `diagnostics`, index and scale of each
    draw; the header Glle-Scale has the scales. Analyses: JSON has all there is, `arrays` by name; npz the arrays (not
    advice, which has none); npy the `embedding` of a transform or the `data` of reconstructions.

    CSV and Arrow: a row for each point of each draw (columns draw, scale where there are several, point, y1 to yp), of
    each data set that was generated (draw, point, x1 to xd), or for each point of another analysis. `points` and
    `draws` choose some. The ETag is strong; npy answers Range.
    With `partial` the npy of draws begins at once (202 while their scale is still calibrated), draw by draw in order,
    and ends with the job. When the job fails or is cancelled the answer is broken off, shorter than its Content-Length.
    """
    job = await settle(here, await run_in_threadpool(here.jobs.fetch, id), wait)
    if partial:
        require_draws(job)
        if job.is_open and job.status != "cancelling":
            return await _partial(here, job, request, dtype)
    if job.is_open and job.status != "cancelling":
        return accepted(job)
    require_success(job)
    make = {"fit": _posterior, "draws": _draws}.get(job.kind, _analysis)
    return await run_in_threadpool(make, here, job, ResultQuery(request, dtype, points, draws))


@router.delete(
    "/{id}",
    summary="Cancel a job",
    response_model=JobOut,
    responses={
        202: {"model": JobOut, "description": "It runs, and was told to stop."},
        **documented(_404="No such job.", _409="With `record`: the job has not ended."),
    },
)
def cancel(
    id: str,  # noqa: A002 # the name in the path
    here: Here,
    *,
    record: Annotated[bool, Query(description="Remove the record of a job that has ended.")] = False,
) -> Response:
    """Cancel a job: a queued one at once, a running one within two seconds; an ended one stays as it is.

    A cancellation stops the work; a long computation that does not check for it is killed by its worker. With `record`
    the record of an ended job is removed, and its last state returned. Its results stay cached under their names.
    """
    if record:
        return Response(JobOut.of(here.jobs.forget(id)).model_dump_json(), 200, media_type="application/json")
    here.jobs.fetch(id)
    job = here.queue.withdraw(here.jobs.cancel(id))
    if job.is_open:
        return accepted(job)
    return Response(JobOut.of(job).model_dump_json(), 200, media_type="application/json")


def _posterior(here: Stores, job: Job, wanted: ResultQuery) -> Response:
    negotiate(wanted.request, (JSON,))
    reject_slice("points", wanted.points)
    reject_slice("draws", wanted.draws)
    body = PosteriorOut.of(here.posteriors.fetch(job.subject)).model_dump_json()
    headers = body_headers(body) | {"Content-Location": f"/v1/posteriors/{job.subject}"}
    if is_not_modified(wanted.request, headers):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")


def _analysis(here: Stores, job: Job, wanted: ResultQuery) -> Response:
    spec = analysis_of(job)
    entry = here.cache.view(spec.cache_key(job.subject))
    if entry is None:  # evicted
        return accepted(made_again(here, job))
    if job.kind == "picture":
        negotiate(wanted.request, (entry.meta["media"],))
        return picture_response(wanted.request, entry)
    return result_response(spec, entry, wanted)


async def _partial(here: Stores, job: Job, request: Request, dtype: Dtype) -> Response:
    negotiate(request, (NPY,))
    spec = await run_in_threadpool(_numbered, here, job)
    if spec is None:
        return accepted(job)
    headers = scale_header(*(float(scale) for scale in spec.scales))
    return partial_npy_response(here, request.app.state.stream_limiter, job, spec, dtype, headers)


def _numbered(here: Stores, job: Job) -> DrawsSpec | None:
    """Return what a draws job makes, at scales that are numbers; None while one is to be calibrated."""
    spec = DrawsSpec.from_dict(job.spec)
    if not spec.is_auto:
        return spec
    known = here.posteriors.calibration(job.subject)
    return None if known is None else spec.at(known["scale"])


def _draws(here: Stores, job: Job, wanted: ResultQuery) -> Response:
    negotiate(wanted.request, drawn.MEDIA)
    spec = _numbered(here, job)
    if spec is None:  # its calibration was deleted with its posterior
        return accepted(made_again(here, job))
    # Evicted: made again, and what is there is kept.
    again = partial_of(wait_for_it_again, here, job)
    drawn_from = here.posteriors.drawn_from(job.subject)
    return drawn.draws_response(here.cache, drawn_from, spec, wanted, again) or accepted(made_again(here, job))
