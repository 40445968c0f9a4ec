"""Process trees: replacement of children, and the stages of a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import until
from tests.processes import children, command_line
from worker.execution import process_guard
from worker.execution.supervisor import Child, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

SLEEPING = ("/bin/sleep", "60")
STUBBORN = ("/bin/sh", "-c", "trap 'echo' TERM; while :; do sleep 0.05; done")
HEAD = """
import sys, time
from worker.execution.supervisor import Supervisor
supervisor = Supervisor(print)
supervisor.listen()
for name in ("glle-one", "glle-two"):
    supervisor.add_forked(name, lambda: time.sleep(60) or 0)
supervisor.run()
supervisor.stop(supervisor.children)
supervisor.close()
"""


def starting(command: tuple[str, ...]) -> Callable[[], int]:
    """Return a function that starts a command and returns its pid."""
    return lambda: os.posix_spawn(command[0], command, {"PATH": os.environ["PATH"]})


def end(child: Child) -> None:
    """Kill the process of a child, and reap it."""
    child.send(signal.SIGKILL)
    until(child.reap)


def test_restart_pauses_grow() -> None:
    """A process that ends at once is started again after growing pauses; one that ran for seconds, at once."""
    child = Child("one", starting(SLEEPING))
    pauses = []
    for _ in range(3):
        child.start()
        end(child)
        pauses.append(child.pause)
        assert child.due >= child.started + child.pause
        assert child.code == -signal.SIGKILL
    assert 0 < pauses[0] < pauses[1] < pauses[2]
    child.start()
    child.started -= 6
    end(child)
    assert child.pause == 0
    assert child.starts == 4


def test_a_child_that_ignores_signals_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child gets the signal again, and then SIGKILL; a disposable child is killed without a wait."""
    monkeypatch.setattr("worker.execution.supervisor.KILL_SECONDS", 0.4)
    monkeypatch.setattr("worker.execution.supervisor.REPEAT_SECONDS", 0.05)
    sent: list[tuple[str, int]] = []
    send = Child.send

    def record_and_send(child: Child, signum: int) -> None:
        sent.append((child.name, signum))
        send(child, signum)

    monkeypatch.setattr(Child, "send", record_and_send)
    supervisor = Supervisor(lambda _: None)
    stubborn, disposable = supervisor.add("one", starting(STUBBORN)), supervisor.add("two", starting(STUBBORN))
    disposable.is_disposable = True
    supervisor.start_due()
    time.sleep(0.2)  # until the shells have set their traps
    supervisor.stop(supervisor.children, 0.0)
    supervisor.close()
    assert (stubborn.code, disposable.code) == (-signal.SIGKILL, -signal.SIGKILL)
    first = [("one", signal.SIGTERM), ("two", signal.SIGTERM), ("one", signal.SIGTERM), ("two", signal.SIGKILL)]
    assert (sent[:4], ("one", signal.SIGKILL) in sent) == (first, True)
    assert 3 <= sent.count(("one", signal.SIGTERM)) <= 9, "it is repeated until the kill"


@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_their_head(signum: int) -> None:
    """SIGTERM of the parent stops its children in order; after SIGKILL of the parent, no child is left."""
    head = subprocess.Popen([sys.executable, "-c", HEAD], stdout=subprocess.DEVNULL)
    until(lambda: len(children(head.pid, "glle-one")) == len(children(head.pid, "glle-two")) == 1)
    pids = children(head.pid)
    killed = children(head.pid, "glle-one")[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: children(head.pid, "glle-one") and killed not in children(head.pid))
    pids = children(head.pid)
    head.send_signal(signum)
    assert head.wait(30) == (0 if signum == signal.SIGTERM else -signum)
    until(lambda: not any(command_line(pid) for pid in pids))
