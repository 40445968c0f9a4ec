"""`/v1/posteriors/{id}/draws`: embeddings drawn from a posterior, one at a time or as a job."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from service.encoding.arrays import JSON, Array, Dtype, ResultTable, matrix_columns, with_ids
from service.encoding.result import (
    RESULT_MEDIA,
    TABLES,
    ArraysResult,
    Points,
    Selection,
    immutable_headers,
    is_not_modified,
    negotiate,
    scale_headers,
)
from service.middleware.answer_cache import MAX_ANSWER_BYTES
from service.middleware.requests import TENANT
from service.responses.analyses import ResultQuery, result_response
from service.responses.draws import calibrated_spec, draw_of_shard, missing_shards
from service.routes import params
from service.schemas.resources import DrawsIn, Seed, SourceQuery
from service.schemas.results import DrawOut, WeightsOut
from service.submission.jobs import (
    JOINABLE,
    OPEN_OR_DONE,
    analysis_job,
    compute,
    job_response,
    load_or_compute,
    submit_job,
)
from service.submission.validation import (
    require_calibratable,
    require_drawable,
    require_posterior,
    require_sample,
    require_storage,
)
from service.submission.waiting import requested_draw
from worker.analyses.posterior_analyses import CalibrationSpec, WeightsSpec
from worker.base.problems import ProblemError
from worker.jobs.store import Job
from worker.records import sharding
from worker.records.cache_entry import Entry, file_bytes
from worker.records.draws import AUTO, QUICK_SECONDS, DrawAddress, DrawsSpec
from worker.records.ids import digest
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

router = APIRouter(prefix="/v1/posteriors/{id}/draws", tags=["draws"])

RECENT_SECONDS = 1.0  # after another process has deleted a posterior, this process still finds it for this long
MAX_RECENT = 4096


@router.post(
    "",
    summary="Draw many embeddings",
    **params.creates_job(**params.ON_POSTERIOR, _422="Out of range."),
)
async def draw_many(id_: params.Id, body: DrawsIn, stores: params.TenantStores, wait: params.Wait = 0.0) -> Response:
    """Draw embeddings first, ..., first + n_draws - 1 on the workers, at one scale or at each of several.

    The result, at the job's `/result`, has shape (n_draws, n, p), or (scales, n_draws, n, p). A draw has the same bits
    alone and in any batch.

    `auto` among the scales is the scale that POST .../calibration finds with its defaults. The first such job includes
    the calibration. Later jobs use the calibrated scale, which the result reports, with `notes` if it is doubtful.
    """
    return await job_response(stores, partial(_draws_job, stores, id_, body), wait)


async def draw_one(
    request: Request,
    id_: params.Id,
    index: params.IndexPath,
    seed: Seed = 0,
    scale: params.ScaleQuery = 1.0,
    source: SourceQuery = "posterior",
    align: params.AlignQuery = "procrustes",
    dtype: params.DtypeQuery = "float64",
    points: Points = None,
    wait: params.Wait = params.ANSWER_SECONDS,
) -> Response:
    """Return one embedding drawn from the posterior: immutable, with a strong ETag.

    JSON has shape, dtype and data, `eigenvalues` and `diagnostics`; npz has the embedding and the eigenvalues; CSV and
    Arrow have one row for each point, columns id, if the points have ids, and y1 to yp. npy supports Range.

    With `scale=auto` the draw equals, in its bits and its ETag, the draw at the calibrated scale, at which draws spread
    as embeddings of random halves of the data do. JSON's `scale` and the header Glle-Scale have this scale. The first
    such request starts the calibration: the answer is 202 until the calibration ends.
    If the scale is doubtful, JSON has `notes` and another ETag, and the header Glle-Notes has the codes of the notes.
    """
    media = negotiate(request, RESULT_MEDIA)
    recent, cache = request.app.state.recent_posteriors, request.app.state.answer_cache
    tenant = request.scope[TENANT]
    stores: Stores = request.app.state.stores_of(tenant)
    record = await recent.require(tenant, id_)
    if source == "prior":
        require_drawable(record, source, total=1, last=index)
    notes: Sequence[dict[str, Any]] = ()
    began = time.monotonic()
    if scale == AUTO:
        scale, notes = await _calibrated(stores, record, source, wait)
    key = DrawAddress(seed, index, float(scale), source, align)
    entry = None
    if record.single_draw_seconds <= QUICK_SECONDS:
        left = max(0.0, wait - (time.monotonic() - began))
        entry = await stores.cache.read_draw(id_, key) or await requested_draw(stores, record, key, left)
    if entry is None:
        entry = await _drawn_by_job(stores, record, key, max(0.0, wait - (time.monotonic() - began)))
    ids = await run_in_threadpool(stores.datasets.ids_of, record.dataset) if media in TABLES else None
    result, headers = _result(entry, dtype, points, ids, notes, media)
    if "if-none-match" in request.headers and is_not_modified(request, headers):
        return Response(status_code=304, headers=headers)
    if entry.arrays["embedding"].nbytes > MAX_ANSWER_BYTES:
        return result.response(media, dtype, headers)
    response = await result.complete(media, dtype, headers)
    cache.keep(request.scope, id_, record.state, response)
    return response


router.add_api_route(
    "/{index}",
    draw_one,
    summary="Draw one embedding",
    **params.returns_arrays(
        "The embedding (n, p).", RESULT_MEDIA, DrawOut, has_scale=True, **params.NOT_FITTED, _422="Out of range."
    ),
    route_class_override=params.DirectRoute,
)


@router.get(
    "/{index}/weights",
    summary="Read the weights of a draw",
    **params.returns_arrays(
        "The weights.",
        RESULT_MEDIA,
        WeightsOut,
        has_scale=True,
        **params.NOT_FITTED,
        _422="Out of range, or scale=auto for a posterior that cannot be calibrated.",
    ),
)
async def weights(
    id_: params.Id,
    index: params.IndexPath,
    request: Request,
    stores: params.TenantStores,
    seed: Seed = 0,
    scale: params.ScaleQuery = 1.0,
    source: SourceQuery = "posterior",
    dtype: params.DtypeQuery = "float64",
    points: Points = None,
    wait: params.Wait = params.ANSWER_SECONDS,
) -> Response:
    """Return the reconstruction weights of one draw: immutable, with a strong ETag.

    The embedding of the draw is computed from these weights. JSON, CSV and Arrow have the sparse matrix (n, n) of the
    weights as triples of row, column and value. npy has the weights (n, k), each row in the order of the `neighbors` of
    the posterior; npz has `weights` and `neighbors` (n, k). `points` selects rows. The scale is as for a draw.
    """
    negotiate(request, RESULT_MEDIA)
    record = await run_in_threadpool(require_posterior, stores, id_)
    require_drawable(record, source, total=1, last=index)
    notes: Sequence[dict[str, Any]] = ()
    began = time.monotonic()
    if scale == AUTO:
        scale, notes = await _calibrated(stores, record, source, wait)
    spec = WeightsSpec(first=index, seed=seed, scale=float(scale), source=source)
    submit = partial(_weights_job, stores, record, spec)
    entry = await load_or_compute(stores, spec, id_, submit, max(0.0, wait - (time.monotonic() - began)))
    return await run_in_threadpool(result_response, spec, entry, ResultQuery(request, dtype, points, notes=notes))


class RecentPosteriors:
    """Cache of posteriors' records, each kept for `RECENT_SECONDS`, so that most requests for draws do not read one.

    `stores_of` is called with a tenant and returns the stores of this tenant.
    """

    def __init__(self, stores_of: Callable[[str], Stores]) -> None:
        self._stores_of = stores_of
        self._records: dict[tuple[str, str], tuple[PosteriorRecord, float]] = {}

    async def require(self, tenant: str, id_: str) -> PosteriorRecord:
        """Return the record of a posterior; raise `ProblemError` if the tenant has no such posterior, or not yet."""
        records, began = self._records, time.monotonic()
        record, until = records.get((tenant, id_), (None, 0.0))
        if record is None or until < began:
            record = await run_in_threadpool(require_posterior, self._stores_of(tenant), id_)
            if len(records) >= MAX_RECENT:
                records.clear()
            # If a posterior was deleted while the record was read, `clear` has replaced `self._records`. Then `records`
            # is the discarded dict, so that the record, which may be outdated, is not kept.
            records[tenant, id_] = (record, began + RECENT_SECONDS)
        return record

    async def state(self, tenant: str, id_: str) -> str | None:
        """Return a text that changes when the posterior changes, or None if the posterior does not exist.

        Raises `redis.RedisError`.
        """
        try:
            return (await self.require(tenant, id_)).state
        except ProblemError:
            return None

    def clear(self) -> None:
        """Empty this process's cache of posteriors' records, because one of the posteriors may have been deleted."""
        self._records = {}


async def _drawn_by_job(stores: Stores, record: PosteriorRecord, key: DrawAddress, wait: float) -> Entry:
    """Return a draw after a job has made it.

    Usually a sampler makes a draw, without a job (`requested_draw`). A job, which the client can cancel, makes slow
    draws, and draws that no sampler has delivered in time. Raises `UnfinishedJobError` after `wait` seconds, and
    `ProblemError` if the job failed or was cancelled.
    """
    address = {"first": key.index, "seed": key.seed, "source": key.source, "align": key.align}
    spec = _spec(record, [key.scale], n_draws=1, grid=False, **address)
    submit = partial(_enqueue, stores, record, spec)

    def find() -> Entry | None:
        entry = stores.results.find(spec.result_key(record.id, 0))
        return None if entry is None else draw_of_shard(entry, 0)

    return await run_in_threadpool(find) or await compute(stores, find, submit, wait)


async def _calibrated(
    stores: Stores, record: PosteriorRecord, source: SourceQuery, wait: float
) -> tuple[float, Sequence[dict[str, Any]]]:
    """Return the calibrated scale of a posterior's draws and the warnings about it; calibrate first if necessary.

    Raises `UnfinishedJobError` if the calibration takes more than `wait` seconds, `ProblemError` if it failed or was
    cancelled, and `InvalidParameterError` if the posterior cannot be calibrated.
    """

    def submit() -> Job:
        require_calibratable(record, source)
        return analysis_job(stores, CalibrationSpec(), posterior=record.id)

    calibration = await run_in_threadpool(stores.posteriors.calibration, record.id)
    if calibration is None:
        calibration = (await load_or_compute(stores, CalibrationSpec(), record.id, submit, wait)).meta
    return float(calibration["scale"]), calibration.get("notes", [])


def _result(
    entry: Entry, dtype: Dtype, points: str | None, ids: Array | None, notes: Sequence[dict[str, Any]], media: str
) -> tuple[ArraysResult, dict[str, str]]:
    """Return a draw, or the requested points of it, as a result to encode, and the headers of the response."""
    embedding, eigenvalues = entry.arrays["embedding"], entry.arrays["eigenvalues"]
    tag = ""
    if points is not None:
        selection = Selection.from_query(points, len(embedding), "points")
        embedding, tag = selection.select(embedding), selection.tag
        ids = None if ids is None else selection.select(ids)
    if notes and media == JSON:
        tag = f"{tag} notes".strip()
    headers = immutable_headers(entry.meta["sha256"], media, dtype, tag)
    headers |= scale_headers([entry.meta["scale"]], notes)
    # `seconds` is left out, because two computations of a draw differ in it, and their responses have equal ETags.
    members = [item for item in entry.meta.items() if item[0] not in {"sha256", "seconds"}]
    result = ArraysResult(
        arrays={"embedding": embedding},
        stored={"eigenvalues": eigenvalues},
        main="embedding",
        members=[("eigenvalues", eigenvalues.tolist()), *members, *([("notes", list(notes))] if notes else [])],
        table=lambda: ResultTable.from_columns(with_ids(matrix_columns(embedding, "y"), ids), dtype),
    )
    return result, headers


def _weights_job(stores: Stores, record: PosteriorRecord, spec: WeightsSpec) -> Job:
    """Return the job that computes the weights of a draw; raise `ProblemError` if there is no room to store them."""
    shape = (record.n, record.spec["n_neighbors"])
    require_storage(stores, file_bytes(shape, shape), f"The weights of {record.n:,} points")
    is_quick = record.single_draw_seconds <= QUICK_SECONDS
    return analysis_job(stores, spec, posterior=record.id, short=is_quick)


def _draws_job(stores: Stores, id_: str, body: DrawsIn) -> Job:
    record = require_posterior(stores, id_)
    scales = body.scales if body.scales is not None else [1.0 if body.scale is None else body.scale]
    draws = body.model_dump(include={"n_draws", "first", "seed", "source", "align"})
    spec = _spec(record, scales, grid=body.scales is not None, **draws)
    if spec.is_auto:
        require_calibratable(record, body.source)
    require_sample(stores, record, body.source, first=body.first, n_draws=body.n_draws, scales=len(spec.scales))
    return _enqueue(stores, record, spec)


def _spec(record: PosteriorRecord, scales: Sequence[float | str], **draws: Any) -> DrawsSpec:
    """Return the specification of a job of draws from a posterior.

    `scales` are the scales at which all of the draws are made: numbers, or "auto" for the calibrated scale. `draws` are
    the other fields of `DrawsSpec` that the request sets, such as `n_draws` and `seed`.
    """
    return DrawsSpec(
        n=record.n,
        p=record.spec["n_components"],
        scales=tuple(AUTO if scale == AUTO else float(scale) for scale in scales),
        draw_seconds=record.draw_seconds,
        shard_seconds=sharding.SHARD_SECONDS,
        **draws,
    )


def _enqueue(stores: Stores, record: PosteriorRecord, spec: DrawsSpec) -> Job:
    """Return the job that makes draws: an equal one that is open or whose draws are stored, else a new one.

    A new job begins as interactive if a draw and all draws together are quick, and their scale needs no calibration.
    """
    is_quick = record.single_draw_seconds <= QUICK_SECONDS and spec.seconds <= sharding.SHARD_SECONDS
    calibrated = calibrated_spec(stores, record.id, spec)[0]
    is_stored = calibrated is not None and not missing_shards(stores, record.id, calibrated)
    return submit_job(
        stores,
        kind="draws",
        claim=digest(record.id, spec.to_dict()),
        posterior=record.id,
        spec=spec.to_dict(),
        total=spec.total,
        reuse=OPEN_OR_DONE if is_stored else JOINABLE,
        short=is_quick and not spec.is_auto,
    )
