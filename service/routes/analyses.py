"""Routes for analyses of a posterior (summary, new points, generated data, calibration), and for audits."""

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.space import require_restorable
from glle_engine.base.validation import require_neighbors
from glle_engine.reliability.calibration import HALF_SAMPLES
from service.encoding.arrays import CSV, JSON, NPZ
from service.encoding.media_types import ARROW
from service.encoding.result import Points, negotiate
from service.responses.analyses import ResultQuery, ids_of, result_response
from service.routes import params
from service.routes.params import ON_POSTERIOR, Id, TenantStores, Wait, creates_job
from service.schemas.analyses import AuditIn, CalibrationIn, ReconstructionsIn, TransformIn
from service.schemas.results import SummaryOut
from service.submission.jobs import analysis_job, job_response, load_or_compute, shards_of
from service.submission.planning import (
    Plan,
    blocks_for_audit,
    classes_for_audit,
    map_of_plan,
    plan_to_audit,
)
from service.submission.validation import (
    audited_coordinates,
    new_points,
    obstacle_to_resampling,
    require_calibratable,
    require_drawable,
    require_not_all_equal,
    require_posterior,
    require_sample,
    require_storage,
)
from worker.analyses.audit import AuditSpec
from worker.analyses.posterior_analyses import (
    CalibrationSpec,
    ReconstructionsSpec,
    SummarySpec,
    TransformSpec,
)
from worker.jobs.store import Job
from worker.records import sharding
from worker.records.cache_entry import file_bytes
from worker.records.job import is_quick_fit
from worker.storage.posteriors import PosteriorRecord, spec_of
from worker.stores import Stores

if TYPE_CHECKING:
    from worker.records.dataset import Array

router = APIRouter(tags=["analyses"])

REFIT_SHARE = 0.8  # time to embed a random half of the points, relative to the time of the posterior's fit
_SUMMARY_MEDIA = (JSON, NPZ, ARROW, CSV)


@router.get(
    "/v1/posteriors/{id}/summary",
    summary="Measure the spread of points",
    **params.returns_arrays(
        "The summary.",
        _SUMMARY_MEDIA,
        SummaryOut,
        has_scale=True,
        **params.NOT_FITTED,
        _422="Out of range, or scale=auto for a posterior that cannot be calibrated.",
    ),
)
async def summary(
    id_: Id,
    request: Request,
    stores: TenantStores,
    query: params.Summary,
    dtype: params.DtypeQuery = "float64",
    points: Points = None,
    wait: params.Wait = params.ANSWER_SECONDS,
) -> Response:
    """Return how far each point moves from draw to draw: immutable, with a strong ETag.

    The draws are first, ..., first + n_draws - 1 at `scale`. With `scale=auto` the scale is calibrated: the draws then
    spread as embeddings of random halves of the data do. It is the scale that POST .../calibration finds with its
    defaults. `auto` is the default if halves of the data can measure the spread of the posterior; for other posteriors
    `auto` is refused, and the default is 1. The result has

    - `calibration`: the result of the calibration, if the scale is calibrated;
    - `arrays` with a row for each point: `covariance` (n, p, p) of its position; `spread` (n,), the root of the
      covariance's trace; `consensus` (n, p), its mean position; `stability` (n,), the share of its neighbors in the
      consensus that stay its neighbors in a draw; `local_trust` (n,), its trustworthiness in the reference embedding;
      with a calibrated scale `half_sample_spread` (n,);
    - `quantiles` of spread, stability and local trust;
    - `spectrum` with a row for each draw: `eigenvalues`, `relative_gaps` (null if the solver did not estimate the next
      eigenvalue), and `agreement` of the draw's span with the reference's span;
    - `notes`: findings of the fit, of the calibration and of the draws.

    npz has the arrays and the spectrum, with NaN for null; CSV and Arrow have one row for each point, with its `id` if
    it has one. No spread shows LLE's bias; an audit of the posterior says what another sample of the data would show.
    """
    negotiate(request, _SUMMARY_MEDIA)
    record = await run_in_threadpool(require_posterior, stores, id_)
    await run_in_threadpool(require_sample, stores, record, query.source, first=query.first, n_draws=query.n_draws)
    spec = _summary_spec(record, query)
    entry = await load_or_compute(stores, spec, id_, partial(_summary_job, stores, record, spec), wait)
    wanted = ResultQuery(request, dtype, points, ids=ids_of(stores, id_, spec))
    return await run_in_threadpool(result_response, spec, entry, wanted)


@router.post(
    "/v1/posteriors/{id}/transform",
    summary="Embed new points",
    **creates_job(
        **{**ON_POSTERIOR, "_404": "No such posterior, or data set."},
        _422="Out of range, other features than the training data, or a bad cell.",
    ),
)
async def transform(id_: Id, body: TransformIn, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Embed new points by their LLE weights on the training points; a training point keeps its exact position.

    The result of a point does not depend on the other points. The result has `embedding` (m, p), positions in the
    reference embedding, and `distances` (m,) to the nearest training point: far from all of them the embedding
    extrapolates. With `n_draws` it also has `mean` (m, p) and `covariance` (m, p, p) of each position over the draws.
    """
    return await job_response(stores, partial(_transform, stores, id_, body), wait)


@router.post(
    "/v1/posteriors/{id}/reconstructions",
    summary="Generate data",
    **creates_job(**ON_POSTERIOR, _422="Out of range, too many draws, or a metric that does not determine the data."),
)
async def reconstructions(id_: Id, body: ReconstructionsIn, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Generate data sets from drawn weights: each point is the weighted sum of its neighbors.

    The result has `data` (n_draws, n, d): data set i has the weights of draw first + i.
    """
    return await job_response(stores, partial(_reconstructions, stores, id_, body), wait)


@router.post(
    "/v1/posteriors/{id}/calibration",
    summary="Calibrate the scale by half-sampling",
    **creates_job(**ON_POSTERIOR, _422="Out of range, published, or too few points."),
)
async def calibration(id_: Id, body: CalibrationIn, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Find the scale at which draws of a posterior spread as much as embeddings of random halves of the data.

    Each point has a spread over draws and a spread over embeddings of halves; their medians over the points are made
    equal. A calibration with the defaults determines `scale=auto` of later draws and summaries of this posterior. The
    result has

    - `scale`, and the `ratio` of the two medians at this scale;
    - `rank_correlation` of the two spreads over the points;
    - `slope` of spread over scale in logarithms, null if scale 1 was right at once;
    - `saturated`: whether the spread hardly depends on the scale, so that the data do not determine the scale;
    - `trace`: the pairs (scale, ratio) that were tried;
    - `notes`: warnings about a scale that is saturated, not matched or poorly correlated;
    - the arrays `half_sample_spread` and `draw_spread` (n,).
    """
    return await job_response(stores, partial(_calibration, stores, id_, body), wait)


@router.post(
    "/v1/audits",
    summary="Audit a map",
    **creates_job(
        _404="No such data set, embedding or posterior.",
        _409=ON_POSTERIOR["_409"],
        **params.COMMAND,
        _422="Not one map; other points than the data; or too few points.",
    ),
)
async def audit(body: AuditIn, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Audit a map: whether its structure is more than chance, and how much of it another sample would show.

    The map is given by a data set with coordinates, or by an embedding, a posterior or a method. All but coordinates
    are computed again on permuted data and on separate halves of the data. Coordinates alone show how many neighbors
    the map keeps, its islands, and where it tears or folds the data; with their method, they are compared with maps by
    the method. While the job runs, GET /v1/jobs/{id}/result?partial=true has its latest statements. The result has

    - the `verdict` in up to three lines, and its `level`;
    - `remains`: R^2 over samples;
    - four answers: `islands`, `arrangement`, `neighborhoods` and `shape`;
    - `tears`, `dimension`, `groups` of the labels, the radii of the `regions`, and `notes`;
    - `arrays` with a row for each point: `embedding`, `island`, `neighborhood`, `stretch`, `squeeze`, `is_torn`,
      `is_glued`, `seam`, `p_value`, `is_point_beyond`, `stability`, `spread`, `half_axes` of the regions,
      `member_probability`.

    npz also has `neighbors_data`, `neighbors_indices` and `neighbors_indptr`: the sparse matrix (n, n) of the
    probabilities that j is a neighbor of i, by rows.
    """
    return await job_response(stores, partial(_audit, stores, body), wait)


def _summary_spec(record: PosteriorRecord, query: params.SummaryQuery) -> SummarySpec:
    """Return the `SummarySpec` of a request; a scale that the request lacks is calibrated if possible, otherwise 1.

    Raises
    ------
    InvalidParameterError
        If the scale is "auto" and the posterior cannot be calibrated.

    """
    scale, obstacle = query.scale, obstacle_to_resampling(record, query.source)
    sample = SummarySpec(n_draws=query.n_draws, first=query.first, seed=query.seed, scale=1.0, source=query.source)
    if scale == "auto" and obstacle is not None:
        raise obstacle
    if scale == "auto" or (scale is None and obstacle is None):
        return replace(sample, calibrated=True)
    return replace(sample, scale=1.0 if scale is None else float(scale))


def _summary_job(stores: Stores, record: PosteriorRecord, spec: SummarySpec) -> Job:
    """Return the job that computes a summary.

    If the scale of the draws must be calibrated first, all live workers compute parts of the calibration.
    """
    if spec.calibrated and stores.posteriors.calibration(record.id) is None:
        parts = shards_of(spec, "half-samples", REFIT_SHARE * record.seconds * HALF_SAMPLES)
        return analysis_job(stores, spec, posterior=record.id, parts=parts)
    return analysis_job(stores, spec, posterior=record.id, short=_is_quick(record, spec.n_draws))


def _is_quick(record: PosteriorRecord, n_draws: int) -> bool:
    """Return whether an analysis is quick: it has few draws, and the posterior was quick to fit."""
    seconds = n_draws * record.draw_seconds
    return is_quick_fit(record.n, record.d, record.spec) and seconds <= sharding.SHARD_SECONDS


def _transform(stores: Stores, id_: str, body: TransformIn) -> Job:
    record = require_posterior(stores, id_)
    if body.n_draws:
        require_sample(stores, record, body.source, first=body.first, n_draws=body.n_draws)
    dataset, shape, points = new_points(stores, body, stores.datasets.fetch(record.dataset))
    n, p = shape[0], record.spec["n_components"]
    require_storage(stores, file_bytes((n, p, p + 2), (n,)), f"The result of {n:,} points")
    require_storage(stores, file_bytes((body.n_draws, n, p)), f"Embedding {n:,} points in {body.n_draws:,} draws")
    fields = {**body.model_dump(exclude={"data"}), "dataset": dataset}
    spec = TransformSpec(**fields)
    short = shape[0] <= record.n and _is_quick(record, spec.total)
    return analysis_job(stores, spec, posterior=id_, points=points, short=short)


def _reconstructions(stores: Stores, id_: str, body: ReconstructionsIn) -> Job:
    record = require_posterior(stores, id_)
    require_restorable(spec_of(record.spec).metric)
    require_drawable(record, body.source, total=body.n_draws, last=body.first + body.n_draws - 1)
    require_storage(stores, file_bytes((body.n_draws, record.n, record.d)), f"The result of {body.n_draws:,} data sets")
    spec = ReconstructionsSpec(**body.model_dump())
    return analysis_job(stores, spec, posterior=id_, short=_is_quick(record, spec.total))


def _calibration(stores: Stores, id_: str, body: CalibrationIn) -> Job:
    record = require_posterior(stores, id_)
    require_calibratable(record)
    spec = CalibrationSpec(**body.model_dump())
    return analysis_job(stores, spec, posterior=id_)


def _audit(stores: Stores, body: AuditIn) -> Job:
    """Return the job of an audit, a new one or the one of an equal request.

    Before that, check the request: its map, its labels, its blocks (groups of points that depend on each other, such as
    the samples of one subject), and whether there is room to store the result.
    """
    map_: dict[str, Any] = {}
    space = {name: value for name in ("standardize", "metric") if (value := getattr(body, name)) is not None}
    plan: Plan | None = None
    points: Array | None = None
    source = body.dataset
    if body.posterior is not None:
        record = require_posterior(stores, body.posterior)
        require_calibratable(record)
        _refuse_space("posterior", space)
        source = record.dataset
    elif body.embedding is not None:
        recipe = stores.embeddings.fetch(body.embedding).recipe
        _refuse_space("embedding", space)
        source, plan = recipe.dataset, Plan.from_method(recipe.method, recipe.parameters)
        map_ = {"embedding": recipe.id, "recipe": asdict(recipe)}
    assert source is not None
    dataset = stores.datasets.fetch(source)
    if body.coordinates is not None:
        map_["coordinates"], _, points = audited_coordinates(stores, body.coordinates, dataset.n)
    if body.method is not None:
        plan, space = plan_to_audit(body.method, body.parameters, space)
        plan.require_possible(stores, dataset, labels=plan.needs_labels)
        plan.require_memory(dataset.n, stores.settings)
        require_not_all_equal(stores, dataset)
        map_ |= map_of_plan(source, plan, space, has_coordinates=body.coordinates is not None)
    if plan is not None:
        plan.require_resamplable(dataset)
    n = dataset.n
    require_neighbors(body.score_neighbors, n)
    require_storage(stores, file_bytes((n, 20 * body.score_neighbors)), f"The audit of {n:,} points")
    spec = AuditSpec(
        dataset=source,
        **({} if body.method is not None else space),
        **map_,
        labels=classes_for_audit(stores, dataset, body.labels),
        blocks=blocks_for_audit(stores, dataset, body.blocks),
        score_neighbors=body.score_neighbors,
        seed=body.seed,
    )
    short = plan is None or plan.is_short(n)
    return analysis_job(stores, spec, posterior=body.posterior, short=short, points=points)


def _refuse_space(kind: str, space: dict[str, Any]) -> None:
    """Raise `InvalidParameterError` if a request sets standardize or metric for a map that was computed with its own.

    `kind` is embedding or posterior, for the message. `space` has standardize and metric if the request sets them.
    """
    for name, value in space.items():
        raise InvalidParameterError(
            f"{name}={value!r} has no effect here: the {name} of the {kind} was chosen when it was computed.",
            remedy=f"Leave {name} out. For another {name}, give the data set and the method in place of the {kind}.",
        )
