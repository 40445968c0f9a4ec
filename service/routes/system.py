"""Routes for versions, limits and usage, for health checks and metrics, and for the documentation and the contract."""

import json
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import fastapi
import numpy as np
import redis
import scipy
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.concurrency import run_in_threadpool

import glle_engine
from glle_engine import NUMBERS, FitSpec, manifolds
from service.encoding.static import StaticBody
from service.routes.params import TenantStores
from service.schemas import openapi
from service.schemas.addresses import prefix
from service.schemas.problems import failures
from service.schemas.resources import (
    CheckOut,
    InfoOut,
    LiveOut,
    QuotaOut,
    QuotasOut,
    ReadyOut,
    UsageOut,
)
from service.submission.validation import MAX_COMPONENTS, MAX_DRAWS, MAX_NEIGHBORS
from service.submission.waiting import MAX_WAIT_SECONDS
from service.uploads.limits import MAX_FEATURES, MAX_INFLATION_FACTOR
from service.uploads.registry import format_of
from worker.base.problems import refuse
from worker.observability.live_workers import live_workers
from worker.operations.health import queue_states, readiness
from worker.records.ids import DEFAULT
from worker.records.shares import MAX_JOBS, allowed_of
from worker.stores import Stores

router = APIRouter(tags=["service"])

_PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": openapi.POLICY,
    "Referrer-Policy": "no-referrer",
}
_LIMITS = (
    "max_body", "max_points", "cache_bytes", "job_timeout", "job_ttl", "method_bytes")  # fmt: skip


@router.get("/v1/info", summary="Versions and limits", responses=failures())
async def info(stores: TenantStores) -> InfoOut:
    """Return the versions of the service and its libraries, the limits of requests, and the defaults of a fit."""
    return InfoOut(
        name="glle",
        versions={
            "glle": glle_engine.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "fastapi": fastapi.__version__,
            "python": platform.python_version(),
        },
        limits={
            **{name: getattr(stores.settings, name) for name in _LIMITS},
            "max_json": format_of("application/json").max_bytes(stores.settings.max_body),
            "max_inflated": MAX_INFLATION_FACTOR * stores.settings.max_body,
            "max_features": MAX_FEATURES,
            "max_neighbors": MAX_NEIGHBORS,
            "max_components": MAX_COMPONENTS,
            "max_draws": MAX_DRAWS,
            "max_jobs": MAX_JOBS,
            "max_wait": MAX_WAIT_SECONDS,
            **{f"quota_{name}": limit for name, limit in asdict(stores.quotas.default).items() if limit is not None},
        },
        manifolds=list(manifolds.NAMES),
        posterior_defaults=FitSpec().to_dict(),
        numbers=NUMBERS,
    )


@router.get("/v1/usage", summary="Usage and quotas", responses=failures())
def usage(stores: TenantStores) -> UsageOut:
    """Return what the tenant of the key has stored and queued, and its quotas."""
    tenant = stores.tenant or DEFAULT
    quota = stores.quotas.for_tenant(tenant)
    stored = stores.posteriors.usage()
    is_open, record_bytes = stores.jobs.counts()
    quotas = QuotasOut(
        bytes=QuotaOut.from_use(stored["stored_bytes"] + _incoming_bytes(stores, tenant), quota.bytes),
        jobs=QuotaOut.from_use(is_open, allowed_of(stores.quotas.limit("jobs", tenant), MAX_JOBS)),
        records=QuotaOut.from_use(record_bytes, quota.records),
        posteriors=QuotaOut.from_use(stored["posteriors"], quota.posteriors),
    )
    return UsageOut(
        tenant=tenant, quotas=quotas, datasets=stored["datasets"], posterior_bytes=stored["posterior_bytes"]
    )


def _incoming_bytes(stores: Stores, tenant: str) -> int:
    """Return the bytes of a tenant's bodies that are arriving now, in all API processes.

    If the cache's Redis does not answer, only the bodies of this process count.
    """
    with suppress(redis.RedisError):
        return stores.shares.of_all(stores.cache.client)["incoming"][0][tenant]
    return stores.shares.incoming.held[tenant]


@router.get("/livez", summary="Is the process alive?", responses=failures())
async def livez() -> LiveOut:
    """Answer that the process is alive, without Redis and without a thread."""
    return LiveOut()


@router.get("/readyz", summary="Can it work?", response_model_exclude_none=True, responses=failures())
async def readyz(request: Request, stores: TenantStores) -> ReadyOut:
    """Return 200 if the service can work, and this process is not stopping.

    The service can work if both Redis servers answer, the queue's server accepts writes, a worker is alive, the records
    and their files are not lost, and data can be written. If it cannot, the answer is 503: the problem of the first
    failed check, and all checks in `details.checks`.

    The status is `degraded` while a check has a warning: the queue server uses more than 80 % of its memory, so that
    new jobs are refused; the disk has less free than its reserve, so that uploads are refused; or the object store does
    not answer.

    A request without a key, if other paths need one, gets the status alone.
    """
    request.app.state.shutdown.require_not_draining()
    checks = await run_in_threadpool(readiness, stores)
    failed = [check for check in checks if check.state == "problem"]
    status: Literal["ok", "degraded"] = "ok" if all(check.state == "ok" for check in checks) else "degraded"
    if not await run_in_threadpool(request.app.state.access_policy.is_authenticated, request.scope):
        if failed:
            remedy = "Send an API key for details, or run `glle doctor` on the service's machine."
            raise refuse("not-ready", 503, "The service is not ready; without a key the reason is not shown.", remedy)
        return ReadyOut(status=status)
    if failed:
        first, names = failed[0], [check.name for check in failed]
        states = [check.to_dict() for check in checks]
        raise refuse(first.code, 503, f"{', '.join(names)}: {first.detail}", first.remedy, failed=names, checks=states)
    queues = await run_in_threadpool(queue_states, stores)
    workers = await run_in_threadpool(live_workers, stores.client)
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
        **failures(),
    },
)
async def metrics(request: Request) -> Response:
    """Return the metrics of the whole deployment as text: requests, jobs, queues, workers, storage and caches."""
    registry = request.app.state.metrics
    text = await run_in_threadpool(registry.exposition, registry.drain())
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@dataclass(frozen=True)
class Documents:
    """The OpenAPI document and its HTML page as bytes, made once, because making them takes 20 ms of the event loop."""

    contract: StaticBody
    page: StaticBody

    @classmethod
    def of(cls, contract: dict[str, Any], prefix: str) -> Self:
        """Return the OpenAPI document `contract` and its HTML page for a service below the path `prefix`.

        The prefix, such as ``/glle``, is the path at which a proxy serves the API; it is empty if there is none.
        """
        servers = {"servers": [{"url": prefix}]} if prefix else {}
        return cls(
            StaticBody.of(json.dumps(contract | servers).encode(), {"Content-Type": "application/json"}),
            StaticBody.of(openapi.page(contract).encode(), _PAGE_HEADERS),
        )


@router.get("/docs", summary="This documentation", response_class=HTMLResponse, responses=failures())
def documentation(request: Request) -> Response:
    """Return a page that documents every route and model, and loads nothing from other hosts."""
    documents: Documents = request.app.state.documents(prefix())
    return documents.page.response(request)


@router.get("/openapi.json", include_in_schema=False)
def contract(request: Request) -> Response:
    """Return the OpenAPI contract of the API."""
    documents: Documents = request.app.state.documents(prefix())
    return documents.contract.response(request)
