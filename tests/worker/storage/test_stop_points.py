"""A process may die between any two writes of records and files.

Each scenario dies at each of its stop-points (`tests.stop_points`). Then the client repeats what was not acknowledged,
and a sweep of the stored files goes by: the records, their counters, sets and files are as without the death.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from typing import Any

import numpy as np
import pytest

from glle_engine.methods import METHODS
from glle_engine.tables.table import Table
from tests.stop_points import stopping
from tests.worker.execution.workers import SHEET, bare_fit, draws_job, fit_job
from worker.analyses.embedding import Recipe
from worker.base.problems import ProblemError
from worker.execution import tasks
from worker.execution.sweep import find_records_without_files, find_unnamed_files, sweep
from worker.records.cache_entry import Entry
from worker.records.ids import DEFAULT
from worker.storage import results
from worker.storage.records import RecordStore
from worker.stores import Stores

NOW = -60.0  # seconds: all files are older
TABLE = Table(values=SHEET.X, source={"kind": "test"})
RESULT = Entry({"kind": "test"}, {"x": np.arange(3.0)})


Act = Callable[[Stores], object]

# Each scenario prepares what is there before, and returns what a process does when it dies; a repetition completes it.


def add_dataset(_: Stores) -> Act:
    """Upload a data set."""
    return lambda stores: stores.datasets.add(TABLE)


def replace_damaged_file(stores: Stores) -> Act:
    """Upload a data set whose stored file has lost bits."""
    dataset, _ = stores.datasets.add(TABLE)
    path = stores.files.bucket.local_path(dataset.stored["values"].path)
    path.write_bytes(path.read_bytes()[:-1])
    return lambda stores: stores.datasets.add(TABLE)


def delete_dataset(stores: Stores) -> Act:
    """Delete a data set, with a result about it."""
    dataset, _ = stores.datasets.add(TABLE)
    assert stores.results.put("about", RESULT, owners=[dataset.id], job="job_1", tenant=DEFAULT)

    def act(stores: Stores) -> None:
        stores.datasets.fetch(dataset.id)
        stores.datasets.delete(dataset.id)

    return act


def fit(stores: Stores) -> Act:
    """Run the task of a fit."""
    job = fit_job(stores)

    def act(stores: Stores) -> None:
        tasks.fit(job.id)
        assert stores.jobs.fetch(job.id).status == "succeeded"
        assert stores.posteriors.load(stores.posteriors.fetch(job.subject)).n_points == len(SHEET.X)

    return act


def fitted(stores: Stores) -> str:
    """Fit a posterior, and return its id."""
    job = fit_job(stores)
    tasks.fit(job.id)
    return job.subject


def draw(stores: Stores) -> Act:
    """Run the task of a shard of draws."""
    job, _ = draws_job(stores, fitted(stores), n_draws=4)

    def act(stores: Stores) -> None:
        tasks.draw(job.id, 0)
        assert stores.jobs.fetch(job.id).status == "succeeded"

    return act


def calibrate(stores: Stores) -> Act:
    """End a calibration: write it to the record of the posterior, and store its result."""
    posterior = fitted(stores)

    def act(stores: Stores) -> None:
        assert stores.posteriors.calibrate(posterior, {"scale": 2.0}) == {"scale": 2.0}
        assert stores.results.put("calibration", RESULT, owners=[posterior], job="job_1", tenant=DEFAULT)

    return act


def delete_posterior(stores: Stores) -> Act:
    """Delete a posterior with a result about it."""
    posterior = fitted(stores)
    assert stores.results.put("calibration", RESULT, owners=[posterior], job="job_1", tenant=DEFAULT)

    def act(stores: Stores) -> None:
        stores.posteriors.fetch(posterior)
        stores.posteriors.delete(posterior)

    return act


def recipe_of_dataset(stores: Stores) -> Recipe:
    """Store a data set, and return the inputs of its embedding by PCA."""
    dataset, _ = stores.datasets.add(TABLE)
    return Recipe(dataset=dataset.id, method="pca", parameters=METHODS["pca"].spec().to_dict())


def store_embedding(stores: Stores, recipe: Recipe) -> None:
    """Write the record of an embedding, as a request does, and then its file, as the job does."""
    stores.embeddings.request(recipe, "claim")
    stores.embeddings.put(recipe.id, Entry({}, {"embedding": SHEET.X[:, :2]}))
    assert stores.embeddings.find_entry(recipe.id) is not None


def embed(stores: Stores) -> Act:
    """Request an embedding, and end its job."""
    recipe = recipe_of_dataset(stores)
    return lambda stores: store_embedding(stores, recipe)


def delete_embedding(stores: Stores) -> Act:
    """Delete an embedding with its scores."""
    recipe = recipe_of_dataset(stores)
    store_embedding(stores, recipe)
    assert stores.results.put("scores", RESULT, owners=[recipe.id], job="job_1", tenant=DEFAULT)

    def act(stores: Stores) -> None:
        stores.embeddings.fetch(recipe.id)
        stores.embeddings.delete(recipe.id)

    return act


def delete_job(stores: Stores) -> Act:
    """Remove the results of an ended job, and then its record, as the route does."""
    job = bare_fit(stores.jobs)
    stores.jobs.start(job.id)
    stores.jobs.succeed(job.id)
    for key in "ab":
        assert stores.results.put(key, RESULT, owners=[], job=job.id, tenant=DEFAULT)

    def act(stores: Stores) -> None:
        stores.results.delete_of(job.id, DEFAULT)
        stores.jobs.delete(job.id)

    return act


def rename(stores: Stores) -> Act:
    """Change name and tags of a data set, by which it is listed."""
    dataset, _ = stores.datasets.add(TABLE)
    return lambda stores: stores.datasets.rename(dataset.id, {"name": "one", "tags": ["a", "b"]})


def change_keys(stores: Stores) -> Act:
    """Give an API key a new secret, and revoke another key."""
    kept, revoked = (stores.keys.create(name, ("read",), "", None)[0] for name in ("alice", "bob"))

    def act(stores: Stores) -> None:
        key, token = stores.keys.rotate(kept.id, 0.0)
        assert stores.keys.verify(token) == key
        stores.keys.revoke(revoked.id)

    return act


def mark(_: Stores) -> Act:
    """Write the first record, and the mark."""

    def act(stores: Stores) -> None:
        stores.datasets.add(TABLE)
        stores.mark.renew()
        assert stores.mark.find_loss() is None

    return act


def accept_loss(stores: Stores) -> Act:
    """Accept a loss, as the command does."""
    stores.datasets.add(TABLE)
    stores.mark.renew()

    def act(stores: Stores) -> None:
        stores.mark.accept_loss()
        assert stores.mark.find_loss() is None

    return act


def sweep_files(stores: Stores) -> Act:
    """Sweep files without a record, and results that have expired."""
    stores.files.write_entry(RESULT)
    bare_fit(stores.jobs)
    for key in "ab":
        assert stores.results.put(key, RESULT, owners=[], job="job_1", tenant=DEFAULT)
    return lambda stores: sweep(stores, NOW)


SCENARIOS = (
    add_dataset, replace_damaged_file, delete_dataset, fit, draw, calibrate, delete_posterior, embed, delete_embedding,
    delete_job, rename, change_keys, mark, accept_loss, sweep_files,
)  # fmt: skip


def stored(stores: Stores) -> dict[str, Any]:
    """Return how many records of each kind there are; assert that counters, sets and files agree with them."""
    records = {store.kind: [store.kind.load(*each) for each in store.all()] for store in stores.with_files}
    records[stores.keys.records.kind] = stores.keys.all()
    for tenant in {record.tenant for listed in records.values() for record in listed} | {DEFAULT}:
        counted: Counter[str] = Counter()
        for kind, listed in records.items():
            tenant_records = [record for record in listed if record.tenant == tenant]
            for record in tenant_records:
                counted.update(kind.counts(record))
            of_kind: RecordStore[Any] = RecordStore(stores.client, kind)
            assert sorted(of_kind.for_tenant(tenant).ids_in("")) == sorted(record.id for record in tenant_records)
        usage = stores.datasets.for_tenant(tenant).usage()
        assert +usage == +counted
        assert min(usage.values(), default=0) >= 0
    assert find_unnamed_files(stores, NOW) == []
    assert find_records_without_files(stores) == []
    temporary = [path for path in stores.files.bucket.local_path("data").rglob("*") if path.name.startswith(".")]
    return {kind.name: len(listed) for kind, listed in records.items()} | {"temporary": temporary}


def run(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Stores], Act], number: int
) -> tuple[Any, list[str], bool]:
    """Die at a stop-point, repeat, and sweep; return what is stored, the stop-points, and whether the process died."""
    stores.client.flushall()
    for path in stores.files.bucket.modification_times():
        stores.files.bucket.remove(path)
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    with closing(Stores.connect(stores.settings)) as before:
        act = scenario(before)
    with closing(Stores.connect(stores.settings)) as victim:
        monkeypatch.setattr(tasks, "process_stores", lambda: victim)
        with stopping(number) as stop:
            act(victim)
    with closing(Stores.connect(stores.settings)) as client:
        monkeypatch.setattr(tasks, "process_stores", lambda: client)
        if stop.is_dead:
            with suppress(ProblemError):  # not found: the deletion had reached the record
                act(client)
        sweep(client, NOW)
        return stored(client), stop.names, stop.is_dead


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_death_between_two_writes_leaves_what_a_repetition_and_a_sweep_complete(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Stores], Act]
) -> None:
    """After a repetition and a sweep, records, counters, sets and files are as without the death."""
    if scenario is sweep_files:
        monkeypatch.setattr(
            results.ResultStore, "delete_expired", lambda store, tenant: store.delete_of("job_1", tenant) or 0
        )
    expected, names, _ = run(stores, monkeypatch, scenario, -1)
    assert len(names) > 1 or scenario is rename
    for number in count():  # there may be a folder less to make than before
        outcome, names, is_dead = run(stores, monkeypatch, scenario, number)
        assert outcome == expected, f"before write {number} of {names}"
        if not is_dead:
            return
