"""How long an API process takes from its start to its first answer, and a program until the library can fit."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from bench.report import at_most, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report import Row
    from bench.service.deployment import Service

REPEATS = 5
API_SECONDS, IMPORT_SECONDS = 2.0, 0.6  # at most
POLL_SECONDS, DEADLINE_SECONDS = 0.005, 60.0


def rows(service: Service) -> Iterator[Row]:
    """Yield the seconds until a further API process answers, and until the function `fit` is imported."""
    times = [_until_answer(service) for _ in range(REPEATS)]
    detail = {"slowest s": max(times)}
    yield at_most("API process, start to first answer", statistics.median(times), "s", API_SECONDS, "-", **detail)
    imports = [seconds(_import_fit) for _ in range(REPEATS)]
    yield at_most("from glle_engine import fit, in a new process", statistics.median(imports), "s", IMPORT_SECONDS, "-")


def _import_fit() -> None:
    subprocess.run([sys.executable, "-c", "from glle_engine import fit"], check=True)


def _until_answer(service: Service) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = service.up.log.parent / "data"
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), "--data-dir", str(folder)]
    servers = {"GLLE_REDIS_URL": service.urls["queue"], "GLLE_CACHE_URL": service.urls["cache"]}
    environment = {**os.environ, **servers, "GLLE_API_PROCESSES": "1", "GLLE_LOG_LEVEL": "warning"}
    started = time.perf_counter()
    with subprocess.Popen(command, env=environment) as api:  # noqa: S603 # own program
        try:
            while not _answers(port):
                if api.poll() is not None or time.perf_counter() > started + DEADLINE_SECONDS:
                    raise RuntimeError(f"the API process did not answer; its exit code is {api.returncode}")
                time.sleep(POLL_SECONDS)
            return time.perf_counter() - started
        finally:
            api.terminate()


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/v1/info")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
