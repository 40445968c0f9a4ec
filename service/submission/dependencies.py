"""What every route is given: the stores, jobs to do the work, and small answers that several routes share."""

import threading
import time
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service.encoding.aborted import ResponseAbortedError
from service.middleware.authentication import tenant_of
from service.schemas.resources import JobOut
from service.submission.validation import require_success
from service.submission.waiting import WAITS
from worker.analyses.base import AnalysisSpec
from worker.base.numerics import numbers_for
from worker.jobs.replication import replicated
from worker.jobs.store import Job
from worker.records.dataset import Array
from worker.records.priority import ANY_TIME, Terms
from worker.records.tenants import DEFAULT
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores


def _stores(request: Request) -> Stores:
    """Return the stores as the request's tenant sees them."""
    stores = request.app.state.stores_of(tenant_of(request.scope))
    assert isinstance(stores, Stores)
    return stores


Here = Annotated[Stores, Depends(_stores)]

AGAIN_SECONDS = 30.0  # for which an answer that has begun waits for what was evicted meanwhile
LOOK_SECONDS = 0.05
_WAITING = threading.BoundedSemaphore(8)  # of some forty threads

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
    """Return the job once it has ended, or as it is after `wait` seconds, or when too many requests wait already."""
    wait = min(wait, here.settings.max_wait)
    if not job.is_open:
        return job
    now = partial(run_in_threadpool, look, here, job.id)
    if not wait:
        return await now()
    tenant, most = here.tenant or DEFAULT, here.settings.max_waits
    return await WAITS.settled(here.endings, job.id, now, wait, tenant=tenant, most=most)


def look(here: Stores, id_: str) -> Job:
    """Return a job as it is, compared with the queue when it has been silent."""
    return here.queue.look(here.jobs.fetch(id_))


def submitted(here: Stores, terms: Terms, **asked: Any) -> tuple[Job, bool]:
    """Return the job of what is asked (see `JobStore.create`), in the queue, and whether it is new.

    Raises
    ------
    ProblemError
        As `JobStore.create`.

    """
    job, created = here.jobs.create(terms=terms, **asked)
    if created:
        here.queue.enqueue(job)
    elif terms.priority == "interactive" and job.is_open:
        here.queue.promote(job)  # it may have been a batch until now
    replicated(here.client, here.settings.replicas, job.id)  # of another's job as well: it may be a moment old
    return job, created


def analysis_job(
    here: Stores, spec: AnalysisSpec, *, posterior: str | None, terms: Terms = ANY_TIME, points: Array | None = None
) -> Job:
    """Return the job of an analysis: one that is at work, one whose result is there, or a new one.

    `points` are those that came with the request, if any.
    """
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
        numbers=numbers_for(spec.engine),
        points=points,
    )
    if not created and job.status == "succeeded" and not all(here.cache.present([spec.cache_key(subject)])):
        return made_again(here, job, terms)
    return job


def made_again(here: Stores, job: Job, terms: Terms = ANY_TIME) -> Job:
    """Return a job that succeeded, but whose result was evicted, at work again."""
    if here.jobs.reopen(job, terms):
        here.queue.enqueue(here.jobs.fetch(job.id))
    replicated(here.client, here.settings.replicas, job.id)
    return here.jobs.fetch(job.id)


def delete_posterior_of(here: Stores, record: PosteriorRecord) -> None:
    """Delete a posterior, and cancel the job that fits it again, which would bring it back."""
    job = here.jobs.holder(record.id)
    if job is not None and job.is_open:
        here.queue.withdraw(here.jobs.cancel(job.id))
    here.posteriors.delete(record)


def wait_for_it_again(here: Stores, job: Job) -> None:
    """Have a job that succeeded make again what was evicted, and wait for it, holding this thread.

    Raises
    ------
    ResponseAbortedError
        When that fails, takes too long, or too many threads wait so already.

    """
    if not _WAITING.acquire(blocking=False):
        raise ResponseAbortedError(f"What job {job.id} made was evicted, and too many others wait for theirs.")
    try:
        until = time.monotonic() + AGAIN_SECONDS
        job = made_again(here, job)
        while job.is_open and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            job = look(here, job.id)
    finally:
        _WAITING.release()
    if job.status != "succeeded":
        raise ResponseAbortedError(f"What job {job.id} made was evicted, and did not come again: it is {job.status}.")
