"""Apps with other settings, API keys, and tenants with resources."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine import FitSpec
from glle_engine.base.progress import silent
from glle_engine.methods import METHODS
from glle_engine.tables.table import Table
from tests.service.conftest import connected_app, data_and_posterior, serving, store_posterior
from worker.analyses.embedding import Recipe
from worker.execution.context import TaskContext
from worker.storage.posteriors import posterior_id
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from worker.storage.api_keys import Scope

# Bodies of the routes with an id.
BODIES: dict[str, dict[str, Any]] = {
    "/v1/posteriors/{id}/draws": {"n_draws": 1},
    "/v1/posteriors/{id}/transform": {"data": [[0.0, 0.0, 0.0]]},
    "/v1/embeddings/{id}/transform": {"data": [[0.0, 0.0, 0.0]]},
    "/v1/posteriors/{id}/reconstructions": {"n_draws": 1},
    "/v1/posteriors/{id}/calibration": {},
    "/v1/datasets/{id}": {"name": "mine"},
    "/v1/posteriors/{id}": {"name": "mine"},
    "/v1/embeddings/{id}": {"name": "mine"},
}


@contextmanager
def serve_stores(stores: Stores, **settings: Any) -> Iterator[httpx.Client]:
    """Serve the same data under other settings; yield a client."""
    connected = Stores.connect(replace(stores.settings, **settings))
    with serving(connected_app(connected)) as client:
        yield client
    connected.close()


def bearer(stores: Stores, tenant: str, scope: Scope = "write") -> dict[str, str]:
    """Create a key and return its header."""
    return {"Authorization": f"Bearer {stores.keys.create(tenant, (scope,), '', None)[1]}"}


@dataclass(frozen=True)
class TenantResources:
    """Key and resources of a tenant."""

    headers: dict[str, str]
    dataset: str
    posterior: str
    job: str
    embedding: str

    def path(self, template: str) -> str:
        """Return a path of the contract with its id filled in."""
        resource = template.split("/")[2].removesuffix("s")
        path = template.replace("{id}", str(getattr(self, resource, "")))
        return path.replace("{index}", "0")


def resources_of(tenant: str, stores: Stores) -> TenantResources:
    """Create a data set, a posterior with a cached draw, a job and an embedding of a tenant."""
    resources, (X, posterior) = stores.for_tenant(tenant), data_and_posterior()
    dataset, _ = resources.datasets.add(Table(values=X, ids=np.arange(len(X)), source={"kind": "test"}))
    spec = FitSpec(n_neighbors=10, landmarks="all").to_dict()
    id_ = posterior_id(dataset.id, spec)
    request = {"dataset": dataset.id, "spec": spec}
    job, _ = resources.jobs.create(kind="fit", claim=id_, posterior=id_, spec=request, total=1)
    stores.jobs.start(job.id)
    store_posterior(stores, dataset.id, posterior, 1, job=job.id, tenant=job.tenant)
    stores.jobs.succeed(job.id)
    recipe = Recipe(dataset=dataset.id, method="pca", parameters=METHODS["pca"].spec().to_dict())
    resources.embeddings.request(recipe, recipe.id)
    recipe.load_or_compute(TaskContext(stores, job), silent)
    return TenantResources(bearer(stores, tenant), dataset.id, id_, job.id, recipe.id)
