"""What stands beside the resources: info, health, metrics, the documentation."""

import platform

import fastapi
import numpy as np
import scipy
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

import glle_engine
from glle_engine import FitSpec, manifolds
from service import docs
from service.context import Here
from service.models import InfoOut, LiveOut, ReadyOut
from service.problems import documented
from worker.problems import refuse

router = APIRouter(tags=["service"])

_LIMITS = (
    "max_body", "max_json", "max_inflated", "max_points", "max_features", "max_neighbors", "max_components",
    "max_draws", "max_wait", "cache_bytes", "job_timeout", "job_ttl",
)  # fmt: skip


@router.get("/v1/info", summary="Versions and limits", responses=documented())
def info(here: Here) -> InfoOut:
    """Tell the versions, the limits, and what can be asked for."""
    return InfoOut(
        name="glle",
        versions={
            "glle": glle_engine.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "fastapi": fastapi.__version__,
            "python": platform.python_version(),
        },
        limits={name: getattr(here.settings, name) for name in _LIMITS},
        manifolds=list(manifolds.NAMES),
        posterior_defaults=FitSpec().to_dict(),
    )


@router.get("/livez", summary="Is the process alive?", responses=documented())
async def livez() -> LiveOut:
    """Answer from the event loop alone: no Redis, no thread."""
    return LiveOut()


@router.get("/readyz", summary="Can it work?", responses=documented())
def readyz(here: Here) -> ReadyOut:
    """Answer 200 when both Redis servers answer and a worker is alive, else 503."""
    here.cache.ping()
    workers = here.queue.live_workers()
    if workers == 0:
        raise refuse("no-workers", 503, "No worker is alive.", "Start one: `glle worker`, or look at its log.")
    return ReadyOut(workers=workers, queue_length=here.queue.length())


@router.get("/metrics", summary="Prometheus metrics", response_class=Response, responses=documented())
def metrics(request: Request) -> Response:
    """Tell requests by route template, jobs by kind and status, the queue and the workers."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/docs", summary="This documentation", response_class=HTMLResponse, responses=documented())
async def documentation(request: Request) -> HTMLResponse:
    """Show every route and model on one page that needs no other host."""
    return HTMLResponse(docs.page(request.app.openapi()))


@router.get(
    "/", summary="To the documentation", response_class=RedirectResponse, status_code=307, responses=documented()
)
async def root() -> RedirectResponse:
    """Redirect to /docs."""
    return RedirectResponse("/docs")
