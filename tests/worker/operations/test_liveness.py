"""The liveness probe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rq import SimpleWorker

from worker.jobs.rq_types import NAME, SERIALIZER
from worker.operations.liveness import is_alive

if TYPE_CHECKING:
    from worker.stores import Stores


def test_alive_is_whose_heartbeat_stands_in_the_queue(stores: Stores) -> None:
    """A host without a worker, with another host's worker, or with an expired record is not alive."""
    worker = SimpleWorker([NAME], connection=stores.client, serializer=SERIALIZER)
    host = str(worker.hostname)
    assert not is_alive(stores.settings, host)
    worker.register_birth()  # type: ignore[no-untyped-call] # RQ's
    assert is_alive(stores.settings, host)
    assert not is_alive(stores.settings, "elsewhere")
    stores.client.delete(worker.key)
    assert not is_alive(stores.settings, host)


def test_nobody_dies_of_a_queue_that_is_away(stores: Stores) -> None:
    """Without an answer a host counts as alive, because a restart would lose its task."""
    assert is_alive(replace(stores.settings, redis_url="redis://127.0.0.1:1/0"), "anywhere")
