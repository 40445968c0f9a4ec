"""Requests per second for cached draws, against a bare Starlette route that returns the same bytes.

`python -m bench.service.cached FILE` serves this route.
"""

from __future__ import annotations

import os
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

from bench.report import Row, at_most
from bench.service.deployment import running_service
from bench.service.load import DIFFERENT, Load, load_in_turn, median, ratio
from qa.frame import ROOT
from service.cli.main import listen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from bench.service.deployment import Service
    from bench.service.load import Measured

N = 5_000
CLIENTS = 8
LOAD_SECONDS = 2.5
ROUNDS = 4


@contextmanager
def running_bare(body: Path) -> Iterator[str]:
    """Serve the bytes of a file by a bare Starlette route in a process of its own; yield the URL."""
    command = [sys.executable, "-m", "bench.service.cached", str(body)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main(body: bytes) -> None:
    """Print the URL, and answer each request with `body` until the process is terminated."""

    async def answer(_: Request) -> Response:
        return Response(body, media_type="application/x-npy")

    listener = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    app = Starlette(routes=[Route("/", answer)])
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, http="h11")).run(sockets=[listener])


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_bytes())


GOAL, P99_GOAL_MS = 0.75, 15.0
APIS, APIS_GOAL = 2, 1.6


def rows(service: Service) -> Iterator[Row]:
    """Yield the requests per second of one API process against a bare route, and of two processes against one."""
    path = service.fit_synthetic("swiss_roll", N)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "draw.npy"
        file.write_bytes(_warm(service, path))
        with running_bare(file) as bare:
            ours, theirs = load_in_turn(_asking(service.up.url, f"/v1{path}/draws/{{}}"), _asking(bare, "/"), ROUNDS)
        assert {measured.nbytes for measured in ours + theirs} == {file.stat().st_size}
    milliseconds = {"ours p50 ms": 1e3 * median(ours, "p50"), "theirs p99 ms": 1e3 * median(theirs, "p99")}
    yield _rate_row("requests/s", "a bare Starlette route", ours, theirs, GOAL, **milliseconds)
    yield at_most(_work("p99"), 1e3 * median(ours, "p99"), "ms", P99_GOAL_MS)
    yield from _two_processes(service, path)


def _two_processes(service: Service, path: str) -> Iterator[Row]:
    """Yield the requests per second of a second service with two API processes against `service`, which has one."""
    with running_service(1, APIS) as second:
        if second.apis != APIS:  # this version has one
            return
        _warm(second, second.fit_synthetic("swiss_roll", N))  # the same data have the same ids
        two, one = (_asking(url, f"/v1{path}/draws/{{}}") for url in (second.up.url, service.up.url))
        ours, theirs = load_in_turn(two, one, ROUNDS)
    # One API process fills a core, and its clients need this share of another.
    possible = {"x possible beside these clients": min(APIS, (os.cpu_count() or 1) / (1 + median(theirs, "cpu")))}
    yield _rate_row(f"requests/s of {APIS} API processes", "one API process", ours, theirs, APIS_GOAL, **possible)


def _work(what: str) -> str:
    return f"a cached draw of {DIFFERENT} by GET, npy, n = {N:,}, {CLIENTS} clients: {what}"


def _warm(service: Service, path: str) -> bytes:
    """Request all draws of the load once, so that they are cached, and return the body of one answer."""
    service.http.post(f"{path}/draws?wait=60", {"n_draws": DIFFERENT})
    bodies = [service.http.npy(f"{path}/draws/{index}") for index in range(DIFFERENT)]
    return bodies[0]


def _asking(url: str, path: str) -> Load:
    return Load(url=url.rstrip("/"), paths=[path], clients=CLIENTS, seconds=LOAD_SECONDS)


def _rate_row(
    what: str, against: str, ours: list[Measured], theirs: list[Measured], goal: float, **detail: float
) -> Row:
    detail |= {f"{whose}, requests/s": median(rates, "rate") for whose, rates in (("ours", ours), ("theirs", theirs))}
    detail["clients' share of a core"] = median(ours, "cpu")
    return Row(_work(what), against, ratio(ours, theirs), "x", goal, detail=detail)
