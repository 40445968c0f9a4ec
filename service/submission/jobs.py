"""Create jobs, wait for them and their results, and make the responses that report a job."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from service.schemas.resources import JobOut
from service.submission.validation import require_success
from service.submission.waiting import wait_for_outcome
from worker.analyses.base import AnalysisSpec
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.embedding_records import EmbeddingRecord
from worker.analyses.registry import recipes_of
from worker.base.problems import ProblemError, refuse
from worker.jobs.store import Job, Status
from worker.records import sharding
from worker.records.cache_entry import Entry
from worker.records.dataset import Array
from worker.records.ids import DEFAULT
from worker.records.sharding import PartsSharding
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

JOINABLE: tuple[Status, ...] = ("queued", "running")  # an equal request joins a job with one of these states
OPEN_OR_DONE: tuple[Status, ...] = (*JOINABLE, "succeeded")  # a succeeded job is joined only while its result is stored


def accepted_response(job: Job) -> Response:
    """Return 202 with a job that has not ended, its Location and Retry-After."""
    body = JobOut.from_job(job).model_dump_json()
    headers = {"Location": f"/v1/jobs/{job.id}", "Retry-After": "1"}
    return Response(body, 202, headers, "application/json")


class UnfinishedJobError(Exception):
    """A job has not ended in time, so that its result cannot be sent; the client gets `accepted_response` instead."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.id)
        self.job = job


def install(app: FastAPI) -> None:
    """Register the handler of `UnfinishedJobError`; being async, it needs no thread."""

    @app.exception_handler(UnfinishedJobError)
    async def _respond(_: Request, error: UnfinishedJobError) -> Response:
        return accepted_response(error.job)


async def finish(stores: Stores, job: Job, wait: float) -> Job:
    """Wait until a job has succeeded, and return it.

    Raises `UnfinishedJobError` after `wait` seconds, and `ProblemError` if the job failed or was cancelled.
    """
    job = await wait_until_ended(stores, job, wait)
    if job.is_open:
        raise UnfinishedJobError(job)
    require_success(job)
    return job


async def job_response(stores: Stores, submit: Callable[[], Job], wait: float) -> Response:
    """Create a job by `submit`, wait until it has succeeded, and return 200 with the job.

    Raises `UnfinishedJobError` after `wait` seconds, and `ProblemError` if the job failed or was cancelled.
    """
    job = await finish(stores, await run_in_threadpool(submit), wait)
    headers = {"Location": f"/v1/jobs/{job.id}"}
    return Response(JobOut.from_job(job).model_dump_json(), 200, headers, "application/json")


async def load_or_compute(
    stores: Stores, spec: AnalysisSpec, subject: str, submit: Callable[[], Job], wait: float
) -> Entry:
    """Return the stored result of an analysis, or create the analysis's job by `submit` and wait for the result.

    `subject` is the id of the posterior or data set that the analysis is about. Raises `UnfinishedJobError` after
    `wait` seconds, and `ProblemError` if the job failed or was cancelled.
    """
    find = partial(stores.find_result, spec, subject)
    return await run_in_threadpool(find) or await compute(stores, find, submit, wait)


async def compute(stores: Stores, find: Callable[[], Entry | None], submit: Callable[[], Job], wait: float) -> Entry:
    """Create the job of a missing result by `submit`, wait for it, and return the result that `find` then reads.

    Raises `UnfinishedJobError` after `wait` seconds, and `ProblemError` if the job failed or was cancelled, or if its
    result was deleted meanwhile (``result-gone``).
    """
    job = await finish(stores, await run_in_threadpool(submit), wait)
    if (entry := await run_in_threadpool(find)) is None:
        raise result_gone(job)
    return entry


def result_gone(job: Job) -> ProblemError:
    """Return the error to raise for a job that has succeeded, but whose result has expired or was deleted."""
    detail = f"The result of job {job.id} has expired, or was deleted."
    remedy = "Send the request that created the job again, which computes the result again."
    return refuse("result-gone", 410, detail, remedy, job=job.id)


async def wait_until_ended(stores: Stores, job: Job, wait: float) -> Job:
    """Return a job once it has ended, or after `wait` seconds, or at once if too many requests of the tenant wait."""

    async def now(_: object = None) -> tuple[Job, bool]:
        current = await run_in_threadpool(stores.jobs.fetch, job.id)
        return current, not current.is_open

    if not job.is_open:
        return job
    tenant, waits = stores.tenant or DEFAULT, stores.shares.waits
    if not wait or not waits.allows(tenant):
        return (await now())[0]
    with waits.hold(tenant):
        return await wait_for_outcome(stores.endings, job.id, now, wait)


def submit_job(stores: Stores, **fields: Any) -> Job:
    """Create and queue a job, or return the job of an equal request, which has the same text `claim`.

    `fields` are arguments of `JobStore.create`, `claim` among them.
    """
    job, created = stores.jobs.create(**fields)
    if created:
        stores.queue.enqueue(job)
    stores.queue.require_replicated(job.id)  # checked for an existing job, too, which may be only a moment old
    return job


def analysis_job(
    stores: Stores,
    spec: AnalysisSpec,
    *,
    posterior: str | None,
    points: Array | None = None,
    short: bool = False,
    parts: PartsSharding | None = None,
) -> Job:
    """Return the job of an analysis: an equal one that is open or whose result is stored, else a new one.

    `points` are the inline points of the request, if any. `short` says whether the job begins in the queue of
    interactive tasks. `parts` divides a long analysis among all live workers (see `shards_of`).
    """
    subject = posterior or spec.to_dict()["dataset"]
    for recipe in recipes_of(spec):
        stores.embeddings.request(recipe, spec.key(subject))
    return submit_job(
        stores,
        kind=spec.kind,
        claim=spec.key(subject),
        posterior=posterior,
        spec=spec.to_dict(),
        total=spec.total,
        reuse=OPEN_OR_DONE if stores.has_result(spec, subject) else JOINABLE,
        points=points,
        short=short,
        parts=parts,
    )


def shards_of(spec: AnalysisSpec, stage: str, seconds: float | None = None) -> PartsSharding | None:
    """Return the division of an analysis among the workers, or None if one task computes all of it.

    `stage` names the divided part in reports of progress. `seconds` is the expected time of all parts together, if it
    is known.
    """
    sizes = [part.size for part in spec.parts()]
    each = sharding.SHARD_SECONDS if seconds is None else seconds / max(1, len(sizes))
    return PartsSharding.from_sizes(stage, sizes, each, sharding.SHARD_SECONDS)


def delete_posterior_of(stores: Stores, record: PosteriorRecord) -> None:
    """Delete a posterior, and cancel an open job that would fit it again."""
    job = stores.jobs.claim_holder(record.id)
    if job is not None and job.is_open:
        stores.queue.withdraw(stores.jobs.cancel(job.id))
    stores.posteriors.delete(record.id)


def delete_embedding_of(stores: Stores, record: EmbeddingRecord) -> None:
    """Delete an embedding with its results, and cancel its job; a job that compares methods goes on."""
    stores.embeddings.delete(record.id)
    job = stores.jobs.claim_holder(record.claim)
    if job is not None and job.is_open and job.kind == EmbeddingSpec.kind:
        stores.queue.withdraw(stores.jobs.cancel(job.id))
