"""Embeddings: a record from the request on, and a file from the result on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.conftest import refusal, stored_files
from tests.worker.analyses.conftest import analysis_job, run_analysis
from tests.worker.execution.workers import SHEET, raiser, store_dataset
from worker.analyses.embedding import EmbeddingSpec, Recipe, map_arrays
from worker.execution import tasks
from worker.records.cache_entry import Entry
from worker.storage.object_store.files import STORED_BYTES, ObjectFiles

if TYPE_CHECKING:
    from pathlib import Path

    from worker.stores import Stores

ENTRY = Entry({"a": 1}, {"embedding": SHEET.X[:, :2]})
SCORES = ("trustworthiness",)


@pytest.fixture
def spec(stores: Stores) -> EmbeddingSpec:
    """Request an embedding of a data set, and return its parameters."""
    dataset = store_dataset(stores)
    spec = EmbeddingSpec(dataset=dataset, method="pca", parameters={"n_components": 2})
    stores.embeddings.request(spec.recipe, "")
    return spec


def scored(spec: EmbeddingSpec) -> EmbeddingSpec:
    """Return the parameters of a request for the scores of the embedding."""
    return EmbeddingSpec(dataset=spec.dataset, method="pca", parameters=spec.parameters, scores=SCORES)


def test_scores_are_of_the_stored_embedding(
    stores: Stores, spec: EmbeddingSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedding is computed once, and a request for its scores reads it.

    The scores are a result about the embedding, and are deleted with it.
    """
    assert not stores.has_embedding(spec.recipe.id)
    assert stores.embeddings.find_entry(spec.recipe.id) is None
    first = run_analysis(stores, spec, None)
    assert first.meta["map"] == {name: list(array.shape) for name, array in map_arrays(first).items()} != {}
    stores.cache.client.flushall()
    monkeypatch.setattr(Recipe, "compute", raiser(AssertionError("computed again")))
    assert run_analysis(stores, spec, None).meta == first.meta
    with_scores = run_analysis(stores, scored(spec), None)
    np.testing.assert_array_equal(with_scores.arrays["embedding"], first.arrays["embedding"])
    assert len(stored_files(stores)) == 3
    assert stores.embeddings.delete(spec.recipe.id)
    assert not stores.has_result(scored(spec), spec.dataset)
    assert len(stored_files(stores)) == 1
    assert stores.embeddings.usage()[STORED_BYTES] == stored_files(stores)[0].stat().st_size


@pytest.mark.parametrize("when", ["before", "between file and record"])
def test_a_deleted_embedding_is_not_stored(
    stores: Stores, spec: EmbeddingSpec, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """If the embedding is deleted before or while its job runs, the job fails with a 404, and leaves no file."""
    job, write = analysis_job(stores, spec, None), ObjectFiles.write_entry
    if when == "before":
        stores.embeddings.delete(spec.recipe.id)

    def write_and_delete(files: ObjectFiles, entry: Entry) -> Any:
        file = write(files, entry)
        stores.embeddings.delete(spec.recipe.id)
        return file

    monkeypatch.setattr(ObjectFiles, "write_entry", write_and_delete)
    tasks.analyze(job.id)
    error = stores.jobs.fetch(job.id).error
    assert error is not None
    assert error.code == "embedding-not-found"
    assert len(stored_files(stores)) == 1
    assert not stores.embeddings.exists(spec.recipe.id)


def test_labels_are_a_part_of_the_recipe_where_the_method_takes_them() -> None:
    """For other methods, requests with different labels share one embedding; a removed method takes no labels."""
    made = {
        name: EmbeddingSpec(dataset="ds_1", method=name, parameters={}, labels="ds_2").recipe.labels
        for name in ("pca", "supervised-lle", "removed")
    }
    assert made == {"pca": None, "supervised-lle": "ds_2", "removed": None}


def test_the_first_of_equal_embeddings_stays(stores: Stores, spec: EmbeddingSpec) -> None:
    """A repeated task does not write the file again, and a further request keeps the file."""
    stores.embeddings.put(spec.recipe.id, ENTRY)
    before = stored_files(stores)
    stores.embeddings.put(spec.recipe.id, Entry({"a": 2}, {}))
    stores.embeddings.request(spec.recipe, "another job")
    entry = stores.embeddings.find_entry(spec.recipe.id)
    assert entry is not None
    assert entry.meta == {"a": 1}
    assert stored_files(stores) == before
    assert stores.embeddings.fetch(spec.recipe.id).claim == "another job"


def test_an_embedding_of_a_deleted_data_set_is_not_requested(stores: Stores, spec: EmbeddingSpec) -> None:
    """The record of an embedding is only written while the data set exists."""
    stores.embeddings.delete(spec.recipe.id)
    stores.datasets.delete(spec.dataset)
    stores.embeddings.request(spec.recipe, "")
    assert not stores.embeddings.exists(spec.recipe.id)


def test_an_embedding_beyond_the_quota_is_refused(stores: Stores, spec: EmbeddingSpec) -> None:
    """The new file is removed, and the record stays without a file."""
    used, before = stores.embeddings.usage()[STORED_BYTES], stored_files(stores)
    problem = refusal(lambda: stores.embeddings.put(spec.recipe.id, ENTRY, max_bytes=used + 10))
    assert (problem.code, problem.details["used"]) == ("quota-exceeded", used)
    assert stored_files(stores) == before
    assert not stores.has_embedding(spec.recipe.id)
    stores.embeddings.put(spec.recipe.id, ENTRY, max_bytes=used + 10_000)
    assert stores.embeddings.usage()[STORED_BYTES] == sum(path.stat().st_size for path in stored_files(stores))


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_damaged_embedding_is_a_problem_and_not_computed_again(
    stores: Stores, spec: EmbeddingSpec, monkeypatch: pytest.MonkeyPatch, *, is_missing: bool
) -> None:
    """A missing or changed file is an error, also for a request of scores; the remedy is to delete the embedding."""
    run_analysis(stores, spec, None)
    stored = stores.embeddings.fetch(spec.recipe.id).file
    assert stored is not None
    path: Path = stores.files.bucket.local_path(stored.path)
    if is_missing:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    monkeypatch.setattr(Recipe, "compute", raiser(AssertionError("computed again")))
    problem = refusal(stores.embeddings.find_entry, spec.recipe.id)
    assert (problem.code, problem.status) == ("embedding-damaged", 500)
    assert f"DELETE /v1/embeddings/{spec.recipe.id}" in problem.to_dict()["remedy"]
    job = analysis_job(stores, scored(spec), None)
    tasks.analyze(job.id)
    assert stores.jobs.fetch(job.id).error == problem
