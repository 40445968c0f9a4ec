"""Info, health, metrics and the documentation page."""

import platform
from typing import Literal

import fastapi
import numpy as np
import redis
import scipy
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.concurrency import run_in_threadpool

import glle_engine
from glle_engine import FitSpec, manifolds
from service.middleware.authentication import tenant_of
from service.routes.params import TenantStores
from service.schemas import docs_page
from service.schemas.problems import documented
from service.schemas.resources import (
    CheckOut,
    InfoOut,
    LiveOut,
    NumericsOut,
    QuotaOut,
    QuotasOut,
    ReadyOut,
    UsageOut,
)
from worker.base.numerics import kind_of
from worker.base.problems import refuse
from worker.connections.event_loop import in_thread, on_loop
from worker.observability.live_workers import workers_by_numbers
from worker.operations.health import queue_states, readiness
from worker.records.tenants import DEFAULT
from worker.stores import Stores

router = APIRouter(tags=["service"])

_LIMITS = (
    "max_body", "max_json", "max_inflated", "max_points", "max_features", "max_neighbors", "max_components",
    "max_draws", "max_jobs", "max_wait", "cache_bytes", "job_timeout", "job_ttl", "quota_bytes", "quota_jobs",
    "quota_requests", "quota_records", "quota_posteriors", "cost_margin", "method_bytes",
)  # fmt: skip


@router.get("/v1/info", summary="Versions and limits", responses=documented())
async def info(stores: TenantStores) -> InfoOut:
    """Return versions, limits and available features."""
    return InfoOut(
        name="glle",
        versions={
            "glle": glle_engine.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "fastapi": fastapi.__version__,
            "python": platform.python_version(),
        },
        limits={name: getattr(stores.settings, name) for name in _LIMITS},
        manifolds=list(manifolds.NAMES),
        posterior_defaults=FitSpec().to_dict(),
        numerics=await on_loop(_kinds, stores),
    )


@router.get("/v1/usage", summary="Usage and quotas", responses=documented())
async def usage(request: Request, stores: TenantStores) -> UsageOut:
    """Return what the tenant of the key stores and does, beside its quotas."""
    reset = await on_loop(request.app.state.rate_limiter.used, tenant_of(request.scope))
    return await on_loop(_usage, stores, *reset)


def _usage(stores: Stores, requests: int, reset: float) -> UsageOut:
    tenant = stores.tenant or DEFAULT
    quota = stores.quotas.of(tenant)
    (datasets, _), nbytes = in_thread(stores.datasets.usage), in_thread(stores.datasets.stored_bytes)
    posteriors, posterior_bytes = stores.posteriors.usage()
    is_open, ended = stores.jobs.counts()
    quotas = QuotasOut(
        bytes=QuotaOut.of(nbytes, quota.bytes),
        jobs=QuotaOut.of(is_open, quota.jobs),
        requests=QuotaOut.of(requests, quota.requests, reset),
        records=QuotaOut.of(ended, quota.records),
        posteriors=QuotaOut.of(posteriors, quota.posteriors),
    )
    return UsageOut(tenant=tenant, quotas=quotas, datasets=datasets, posterior_bytes=posterior_bytes)


def _kinds(stores: Stores) -> list[NumericsOut] | None:
    """Return the numerics kinds of the live workers, or None if the queue server does not answer."""
    try:
        live = workers_by_numbers(stores.client, stores.settings)
    except redis.RedisError:
        return None
    return [
        NumericsOut(numbers=numbers, pinned=not kind_of(numbers), workers=len(workers))
        for numbers, workers in sorted(live.items())
    ]


@router.get("/livez", summary="Is the process alive?", responses=documented())
async def livez() -> LiveOut:
    """Answer from the event loop alone, without Redis or a thread."""
    return LiveOut()


@router.get("/readyz", summary="Can it work?", response_model_exclude_none=True, responses=documented())
async def readyz(request: Request, stores: TenantStores) -> ReadyOut:
    """Return 200 if the servers answer, each queue has a worker, data can be written, and this process is not stopping.

    The status is `degraded` while a check has a warning: the queue server is above GLLE_QUEUE_HIGH_WATER, so that new
    jobs are refused; the disk has less free than GLLE_DISK_RESERVE, so that uploads are refused; or the object store
    does not answer.

    Otherwise 503: the problem of the first failed check, and all checks in `details.checks`. A request without a key,
    if other paths need one, gets the status alone.
    """
    request.app.state.shutdown.require_not_draining()
    checks = await on_loop(readiness, stores)
    failed = [check for check in checks if check.state == "problem"]
    status: Literal["ok", "degraded"] = "ok" if all(check.state == "ok" for check in checks) else "degraded"
    if not await on_loop(request.app.state.access_policy.is_authenticated, request.scope):
        if failed:
            remedy = "Send an API key for details, or run `glle doctor` on the service's machine."
            raise refuse("not-ready", 503, "The service is not ready.", remedy)
        return ReadyOut(status=status)
    if failed:
        first, names = failed[0], [check.name for check in failed]
        states = [check.to_dict() for check in checks]
        raise refuse(first.code, 503, f"{', '.join(names)}: {first.detail}", first.remedy, failed=names, checks=states)
    queues = await on_loop(queue_states, stores)
    workers = {worker.name for queue in queues for worker in queue.workers}
    return ReadyOut(
        status=status,
        workers=len(workers),
        queue_length=sum(queue.length for queue in queues),
        checks=[CheckOut(name=check.name, state=check.state, detail=check.detail) for check in checks],
    )


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **documented(),
    },
)
async def metrics(request: Request) -> Response:
    """Return requests by route template, jobs by kind and status, the queue and the workers."""
    registry = request.app.state.metrics
    text = await run_in_threadpool(registry.exposition, registry.take())
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/docs", summary="This documentation", response_class=HTMLResponse, responses=documented())
async def documentation(request: Request) -> HTMLResponse:
    """Return a page with every route and model that loads nothing from other hosts."""
    return HTMLResponse(docs_page.page(request.app.openapi()))
