"""Recovery of the tasks of workers that died in `glle up`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from service.cli.process_tree import Process
from service.cli.supervisor import _recover
from tests.service.cli.test_process_tree import sleeping

if TYPE_CHECKING:
    from worker.base.settings import Settings


def test_a_dead_workers_tasks_wait_for_the_queues_server(settings: Settings) -> None:
    """The recovery of a worker that died together with the queue server is repeated until the server answers."""
    process = sleeping()
    process.kill()
    process.wait()
    lost = Process(process, worker="lost")
    away = replace(settings, redis_url="redis://127.0.0.1:1/0")
    assert not _recover(away, lost)
    assert _recover(settings, lost)
    assert _recover(away, Process(process)), "an API has no tasks"
