"""`/v1/embeddings`: any method of the registry on a data set, and what it would take."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine.base.errors import GlleError
from service.encoding.arrays import CSV, JSON, NPY, NPZ, Dtype
from service.encoding.arrow import ARROW
from service.encoding.selection import Points
from service.responses.analyses import ResultQuery, result_response
from service.responses.conditional import RANGE_RESPONSES, body_headers, is_not_modified
from service.routes.posteriors import ACCEPTED, LATE, Wait
from service.schemas.embeddings import EmbeddingIn, EmbeddingOut, EstimateIn, EstimateOut
from service.schemas.problems import ProblemOut, documented
from service.schemas.resources import JobOut
from service.submission.cost_limits import Allowance, most_points, require_affordable
from service.submission.dependencies import Deadline, Here, accepted, analysis_job, answered, settle
from service.submission.idempotency import IN_USE, Key, once
from service.submission.planning import Plan, planned
from service.submission.scoring import judgement
from service.submission.validation import require_dataset, require_not_all_equal, require_success
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.embedding_records import EmbeddingRecord
from worker.base.problems import Problem, ProblemError
from worker.jobs.store import Job
from worker.records.priority import Terms
from worker.storage.array_cache import Entry
from worker.stores import Stores

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

MEDIA = (JSON, NPZ, NPY, ARROW, CSV)
DONE: dict[int | str, dict[str, Any]] = {
    200: {"model": JobOut, "description": "Done already: see links.result."},
    **ACCEPTED,
}
COMMAND = {
    "_404": "No such data set.",
    "_409": "The job was cancelled while this request waited. " + IN_USE,
    "_413": "Body too long.",
    "_415": "Not JSON.",
    **LATE,
}
_MISSING = {"_404": "No such embedding (any more).", "_409": "Its job was cancelled.", **LATE}


@router.post(
    "",
    summary="Embed by any method",
    status_code=202,
    response_model=JobOut,
    responses={
        **DONE,
        **documented(**COMMAND, _422="Parameters, sizes, labels; or it would take too long, or too much memory."),
    },
)
async def embed(
    body: EmbeddingIn, here: Here, wait: Wait = 0.0, deadline: Deadline = None, key: Key = None
) -> Response:
    """Embed a data set by any method of GET /v1/methods that makes embeddings.

    The result has `embedding` (n, p), `eigenvalues` of spectral methods, the method's `figures` and `notes`, `seconds`
    by stage, and `scores`. The embedding itself is there for others as `links.embedding`; its id is the digest of data
    set, method, all parameters, labels and engine version. What would not finish within the job's time is refused at
    once, with the size that would.
    """
    return await answered(here, await run_in_threadpool(_embed, here, body, deadline, key), wait)


@router.post(
    "/estimate",
    summary="Tell what an embedding would take",
    responses=documented(_404="No such data set.", _413="Body too long.", _415="Not JSON.", _422="Parameters."),
)
def estimate(body: EstimateIn, here: Here, deadline: Deadline = None) -> EstimateOut:
    """Tell the seconds and bytes that an embedding is expected to take, and whether it would be made; nothing is."""
    if body.dataset is not None:
        known = require_dataset(here, body.dataset)
        n, d = known.n, known.d
    else:
        assert body.n is not None
        assert body.d is not None
        n, d = body.n, body.d
    plan = planned(body)
    allowed = Allowance.of(here.settings, deadline)
    told: dict[str, Any] = {"seconds": None, "bytes": None, "most_points": None, "problem": None}
    try:
        plan.method.require_possible(n, d, plan.spec, labels=plan.method.labels)
        cost = plan.method.cost(n, d, plan.spec)
        told |= {"seconds": cost.seconds, "bytes": cost.bytes}
        told["most_points"] = most_points(plan.method, n, d, plan.spec, allowed)
        require_affordable(plan.method, n, d, plan.spec, allowed)
    except GlleError as error:
        told["problem"] = ProblemOut(**Problem.from_engine(error).to_dict())
    except ProblemError as error:
        told["problem"] = ProblemOut(**error.problem.to_dict())
    return EstimateOut(
        method=plan.method.name,
        parameters=plan.parameters,
        n=n,
        d=d,
        growth=plan.method.growth,
        allowed_seconds=allowed.seconds,
        allowed_bytes=allowed.bytes,
        **told,
    )


@router.get(
    "/{id}",
    summary="Describe an embedding",
    response_model=EmbeddingOut,
    responses={304: {"description": "The client's copy is good."}, **ACCEPTED, **documented(**_MISSING)},
)
async def get_embedding(
    id: str,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    wait: Wait = 10.0,
) -> Response:
    """Tell method, parameters, figures, notes and times; what was evicted is made again.

    It is remembered for GLLE_JOB_TTL after it was last asked for.
    """
    found = await _found(here, id, wait)
    if isinstance(found, Job):
        return accepted(found)
    body = EmbeddingOut.of(found).model_dump_json()
    headers = body_headers(body)
    if is_not_modified(request, headers):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")


@router.get(
    "/{id}/coordinates",
    summary="Read an embedding's coordinates",
    response_class=Response,
    responses={
        200: {"description": "The coordinates.", "content": {media: {} for media in MEDIA}},
        **RANGE_RESPONSES,
        **ACCEPTED,
        **documented(
            **_MISSING,
            _406="No offered type is accepted.",
            _416="A Range behind the last byte.",
            _422="A slice that is out of range; or why it could not be made again.",
        ),
    },
)
async def get_coordinates(
    id: str,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    dtype: Annotated[Dtype, Query(description="float32 halves the bytes.")] = "float64",
    points: Points = None,
    wait: Wait = 10.0,
) -> Response:
    """Return where the points are, (n, p): immutable, with a strong ETag.

    JSON has what is told of the embedding, and `embedding` among its `arrays`; npz has `embedding`, npy is it; CSV and
    Arrow have a row a point.
    """
    found = await _found(here, id, wait)
    if isinstance(found, Job):
        return accepted(found)
    record = await run_in_threadpool(here.embeddings.fetch, id)
    return await run_in_threadpool(result_response, record.spec, found, ResultQuery(request, dtype, points))


async def _found(here: Stores, id_: str, wait: float) -> Entry | Job:
    """Return an embedding, or the job that makes it once more than `wait` seconds have passed."""
    record = await run_in_threadpool(here.embeddings.fetch, id_)
    entry = await run_in_threadpool(here.cache.view, record.recipe.cache_key)
    if entry is not None:
        return entry
    job = await settle(here, await run_in_threadpool(_maker, here, record), wait)
    if job.is_open:
        return job
    require_success(job)
    entry = await run_in_threadpool(here.cache.view, record.recipe.cache_key)
    # None: evicted at once, or made for a comparison that failed there: the next request makes it alone.
    return job if entry is None else entry


def _maker(here: Stores, record: EmbeddingRecord) -> Job:
    """Return the job that makes an embedding: the one that was to, while it works, else one of its own."""
    known = here.jobs.get(record.job)
    if known is not None and known.is_open:
        return known
    require_dataset(here, record.recipe.dataset)
    job = analysis_job(here, record.spec, posterior=None)
    here.embeddings.note(record.recipe, job.id)
    return job


def _embed(here: Stores, body: EmbeddingIn, deadline: float | None, key: str | None) -> Job:
    dataset = require_dataset(here, body.dataset)
    plan = planned(body)
    uses = frozenset({"labels"} if plan.method.labels else ())
    judged = judgement(here, dataset, body, uses=uses)
    plan.require_possible(here, dataset, labels=judged.labels is not None)
    spec = EmbeddingSpec(
        dataset=dataset.id,
        method=plan.method.name,
        parameters=plan.parameters,
        labels=judged.labels,
        truth=judged.truth,
        scores=judged.scores,
        n_neighbors=judged.n_neighbors,
        engine=here.queue.numbers_for_new(),
    )

    def made() -> Job:
        if not any(here.cache.present([spec.recipe.cache_key, spec.cache_key(dataset.id)])):
            require_affordable(plan.method, dataset.n, dataset.d, plan.spec, Allowance.of(here.settings, deadline))
            require_not_all_equal(here, dataset)
        terms = Terms.within(deadline, _priority(here, plan, dataset.n, dataset.d))
        job = analysis_job(here, spec, posterior=None, terms=terms)
        here.embeddings.note(spec.recipe, job.id)
        return job

    return once(here, key, ("POST /v1/embeddings", body.model_dump()), made)


def _priority(here: Stores, plan: Plan, n: int, d: int) -> Any:
    """Return ``interactive`` for what takes a moment: someone looks at it, most likely."""
    quick = plan.method.cost(n, d, plan.spec).seconds <= here.settings.shard_seconds
    return "interactive" if quick else "batch"
