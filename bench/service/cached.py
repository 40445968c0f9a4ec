"""A bare Starlette route that returns constant bytes: the cost of HTTP itself."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from bench.report import Row
from bench.service.deployment import running_service
from bench.service.load import DIFFERENT, Load, Measured, load
from service.cli.main import listen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from bench.service.deployment import Service

N = 5_000
CLIENTS = 8
LOAD_SECONDS = 2.5
ROUNDS = 4


@contextmanager
def running_bare(body: Path) -> Iterator[str]:
    """Serve a file's bytes from a separate process; yield the URL."""
    command = [sys.executable, "-m", "bench.service.cached", str(body)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:  # noqa: S603 # this module
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main(body: bytes) -> None:
    """Serve until terminated."""

    async def answer(_: Request) -> Response:
        return Response(body, media_type="application/x-npy")

    listener = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    app = Starlette(routes=[Route("/", answer)])
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_bytes())


GOAL, P99_GOAL_MS = 0.75, 15.0
APIS, APIS_GOAL = 2, 1.6


def rows(service: Service) -> Iterator[Row]:
    """Measure requests per second of one API process against a bare route, then of two against one."""
    path = service.fit_synthetic("swiss_roll", N)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "draw.npy"
        file.write_bytes(_warm(service, path))
        with running_bare(file) as bare:
            for number in range(ROUNDS + 1):
                found, other = load(_asking(service.url, f"/v1{path}/draws/{{}}")), load(_asking(bare, "/"))
                assert found.nbytes == other.nbytes == file.stat().st_size
                if number:  # warm-up
                    ours.append(found)
                    theirs.append(other)
    detail = {
        "theirs, requests/s": _median(theirs),
        "ours p50 ms": statistics.median(found.p50 for found in ours) * 1e3,
        "theirs p99 ms": statistics.median(found.p99 for found in theirs) * 1e3,
    }
    yield Row(
        _work("requests/s"), "a bare Starlette route", _ratio(ours, theirs), "x", GOAL, detail=_detail(ours) | detail
    )
    p99 = statistics.median(found.p99 for found in ours) * 1e3
    yield Row(_work("p99"), "-", p99, "ms", P99_GOAL_MS, at_least=False)
    yield from _two_processes(service, path)


def _two_processes(service: Service, path: str) -> Iterator[Row]:
    """Compare API processes of two services on this machine, of which one is idle at a time."""
    with running_service(1, APIS) as second:
        if second.apis != APIS:  # this version has one
            return
        _warm(second, second.fit_synthetic("swiss_roll", N))  # the same data have the same ids
        ours, theirs = [], []
        for number in range(ROUNDS + 1):
            found, other = (load(_asking(url, f"/v1{path}/draws/{{}}")) for url in (second.url, service.url))
            if number:  # warm-up
                ours.append(found)
                theirs.append(other)
    # One API process fills a core, and its clients need this share of another.
    possible = (os.cpu_count() or 1) / (1 + statistics.median(found.cpu for found in theirs))
    detail = {"one, requests/s": _median(theirs), "x possible beside these clients": min(APIS, possible)} | _detail(
        ours
    )
    work = _work(f"requests/s of {APIS} API processes")
    yield Row(work, "one API process", _ratio(ours, theirs), "x", APIS_GOAL, detail=detail)


def _work(what: str) -> str:
    return f"a cached draw of {DIFFERENT} by GET, npy, n = {N:,}, {CLIENTS} clients: {what}"


def _warm(service: Service, path: str) -> bytes:
    """Cache all draws and return one body."""
    service.http.post(f"{path}/draws?wait=60", {"count": DIFFERENT})
    bodies = [service.http.npy(f"{path}/draws/{index}") for index in range(DIFFERENT)]
    return bodies[0]


def _asking(url: str, path: str) -> Load:
    return Load(url=url.rstrip("/"), paths=[path], clients=CLIENTS, seconds=LOAD_SECONDS)


def _ratio(ours: list[Measured], theirs: list[Measured]) -> float:
    return statistics.median(a.rate / b.rate for a, b in zip(ours, theirs, strict=True))


def _median(found: list[Measured]) -> float:
    return statistics.median(one.rate for one in found)


def _detail(ours: list[Measured]) -> dict[str, float]:
    share = statistics.median(found.cpu for found in ours)
    return {"ours, requests/s": _median(ours), "clients' share of a core": share}
