"""A bare Starlette route that returns constant bytes: the cost of HTTP itself."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from service.cli.main import listen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request


@contextmanager
def running_bare(body: Path) -> Iterator[str]:
    """Serve a file's bytes from a separate process; yield the URL."""
    command = [sys.executable, "-m", "bench.service.bare", str(body)]
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
