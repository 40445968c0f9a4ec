"""The `glle` command."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from glle import cli as asking
from service.cli import backup, capacity, keys, scrub, store
from service.cli import settings as settings_page
from service.cli.options import add_flags, settings_of
from service.cli.start_error import StartError
from service.middleware.access_policy import AccessPolicy
from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError, unknown
from worker.observability import logging, tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastapi import FastAPI

# One thread a process: N workers with N threads each were three times slower than without.
BLAS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
CONTRACT = Path(__file__).resolve().parents[2] / "openapi" / "openapi.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    for name in sorted(set(unknown(os.environ)) - asking.VARIABLES):
        _say(f"{name} is no setting and has no effect; `glle settings` lists them.")
    try:
        chosen = _parser(Settings.from_env()).parse_args(arguments)
        run: Callable[[argparse.Namespace, Settings], int] = chosen.run
        return run(chosen, settings_of(chosen, os.environ))
    except (SettingsError, StartError) as error:
        _say(f"glle: {error}")
        return 2
    except ProblemError as error:
        _say(f"glle: {error.problem.detail} {error.problem.remedy}")
        return 1


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
    up.set_defaults(run=_up)

    serve = commands.add_parser("serve", aliases=["api"], help="the HTTP API alone")
    serve.add_argument("--fd", type=int, help=argparse.SUPPRESS)  # a socket that `glle up` holds open
    serve.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)  # a pipe that tells `glle up` when it serves
    serve.set_defaults(run=_serve)

    worker = commands.add_parser("worker", help="one worker")
    worker.add_argument("--name", help="its name in the registry (random)")
    worker.set_defaults(run=_worker)

    doctor = commands.add_parser("doctor", help="check a deployment and say what to do; 1 where something is broken")
    doctor.add_argument(
        "--url",
        help="a running service, such as http://127.0.0.1:8000 (with the key in GLLE_KEY): it does a small job, too",
    )
    doctor.add_argument("--json", action="store_true", help="the report as JSON")
    doctor.set_defaults(run=_doctor)

    for command in (up, serve, worker, doctor):
        add_flags(command, settings)

    contract = commands.add_parser("openapi", help="write openapi/openapi.json, the contract of the API")
    contract.add_argument("--check", action="store_true", help="compare instead, and fail if it differs")
    contract.set_defaults(run=_openapi)

    keys.add_to(commands, settings)
    store.add_to(commands, settings)
    backup.add_to(commands, settings)
    capacity.add_to(commands)
    scrub.add_to(commands, settings)
    listing = commands.add_parser("settings", help="list the settings")
    what = listing.add_mutually_exclusive_group()
    what.add_argument("--current", action="store_true", help="what holds in this environment, passwords hidden")
    what.add_argument("--write", action="store_true", help="write docs/settings.md, their documentation")
    listing.set_defaults(run=_settings)
    asking.add(commands)
    return parser


def _up(chosen: argparse.Namespace, settings: Settings) -> int:
    del chosen  # all of it is in the settings
    from service.cli.up import Tree  # noqa: PLC0415 # each command loads what it needs

    if bool(settings.redis_url) != bool(settings.cache_url):
        raise StartError("Set both GLLE_REDIS_URL and GLLE_CACHE_URL, or neither for embedded servers.")
    _warn_of_shut_door(settings)
    with contextlib.closing(listen(settings.host, settings.port)) as sock:
        return Tree(settings, sock).run()


def _serve(chosen: argparse.Namespace, settings: Settings) -> int:
    from service.app import create_app  # noqa: PLC0415 # each command loads what it needs
    from service.server.uvicorn_server import Server  # noqa: PLC0415 # each command loads what it needs
    from worker.stores import Stores  # noqa: PLC0415 # each command loads what it needs

    logging.configure(settings)
    if tracing.wanted(settings):
        tracing.TRACING.start("glle-api")
    held = None if chosen.fd is None else socket.socket(fileno=chosen.fd)
    # Who can reach it decides who needs a key: the socket knows better than the setting.
    host = settings.host if held is None else held.getsockname()[0]
    app = create_app(Stores.connect(replace(settings, host=host)))
    app.state.stores.datasets.remove_abandoned()
    app.state.readers.start()
    sock = held or listen(settings.host, settings.port)
    if held is None:
        _warn_of_shut_door(replace(settings, host=host))
        logging.announce(f"glle API at http://{_shown(sock)}", settings)
    with sock, contextlib.suppress(KeyboardInterrupt):
        drain = settings.drain if held is None else 0.0  # who holds the socket has another process accept
        Server(app, settings, drain=drain, started=partial(_tell, chosen.ready_fd)).run(sockets=[sock])
    app.state.readers.close()
    metrics = app.state.metrics
    metrics.flush(metrics.take())
    tracing.TRACING.stop()
    return 0


def _tell(descriptor: int | None) -> None:
    """Write to a pipe, where there is one, that this process is ready."""
    if descriptor is not None:
        os.write(descriptor, b"1")
        os.close(descriptor)


def _worker(chosen: argparse.Namespace, settings: Settings) -> int:
    for variable in BLAS_VARIABLES:  # numpy reads them when it is imported
        os.environ[variable] = "1"
    os.environ.update(settings.to_env())  # which the worker and its tasks read
    from worker.execution import worker as process  # noqa: PLC0415 # each command loads what it needs

    return process.main(chosen.name)


def _doctor(chosen: argparse.Namespace, settings: Settings) -> int:
    for variable in BLAS_VARIABLES:  # its small draw is as a worker makes it
        os.environ[variable] = "1"
    from service.cli import doctor  # noqa: PLC0415 # each command loads what it needs

    checks = []
    for check in doctor.examine(settings, os.environ, chosen.url):
        checks.append(check)
        if not chosen.json:
            print("\n".join(doctor.lines(check)), flush=True)  # noqa: T201 # the command's output
    print(doctor.as_json(checks) if chosen.json else doctor.summary(checks))  # noqa: T201 # the command's output
    return int(any(check.state == "problem" for check in checks))


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
    del settings
    if chosen.write:
        settings_page.PAGE.write_text(settings_page.page(), encoding="utf-8")
        _say(f"Written to {settings_page.PAGE}.")
        return 0
    text = settings_page.current(os.environ) if chosen.current else settings_page.listed()
    print(text)  # noqa: T201 # the command's output
    return 0


def _warn_of_shut_door(settings: Settings) -> None:
    """Say that nobody can get in yet; raise `SettingsError` when everybody could."""
    if AccessPolicy.of(settings).is_shut:
        _say("Requests need a key, and there is none: `glle keys create` makes one.")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _shown(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 # the command's output
