"""The FastAPI app: routes, problems and middleware put together around the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI

import glle_engine
from service import problems
from service.contract import complete
from service.metrics import Metrics
from service.middleware import Gate, Observe
from service.problems import ProblemOut, documented
from service.recent import FromRecent, Recent
from service.routes import analyses, datasets, draws, jobs, posteriors, system

if TYPE_CHECKING:
    from typing import Any

    from worker.stores import Stores

DESCRIPTION = """Generative locally linear embedding: embeddings with their uncertainty.
Upload a data set, fit a posterior over reconstruction weights once, draw as many embeddings as you like.
Work that takes time is a job: 202, a Location, and long-polling with ?wait=.
Arrays come as JSON, npy or npz by the Accept header.
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
        generate_unique_id_function=lambda route: route.name,  # what generated clients name their methods by
    )
    app.state.stores = stores
    app.state.metrics = Metrics(stores)
    app.state.recent = Recent(stores.settings.recent_bytes, stores.posteriors.exists)
    for routes in (datasets, posteriors, draws, analyses, jobs, system):
        app.include_router(routes.router)
    problems.install(app)
    app.add_middleware(Gate)
    app.add_middleware(FromRecent, recent=app.state.recent)
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
        told = documented(_422="A parameter that is out of range.")[422]
        for operation in (operation for methods in contract["paths"].values() for operation in methods.values()):
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                operation["responses"]["422"] = told
        return complete(contract)

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way
