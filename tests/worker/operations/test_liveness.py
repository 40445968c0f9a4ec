"""The liveness probe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rq import SimpleWorker

from worker.jobs.rq_types import NAME, SERIALIZER
from worker.operations.liveness import is_alive

if TYPE_CHECKING:
    from worker.stores import Stores


def test_a_host_with_a_heartbeat_is_alive(stores: Stores) -> None:
    """A host without a worker, with another host's worker or with an expired record is not alive."""
    worker = SimpleWorker([NAME], connection=stores.client, serializer=SERIALIZER)
    host = str(worker.hostname)
    assert not is_alive(stores.settings, host)
    worker.register_birth()  # type: ignore[no-untyped-call] # RQ's
    assert is_alive(stores.settings, host)
    assert not is_alive(stores.settings, "elsewhere")
    stores.client.delete(worker.key)
    assert not is_alive(stores.settings, host)


def test_a_host_is_alive_while_the_queue_is_unavailable(stores: Stores) -> None:
    """A restart of the host would lose its task."""
    assert is_alive(replace(stores.settings, redis_url="redis://127.0.0.1:1/0"), "anywhere")
