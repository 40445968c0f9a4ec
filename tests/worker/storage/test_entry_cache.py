"""The cache of single draws."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from glle_engine.linalg import LANES
from tests.conftest import cached_draw, refusal
from worker.records.cache_entry import Entry
from worker.records.draws import DrawAddress
from worker.storage.entry_cache import TTL_SECONDS

if TYPE_CHECKING:
    from worker.stores import Stores

ID = "post_1"
KEY = DrawAddress(0, 0, 1.0, "posterior", "procrustes")


def keys_of(*indices: int) -> list[DrawAddress]:
    """Return the draws with these indices."""
    return [replace(KEY, index=index) for index in indices]


def put(stores: Stores, *indices: int, posterior: str = ID) -> None:
    """Cache draws."""
    arrays = {"embedding": np.arange(6.0).reshape(3, 2), "eigenvalues": np.ones(2)}
    stores.cache.put_draws(posterior, {key: Entry({"index": key.index}, arrays) for key in keys_of(*indices)})


def found(stores: Stores, *indices: int, posterior: str = ID) -> list[int | None]:
    """Return the index of each draw that is cached, and None for a draw that is not."""
    entries = [cached_draw(stores, posterior, key) for key in keys_of(*indices)]
    return [None if entry is None else entry.meta["index"] for entry in entries]


def test_draws_are_read_by_their_address(stores: Stores) -> None:
    """The draws of a lane group share a key and keep their bits; each read is a hit or a miss."""
    put(stores, *range(LANES - 1), LANES)
    assert stores.cache.client.dbsize() == 2
    assert found(stores, 0, LANES - 1, LANES) == [0, None, LANES]
    assert found(stores, 0, posterior="post_2") == [None]
    entry = cached_draw(stores, ID, keys_of(1)[0])
    assert entry is not None
    np.testing.assert_array_equal(entry.arrays["embedding"], np.arange(6.0).reshape(3, 2))
    stores.counts.flush()
    reads = {series[1:]: count for series, count in stores.counts.read()[0].items() if series[0] == "cache_reads"}
    assert reads == {("server", "hit"): 3, ("server", "miss"): 2}


def test_a_lane_group_expires_after_its_last_write(stores: Stores) -> None:
    """Each write of a draw extends the lifetime of the whole lane group."""
    put(stores, 0)
    stores.cache.client.expire(KEY.group_key(ID), 10)
    put(stores, 1)
    assert TTL_SECONDS - 10 < stores.cache.client.ttl(KEY.group_key(ID)) <= TTL_SECONDS


@pytest.mark.parametrize("is_partial", [True, False])
def test_an_entry_that_would_evict_all_others_is_not_cached(stores: Stores, *, is_partial: bool) -> None:
    """Such a draw is refused with the remedy; a preliminary result is left out."""
    large = Entry({}, {"embedding": np.zeros(stores.cache.budget // 16 + 1)})
    if is_partial:
        stores.cache.put_partial("audit", large)
        assert stores.cache.find_partial("audit") is None
        stores.cache.put_partial("audit", Entry({"a": 1}, {}))
        assert stores.cache.find_partial("audit") == Entry({"a": 1}, {})
    else:
        problem = refusal(stores.cache.put_draws, ID, {KEY: large})
        assert (problem.code, problem.status) == ("cache-too-small", 422)
        assert "GLLE_CACHE_BYTES" in problem.remedy
    assert stores.cache.client.dbsize() == is_partial
