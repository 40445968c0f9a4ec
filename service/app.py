"""The FastAPI app: routes, problems and middleware put together around the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI

import glle_engine
from service import cors, problems
from service.compression import Compress
from service.deprecation import Deprecations, is_marked
from service.head import Head
from service.metrics import Metrics
from service.middleware import Gate, Observe
from service.problems import ProblemOut, documented
from service.recent import FromRecent, Recent
from service.routes import analyses, datasets, draws, jobs, methods, posteriors, system

if TYPE_CHECKING:
    from typing import Any

    from worker.stores import Stores

ROOMS = (datasets, posteriors, draws, analyses, jobs, methods, system)
DESCRIPTION = """Generative locally linear embedding: embeddings with their uncertainty.
Upload a data set, fit a posterior over reconstruction weights once, draw as many embeddings as you like.
Work that takes time is a job: 202, a Location, and long-polling with ?wait=.
Arrays come as JSON, npy, npz, CSV or an Arrow stream by the Accept header.
Every error is application/problem+json and says the remedy."""


def create_app(stores: Stores) -> FastAPI:
    """Return the app that serves these stores; it connects when it is first asked."""
    app = FastAPI(
        title="glle",
        version=glle_engine.__version__,
        description=DESCRIPTION,
        docs_url=None,  # the framework's page loads its scripts from another host
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.stores = stores
    app.state.metrics = Metrics(stores)
    app.state.recent = Recent(stores.settings.recent_bytes, stores.posteriors.exists)
    for routes in ROOMS:
        app.include_router(routes.router)
    problems.install(app)
    app.add_middleware(Gate)
    app.add_middleware(Compress)
    app.add_middleware(FromRecent, recent=app.state.recent)
    if any(is_marked(route) for routes in ROOMS for route in routes.router.routes):
        app.add_middleware(Deprecations)
    app.add_middleware(Head)
    cors.install(app, stores.settings.cors_origins)
    app.add_middleware(Observe, metrics=app.state.metrics)
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
        told = documented(_422="A parameter that is out of range.", _400="A body that is not even text.")
        for operation in (operation for path in contract["paths"].values() for operation in path.values()):
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                operation["responses"]["422"] = told[422]
            if "requestBody" in operation:
                operation["responses"]["400"] = told[400]
        return contract

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way
