"""Restarts of child processes, and `glle serve` with several API processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from service.cli.main import listen
from service.cli.process_tree import ApiSupervisor, Child, Process, ProcessTree
from tests.conftest import until
from tests.system.conftest import command_line
from worker.execution import process_guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings

ROOT = Path(__file__).resolve().parents[3]


def sleeping() -> subprocess.Popen[bytes]:
    """Return a process that runs until it is killed."""
    return subprocess.Popen(["/bin/sleep", "60"])


def end(child: Child) -> None:
    """Kill the process of a child, if it runs."""
    if child.running is not None:
        child.running.popen.send_signal(signal.SIGKILL)
        until(lambda: child.running is not None and child.running.popen.poll() is not None)


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


def test_only_a_child_that_ended_is_started_again() -> None:
    """The other children keep their processes."""
    tree = ProcessTree(lambda _: None)
    ended, other = (tree.add(name, lambda: Process(sleeping())) for name in ("one", "two"))
    try:
        tree.start_due()
        first, kept = ended.running, other.running
        end(ended)
        assert tree.reap() == [first]
        ended.due = 0.0
        tree.start_due()
        assert ended.running is not None
        assert ended.running is not first
        assert other.running is kept
    finally:
        tree.stop(tree.children, 5.0)
        tree.close()
    assert all(child.running and child.running.popen.returncode == -signal.SIGTERM for child in tree.children)


def test_without_adoption_a_command_is_started_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process adopts orphans, such as on macOS, nothing is forked from a preloader."""
    monkeypatch.setattr(process_guard, "adopt_orphans", lambda: False)
    tree = ProcessTree(lambda _: None)
    child = tree.add("one", lambda: tree.command(["settings", "--current"], os.environ))
    child.start()
    assert child.running is not None
    popen = child.running.popen
    assert isinstance(popen, subprocess.Popen)
    until(lambda: popen.poll() is not None)
    assert popen.returncode == 0
    assert len(tree.reap()) == 1
    tree.close()


@contextmanager
def served(settings: Settings, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run `glle serve` with two API processes; yield the head and the URL."""
    log = folder / "serve.log"
    environment = {**os.environ, **settings.to_env(), "PYTHONPATH": str(ROOT), "GLLE_API_PROCESSES": "2"}
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0", "--data-dir", str(folder / "data")]
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as head:
        try:
            until(lambda: "API at" in log.read_text() or head.poll() is not None)
            found = re.search(r"API at (http://\S+)", log.read_text())
            assert found, log.read_text()
            yield head, found[1]
        finally:
            head.kill()


def children(pid: int) -> list[int]:
    """Return the pids of the API processes of a head."""
    pids = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in pids if " serve " in command_line(child)]


@pytest.mark.slow
@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
def test_serve_replaces_a_killed_process_and_drains_all(settings: Settings, tmp_path: Path) -> None:
    """A killed process is replaced while the other one answers; SIGTERM ends the head and all its processes.

    After SIGTERM the address still answers for GLLE_DRAIN seconds, and is not ready.
    """
    with (
        served(replace(settings, drain=3.0), tmp_path) as (head, url),
        httpx.Client(base_url=url, headers={"Connection": "close"}, timeout=30) as client,  # any process answers
    ):
        until(lambda: len(children(head.pid)) == 2)
        killed, kept = children(head.pid)
        os.kill(killed, signal.SIGKILL)
        until(lambda: not command_line(killed))
        while len(children(head.pid)) < 2 or killed in children(head.pid):
            assert client.get("/livez").status_code == 200
        assert kept in children(head.pid)
        os.kill(kept, signal.SIGSTOP)
        assert client.get("/livez").status_code == 200, "the new process serves, and handles signals"
        os.kill(kept, signal.SIGCONT)
        pids = children(head.pid)
        head.send_signal(signal.SIGTERM)
        until(lambda: client.get("/readyz").json().get("type") == "urn:glle:problem:draining")
        for _ in range(2):
            assert client.get("/readyz").status_code == 503
            assert client.get("/livez").status_code == 200
        assert head.wait(30) == 0
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_failed_start_is_the_exit_code_of_serve(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an API process ends before the API answers, the head stops with its exit code."""
    monkeypatch.setattr(ProcessTree, "command", lambda *_: Process(subprocess.Popen(["/bin/sh", "-c", "exit 7"])))
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with listen("127.0.0.1", 0) as sock:
            assert ApiSupervisor(replace(settings, api_processes=2), sock).run() == 7
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
