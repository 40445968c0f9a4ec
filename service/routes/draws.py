"""`/v1/posteriors/{id}/draws`: embeddings drawn from a posterior, one at a time or by the job."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine.base.spec import Align, Source
from service.encoding.aborted import AbortableResponse
from service.encoding.arrays import (
    CSV,
    JSON,
    NPY,
    NPZ,
    Dtype,
    NpyResponse,
    Stack,
    buffered,
    json_response,
    negotiate,
    npz_response,
)
from service.encoding.arrow import ARROW
from service.encoding.selection import Points, Selection
from service.encoding.tables import Table, matrix_columns, table_response
from service.middleware.answer_cache import MAX_ANSWER_BYTES
from service.responses.conditional import (
    RANGE_RESPONSES,
    SCALE_DOCUMENTED,
    immutable_headers,
    is_not_modified,
    scale_header,
)
from service.routes.posteriors import ACCEPTED, LATE, Wait
from service.schemas.problems import documented
from service.schemas.resources import MAX_COUNTER, DrawsIn, JobOut
from service.submission.dependencies import Deadline, Here, accepted, answered, settle, submitted
from service.submission.idempotency import IN_USE, Key, once
from service.submission.validation import (
    require_calibratable,
    require_posterior,
    require_quick,
    require_sample,
    require_success,
)
from worker.base.numerics import numbers_for
from worker.base.versions import queue_name
from worker.jobs.store import Job
from worker.records.draws import AUTO, CHAINS, DrawsSpec, shard_seconds
from worker.records.ids import digest
from worker.records.priority import Terms
from worker.storage.array_cache import Entry
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

router = APIRouter(prefix="/v1/posteriors/{id}/draws", tags=["draws"])

Seed = Annotated[int, Query(ge=0, le=MAX_COUNTER, description="Stream of draws.")]
Scale = Annotated[
    Annotated[float, Query(ge=0, allow_inf_nan=False)] | Literal["auto"],
    Query(description="Factor on the covariance; auto: the one that half-sampling suggests."),
]
Law = Annotated[Source, Query(description="Which law of the weights.")]
Half = Annotated[Dtype, Query(description="float32 halves the bytes.")]

MEDIA = (JSON, NPY, NPZ, ARROW, CSV)
MISSING = {"_404": "No such posterior.", "_409": "It is not fitted yet, or its job was cancelled."}
CREATING = {**MISSING, "_409": f"{MISSING['_409']} {IN_USE}"}


@router.post(
    "",
    summary="Draw many embeddings",
    status_code=202,
    response_model=JobOut,
    responses={
        200: {"model": JobOut, "description": "Done already: see links.result."},
        **ACCEPTED,
        **documented(
            **CREATING,
            _413="Body too long.",
            _415="Not JSON.",
            _422="Out of range, or larger than the cache.",
            **LATE,
        ),
    },
)
async def draw_many(
    id: str,  # noqa: A002 # the name in the path
    body: DrawsIn,
    here: Here,
    wait: Wait = 0.0,
    deadline: Deadline = None,
    key: Key = None,
) -> Response:
    """Draw embeddings first, ..., first + count - 1 on the workers, at one scale or at each of several.

    The result, at the job's `/result`, has shape (count, n, p), or (scales, count, n, p). A draw is the same
    bits alone and in any batch; what was drawn before is not drawn again.

    `auto` among the scales is the one that POST .../calibration finds with its defaults. Who asks first has it
    calibrated, within the same job; from then on it is one number for everyone, which the result tells.
    """
    job = await run_in_threadpool(_job, here, id, body, Terms.within(deadline, body.priority), key)
    return await answered(here, job, wait)


@router.get(
    "/{index}",
    summary="Draw one embedding",
    response_class=Response,
    responses={
        200: {
            "description": "The embedding (n, p).",
            "content": {media: {} for media in MEDIA},
            "headers": SCALE_DOCUMENTED,
        },
        **RANGE_RESPONSES,
        **ACCEPTED,
        **documented(**MISSING, _406="No offered type is accepted.", _416="Range too far.", _422="Out of range."),
    },
)
async def draw_one(
    id: str,  # noqa: A002 # the name in the path
    index: Annotated[int, Path(ge=0, le=MAX_COUNTER, description="Which draw of the stream.")],
    request: Request,
    here: Here,
    seed: Seed = 0,
    scale: Scale = 1.0,
    source: Law = "posterior",
    align: Annotated[Align, Query(description="Rotate to the reference embedding, or not.")] = "procrustes",
    dtype: Half = "float64",
    points: Points = None,
    wait: Wait = 10.0,
) -> Response:
    """Return one embedding, drawn on a worker unless it is cached: immutable, with a strong ETag.

    JSON has `eigenvalues` and `diagnostics` beside shape, dtype and data; npz the eigenvalues; CSV and Arrow a row a
    point, columns y1 to yp. npy answers Range.

    With `scale=auto` the draw is, bit for bit and by its ETag, that of the number which half-sampling suggests: JSON's
    `scale`, and the header Glle-Scale. Where nobody asked before it is calibrated first: 202 until then.
    """
    media = negotiate(request, MEDIA)
    body = DrawsIn(count=1, first=index, seed=seed, scale=scale, source=source, align=align)
    record, spec, entry = await run_in_threadpool(_asked, here, id, body)
    if entry is None:
        job = await settle(here, await run_in_threadpool(_single, here, record, spec), wait)
        if job.is_open:
            return accepted(job)
        require_success(job)
        entry = await run_in_threadpool(_drawn, here, record, spec)
        if entry is None:  # evicted at once: the cache is too busy for now
            return accepted(job)
    response = _one(request, entry, media, dtype, points)
    if isinstance(response, AbortableResponse) and entry.arrays["embedding"].nbytes <= MAX_ANSWER_BYTES:
        response = await buffered(response)
        request.app.state.answer_cache.keep(request.scope, id, record.state, response)
    return response


def _asked(here: Stores, id_: str, body: DrawsIn) -> tuple[PosteriorRecord, DrawsSpec, Entry | None]:
    """Return the posterior and the meaning of a request for one draw, and the draw if it is cached."""
    record = require_posterior(here, id_)
    spec = _spec(here, record, body)
    return record, spec, _drawn(here, record, spec)


def _drawn(here: Stores, record: PosteriorRecord, spec: DrawsSpec) -> Entry | None:
    """Return a single draw from the cache, at the number that is known for its scale."""
    spec = _numbered(here, record.id, spec)
    return None if spec.is_auto else here.cache.view(spec.key(0).cache_key(record.drawn_from))


def _numbered(here: Stores, id_: str, spec: DrawsSpec) -> DrawsSpec:
    """Return the same at the number that ``auto`` is, once it is known."""
    known = here.posteriors.calibration(id_) if spec.is_auto else None
    return spec if known is None else spec.at(known["scale"])


def _one(request: Request, entry: Entry, media: str, dtype: Dtype, points: str | None) -> Response:
    chosen = Selection.of(points, len(entry.arrays["embedding"]), "points")
    headers = immutable_headers(entry.meta["sha256"], media, dtype, chosen.tag) | scale_header(entry.meta["scale"])
    if is_not_modified(request, headers):
        return Response(status_code=304, headers=headers)
    embedding = chosen.take(entry.arrays["embedding"])
    if media in {CSV, ARROW}:
        return table_response(Table.of(matrix_columns(embedding, "y"), dtype), media, headers)
    stack = Stack.of(embedding, dtype)
    eigenvalues = entry.arrays["eigenvalues"]
    if media == NPY:
        return NpyResponse(stack, headers)
    if media == NPZ:
        return npz_response({"embedding": stack, "eigenvalues": Stack.of(eigenvalues)}, headers)
    # What it took is of one computation; the same draw is made again with the same ETag.
    members = {name: value for name, value in entry.meta.items() if name not in {"sha256", "seconds", "numbers"}}
    return json_response(stack, [("eigenvalues", eigenvalues.tolist()), *members.items()], headers)


def _job(here: Stores, id_: str, body: DrawsIn, terms: Terms, key: str | None) -> Job:
    record = require_posterior(here, id_)
    spec = _spec(here, record, body)
    if terms.priority == "interactive":
        require_quick(spec, here.settings.shard_seconds)
    request = (f"POST /v1/posteriors/{id_}/draws", body.model_dump())
    return once(here, key, request, lambda: _enqueue(here, record, spec, terms, single=False))


def _spec(here: Stores, record: PosteriorRecord, body: DrawsIn) -> DrawsSpec:
    """Return what the job is to do, or refuse what it could not keep."""
    scales = body.scales if body.scales is not None else [1.0 if body.scale is None else body.scale]
    n, p, most = record.n, record.spec["n_components"], here.settings.shard_seconds
    spec = DrawsSpec(
        n=n,
        p=p,
        count=body.count,
        first=body.first,
        seed=body.seed,
        scales=tuple(AUTO if scale == AUTO else float(scale) for scale in scales),
        grid=body.scales is not None,
        source=body.source,
        align=body.align,
        shard_seconds=shard_seconds(n, p, body.count * len(scales), most),
    )
    if spec.is_auto:
        require_calibratable(record, body.source)
    require_sample(here, record, body.source, first=body.first, count=body.count, scales=len(scales))
    return spec


def _enqueue(here: Stores, record: PosteriorRecord, spec: DrawsSpec, terms: Terms, *, single: bool) -> Job:
    """Return the job of these draws; a single one is shared only while it is made."""
    if single:  # the same job as that of the number
        spec = _numbered(here, record.id, spec)
    numbers = numbers_for(record.numbers)
    return submitted(
        here,
        terms,
        kind="draws",
        claim=digest(record.id, spec.to_dict()),
        posterior=record.id,
        spec=spec.to_dict(),
        total=spec.total,
        chains=_chains(here, spec, numbers),
        numbers=numbers,
        reuse=("queued", "running") if single else ("queued", "running", "succeeded"),
    )[0]


def _chains(here: Stores, spec: DrawsSpec, numbers: str) -> int:
    """Return how many workers may share a job; the live workers are only looked up where it matters."""
    most = spec.chains(spec.shards)
    return CHAINS if most == CHAINS else spec.chains(here.queue.live_workers(queue_name(numbers)))


def _single(here: Stores, record: PosteriorRecord, spec: DrawsSpec) -> Job:
    """Return the job of one draw, which someone waits for.

    One whose scale is still to be calibrated takes its turn: that is no matter of milliseconds.
    """
    return _enqueue(here, record, spec, Terms(priority="batch" if spec.is_auto else "interactive"), single=True)
