"""The FastAPI app: routes, problems and middleware put together around the stores."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fastapi import FastAPI

import glle_engine
from service.encoding.compression import CompressionMiddleware
from service.explorer import routes as explorer
from service.middleware import cors
from service.middleware.access_policy import AccessPolicy
from service.middleware.answer_cache import AnswerCache, AnswerCacheMiddleware
from service.middleware.authentication import AuthenticationMiddleware
from service.middleware.deprecation import Deprecations, is_marked
from service.middleware.errors import ErrorMiddleware
from service.middleware.head import HeadMiddleware
from service.middleware.observe import ObservabilityMiddleware, RequestLimitMiddleware
from service.middleware.rate_limit import RateLimiter
from service.middleware.security import document_keys
from service.middleware.slow_clients import SlowBodyMiddleware
from service.responses.streaming import StreamLimiter
from service.routes import (
    analyses,
    comparisons,
    datasets,
    draws,
    embeddings,
    jobs,
    methods,
    pictures,
    posteriors,
    scores,
    system,
)
from service.schemas import problems
from service.schemas.openapi import complete
from service.schemas.problems import ProblemOut, documented
from service.server.metrics import Metrics
from service.server.shutdown import Shutdown
from service.server.tracing import telemetry
from service.uploads.sandbox.processes import ReaderProcesses
from worker.observability.logging import has_access_log

if TYPE_CHECKING:
    from typing import Any

    from worker.stores import Stores

TENANTS_AT_HAND = 256  # their views of the stores are small, and made in microseconds

# Before those of numbers: a picture's path is theirs with an ending.
ROUTERS = (
    pictures,
    datasets,
    posteriors,
    draws,
    analyses,
    embeddings,
    comparisons,
    jobs,
    methods,
    scores,
    system,
    explorer,
)
DESCRIPTION = """Generative locally linear embedding: embeddings with their uncertainty.
Upload a data set, fit a posterior over reconstruction weights once, draw as many embeddings as you like.
Work that takes time is a job: 202, a Location, and long-polling with ?wait=.
Arrays come as JSON, npy, npz, CSV or an Arrow stream by the Accept header.
Every error is application/problem+json and says the remedy.
Authorization: Bearer, where keys are asked for; on loopback they are not until the first is made."""


def create_app(stores: Stores) -> FastAPI:
    """Return the app that serves these stores; it connects when it is first asked.

    Raises
    ------
    SettingsError
        When it would let everyone in from other machines.

    """
    app = FastAPI(
        title="glle",
        version=glle_engine.__version__,
        description=DESCRIPTION,
        docs_url=None,  # the framework's page loads its scripts from another host
        redoc_url=None,
        separate_input_output_schemas=False,
        telemetry=telemetry(),
        generate_unique_id_function=lambda route: route.name,  # what generated clients name their methods by
    )
    app.state.stores = stores
    app.state.stream_limiter = StreamLimiter(stores.settings.max_streams, stores.settings.max_tenant_streams)
    app.state.shutdown = Shutdown(stores, app.state.stream_limiter)
    app.state.stores_of = lru_cache(TENANTS_AT_HAND)(stores.of)
    app.state.answer_cache = AnswerCache(stores.settings.recent_bytes, stores.posteriors.state)
    app.state.readers = ReaderProcesses(stores.settings)
    app.state.metrics = Metrics(stores, app.state.answer_cache)
    for routes in ROUTERS:
        app.include_router(routes.router)
    problems.install(app)
    app.add_middleware(RequestLimitMiddleware)
    app.add_middleware(SlowBodyMiddleware, seconds=stores.settings.patience, speed=stores.settings.least_speed)
    app.add_middleware(CompressionMiddleware)
    app.add_middleware(AnswerCacheMiddleware, recent=app.state.answer_cache)
    door = app.state.access_policy = AccessPolicy.of(stores.settings, stores.keys)
    app.add_middleware(AuthenticationMiddleware, door=door, rate=RateLimiter(stores.client, stores.quotas))
    if any(is_marked(route) for routes in ROUTERS for route in routes.router.routes):
        app.add_middleware(Deprecations)
    app.add_middleware(HeadMiddleware)
    app.add_middleware(ErrorMiddleware)
    cors.install(app, stores.settings.cors_origins)
    app.add_middleware(
        ObservabilityMiddleware,
        metrics=app.state.metrics,
        draining=app.state.shutdown,
        has_access_log=has_access_log(stores.settings),
    )
    _document_problems(app)
    return app


def _document_problems(app: FastAPI) -> None:
    """Put the problem object into the contract, and take out the framework's own error shape."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        contract = generate()
        schemas = contract["components"]["schemas"]
        schemas["ProblemOut"] = ProblemOut.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        responses = documented(
            _422="A parameter that is out of range.",
            _400="A body that is not even text.",
            _414="A query of more than 32 KiB.",
        )
        for operation in (operation for path in contract["paths"].values() for operation in path.values()):
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                operation["responses"]["422"] = responses[422]
            if any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
                operation["responses"]["414"] = responses[414]
            if "requestBody" in operation:
                operation["responses"]["400"] = responses[400]
        document_keys(contract)
        return complete(contract)

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way
