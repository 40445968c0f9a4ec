"""Pictures: draws, summaries, embeddings and comparisons as PNG or SVG, for those who have no plotting library."""

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine.base.spec import Align
from service.responses.analyses import picture_response
from service.routes.draws import MISSING, Law, Seed
from service.routes.posteriors import ACCEPTED, Wait
from service.schemas.problems import documented
from service.schemas.resources import MAX_COUNTER
from service.submission.dependencies import Here, accepted, analysis_job, settle
from service.submission.validation import require_dataset, require_posterior, require_sample, require_success
from worker.analyses.plots.picture import MEDIA, PictureSpec, Subject, require_pictures
from worker.analyses.plots.subjects import Grid, chosen_color
from worker.analyses.posterior_analyses import MOST_SUMMARISED, SummarySpec
from worker.base.numerics import numbers_for, numbers_of
from worker.base.problems import refuse
from worker.records.draws import draw_seconds
from worker.records.priority import ANY_TIME, Terms
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

router = APIRouter(tags=["pictures"])

MOST_PANELS = 64

Format = Annotated[Literal["png", "svg"], Path(description="png, or svg, where many points are a bitmap within it.")]
Width = Annotated[
    Annotated[int, Query(ge=100, le=4000)] | None,
    Query(description="Pixels; 800, or 1,200 where there are several panels."),
]
Theme = Annotated[Literal["light", "dark"], Query(description="Of paper and ink.")]
Color = Annotated[
    Literal["auto", "label", "color", "sheet", "reference"],
    Query(
        description="What a point's colour shows: the data set's label or colour column, the place on a synthetic "
        "sheet, or the first component of the reference embedding; auto: the first of these that there is."
    ),
]


@dataclass(frozen=True)
class Look:
    """How a picture is to look; `width` of None is that of the kind of picture."""

    color: str
    theme: str
    width: int | None


def _look(color: Color = "auto", theme: Theme = "light", width: Width = None) -> Look:
    return Look(color, theme, width)


Looks = Annotated[Look, Depends(_look)]
Number = Annotated[float, Query(ge=0, allow_inf_nan=False, description="Factor on the covariance.")]

_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The picture.", "content": {media: {} for media in MEDIA.values()}},
    304: {"description": "The client's copy is good."},
    **ACCEPTED,
    **documented(**MISSING, _422="Out of range, no such colour, or matplotlib is missing."),
}


@router.get(
    "/v1/posteriors/{id}/draws/{index}.{format}",
    summary="See one draw",
    response_class=Response,
    responses=_PICTURE,
)
async def see_draw(
    id: str,  # noqa: A002 # the name in the path
    index: Annotated[int, Path(ge=0, le=MAX_COUNTER, description="Which draw of the stream.")],
    format: Format,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    look: Looks,
    seed: Seed = 0,
    scale: Number = 1.0,
    source: Law = "posterior",
    align: Annotated[Align, Query(description="Rotate to the reference embedding, or not.")] = "procrustes",
    wait: Wait = 10.0,
) -> Response:
    """Return a picture of one draw, its first two components: immutable, with a strong ETag."""
    grid = Grid(first=index, seed=seed, scales=(scale,), source=source, align=align)
    spec = _spec("draws", asdict(grid), look, format)
    return await _seen(here, request, spec, id, wait, grid)


@router.get(
    "/v1/posteriors/{id}/draws.{format}",
    summary="See many draws",
    response_class=Response,
    responses=_PICTURE,
)
async def see_draws(
    id: str,  # noqa: A002 # the name in the path
    format: Format,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    look: Looks,
    count: Annotated[int, Query(ge=1, le=MOST_PANELS, description="Draws at each scale.")] = 8,
    first: Annotated[int, Query(ge=0, le=MAX_COUNTER, description="The first draw of the stream.")] = 0,
    seed: Seed = 0,
    scales: Annotated[list[Number] | None, Query(description="Several: a row each.", max_length=MOST_PANELS)] = None,
    source: Law = "posterior",
    wait: Wait = 10.0,
) -> Response:
    """Return a sheet of draws; with several `scales` (GLLE figure 4) a row a scale: immutable, with a strong ETag."""
    grid = Grid(count=count, first=first, seed=seed, scales=tuple(scales or [1.0]), source=source)
    spec = _spec("draws", asdict(grid), look, format)
    return await _seen(here, request, spec, id, wait, grid)


@router.get(
    "/v1/posteriors/{id}/summary.{format}",
    summary="See what many draws say together",
    response_class=Response,
    responses=_PICTURE,
)
async def see_summary(
    id: str,  # noqa: A002 # the name in the path
    format: Format,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    look: Looks,
    count: Annotated[int, Query(ge=2, le=MOST_SUMMARISED, description="Draws.")] = 100,
    first: Annotated[int, Query(ge=0, le=MAX_COUNTER, description="The first draw of the stream.")] = 0,
    seed: Seed = 0,
    scale: Number = 1.0,
    source: Law = "posterior",
    wait: Wait = 10.0,
) -> Response:
    """Return the consensus of many draws, coloured by what is asked, by spread, by stability and by local trust."""
    grid = Grid(count=count, first=first, seed=seed, scales=(scale,), source=source)
    summary = SummarySpec(count=count, first=first, seed=seed, scale=scale, source=source)
    spec = _spec("summary", summary.to_dict(), look, format)
    return await _seen(here, request, spec, id, wait, grid)


@router.get(
    "/v1/embeddings/{id}.{format}",
    summary="See an embedding",
    response_class=Response,
    responses={**_PICTURE, **documented(_404="No such embedding (any more).")},
)
async def see_embedding(
    id: str,  # noqa: A002 # the name in the path
    format: Format,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    look: Looks,
    wait: Wait = 10.0,
) -> Response:
    """Return a picture of an embedding by any method, its first two components: immutable, with a strong ETag."""
    record = await run_in_threadpool(here.embeddings.fetch, id)
    await run_in_threadpool(_require_color, here, record.recipe.dataset, look.color)
    spec = _spec("embedding", record.spec.to_dict(), look, format, dataset=record.recipe.dataset)
    return await _drawn(here, request, spec, None, wait)


@router.get(
    "/v1/jobs/{id}/result.{format}",
    summary="See a comparison",
    response_class=Response,
    responses={**_PICTURE, **documented(_404="No such job.", _409="It was cancelled, or has not ended yet.")},
)
async def see_comparison(
    id: str,  # noqa: A002 # the name in the path
    format: Format,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    look: Looks,
    wait: Wait = 10.0,
) -> Response:
    """Return the embeddings of a comparison side by side, their scores below: immutable, with a strong ETag."""
    job = await settle(here, await run_in_threadpool(here.jobs.fetch, id), wait)
    if job.kind != "comparison":
        raise refuse(
            "no-picture",
            422,
            f"Job {id} is a {job.kind}; of those only comparisons are pictures.",
            "Posteriors have draws.png and summary.png, embeddings /v1/embeddings/{id}.png.",
            kind=job.kind,
        )
    if job.is_open:
        return accepted(job)
    require_success(job)
    await run_in_threadpool(_require_color, here, job.subject, look.color)
    spec = _spec("comparison", job.spec, look, format, dataset=job.subject)
    return await _drawn(here, request, spec, None, wait)


def _spec(
    of: Subject,
    asked: dict[str, Any],
    look: Look,
    format_: str,
    dataset: str | None = None,
) -> PictureSpec:
    require_pictures()
    width = look.width or (800 if of == "embedding" or asked.get("count") == 1 else 1200)
    options = {**asdict(look), "width": width, "of": of, "asked": asked, "format": format_, "dataset": dataset}
    engine = numbers_for(asked.get("engine", numbers_of("")))
    return PictureSpec.from_dict({**options, "engine": engine})


async def _seen(here: Stores, request: Request, spec: PictureSpec, posterior: str, wait: float, grid: Grid) -> Response:
    """Return the picture of a posterior's draws; of few it goes before batches, as the draws themselves would."""
    record = await run_in_threadpool(_require_panels, here, posterior, grid, spec.of)
    await run_in_threadpool(_require_color, here, record.dataset, spec.color)
    engine = numbers_for(record.numbers)
    spec = replace(spec, engine=engine, asked={**spec.asked, **({"engine": engine} if "engine" in spec.asked else {})})
    total = grid.count * len(grid.scales)
    seconds = total * draw_seconds(record.n, record.spec["n_components"])
    is_quick = spec.of == "draws" and (total == 1 or seconds <= here.settings.shard_seconds)
    return await _drawn(here, request, spec, posterior, wait, Terms(priority="interactive" if is_quick else "batch"))


async def _drawn(
    here: Stores, request: Request, spec: PictureSpec, posterior: str | None, wait: float, terms: Terms = ANY_TIME
) -> Response:
    """Return a picture, drawn by a worker unless it is cached; 202 until then."""
    key = spec.cache_key(posterior or str(spec.dataset))
    entry = await run_in_threadpool(here.cache.get, key)
    if entry is None:
        made = partial(analysis_job, here, spec, posterior=posterior, terms=terms)
        job = await settle(here, await run_in_threadpool(made), wait)
        if job.is_open:
            return accepted(job)
        require_success(job)
        entry = await run_in_threadpool(here.cache.get, key)
        if entry is None:  # evicted at once: the cache is too busy for now
            return accepted(job)
    return picture_response(request, entry)


def _require_color(here: Stores, dataset: str, color: str) -> None:
    known = require_dataset(here, dataset)
    there = {"labels": known.has_labels, "color": known.has_color, "coordinates": known.has_coordinates}
    chosen_color(dataset, {name for name, has in there.items() if has}, color)


def _require_panels(here: Stores, posterior: str, grid: Grid, of: str) -> PosteriorRecord:
    total = grid.count * len(grid.scales)
    record = require_posterior(here, posterior)
    require_sample(here, record, grid.source, first=grid.first, count=grid.count, scales=len(grid.scales))
    if of == "draws" and total > MOST_PANELS:
        detail = f"{total} draws on one sheet; {MOST_PANELS} are allowed."
        raise refuse("over-the-limit", 422, detail, "Ask for several sheets: `first` moves on.", allowed=MOST_PANELS)
    return record
