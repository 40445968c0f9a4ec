"""Reader processes of a fork server, as the system lists them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.conftest import until


def descendants(process: int | str) -> list[str]:
    """Return the child processes of a process, and theirs."""
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [*found, *(later for each in found for later in descendants(each))]


def kill_reader(api: int, signum: int) -> None:
    """Send a signal to the reader of a body: the child of a watcher, which is one of the fork server."""
    readers: list[str] = []

    def is_reading() -> bool:
        for server in descendants(api):
            if b"forkserver" in Path(f"/proc/{server}/cmdline").read_bytes():
                readers.extend(each for watcher in descendants(server) for each in descendants(watcher))
        return bool(readers)

    until(is_reading)
    os.kill(int(readers[0]), signum)
