"""Process that adopts orphans and checks a preloader; the same module is the program of the preloader.

`python -m tests.worker.operations.preloader_head head CHECK`. It imports no test framework, because each check starts
two interpreters.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from worker.execution import process_guard
from worker.operations import preloader
from worker.operations.preloader import NOT_STARTED, Forked, Preloader

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE = ("-m", "tests.worker.operations.preloader_head")
UNTIL_SECONDS = 30.0


def load(command: Sequence[str]) -> None:
    """Import for a command; `slow` takes a while, `broken` fails."""
    if command[0] == "slow":
        time.sleep(1.0)
    if command[0] == "broken":
        os._exit(3)


def run(command: Sequence[str], descriptors: Sequence[int]) -> int:
    """Run a command of the tests."""
    if command[0] == "facts":
        facts = {
            "parent": os.getppid(),
            "group": os.getpgrp() == os.getpid(),
            "threads": len(list(Path("/proc/self/task").iterdir())),
            "descriptors": [number for number in range(3, 256) if Path(f"/proc/self/fd/{number}").is_symlink()],
            "line": Path("/proc/self/cmdline").read_text().rstrip("\0").split("\0"),
            "setting": os.environ.get("GLLE_PORT"),
        }
        os.write(descriptors[0], json.dumps({**facts, "inherited": descriptors}).encode())
    if command[0] == "sleep":
        time.sleep(60)
    if command[0] == "orphan":
        subprocess.Popen(["/bin/sleep", "0.2"])
    return int(command[1]) if len(command) > 1 else 0


def ended(process: Forked) -> int:
    """Return the exit code of a process at its end."""
    deadline = time.monotonic() + UNTIL_SECONDS
    while (code := process.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return code


def running(process: Forked) -> int:
    """Return the pid of a process once it runs."""
    deadline = time.monotonic() + UNTIL_SECONDS
    while not process.pid:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process.pid


def children() -> list[int]:
    """Return the pids of the child processes of this process."""
    return [int(text) for text in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def a_process_is_a_child_with_nothing_but_its_command(forks: Preloader) -> None:
    """It has one thread, the given descriptor, the command in its command line, and its exit code."""
    here, there = socket.socketpair()
    with here:
        with there:
            process = forks.fork(["facts", "7"], [there.fileno()])
        facts = json.loads(here.recv(4096))
    assert facts["parent"] == os.getpid()
    assert facts["group"]
    assert facts["threads"] == 1
    assert facts["descriptors"] == facts["inherited"]
    assert facts["line"] == [sys.executable, *MODULE, "facts", "7"]
    assert facts["setting"] == "1"
    assert ended(process) == 7


def a_signal_is_its_exit_code(forks: Preloader) -> None:
    """As of `subprocess.Popen`."""
    process = forks.fork(["sleep"])
    running(process)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == -signal.SIGTERM
    process.send_signal(signal.SIGTERM)


def processes_outlive_their_preloader(forks: Preloader) -> None:
    """The next command has a new preloader."""
    kept = forks.fork(["sleep"])
    running(kept)
    first = forks.pid
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    new = forks.fork(["sleep"])
    assert running(new)
    assert forks.pid != first
    assert kept.poll() is None
    for process in (kept, new):
        process.send_signal(signal.SIGKILL)
        assert ended(process) == -signal.SIGKILL


def a_process_without_preloader_counts_as_ended(forks: Preloader) -> None:
    """The preloader ends while it imports, or is killed before it reads the command."""
    assert ended(forks.fork(["broken"])) == NOT_STARTED
    slow, waiting = forks.fork(["slow"]), forks.fork(["sleep"])
    forks.close()
    assert ended(slow) == ended(waiting) == NOT_STARTED


def a_signal_before_the_start_prevents_it(forks: Preloader) -> None:
    """A process that would start after the stop of its tree would be forgotten."""
    process = forks.fork(["slow"])
    process.send_signal(signal.SIGTERM)
    assert process.poll() == NOT_STARTED
    other = forks.fork(["facts"], [])  # the preloader is done with the first command once it takes the next one
    other.poll()
    assert ended(other) != 0
    forks.reap({forks.pid})
    assert children() == [forks.pid]


def orphans_are_adopted_and_reaped(forks: Preloader) -> None:
    """The descendants of an ended process leave no zombies, and the children of the head keep their exit codes."""
    own = subprocess.Popen(["/bin/sh", "-c", "exit 5"])
    assert ended(forks.fork(["orphan"])) == 0
    deadline = time.monotonic() + UNTIL_SECONDS
    while set(children()) - {own.pid, forks.pid}:
        assert time.monotonic() < deadline
        own.poll()
        forks.reap({own.pid, forks.pid})
        time.sleep(0.01)
    assert own.wait() == 5


CHECKS = (
    a_process_is_a_child_with_nothing_but_its_command,
    a_signal_is_its_exit_code,
    processes_outlive_their_preloader,
    a_process_without_preloader_counts_as_ended,
    a_signal_before_the_start_prevents_it,
    orphans_are_adopted_and_reaped,
)


def main(role: str, argument: str) -> int:
    """Run a check as a head, or serve as its preloader."""
    if role == "preload":
        return preloader.serve(int(argument), load, run)
    assert process_guard.adopt_orphans()
    forks = Preloader((*MODULE, "preload"), {**os.environ, "GLLE_PORT": "1"})
    try:
        next(check for check in CHECKS if check.__name__ == argument)(forks)
    finally:
        forks.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
