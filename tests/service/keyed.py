"""Apps with settings of their own, keys for them, and tenants that have something."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import glle_engine
from glle_engine import NUMBERS, FitSpec
from glle_engine.base.progress import silent
from glle_engine.methods import METHODS
from service.app import create_app
from tests.service.conftest import serving
from worker.analyses.embedding import Recipe
from worker.execution.context import TaskContext
from worker.execution.draws import draw_and_cache
from worker.records.draws import DrawKey
from worker.records.ids import posterior_id
from worker.storage.datasets import Table
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from worker.tenancy.api_keys import Scope

X = np.random.default_rng(0).normal(size=(60, 3))
POSTERIOR = glle_engine.fit(X)


@contextmanager
def served(stores: Stores, **settings: Any) -> Iterator[httpx.Client]:
    """Serve the same data under other settings; yield a client."""
    changed = Stores.connect(replace(stores.settings, **settings))
    with serving(create_app(changed)) as client:
        yield client
    changed.close()


def bearer(stores: Stores, tenant: str, scope: Scope = "write") -> dict[str, str]:
    """Make a key and return the header that lets in with it."""
    return {"Authorization": f"Bearer {stores.keys.create(tenant, (scope,), '', None)[1]}"}


@dataclass(frozen=True)
class Had:
    """What a tenant has."""

    headers: dict[str, str]
    dataset: str
    posterior: str
    job: str
    embedding: str

    def path(self, template: str) -> str:
        """Return a path of the contract with the id that belongs there."""
        ids = {
            "datasets": self.dataset,
            "posteriors": self.posterior,
            "jobs": self.job,
            "embeddings": self.embedding,
        }
        named = template.replace("{id}", ids[template.split("/")[2]])
        return named.replace("{index}", "0").replace("{format}", "png")


def had_by(tenant: str, stores: Stores) -> Had:
    """Give a tenant a data set, a posterior with a draw, as a worker leaves it, and a job."""
    here = stores.of(tenant)
    dataset, _ = here.datasets.add(Table(values=X, source={"kind": "test"}))
    spec = FitSpec().to_dict()
    id_ = posterior_id(dataset.id, spec, NUMBERS)
    asked = {"dataset": dataset.id, "spec": spec}
    job, _ = here.jobs.create(kind="fit", claim=id_, posterior=id_, spec=asked, total=1)
    stores.jobs.start(job.id)
    stores.posteriors.cache(id_, POSTERIOR)
    stores.posteriors.record(
        PosteriorRecord(
            id=id_, dataset=dataset.id, n=60, d=3, spec=spec, diagnostics=POSTERIOR.diagnostics.to_dict(), seconds=0.1,
            eigenvalues=POSTERIOR.eigenvalues.tolist(), arrays={}, nbytes=0, job=job.id, created="now",
            tenant=job.tenant, provenance={"numbers": NUMBERS},
        )
    )  # fmt: skip
    stores.jobs.succeed(job.id)
    draw_and_cache(stores.cache, id_, POSTERIOR, [DrawKey(0, 0, 1.0, "posterior", "procrustes")])
    recipe = Recipe(dataset=dataset.id, method="pca", parameters=METHODS["pca"].spec().to_dict())
    here.embeddings.note(recipe, job.id)
    recipe.load_or_compute(TaskContext(stores, job), silent)
    return Had(bearer(stores, tenant), dataset.id, id_, job.id, recipe.id)
