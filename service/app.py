"""Create the FastAPI application of one API process: its routes, error handlers and middleware."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI

import glle_engine
from service.explorer import routes as explorer
from service.middleware.access_policy import AccessPolicy, required_scope
from service.middleware.answer_cache import MAX_CACHE_BYTES, AnswerCache
from service.middleware.request_limits import RequestLimits
from service.middleware.requests import RequestMiddleware
from service.routes import (
    analyses,
    comparisons,
    datasets,
    draws,
    embeddings,
    jobs,
    methods,
    posteriors,
    system,
)
from service.routes.draws import RecentPosteriors
from service.routes.params import require_known_query
from service.routes.system import Documents
from service.schemas import problems
from service.schemas.openapi import complete
from service.server.metrics import Metrics
from service.server.uvicorn_server import Shutdown
from service.submission import jobs as submission
from service.uploads.sandbox.processes import ReaderProcesses
from worker.observability.logging import has_access_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.stores import Stores

# Views of the stores that are cached, one for each tenant. Making another tenant's view takes microseconds.
MAX_TENANT_VIEWS = 256

# A proxy may serve the API below a path prefix. The OpenAPI contracts of this many prefixes are cached; most
# deployments have one.
MAX_PREFIXES = 4

# A request is matched against the routes in this order, which takes time. Requests for draws are the most frequent.
ROUTERS = (
    draws,
    datasets,
    posteriors,
    analyses,
    embeddings,
    comparisons,
    jobs,
    methods,
    system,
    explorer,
)
DESCRIPTION = """Generative locally linear embedding: embeddings with their uncertainty.
Upload a data set, fit a posterior over reconstruction weights once, draw as many embeddings as you like.
Long work is a job: 202, a Location, and long-polling with ?wait=.
Arrays are JSON, npy, npz, CSV or an Arrow stream, by the Accept header.
Every error is application/problem+json with a remedy.
Authorization: Bearer; on loopback no key is needed until the first exists."""


def create_app(stores: Stores) -> FastAPI:
    """Return the FastAPI application of one API process, which serves the data of `stores`.

    The application connects to Redis at the first request.

    Raises `SettingsError` if the settings would let other machines connect without an API key, or if a setting is
    malformed.
    """
    settings = stores.settings
    app = FastAPI(
        title="glle",
        version=glle_engine.__version__,
        description=DESCRIPTION,
        openapi_url=None,  # `service.routes.system` serves the contract from bytes that are made once
        docs_url=None,  # FastAPI's page loads scripts from another host
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the request's scheme and host, which a proxy may change
        separate_input_output_schemas=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        dependencies=[Depends(require_known_query)],
        generate_unique_id_function=lambda route: route.name,  # generated clients name their methods after it
    )
    app.state.stores = stores
    app.state.shutdown = Shutdown(stores)
    app.state.stores_of = lru_cache(MAX_TENANT_VIEWS)(stores.for_tenant)
    app.state.recent_posteriors = RecentPosteriors(app.state.stores_of)
    app.state.answer_cache = AnswerCache(MAX_CACHE_BYTES, app.state.recent_posteriors.state)
    app.state.readers = ReaderProcesses(settings, share=stores.shares.readers)
    app.state.metrics = Metrics(stores, app.state.answer_cache)
    app.state.access_policy = AccessPolicy(settings, stores.keys, stores.mark)
    for module in ROUTERS:
        app.include_router(module.router)
    problems.install(app)
    submission.install(app)
    app.add_middleware(
        RequestMiddleware,
        policy=app.state.access_policy,
        limits=RequestLimits(stores.shares),
        cache=app.state.answer_cache,
        on_deletion=app.state.recent_posteriors.clear,
        observe=app.state.metrics.observe,
        draining=app.state.shutdown.draining,
        origins=settings.cors_origins,
        has_access_log=has_access_log(settings),
    )
    generate = app.openapi
    app.openapi = _make_once(lambda: complete(generate(), required_scope))  # type: ignore[method-assign] # as FastAPI documents
    app.state.documents = _make_once(lambda prefix: Documents.of(app.openapi(), prefix))
    return app


def _make_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return `make` with a lock and a cache of its results: making the OpenAPI contract takes more than a second."""
    lock, cached_make = Lock(), lru_cache(MAX_PREFIXES)(make)

    def get(*arguments: str) -> Any:
        with lock:
            return cached_make(*arguments)

    return get
