"""How long an API process takes from its start to its first answer, and a program until the library can fit."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.report import at_most, seconds
from bench.service.deployment import Http
from tests.system.conftest import run_glle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report import Row
    from bench.service.deployment import Service

REPEATS = 5
API_SECONDS, IMPORT_SECONDS = 2.0, 0.6  # at most


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
    servers = {"GLLE_REDIS_URL": service.urls["queue"], "GLLE_CACHE_URL": service.urls["cache"]}
    options = ["--port", "0", "--data-dir", str(service.up.log.parent / "data")]
    with tempfile.TemporaryDirectory(prefix="glle-bench-") as folder:
        started = time.perf_counter()
        with run_glle(Path(folder) / "api.log", "serve", *options, **servers, GLLE_API_PROCESSES="1") as api:
            http = Http(api.url)
            http.get("/info")
            elapsed = time.perf_counter() - started
            http.close()
    return elapsed
