"""What is asked beside draws: a summary of many, new points, generated data, advice on parameters."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine import FitSpec
from glle_engine.base.errors import InvalidShapeError
from glle_engine.base.validation import require_enough_points
from glle_engine.posterior.selection import DEFAULT_RANGE
from service.encoding.arrays import CSV, JSON, NPZ, negotiate
from service.encoding.arrow import ARROW
from service.encoding.selection import Points
from service.responses.analyses import ResultQuery, result_response
from service.responses.conditional import SCALE_DOCUMENTED
from service.routes.draws import CREATING, MISSING, Half, Law, Seed
from service.routes.posteriors import ACCEPTED, LATE, Wait
from service.schemas.analyses import AdviceIn, CalibrationIn, ReconstructionsIn, TransformIn
from service.schemas.problems import documented
from service.schemas.resources import First, JobOut
from service.submission.dependencies import Deadline, Here, accepted, analysis_job, answered, settle
from service.submission.idempotency import IN_USE, Key, once
from service.submission.validation import (
    require_calibratable,
    require_dataset,
    require_drawable,
    require_not_all_equal,
    require_posterior,
    require_sample,
    require_success,
    require_within,
)
from service.uploads.formats.json_table import table_of
from service.uploads.registry import Limits
from worker.analyses.posterior_analyses import (
    MOST_SUMMARISED,
    AdviceSpec,
    CalibrationSpec,
    ReconstructionsSpec,
    SummarySpec,
    TransformSpec,
)
from worker.base.numerics import numbers_for
from worker.jobs.store import Job
from worker.records.dataset import Array
from worker.records.draws import draw_seconds
from worker.records.priority import Terms, quick_fit
from worker.storage.array_cache import entry_bytes
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

router = APIRouter(tags=["analyses"])

_SUMMARY_MEDIA = (JSON, NPZ, ARROW, CSV)
_DONE: dict[int | str, dict[str, Any]] = {
    200: {"model": JobOut, "description": "Done already: see links.result."},
    **ACCEPTED,
}
_COMMAND = {"_413": "Body too long.", "_415": "Not JSON.", **LATE}


@router.get(
    "/v1/posteriors/{id}/summary",
    summary="Summarise many draws",
    response_class=Response,
    responses={
        200: {
            "description": "The summary.",
            "content": {media: {} for media in _SUMMARY_MEDIA},
            "headers": SCALE_DOCUMENTED,
        },
        304: {"description": "The client's copy is good."},
        **ACCEPTED,
        **documented(**MISSING, _406="No offered type is accepted.", _422="Out of range, or larger than the cache."),
    },
)
async def summary(
    id: str,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    count: Annotated[
        int, Query(ge=2, le=MOST_SUMMARISED, description="Draws; a hundred or more rank points by their spread.")
    ] = 100,
    first: First = 0,
    seed: Seed = 0,
    scale: Annotated[
        Annotated[float, Query(ge=0, allow_inf_nan=False)] | Literal["auto"],
        Query(description="Factor on the covariance; auto: the one that half-sampling suggests."),
    ] = 1.0,
    source: Law = "posterior",
    dtype: Half = "float64",
    points: Points = None,
    wait: Wait = 10.0,
) -> Response:
    """Return what draws first, ..., first + count - 1 say together: immutable, with a strong ETag.

    `arrays`: `consensus` (n, p), the generalised Procrustes mean; `covariance` (n, p, p) of each point's place over
    the draws and `spread` (n,), the root of its trace; `stability` (n,), the share of a point's neighbours that stay
    its neighbours; `local_trust` (n,), each point's trustworthiness in the reference embedding. `quantiles` over the
    points of the last three. `spectrum`, a row a draw: `eigenvalues`, `relative_gaps` (null: not known, because the
    solver did not estimate the next eigenvalue), `agreement` of its span with the reference's. `notes`: what was
    remarkable in the fit, and whether the draws have little in common with the reference. npz has the arrays and the
    spectrum, with NaN for null; CSV and Arrow a row a point.

    With `scale=auto` the scale is that of POST .../calibration with its defaults, as for draws, whatever the seed. Its
    result stands beside the rest as `calibration`, with `half_sample_spread` (n,) among the arrays. Where LLE's bias
    exceeds its spread no spread shows it.
    """
    negotiate(request, _SUMMARY_MEDIA)
    record = await run_in_threadpool(require_posterior, here, id)
    require_sample(here, record, source, first=first, count=count)
    auto = scale == "auto"
    if auto:
        require_calibratable(record, source)
    spec = SummarySpec(
        count=count,
        first=first,
        seed=seed,
        scale=1.0 if auto else float(scale),
        source=source,
        calibrated=auto,
        engine=numbers_for(record.numbers),
    )
    key = spec.cache_key(id)
    entry = await run_in_threadpool(here.cache.view, key)
    if entry is None:
        terms = Terms(priority="interactive" if not auto and _quick(here, record, count) else "batch")
        job = await run_in_threadpool(analysis_job, here, spec, posterior=id, terms=terms)
        job = await settle(here, job, wait)
        if job.is_open:
            return accepted(job)
        require_success(job)
        entry = await run_in_threadpool(here.cache.view, key)
        if entry is None:  # evicted at once: the cache is too busy for now
            return accepted(job)
    return await run_in_threadpool(result_response, spec, entry, ResultQuery(request, dtype, points))


@router.post(
    "/v1/posteriors/{id}/transform",
    summary="Embed new points",
    status_code=202,
    response_model=JobOut,
    responses={
        **_DONE,
        **documented(
            **{**CREATING, "_404": "No such posterior, or data set."},
            **_COMMAND,
            _422="Out of range, other features than the training data, or a bad cell.",
        ),
    },
)
async def transform(
    id: str,  # noqa: A002 # the name in the path
    body: TransformIn,
    here: Here,
    wait: Wait = 0.0,
    deadline: Deadline = None,
    key: Key = None,
) -> Response:
    """Place new points by their LLE weights on the training points; a training point gets exactly its own place.

    No point's answer depends on the others. The result has `embedding` (m, p), the places in the reference embedding,
    and `distances` (m,) to the nearest training point: far from all of them the embedding extrapolates. With `draws`
    also `mean` (m, p) and `covariance` (m, p, p) of each place over so many draws.
    """
    return await answered(here, await run_in_threadpool(_transform, here, id, body, deadline, key), wait)


@router.post(
    "/v1/posteriors/{id}/reconstructions",
    summary="Generate data",
    status_code=202,
    response_model=JobOut,
    responses={
        **_DONE,
        **documented(**CREATING, **_COMMAND, _422="Out of range, or larger than the cache."),
    },
)
async def reconstructions(
    id: str,  # noqa: A002 # the name in the path
    body: ReconstructionsIn,
    here: Here,
    wait: Wait = 0.0,
    deadline: Deadline = None,
    key: Key = None,
) -> Response:
    """Generate data from drawn weights, each point from its neighbours: x_i = X_i w_i.

    The result has `data` (count, n, d); data set i is of the weights of draw first + i.
    """
    return await answered(here, await run_in_threadpool(_reconstructions, here, id, body, deadline, key), wait)


@router.post(
    "/v1/posteriors/{id}/calibration",
    summary="Calibrate the scale by half-sampling",
    status_code=202,
    response_model=JobOut,
    responses={**_DONE, **documented(**CREATING, **_COMMAND, _422="Out of range, published, or too few points.")},
)
async def calibration(
    id: str,  # noqa: A002 # the name in the path
    body: CalibrationIn,
    here: Here,
    wait: Wait = 0.0,
    deadline: Deadline = None,
    key: Key = None,
) -> Response:
    """Find the scale at which the median spread of draws is that of half-samples, which need nothing but the data.

    The result has `scale`, `ratio` of the medians there, `rank_correlation` of the two spreads over points, `slope` of
    spread over scale in logarithms (null: scale 1 was right at once), `saturated` (the spread hardly depends on the
    scale, which the data then do not tell), the `trace` of (scale, ratio), and the arrays `half_sample_spread` and
    `draw_spread` (n,). With the defaults it is the posterior's own: `scale=auto` of draws and summaries from then on.
    """
    return await answered(here, await run_in_threadpool(_calibration, here, id, body, deadline, key), wait)


@router.post(
    "/v1/advice",
    summary="Judge n_neighbors and n_components",
    status_code=202,
    response_model=JobOut,
    responses={
        **_DONE,
        **documented(
            _404="No such data set.",
            _409="The job was cancelled while this request waited. " + IN_USE,
            **_COMMAND,
            _422="Out of range, too few points, or all equal.",
        ),
    },
)
async def advice(body: AdviceIn, here: Here, wait: Wait = 0.0, deadline: Deadline = None, key: Key = None) -> Response:
    """Judge a range of n_neighbors on a data set, and how many components go with the best of them.

    The result has `neighbors_curve` (components of the graph, reconstruction error, trustworthiness, continuity and
    instability at each k below n), `components_curve` (eigenvalue and relative gap at each p),
    `intrinsic_dimension`, and the suggestions `n_neighbors` and `n_components`, null where the curve allows none.
    Nothing is applied.
    """
    return await answered(here, await run_in_threadpool(_advice, here, body, deadline, key), wait)


def _quick(here: Stores, record: PosteriorRecord, count: int) -> bool:
    """Say whether a summary takes a moment: few draws of a posterior whose fit takes a moment, too."""
    seconds = count * draw_seconds(record.n, record.spec["n_components"])
    return quick_fit(record.n, record.d, record.spec) and seconds <= here.settings.shard_seconds


def _transform(here: Stores, id_: str, body: TransformIn, deadline: float | None, key: str | None) -> Job:
    record = require_posterior(here, id_)
    if body.draws:
        require_sample(here, record, body.source, first=body.first, count=body.draws)
    dataset, shape, points = _points(here, body)
    if shape[1] != record.d:
        raise InvalidShapeError(
            f"The new points have shape {shape}; the training data have {record.d} features.",
            remedy=f"Give a matrix of {record.d} columns.",
            details={"shape": list(shape), "features": record.d},
        )
    n, p = shape[0], record.spec["n_components"]
    here.cache.check_size(entry_bytes((n, p, p + 2), (n,)), f"The result of {n:,} points")
    here.cache.check_size(entry_bytes((body.draws, n, p)), f"Placing {n:,} points in {body.draws:,} draws")
    spec = TransformSpec(
        dataset=dataset,
        draws=body.draws,
        first=body.first,
        seed=body.seed,
        scale=body.scale,
        source=body.source,
        engine=numbers_for(record.numbers),
    )
    asked = {**body.model_dump(exclude={"data"}), "dataset": dataset}
    request = (f"POST /v1/posteriors/{id_}/transform", asked)
    terms = Terms.within(deadline)
    return once(here, key, request, lambda: analysis_job(here, spec, posterior=id_, terms=terms, points=points))


def _points(here: Stores, body: TransformIn) -> tuple[str, tuple[int, int], Array | None]:
    """Return id and shape of the new points, and themselves where they came inline: they are no data set."""
    if body.dataset is not None:
        known = require_dataset(here, body.dataset)
        return known.id, (known.n, known.d), None
    table = table_of({"data": body.data}, Limits.of(here.settings))
    return here.datasets.id_of(table), (table.values.shape[0], table.values.shape[1]), table.values


def _reconstructions(here: Stores, id_: str, body: ReconstructionsIn, deadline: float | None, key: str | None) -> Job:
    record = require_posterior(here, id_)
    require_drawable(here, record, body.source, total=body.count, last=body.first + body.count - 1)
    here.cache.check_size(entry_bytes((body.count, record.n, record.d)), f"The result of {body.count:,} data sets")
    spec = ReconstructionsSpec(
        count=body.count,
        first=body.first,
        seed=body.seed,
        scale=body.scale,
        source=body.source,
        engine=numbers_for(record.numbers),
    )
    request = (f"POST /v1/posteriors/{id_}/reconstructions", body.model_dump())
    return once(here, key, request, lambda: analysis_job(here, spec, posterior=id_, terms=Terms.within(deadline)))


def _calibration(here: Stores, id_: str, body: CalibrationIn, deadline: float | None, key: str | None) -> Job:
    record = require_posterior(here, id_)
    require_calibratable(record)
    engine = numbers_for(record.numbers)
    spec = CalibrationSpec(half_samples=body.half_samples, draws=body.draws, seed=body.seed, engine=engine)
    request = (f"POST /v1/posteriors/{id_}/calibration", body.model_dump())
    return once(here, key, request, lambda: analysis_job(here, spec, posterior=id_, terms=Terms.within(deadline)))


def _advice(here: Stores, body: AdviceIn, deadline: float | None, key: str | None) -> Job:
    dataset = require_dataset(here, body.dataset)
    allowed = here.settings.max_neighbors
    ks = body.n_neighbors or [k for k in DEFAULT_RANGE if k <= allowed] or [allowed]
    require_within(here, "n_neighbors", max(ks))
    require_within(here, "n_components", body.n_components)
    require_within(here, "max_components", body.max_components)
    least = FitSpec(n_neighbors=min(ks), n_components=body.n_components, reg=body.reg)
    require_enough_points(dataset.n, least)
    require_not_all_equal(here, dataset)
    spec = AdviceSpec(
        dataset=dataset.id,
        n_neighbors=tuple(ks),
        n_components=body.n_components,
        max_components=body.max_components,
        reg=body.reg,
        engine=here.queue.numbers_for_new(),
    )
    request = ("POST /v1/advice", body.model_dump())
    return once(here, key, request, lambda: analysis_job(here, spec, posterior=None, terms=Terms.within(deadline)))
