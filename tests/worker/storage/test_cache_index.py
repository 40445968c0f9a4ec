"""What is cached about a subject is forgotten by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from worker.records.ids import text
from worker.storage import cache_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.stores import Stores

KEYS = ["draw:post_1:0:0", "v2:draw:post_1:0:1", "result:post_1:transform:x", "draw:post_12:0:0"]
LARGE = {"x": np.zeros(2**17 + 1)}  # more than a piece


@pytest.fixture
def scans(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The patterns for which all keys were looked through."""
    found: list[str] = []
    scan = stores.cache.client.scan_iter

    def noted(match: str, count: int) -> Iterator[bytes]:
        found.append(match)
        return scan(match, count)

    monkeypatch.setattr(stores.cache.client, "scan_iter", noted)
    return found


def left(stores: Stores) -> set[str]:
    """Return every key of the cache."""
    return {text(key) for key in stores.cache.client.keys("*")}


def test_what_is_known_by_name_is_not_looked_for(stores: Stores, scans: list[str]) -> None:
    """Small and large entries of a subject go, with its index; another's stay; no look through all keys."""
    stores.cache.begin("post_1")
    for key in KEYS:
        stores.cache.put(key, {}, LARGE if key.startswith("result") else {})
    stores.cache.forget("post_1")
    assert left(stores) == {"draw:post_12:0:0"}
    assert scans == []


def test_without_an_index_all_keys_are_looked_through(stores: Stores, scans: list[str]) -> None:
    """One that was evicted is not begun again by what comes later: it would not have what came before."""
    stores.cache.begin("post_1")
    stores.cache.put(KEYS[0], {}, {})
    stores.cache.client.delete("keys:post_1")
    for key in KEYS[1:]:
        stores.cache.put(key, {}, {})
    assert "keys:post_1" not in left(stores)
    stores.cache.forget("post_1")
    assert left(stores) == {"draw:post_12:0:0"}
    assert scans == ["*:post_1:*"]


def test_an_index_is_kept_as_long_as_its_entries(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """It expires, later with each entry; one of too many keys is given up."""
    stores.cache.begin("post_1")
    assert stores.cache.client.expire("keys:post_1", 10)
    stores.cache.put(KEYS[0], {}, {})
    assert stores.cache.client.ttl("keys:post_1") > 10
    monkeypatch.setattr(cache_index, "MOST", 2)
    stores.cache.put(KEYS[1], {}, {})
    assert "keys:post_1" not in left(stores)
