"""Pictures of draws, summaries, embeddings and comparisons as PNG or SVG, for clients without a plotting library."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service.responses.analyses import picture_response
from service.routes import params
from service.routes.params import ANSWER_SECONDS, NOT_FITTED, Id, TenantStores, Wait
from service.schemas.resources import First, Seed, SourceQuery
from service.submission.fit_planning import require_affordable_summary, summary_spec
from service.submission.jobs import analysis_job, finish, load_or_compute
from service.submission.validation import require_posterior, require_sample
from worker.analyses.pictures import MEDIA, DrawGrid, PictureSpec, Subject, require_matplotlib, resolve_colors
from worker.base.problems import refuse
from worker.records import sharding
from worker.records.job import ANY_TIME, Terms
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

router = APIRouter(tags=["pictures"])

MAX_PANELS = 64
PANEL_PIXELS, SHEET_PIXELS = 800, 1200  # default width of one panel, and of several


@dataclass(frozen=True)
class PictureOptions:
    """Format and appearance of a picture; a width of None depends on the kind of picture."""

    format: Annotated[
        Literal["png", "svg"], Path(description="png, or svg, in which many points are an embedded bitmap.")
    ]
    colors: Annotated[
        Literal["auto", "labels", "colors", "sheet", "reference"],
        Query(
            description="Meaning of the color of a point: the labels or colors of the data set, the position on a "
            "synthetic sheet, or the first component of the reference embedding; auto: the first of these that exists."
        ),
    ] = "auto"
    theme: Annotated[Literal["light", "dark"], Query(description="Color of the background.")] = "light"
    width: Annotated[
        Annotated[int, Query(ge=100, le=4000)] | None,
        Query(description="Pixels; 800, or 1,200 for several panels."),
    ] = None


Options = Annotated[PictureOptions, Depends()]
ScaleNumber = Annotated[float, Query(ge=0, allow_inf_nan=False, description="Factor on the covariance.")]

_OUT_OF_RANGE = "Out of range, no such color, or matplotlib is missing."
_PICTURE = partial(params.returns_arrays, "The picture.", tuple(MEDIA.values()), _422=_OUT_OF_RANGE)


@router.get(
    "/v1/posteriors/{id}/draws/{index}.{format}",
    summary="See one draw",
    **_PICTURE(**NOT_FITTED),
)
async def see_draw(
    id_: Id,
    index: params.IndexPath,
    request: Request,
    stores: TenantStores,
    options: Options,
    seed: Seed = 0,
    scale: ScaleNumber = 1.0,
    source: SourceQuery = "posterior",
    align: params.AlignQuery = "procrustes",
    wait: Wait = ANSWER_SECONDS,
) -> Response:
    """Return a picture of one draw, its first two components: immutable, with a strong ETag."""
    grid = DrawGrid(first=index, seed=seed, scales=(scale,), source=source, align=align)
    return await _posterior_picture(stores, request, _spec("draws", asdict(grid), options), id_, wait, grid)


@router.get(
    "/v1/posteriors/{id}/draws.{format}",
    summary="See many draws",
    **_PICTURE(**NOT_FITTED),
)
async def see_draws(
    id_: Id,
    request: Request,
    stores: TenantStores,
    options: Options,
    n_draws: Annotated[int, Query(ge=1, le=MAX_PANELS, description="Draws at each scale.")] = 8,
    first: First = 0,
    seed: Seed = 0,
    scales: Annotated[
        list[ScaleNumber] | None, Query(description="Several scales, one row each.", max_length=MAX_PANELS)
    ] = None,
    source: SourceQuery = "posterior",
    wait: Wait = ANSWER_SECONDS,
) -> Response:
    """Return a sheet of draws, one row for each of several `scales` (GLLE figure 4): immutable, with a strong ETag."""
    grid = DrawGrid(n_draws=n_draws, first=first, seed=seed, scales=tuple(scales or [1.0]), source=source)
    return await _posterior_picture(stores, request, _spec("draws", asdict(grid), options), id_, wait, grid)


@router.get(
    "/v1/posteriors/{id}/summary.{format}",
    summary="See a summary of many draws",
    **_PICTURE(**NOT_FITTED),
)
async def see_summary(
    id_: Id,
    request: Request,
    stores: TenantStores,
    options: Options,
    query: params.Summary,
    wait: Wait = ANSWER_SECONDS,
) -> Response:
    """Return the consensus of a summary, colored by the chosen column, by spread, stability and local trust.

    It shows the spread of the summary with the same parameters; the title of an ensemble has its reliability.
    """
    record = await run_in_threadpool(require_posterior, stores, id_)
    grid = DrawGrid(n_draws=query.n_draws, first=query.first, seed=query.seed, source=query.source)
    await run_in_threadpool(_require_panels, stores, id_, grid, "summary")
    summary = summary_spec(record, query)
    if not await run_in_threadpool(stores.has_result, summary, id_):
        await run_in_threadpool(partial(require_affordable_summary, stores, record, summary, shared=False))
    return await _posterior_picture(stores, request, _spec("summary", summary.to_dict(), options), id_, wait, grid)


@router.get(
    "/v1/embeddings/{id}.{format}",
    summary="See an embedding",
    **_PICTURE(_404="No such embedding (any more).", _409=NOT_FITTED["_409"]),
)
async def see_embedding(
    id_: Id, request: Request, stores: TenantStores, options: Options, wait: Wait = ANSWER_SECONDS
) -> Response:
    """Return a picture of an embedding by any method, its first two components: immutable, with a strong ETag."""
    record = await run_in_threadpool(stores.embeddings.fetch, id_)
    dataset = record.recipe.dataset
    await run_in_threadpool(_require_colors, stores, dataset, options.colors)
    spec = _spec("embedding", record.spec.to_dict(), options, dataset)
    return await _picture(stores, request, spec, None, wait)


@router.get(
    "/v1/jobs/{id}/result.{format}",
    summary="See a comparison",
    **_PICTURE(_404="No such job.", _409="It was cancelled, or has not ended yet."),
)
async def see_comparison(
    id_: Id, request: Request, stores: TenantStores, options: Options, wait: Wait = ANSWER_SECONDS
) -> Response:
    """Return the embeddings of a comparison side by side, with their scores: immutable, with a strong ETag."""
    job = await run_in_threadpool(stores.jobs.fetch, id_)
    if job.kind != "comparison":
        raise refuse(
            "no-picture",
            422,
            f"Job {id_} is of kind {job.kind}; only the result of a comparison has a picture.",
            "Use draws.png or summary.png of a posterior, or /v1/embeddings/{id}.png.",
            kind=job.kind,
        )
    job = await finish(stores, job, wait)
    await run_in_threadpool(_require_colors, stores, job.subject, options.colors)
    return await _picture(stores, request, _spec("comparison", job.spec, options, job.subject), None, wait)


def _spec(of: Subject, asked: dict[str, Any], options: PictureOptions, dataset: str | None = None) -> PictureSpec:
    require_matplotlib()
    width = options.width or (PANEL_PIXELS if of == "embedding" or asked.get("n_draws") == 1 else SHEET_PIXELS)
    fields = {**asdict(options), "width": width, "of": of, "asked": asked, "dataset": dataset}
    return PictureSpec.from_dict(fields)


async def _posterior_picture(
    stores: Stores, request: Request, spec: PictureSpec, posterior: str, wait: float, grid: DrawGrid
) -> Response:
    """Return the picture of a posterior's draws; a picture of few draws is interactive, as the draws are."""
    record = await run_in_threadpool(_require_panels, stores, posterior, grid, spec.of)
    await run_in_threadpool(_require_colors, stores, record.dataset, spec.colors)
    total = grid.n_draws * len(grid.scales)
    seconds = total * record.draw_seconds
    is_quick = spec.of == "draws" and (total == 1 or seconds <= sharding.SHARD_SECONDS)
    terms = Terms(priority="interactive" if is_quick else "batch")
    return await _picture(stores, request, spec, posterior, wait, terms)


async def _picture(
    stores: Stores, request: Request, spec: PictureSpec, posterior: str | None, wait: float, terms: Terms = ANY_TIME
) -> Response:
    """Return a picture, which a worker draws unless it is stored; 202 until then."""
    submit = partial(analysis_job, stores, spec, posterior=posterior, terms=terms)
    subject = posterior or str(spec.dataset)
    return picture_response(request, await load_or_compute(stores, spec, subject, submit, wait))


def _require_colors(stores: Stores, id_: str, choice: str) -> None:
    resolve_colors(id_, set(stores.datasets.fetch(id_).extras), choice)


def _require_panels(stores: Stores, posterior: str, grid: DrawGrid, of: str) -> PosteriorRecord:
    total = grid.n_draws * len(grid.scales)
    record = require_posterior(stores, posterior)
    require_sample(stores, record, grid.source, first=grid.first, n_draws=grid.n_draws, scales=len(grid.scales))
    if of == "draws" and total > MAX_PANELS:
        detail = f"{total} draws on one sheet; {MAX_PANELS} are allowed."
        remedy = "Request several sheets with different `first`."
        raise refuse("over-the-limit", 422, detail, remedy, allowed=MAX_PANELS)
    return record
