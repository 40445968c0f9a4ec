"""`glle serve` with several API processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from service.cli import supervisor
from service.cli.main import listen
from service.cli.options import CANNOT_START, StartError
from service.cli.supervisor import ServeHead
from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def run_serve(settings: Settings, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run `glle serve`; yield the head and the URL."""
    log = folder / f"serve-{Path(settings.alive_file).name}.log"
    environment = {**os.environ, **settings.to_env(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "service.cli", "serve", "--port=0", "--data-dir", str(folder / "data")]
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as head:
        try:
            until(lambda: "API at" in log.read_text() or head.poll() is not None)
            match = re.search(r"API at (http://\S+)", log.read_text())
            assert match, log.read_text()
            yield head, match[1]
        finally:
            head.kill()


def test_a_stopping_head_says_so(settings: Settings, tmp_path: Path) -> None:
    """The processes touch the alive file; after SIGTERM they answer while they drain, and the log has start and end."""
    alive = tmp_path / "alive"
    with run_serve(replace(settings, alive_file=str(alive), drain=2.0), tmp_path) as (head, url):
        until(lambda: alive.stat().st_mtime > time.time())
        head.send_signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{url}/readyz").json().get("type") == "urn:glle:problem:draining")
        assert httpx.get(f"{url}/livez").status_code == 200
        assert head.wait(30) == 0
    lines = (tmp_path / "serve-alive.log").read_text().splitlines()
    assert lines[-2:] == ["glle API drains for 2 s; requests in progress have 8 s more", "glle API stopped"]


def test_a_process_that_cannot_start_stops_the_head(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the settings prevent the start of an API process, the head stops."""
    monkeypatch.setattr(supervisor, "PROBE_SECONDS", 0.2)  # the head's own socket takes the connection of a probe
    signums = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    handlers = {signum: signal.getsignal(signum) for signum in signums}
    try:
        with listen("127.0.0.1", 0) as sock:
            head = ServeHead(settings, sock, lambda _: CANNOT_START)
            with pytest.raises(StartError, match="ended while it started"):
                head.run()
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
