"""Shares of resources, in all processes together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.records.shares import HELD_MS, SHARE, UNLIMITED, Shares, may_hold

if TYPE_CHECKING:
    import pytest

    from worker.stores import Stores


def test_a_process_counts_until_it_has_not_published_for_long(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process has published counts for five seconds; what this one holds is as it is now."""
    now, client = 0, stores.cache.client
    monkeypatch.setattr("worker.records.shares.now_ms", lambda: now)
    here, other, later = (Shares(lambda *_: SHARE) for _ in range(3))
    for held, shares in enumerate((here, other), start=1):
        shares.requests.add("a", held)
        shares.publish(client)
    here.requests.add("b")
    assert here.of_all(client)["requests"][0] == {"a": 3, "b": 1}
    now += HELD_MS
    later.requests.add("a")
    later.publish(client)
    assert here.of_all(client)["requests"][0] == {"a": 2, "b": 1}


def test_a_tenant_may_hold_three_times_as_much_as_is_left_free() -> None:
    """Or all that is free if it holds nothing; a limit of its own replaces the share."""
    assert [held for held in range(10) if may_hold(held, 1, 3)] == [0, 1, 2, 3, 4, 5]
    assert [may_hold(held, 3, 3) for held in (0, 1)] == [True, False]
    assert [held for held in range(10) if may_hold(held, 2, 3, 6)] == [0, 1, 2, 3, 4]
    assert [may_hold(9, amount, 3, UNLIMITED) for amount in (3, 4)] == [True, False]
