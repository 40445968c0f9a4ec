"""Restarts of the processes of `glle up`."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

from service.cli.supervisor import Child, Process, _recover

if TYPE_CHECKING:
    from worker.base.settings import Settings


def sleeping() -> subprocess.Popen[bytes]:
    """Return a process that runs until it is killed."""
    return subprocess.Popen(["/bin/sleep", "60"])


def end(child: Child) -> None:
    """Kill the process of a child, if it runs."""
    if child.running is not None:
        child.running.popen.kill()
        child.running.popen.wait()


def test_restart_pauses_grow() -> None:
    """A process that ends at once is restarted after growing pauses; one that ran for seconds is restarted at once."""
    messages: list[str] = []
    child = Child("one", lambda: Process(sleeping()), messages.append)
    try:
        for pause in ("0.5", "1", "2"):
            child.start()
            end(child)
            assert child.reap() is not None
            assert messages[-1] == f"one ended with -9; restart in {pause} s"
        child.start()
        end(child)
        child.started -= 6
        assert child.reap() is not None
        assert messages[-1] == "one ended with -9; restart in 0 s"
    finally:
        end(child)


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
