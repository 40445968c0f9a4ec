"""Records of embeddings in a real Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker.analyses import embedding_records
from worker.analyses.embedding import Recipe
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from worker.stores import Stores


def recipe(method: str, dataset: str = "ds_1") -> Recipe:
    """Return the inputs of an embedding."""
    return Recipe(dataset=dataset, method=method, parameters={})


def test_a_repeated_request_names_the_last_job(stores: Stores) -> None:
    """There is one record, and other tenants do not see it."""
    alice = stores.embeddings.of("alice")
    alice.note(recipe("pca"), "first")
    alice.note(recipe("pca"), "second")
    record = alice.fetch(recipe("pca").id)
    assert (record.claim, record.tenant, record.recipe) == ("second", "alice", recipe("pca"))
    assert alice.usage() == {"embeddings": 1}
    with pytest.raises(ProblemError, match="There is no embedding"):
        stores.embeddings.of("bob").fetch(record.id)


def test_the_oldest_embeddings_make_room(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant has a bounded number of records; those of others stay."""
    monkeypatch.setattr(embedding_records, "MAX_EMBEDDINGS", 2)
    times = iter(range(10))
    monkeypatch.setattr(embedding_records, "now_iso", lambda: f"2026-01-01T00:00:{next(times):02}")
    alice, bob = stores.embeddings.of("alice"), stores.embeddings.of("bob")
    bob.note(recipe("lle", "ds_2"), "")
    for method in ("pca", "lle", "isomap", "pca"):
        alice.note(recipe(method), "")
    assert alice.ids_in("") == [recipe("isomap").id, recipe("pca").id]
    assert alice.ids_in("of:ds_1") == alice.ids_in("")
    assert bob.exists(recipe("lle", "ds_2").id)
