"""Free space of the disk and of the queue server: new work is refused first, and accepted work ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import refusal
from tests.service.conftest import register_worker
from tests.worker.execution.workers import bare_fit
from tests.worker.storage.conftest import fill_memory
from worker.base.disk import disk_reserve
from worker.storage import free_space

if TYPE_CHECKING:
    import pytest

    from worker.stores import Stores


def test_above_the_mark_new_jobs_are_refused_and_accepted_jobs_end(stores: Stores) -> None:
    """While the queue server is nearly full, workers register, and accepted jobs end."""
    done = bare_fit(stores.jobs, "done")
    stores.queue.enqueue(done)
    with fill_memory(stores, 0.9):
        assert refusal(bare_fit, stores.jobs, "new").code == "redis-full"
        register_worker(stores)
        assert stores.queue.live_workers() == 1
        stores.jobs.start(done.id)
        stores.jobs.succeed(done.id)


def test_new_jobs_leave_the_reserve_of_the_disk_free(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """New jobs are refused because their results would use the reserve; with an object store they are accepted."""
    folder = Path(stores.settings.data_dir)
    for nbytes, is_refused in ((disk_reserve(folder), False), (disk_reserve(folder) - 1, True)):
        monkeypatch.setattr(free_space, "free_bytes", lambda _, nbytes=nbytes: nbytes)
        assert free_space.QueueCapacity(stores.client, stores.settings).is_full == is_refused
    stores.room._look_again = 0.0
    problem = refusal(bare_fit, stores.jobs, "new")
    assert (problem.code, problem.status) == ("storage-full", 507)
    remote = replace(stores.settings, store_url="memory://elsewhere")
    assert not free_space.QueueCapacity(stores.client, remote).is_full


def test_memory_without_a_limit_is_never_full() -> None:
    """A server without a limit or without figures has room; uncounted buffers do not count."""
    assert free_space.memory_share({"used_memory": 5, "maxmemory": 0}) is None
    assert free_space.memory_share({}) is None
    assert free_space.memory_share({"used_memory": 60, "maxmemory": 100, "mem_not_counted_for_evict": 10}) == 0.5
