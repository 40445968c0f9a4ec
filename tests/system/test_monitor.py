"""Commands of a window on real servers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.system.monitor import Commands, cost, monitored

if TYPE_CHECKING:
    from worker.stores import Stores

SCRIPT = "redis.call('SET', KEYS[1], 1) return redis.call('GET', KEYS[1])"


def test_commands_of_clients_and_of_scripts_are_counted_apart(stores: Stores) -> None:
    """Only commands within the window count; each script is one command, and those that it calls are inner ones."""
    urls = {"queue": stores.settings.redis_url, "cache": stores.settings.cache_url}
    stores.client.set("before", 1)
    with monitored(**urls) as commands:
        stores.client.set("glle:job:job_0123456789", 1)
        stores.client.set("glle:job:job_abcdef0123", 1)
        stores.client.eval(SCRIPT, 1, "k")
        with stores.cache.client.pipeline(transaction=True) as pipeline:
            pipeline.get("a")
            pipeline.get("a")
            pipeline.execute()
    stores.client.set("after", 1)
    assert commands.sent.pop("queue: SET glle:job:job_*") == 2
    assert commands.sent.pop("cache: GET a") == 2
    assert (commands.sent.pop("cache: MULTI"), commands.sent.pop("cache: EXEC")) == (1, 1)
    assert [what.split()[1] for what in commands.sent.elements() if "CLIENT" not in what and "HELLO" not in what] == [
        "EVAL"
    ]
    assert commands.inner == {"queue: SET k": 1, "queue: GET k": 1}


def test_commands_of_an_idle_service_are_subtracted() -> None:
    """An idle window counts in proportion to its length."""
    busy = Commands(Counter({"GET": 50, "PING": 10}), Counter({"SET": 20}), seconds=5.0)
    idle = Commands(Counter({"PING": 4, "BLPOP": 2}), Counter(), seconds=2.0)
    found = cost(busy, idle, 10)
    assert found.sent == pytest.approx({"GET": 5.0, "PING": 0.0, "BLPOP": -0.5})
    assert (found.total, found.total_inner) == pytest.approx((4.5, 2.0))
    assert str(found).startswith("4.5 sent, 2.0 inside Lua\n     5.00  sent: GET\n")
