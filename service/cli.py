"""The `glle` command."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from service import commands as asking
from worker.settings import Settings, SettingsError, table, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastapi import FastAPI

# One thread a process: N workers with N threads each were three times slower than without.
BLAS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
CONTRACT = Path(__file__).resolve().parent.parent / "openapi" / "openapi.json"
DRAIN_SECONDS = 3  # an API that stops lets answers end for so long


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    for name in sorted(set(unknown(os.environ)) - asking.VARIABLES):
        _say(f"{name} is no setting and has no effect; `glle settings` lists them.")
    try:
        settings = Settings.from_env()
        chosen = _parser(settings).parse_args(arguments)
        run: Callable[[argparse.Namespace, Settings], int] = chosen.run
        return run(chosen, settings)
    except (SettingsError, StartError) as error:
        _say(f"glle: {error}")
        return 2


class StartError(RuntimeError):
    """What keeps the command from starting; the message says the remedy."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or raise `StartError` when the port is taken."""
    try:
        made = socket.create_server((host, port), family=_family(host), backlog=2048)
    except OSError as error:
        remedy = "Choose another with --port (0 takes a free one)."
        raise StartError(f"Cannot listen on {host}:{port}: {error.strerror}. {remedy}") from error
    # Made again from its descriptor it knows that it is TCP. asyncio looks at that before it switches Nagle's
    # algorithm off, which costs 40 ms an answer.
    return socket.socket(fileno=made.detach())


def _parser(settings: Settings) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glle", description="Generative locally linear embedding as a service. Every option is a setting too."
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    up = commands.add_parser("up", help="start everything here: servers, API and workers, until Ctrl-C")
    up.add_argument("--workers", type=int, default=settings.workers, help="worker processes (%(default)s)")
    up.add_argument("--data-dir", default=settings.data_dir, help="folder of all data (%(default)s)")
    up.set_defaults(run=_up)

    api = commands.add_parser("api", help="the HTTP API alone")
    api.add_argument("--fd", type=int, help=argparse.SUPPRESS)  # a socket that `glle up` holds open
    api.set_defaults(run=_api)
    for command in (up, api):
        command.add_argument("--host", default=settings.host, help="address to listen on (%(default)s)")
        command.add_argument("--port", type=int, default=settings.port, help="port, 0: a free one (%(default)s)")

    worker = commands.add_parser("worker", help="one worker")
    worker.add_argument("--name", help="its name in the registry (random)")
    worker.set_defaults(run=_worker)

    contract = commands.add_parser("openapi", help="write openapi/openapi.json, the contract of the API")
    contract.add_argument("--check", action="store_true", help="compare instead, and fail if it differs")
    contract.set_defaults(run=_openapi)

    commands.add_parser("settings", help="list the settings").set_defaults(run=_settings)
    asking.add(commands)
    return parser


def _up(chosen: argparse.Namespace, settings: Settings) -> int:
    from service.up import Tree  # noqa: PLC0415 # each command loads what it needs

    if chosen.workers < 1:
        raise StartError(f"--workers {chosen.workers}: at least one is needed.")
    given = replace(settings, host=chosen.host, port=chosen.port, workers=chosen.workers, data_dir=chosen.data_dir)
    if bool(given.redis_url) != bool(given.cache_url):
        raise StartError("Set both GLLE_REDIS_URL and GLLE_CACHE_URL, or neither for embedded servers.")
    with contextlib.closing(listen(given.host, given.port)) as sock:
        return Tree(given, sock).run()


def _api(chosen: argparse.Namespace, settings: Settings) -> int:
    import uvicorn  # noqa: PLC0415 # each command loads what it needs

    from service.app import create_app  # noqa: PLC0415 # each command loads what it needs
    from worker.stores import Stores  # noqa: PLC0415 # each command loads what it needs

    app = create_app(Stores.connect(settings))
    sock = socket.socket(fileno=chosen.fd) if chosen.fd is not None else listen(chosen.host, chosen.port)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN_SECONDS, server_header=False
    )
    if chosen.fd is None:
        _say(f"glle API at http://{_shown(sock)}")
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[sock])
    return 0


def _worker(chosen: argparse.Namespace, settings: Settings) -> int:
    del settings  # read from the environment again by the worker and its tasks
    for variable in BLAS_VARIABLES:  # numpy reads them when it is imported
        os.environ[variable] = "1"
    from worker import process  # noqa: PLC0415 # each command loads what it needs

    return process.main(chosen.name)


def _openapi(chosen: argparse.Namespace, settings: Settings) -> int:
    del settings  # the contract does not depend on them
    text = contract_text(_contract_app())
    if not chosen.check:
        CONTRACT.write_text(text, encoding="utf-8")
        _say(f"Written to {CONTRACT}.")
        return 0
    if CONTRACT.exists() and CONTRACT.read_text(encoding="utf-8") == text:
        return 0
    _say(f"{CONTRACT} differs from the app: run `glle openapi` and look at the difference.")
    return 1


def contract_text(app: FastAPI) -> str:
    """Return the exported contract of an app."""
    return json.dumps(app.openapi(), indent=1) + "\n"


def _contract_app() -> FastAPI:
    from service.app import create_app  # noqa: PLC0415 # each command loads what it needs
    from worker.stores import Stores  # noqa: PLC0415 # each command loads what it needs

    nowhere = "redis://127.0.0.1:1"  # nothing is asked of it
    return create_app(Stores.connect(Settings(redis_url=nowhere, cache_url=nowhere)))


def _settings(chosen: argparse.Namespace, settings: Settings) -> int:
    del chosen, settings
    width = max(len(name) for name, _, _ in table())
    for name, default, told in table():
        print(f"{name:<{width}}  {default!s:<12}  {told}")  # noqa: T201 # the command's output
    return 0


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _shown(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 # the command's output
