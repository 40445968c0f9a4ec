"""What every route is given: the stores, jobs to do the work, and small answers that several routes share."""

from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service.auth import tenant_of
from service.checks import require_success
from service.models import JobOut
from service.waiting import settled
from worker.analysis import AnalysisSpec
from worker.jobs import Job
from worker.stores import Stores
from worker.terms import ANY_TIME, Terms


def _stores(request: Request) -> Stores:
    """Return the stores as the request's tenant sees them."""
    stores = request.app.state.stores_of(tenant_of(request.scope))
    assert isinstance(stores, Stores)
    return stores


Here = Annotated[Stores, Depends(_stores)]

# Beside `wait`, and in the query as it is: it is about this request, not about what is asked for.
Deadline = Annotated[
    float | None,
    Query(
        gt=0,
        le=366 * 86400,
        allow_inf_nan=False,
        description="Seconds after which the job fails unless it has ended; of those who share it the latest counts.",
    ),
]


def accepted(job: Job) -> Response:
    """Return 202: the job, where to ask for it, and when."""
    body = JobOut.of(job).model_dump_json()
    headers = {"Location": f"/v1/jobs/{job.id}", "Retry-After": "1"}
    return Response(body, 202, headers, "application/json")


async def answered(here: Stores, job: Job, wait: float) -> Response:
    """Return the job with 200 once it has succeeded, 202 when it has not ended within the wait; or its problem."""
    job = await settle(here, job, wait)
    if job.is_open:
        return accepted(job)
    require_success(job)
    headers = {"Location": f"/v1/jobs/{job.id}"}
    return Response(JobOut.of(job).model_dump_json(), 200, headers, "application/json")


async def settle(here: Stores, job: Job, wait: float) -> Job:
    """Return the job once it has ended, or as it is after `wait` seconds."""
    wait = min(wait, here.settings.max_wait)
    if not job.is_open or not wait:
        return job if not job.is_open else await run_in_threadpool(look, here, job.id)
    with here.endings.of(job.id) as ended:
        return await settled(partial(run_in_threadpool, look, here, job.id), wait, ended)


def look(here: Stores, id_: str) -> Job:
    """Return a job as it is, compared with the queue when it has been silent."""
    return here.queue.repair(here.jobs.fetch(id_))


def submitted(here: Stores, terms: Terms, **asked: Any) -> tuple[Job, bool]:
    """Return the job of what is asked (see `JobStore.create`), in the queue, and whether it is new."""
    job, created = here.jobs.create(terms=terms, **asked)
    if created:
        here.queue.enqueue(job)
    elif terms.priority == "interactive" and job.is_open:
        here.queue.promote(job)  # it may have been a batch until now
    return job, created


def analysis_job(here: Stores, spec: AnalysisSpec, *, posterior: str | None, terms: Terms = ANY_TIME) -> Job:
    """Return the job of an analysis: one that is at work, one whose result is there, or a new one."""
    subject = posterior or spec.to_dict()["dataset"]
    job, created = submitted(
        here,
        terms,
        kind=spec.kind,
        claim=spec.cache_key(subject),
        posterior=posterior,
        spec=spec.to_dict(),
        total=spec.total,
        reuse=("queued", "running", "succeeded"),
    )
    if not created and job.status == "succeeded" and not all(here.cache.present([spec.cache_key(subject)])):
        return made_again(here, job, terms)
    return job


def made_again(here: Stores, job: Job, terms: Terms = ANY_TIME) -> Job:
    """Return a job that succeeded, but whose result was evicted, at work again."""
    if here.jobs.reopen(job, terms):
        here.queue.enqueue(here.jobs.fetch(job.id))
    return here.jobs.fetch(job.id)
