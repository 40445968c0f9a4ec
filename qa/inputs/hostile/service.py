"""The service in this process, with small caps, so that small bodies reach them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Self

import httpx

from qa.inputs.hostile.bodies.caps import MAX_BODY, MAX_BYTES
from qa.inputs.hostile.case import KINDS, Outcome
from service.app import create_app
from service.uploads.sandbox.processes import ReaderBudget, ReaderExit, ReaderProcesses
from worker.base.settings import Settings
from worker.operations.embedded_redis import EmbeddedRedis
from worker.stores import Stores

SERVER = "server"  # folder of the Redis server
GOOD = b"x,y\n1,2\n3,4\n"


class Service:
    """Service that accepts uploads.

    Parameters
    ----------
    folder
        Empty data folder.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = EmbeddedRedis(folder / SERVER, ("appendonly no",))
        self._server.spawn()
        url = self._server.wait().url
        settings = Settings(redis_url=url, cache_url=url, data_dir=str(folder), max_body=MAX_BODY)
        self._runner = asyncio.Runner()
        self._stores = Stores.connect(settings)
        app = create_app(self._stores)
        self._ended: list[ReaderExit] = []
        self._readers = app.state.readers = ReaderProcesses(settings, self._ended.append, ReaderBudget(2, MAX_BYTES))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def __enter__(self) -> Self:
        """Start the service."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the service."""
        self._runner.run(self._client.aclose())
        self._readers.close()
        self._runner.close()
        self._stores.close()
        self._server.stop()

    def upload(self, reader: str, body: bytes, query: dict[str, str] | None = None) -> Outcome:
        """Upload a body and return its outcome; delete the resulting data set."""
        _forget_peak()
        self._ended.clear()
        before, started = _memory("VmRSS"), time.process_time()
        answer = self._runner.run(
            self._client.post(
                "/v1/datasets", content=body, headers={"Content-Type": KINDS[reader]}, params=query, timeout=None
            )
        )
        seconds, peak = time.process_time() - started, max(0, _memory("VmHWM") - before)
        for ended in self._ended:  # the reader process belongs to the body
            seconds, peak = seconds + ended.seconds, max(peak, ended.peak)
        result = answer.json()
        code = result["type"].rpartition(":")[2] if "type" in result else ""
        if answer.is_success:
            self._stores.datasets.delete(result["id"])
        return Outcome(answer.status_code, answer.headers["content-type"], code, seconds, peak, self._remaining_files())

    def accepts_a_valid_upload(self) -> bool:
        """Return whether the next valid upload is accepted."""
        return self.upload("csv", GOOD).status == 201

    def _remaining_files(self) -> list[str]:
        """Return the files of the data folder, except those of the server."""
        files = {path.relative_to(self._folder) for path in self._folder.rglob("*") if path.is_file()}
        return sorted(str(path) for path in files if path.parts[0] != SERVER)


def _forget_peak() -> None:
    """Reset the kernel's peak memory counter."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(field_name: str) -> int:
    """Return a memory row of this process's status in bytes, or 0."""
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        return 0
    match = next((line for line in status.splitlines() if line.startswith(field_name + ":")), f"{field_name}: 0 kB")
    return int(match.split()[1]) * 1024
