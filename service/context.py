"""What every route is given: the stores, and small answers that several routes share."""

from typing import Annotated

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from service.models import JobOut
from service.waiting import settled
from worker.jobs import Job
from worker.posteriors import PosteriorRecord
from worker.problems import ProblemError, refuse
from worker.stores import Stores


def _stores(request: Request) -> Stores:
    stores = request.app.state.stores
    assert isinstance(stores, Stores)
    return stores


Here = Annotated[Stores, Depends(_stores)]


def accepted(job: Job) -> Response:
    """Return 202: the job, where to ask for it, and when."""
    body = JobOut.of(job).model_dump_json()
    headers = {"Location": f"/v1/jobs/{job.id}", "Retry-After": "1"}
    return Response(body, 202, headers, "application/json")


async def settle(here: Stores, job: Job, wait: float) -> Job:
    """Return the job once it has ended, or as it is after `wait` seconds."""
    wait = min(wait, here.settings.max_wait)
    return await settled(lambda: run_in_threadpool(look, here, job.id), wait)


def look(here: Stores, id_: str) -> Job:
    """Return a job as it is, compared with the queue when it has been silent."""
    return here.queue.repair(here.jobs.fetch(id_))


def require_success(job: Job) -> None:
    """Raise the problem of a job that failed, or was cancelled."""
    if job.error is not None:
        raise ProblemError(job.error)
    if job.status in {"cancelled", "cancelling"}:
        remedy = "Send the request that created it again."
        raise refuse("job-cancelled", 409, f"Job {job.id} was cancelled.", remedy, job=job.id)


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
