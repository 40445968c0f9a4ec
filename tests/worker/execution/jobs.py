"""Jobs for tests of tasks and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import glle_engine
from glle_engine import FitSpec, manifolds
from worker.records.draws import DrawsSpec
from worker.records.ids import digest, posterior_id
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.jobs.store import Job
    from worker.stores import Stores

N = 120  # of which the embedding is trusted: an untrusted one makes a fit search for a better n_neighbors
SHEET = manifolds.make("s_curve", N, seed=1)


def fit_job(stores: Stores, values: Any = SHEET.X, *, short: bool = False, **parameters: Any) -> Job:
    """Create the job that fits a posterior of these values."""
    dataset, _ = stores.datasets.add(Table(values=np.asarray(values), source={"kind": "test"}))
    spec = FitSpec(**{"n_neighbors": 10, **parameters}).to_dict()
    id_ = posterior_id(dataset.id, spec, glle_engine.__version__)
    request = {"dataset": dataset.id, "spec": spec}
    return stores.jobs.create(kind="fit", claim=id_, posterior=id_, spec=request, total=1, short=short)[0]


def enqueued_fit(stores: Stores, n: int, *, short: bool = False) -> Job:
    """Create and enqueue a fit of n points."""
    job = fit_job(stores, manifolds.make("swiss_roll", n, seed=0).X, short=short)
    stores.queue.enqueue(job)
    return job


def draws_job(stores: Stores, posterior: str, **more: Any) -> tuple[Job, DrawsSpec]:
    """Create a job of draws in shards of one lane group."""
    fields: dict[str, Any] = {
        "n": N, "p": 2, "count": 9, "first": 0, "seed": 0, "scales": (1.0,), "grid": False,
        "source": "posterior", "align": "procrustes",
        "draw_seconds": 1e-6 * more.get("n", N), "shard_seconds": 4e-6 * N, **more,
    }  # fmt: skip
    spec = DrawsSpec(**fields)
    job, _ = stores.jobs.create(
        kind="draws",
        claim=digest(spec.to_dict()),
        posterior=posterior,
        spec=spec.to_dict(),
        total=spec.total,
    )
    return job, spec


def raiser(error: Exception) -> Callable[..., None]:
    """Return a function that raises."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
