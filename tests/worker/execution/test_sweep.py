"""Sweep of the stored files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.conftest import refusal, stored_files
from tests.worker.execution.workers import SHEET, N, draws_job, raiser
from worker.analyses.embedding import EmbeddingSpec
from worker.base.clock import now_ms
from worker.execution import tasks
from worker.execution.sweep import sweep
from worker.records.cache_entry import Entry
from worker.storage import results
from worker.storage.object_store import backend
from worker.storage.object_store.files import FOLDER

if TYPE_CHECKING:
    from worker.stores import Stores

NOW = -60.0  # seconds: all files are older


@pytest.fixture
def stored(stores: Stores, posterior_id: str) -> list[str]:
    """Store a data set, a posterior, an embedding and a result; return the paths of their files."""
    job, _ = draws_job(stores, posterior_id, n_draws=1)
    tasks.draw(job.id, 0)
    dataset = stores.posteriors.fetch(posterior_id).dataset
    recipe = EmbeddingSpec(dataset=dataset, method="pca", parameters={}).recipe
    stores.embeddings.request(recipe, "")
    stores.embeddings.put(recipe.id, Entry({}, {"embedding": SHEET.X[:, :2]}))
    return paths(stores)


def paths(stores: Stores) -> list[str]:
    """Return the paths of all files."""
    return sorted(stores.files.bucket.modification_times(FOLDER))


def test_files_without_a_record_are_removed_once_they_are_old(stores: Stores, stored: list[str]) -> None:
    """A young file is kept, because its record may still be written; so are all files with records."""
    assert len(stored) == 4
    alices = stores.results.put("a", Entry({}, {}), owners=[], job="job_1", tenant="alice")
    assert alices
    before = paths(stores)
    killed = stores.files.write_entry(Entry({}, {"x": np.zeros(3)})).path
    assert sweep(stores) == (0, 0)
    assert sweep(stores, NOW) == (0, 1)
    assert paths(stores) == before
    assert killed not in before
    assert len(stored_files(stores)) == len(before), "no empty folder, and no temporary file"


def test_without_any_record_no_file_is_removed(stores: Stores, stored: list[str]) -> None:
    """If the queue's Redis is empty, the sweep is refused, because it may be the wrong server."""
    stores.mark.renew()
    before = paths(stores)
    stores.client.flushall()
    problem = refusal(sweep, stores, NOW)
    assert problem.code == "records-lost"
    assert "GLLE_REDIS_URL" in problem.remedy
    assert paths(stores) == before
    assert set(stored) < set(before)


def test_an_unreadable_record_keeps_all_files(stores: Stores, stored: list[str]) -> None:
    """A sweep with an unreadable record removes nothing, because the record may name any file."""
    stores.client.set("glle:posterior:post_1", "{")
    assert refusal(sweep, stores, NOW).code == "record-unreadable"
    assert paths(stores) == stored


def test_expired_results_are_removed(
    stores: Stores, stored: list[str], posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of all tenants go with their files; posteriors, embeddings and data sets stay."""
    stores.for_tenant("alice").jobs.create(kind="audit", claim="a", posterior=None, spec={"dataset": "ds_1"}, total=1)
    assert stores.results.put("a", Entry({}, {}), owners=[], job="job_1", tenant="alice")
    later = now_ms() + 1000 * (stores.settings.job_ttl + 1)
    monkeypatch.setattr(results, "now_ms", lambda: later)
    assert sweep(stores) == (2, 0)
    assert stores.results.usage()["results"] == 0
    assert len(paths(stores)) == len(stored) - 1
    assert stores.posteriors.load(stores.posteriors.fetch(posterior_id)).n_points == N


def test_a_removal_that_fails_is_made_up_by_a_sweep(
    stores: Stores, stored: list[str], posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A posterior can be deleted while the store is away; its files are then removed by a sweep."""
    with monkeypatch.context() as patch:
        patch.setattr(backend.Bucket, "remove", raiser(backend._unavailable("a test", "None.")))
        assert stores.posteriors.delete(posterior_id)
    assert paths(stores) == stored
    assert sweep(stores, NOW) == (0, 2)
    assert len(paths(stores)) == 2
