"""A process may die between any two writes of records and files.

Each scenario dies at each of its stop-points (`tests.stop_points`). Then the client repeats what was not acknowledged,
and a sweep of the stored files goes by: the records, their counters, sets and files are as without the death.
"""

from __future__ import annotations

from collections import Counter
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


class Scenario:
    """What is there before, and what a process does when it dies."""

    def __init__(self, stores: Stores) -> None:
        self.before = stores

    def act(self, stores: Stores) -> None:
        """Do the work; a repetition completes it."""
        raise NotImplementedError


class AddsDataset(Scenario):
    """An upload."""

    def act(self, stores: Stores) -> None:
        """Store a table."""
        stores.datasets.add(TABLE)


class ReplacesDamagedFile(AddsDataset):
    """An upload of a data set whose file has lost bits."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        dataset, _ = stores.datasets.add(TABLE)
        path = stores.files.bucket.local_path(dataset.stored["values"].path)
        path.write_bytes(path.read_bytes()[:-1])


class DeletesDataset(Scenario):
    """The deletion of a data set, with a result about it."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.dataset, _ = stores.datasets.add(TABLE)
        assert stores.results.put("about", RESULT, owners=[self.dataset.id], job="job_1", tenant=DEFAULT)

    def act(self, stores: Stores) -> None:
        """Delete the data set."""
        stores.datasets.fetch(self.dataset.id)
        stores.datasets.delete(self.dataset.id)


class Fits(Scenario):
    """The task of a fit."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.job = fit_job(stores)

    def act(self, stores: Stores) -> None:
        """Run the task, perhaps again."""
        tasks.fit(self.job.id)
        assert stores.jobs.fetch(self.job.id).status == "succeeded"
        assert stores.posteriors.load(stores.posteriors.fetch(self.job.subject)).n_points == len(SHEET.X)


class WithPosterior(Scenario):
    """A posterior with a calibration and a result."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        job = fit_job(stores)
        tasks.fit(job.id)
        self.posterior = job.subject


class Draws(WithPosterior):
    """The task of a shard of draws."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.job, _ = draws_job(stores, self.posterior, n_draws=4)

    def act(self, stores: Stores) -> None:
        """Run the task, perhaps again."""
        tasks.draw(self.job.id, 0)
        assert stores.jobs.fetch(self.job.id).status == "succeeded"


class Calibrates(WithPosterior):
    """The end of a calibration: the posterior has it, and a result is stored."""

    def act(self, stores: Stores) -> None:
        """Store both."""
        assert stores.posteriors.calibrate(self.posterior, {"scale": 2.0}) == {"scale": 2.0}
        assert stores.results.put("calibration", RESULT, owners=[self.posterior], job="job_1", tenant=DEFAULT)


class DeletesPosterior(Calibrates):
    """The deletion of a posterior, with its results."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        super().act(stores)

    def act(self, stores: Stores) -> None:
        """Delete the posterior."""
        stores.posteriors.fetch(self.posterior)
        stores.posteriors.delete(self.posterior)


class Embeds(Scenario):
    """A request for an embedding, and the end of its job."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        dataset, _ = stores.datasets.add(TABLE)
        self.recipe = Recipe(dataset=dataset.id, method="pca", parameters=METHODS["pca"].spec().to_dict())

    def act(self, stores: Stores) -> None:
        """Write the record, and then its file."""
        stores.embeddings.request(self.recipe, "claim")
        stores.embeddings.put(self.recipe.id, Entry({}, {"embedding": SHEET.X[:, :2]}))
        assert stores.embeddings.find_entry(self.recipe.id) is not None


class DeletesEmbedding(Embeds):
    """The deletion of an embedding, with its scores."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        super().act(stores)
        assert stores.results.put("scores", RESULT, owners=[self.recipe.id], job="job_1", tenant=DEFAULT)

    def act(self, stores: Stores) -> None:
        """Delete the embedding."""
        stores.embeddings.fetch(self.recipe.id)
        stores.embeddings.delete(self.recipe.id)


class DeletesJob(Scenario):
    """The removal of an ended job with its results."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.job = bare_fit(stores.jobs)
        stores.jobs.start(self.job.id)
        stores.jobs.succeed(self.job.id)
        for key in "ab":
            assert stores.results.put(key, RESULT, owners=[], job=self.job.id, tenant=DEFAULT)

    def act(self, stores: Stores) -> None:
        """Remove the results, then the record, as the route does."""
        stores.results.delete_of(self.job.id, DEFAULT)
        stores.jobs.delete(self.job.id)


class Names(Scenario):
    """A change of name and tags, which lists follow."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.dataset, _ = stores.datasets.add(TABLE)

    def act(self, stores: Stores) -> None:
        """Name the data set."""
        stores.datasets.rename(self.dataset.id, {"name": "one", "tags": ["a", "b"]})


class ChangesKeys(Scenario):
    """A key that gets a new secret, and another one that is revoked."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.kept, self.revoked = (stores.keys.create(name, ("read",), "", None)[0] for name in ("alice", "bob"))

    def act(self, stores: Stores) -> None:
        """Rotate one, and revoke the other."""
        key, token = stores.keys.rotate(self.kept.id, 0.0)
        assert stores.keys.verify(token) == key
        stores.keys.revoke(self.revoked.id)


class Marks(AddsDataset):
    """The first mark of the records."""

    def act(self, stores: Stores) -> None:
        """Write a record, and the mark."""
        super().act(stores)
        stores.mark.renew()
        assert stores.mark.find_loss() is None


class AcceptsLoss(Scenario):
    """The command that accepts a loss."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        stores.datasets.add(TABLE)
        stores.mark.renew()

    def act(self, stores: Stores) -> None:
        """Accept what is there."""
        stores.mark.accept_loss()
        assert stores.mark.find_loss() is None


class Sweeps(Scenario):
    """A sweep of files without a record, and of results that have expired."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        stores.files.write_entry(RESULT)
        bare_fit(stores.jobs)
        for key in "ab":
            assert stores.results.put(key, RESULT, owners=[], job="job_1", tenant=DEFAULT)

    def act(self, stores: Stores) -> None:
        """Sweep."""
        sweep(stores, NOW)


SCENARIOS = (
    AddsDataset, ReplacesDamagedFile, DeletesDataset, Fits, Draws, Calibrates, DeletesPosterior, Embeds,
    DeletesEmbedding, DeletesJob, Names, ChangesKeys, Marks, AcceptsLoss, Sweeps,
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
    stores: Stores, monkeypatch: pytest.MonkeyPatch, scenario_class: type[Scenario], number: int
) -> tuple[Any, list[str], bool]:
    """Die at a stop-point, repeat, and sweep; return what is stored, the stop-points, and whether the process died."""
    stores.client.flushall()
    for path in stores.files.bucket.modification_times():
        stores.files.bucket.remove(path)
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    with closing(Stores.connect(stores.settings)) as before:
        scenario = scenario_class(before)
    with closing(Stores.connect(stores.settings)) as victim:
        monkeypatch.setattr(tasks, "process_stores", lambda: victim)
        with stopping(number) as stop:
            scenario.act(victim)
    with closing(Stores.connect(stores.settings)) as client:
        monkeypatch.setattr(tasks, "process_stores", lambda: client)
        if stop.is_dead:
            with suppress(ProblemError):  # not found: the deletion had reached the record
                scenario.act(client)
        sweep(client, NOW)
        return stored(client), stop.names, stop.is_dead


@pytest.mark.parametrize("scenario_class", SCENARIOS, ids=lambda scenario_class: scenario_class.__name__)
def test_a_death_between_two_writes_leaves_what_a_repetition_and_a_sweep_complete(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, scenario_class: type[Scenario]
) -> None:
    """Whatever was acknowledged is there, and nothing else remains."""
    if scenario_class is Sweeps:
        monkeypatch.setattr(
            results.ResultStore, "delete_expired", lambda store, tenant: store.delete_of("job_1", tenant) or 0
        )
    expected, names, _ = run(stores, monkeypatch, scenario_class, -1)
    assert len(names) > 1 or scenario_class is Names
    for number in count():  # there may be a folder less to make than before
        outcome, names, is_dead = run(stores, monkeypatch, scenario_class, number)
        assert outcome == expected, f"before write {number} of {names}"
        if not is_dead:
            return
