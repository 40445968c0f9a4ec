"""Entry point of the `glle` command; adds the commands that run the server to the commands of the client."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from glle import cli
from service.cli import keys, scrub
from service.cli.options import (
    CANNOT_START,
    StartError,
    add_flags,
    current_values,
    list_settings,
    print_message,
    print_result,
    require_both_urls,
    settings_of,
)
from service.server.listening import BACKLOG, SharedSocket, raise_descriptor_limit
from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError, unknown_variables
from worker.observability import logging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `glle` command; return its exit code."""
    return cli.main(arguments, [add_commands])


def listen(host: str, port: int) -> SharedSocket:
    """Return a listening TCP socket; raise `StartError` if the port is taken or this machine lacks the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        remedy = "Set GLLE_HOST to an address of this machine."
        if error.errno in {errno.EADDRINUSE, errno.EACCES}:
            remedy = "Choose another port with --port (0 takes a free one)."
        raise StartError(f"Cannot listen on {host}:{port}: {error.strerror}. {remedy}") from error
    # Opened from its descriptor, the socket has proto TCP. asyncio then disables Nagle's algorithm, which would delay
    # each response by 40 ms.
    return SharedSocket(fileno=server.detach())


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of the server to `glle`, which finds this function by the entry point group `glle.commands`."""
    try:
        settings = Settings.from_env()
    except SettingsError:
        settings = Settings()  # commands of the client must still work; those of the server report the error (`_start`)
    others = set(commands.choices)

    up = commands.add_parser("up", help="start servers, API and workers on this machine, until Ctrl-C")
    up.set_defaults(run=_up)

    serve = commands.add_parser("serve", aliases=["api"], help="run the HTTP API alone, as several processes")
    serve.add_argument("--fd", type=int, help=argparse.SUPPRESS)  # a socket that the parent process holds open
    serve.set_defaults(run=_serve)

    worker = commands.add_parser("worker", help="run one worker")
    worker.add_argument("--name", help="name in the registry of workers (random)")
    worker.set_defaults(run=_worker)

    doctor = commands.add_parser("doctor", help="check a deployment and print remedies; exit code 1 for a problem")
    doctor.add_argument(
        "--url",
        help="also run a small job on this service, such as http://127.0.0.1:8000; set GLLE_KEY to its API key",
    )
    doctor.add_argument(
        "--accept-loss",
        action="store_true",
        help="let a service that has lost records or files start again with what is left",
    )
    doctor.add_argument("--json", action="store_true", help="print the report as JSON")
    doctor.set_defaults(run=_doctor)

    for command in (up, serve, worker, doctor):
        add_flags(command, settings)

    keys.add_to(commands, settings)
    scrub.add_to(commands, settings)
    listing = commands.add_parser("settings", help="list the settings")
    listing.add_argument("--current", action="store_true", help="print the current values, with passwords hidden")
    listing.set_defaults(run=_settings)
    for name in commands.choices.keys() - others:
        commands.choices[name].set_defaults(start=_start)


def _start(options: argparse.Namespace) -> int:
    """Run a command of the server with its settings, or print why it cannot start; return the exit code."""
    try:
        run: Callable[[argparse.Namespace, Settings], int] = options.run
        settings = settings_of(options, os.environ)
        for name in sorted(set(unknown_variables(os.environ)) - cli.VARIABLES):
            text = f"{name} is not a setting and has no effect. `glle settings` lists the settings."
            logging.announce(text, settings)
        return run(options, settings)
    except (SettingsError, StartError) as error:
        print_message(f"glle: {error}")
        return CANNOT_START
    except ImportError as error:
        if error.name is not None:  # a module is missing
            raise
        print_message(f"glle: {error}")  # raised by the engine itself, such as for the variable NUMBA_DISABLE_JIT
        return CANNOT_START
    except ProblemError as error:
        print_message(f"glle: {error.problem.detail} {error.problem.remedy}")
        return 1


def _up(options: argparse.Namespace, settings: Settings) -> int:
    del options
    from service.cli.supervisor import UpHead  # noqa: PLC0415 # each command loads what it needs

    require_both_urls(settings)
    _check_access(settings)
    with contextlib.closing(listen(settings.host, settings.port)) as sock:
        return UpHead(settings, sock, main).run()


def _serve(options: argparse.Namespace, settings: Settings) -> int:
    from worker.connections.clients import require_login  # noqa: PLC0415 # each command loads what it needs
    from worker.operations.health import data_folder  # noqa: PLC0415 # each command loads what it needs
    from worker.stores import Stores  # noqa: PLC0415 # each command loads what it needs

    logging.configure(settings)
    if options.fd is not None:
        return _serve_on(SharedSocket(fileno=options.fd), settings)
    from service.cli.supervisor import ServeHead  # noqa: PLC0415 # each command loads what it needs

    Stores.connect(settings).close()  # raises an error before any process starts
    require_login(settings)
    _check_access(settings)
    if (folder := data_folder(Path(settings.data_dir))).state != "ok":
        logging.announce(f"{folder.detail} {folder.remedy}", settings)
    _check_alive_file(settings)
    with listen(settings.host, settings.port) as sock:
        return ServeHead(settings, sock, main).run()


def _serve_on(sock: SharedSocket, settings: Settings) -> int:
    """Run one API process on a listening socket; return the exit code.

    The address of the socket, and not GLLE_HOST, decides whether requests need API keys.
    """
    from service.app import create_app  # noqa: PLC0415 # each command loads what it needs
    from service.server.uvicorn_server import ApiServer, renew_mark  # noqa: PLC0415 # each command loads what it needs
    from worker.stores import Stores  # noqa: PLC0415 # each command loads what it needs

    raise_descriptor_limit()
    app = create_app(Stores.connect(replace(settings, host=sock.getsockname()[0])))
    app.state.stores.datasets.files.remove_abandoned()
    app.state.readers.start()
    try:
        if refusal := app.state.stores.mark.start_refusal():
            raise StartError(refusal)
        with sock, contextlib.suppress(KeyboardInterrupt):
            ApiServer(app, settings).run(sockets=[sock])
        renew_mark(app.state.stores.mark, is_last=True)
    finally:
        app.state.readers.close()
    metrics = app.state.metrics
    metrics.flush(metrics.drain())
    return 0


def _worker(options: argparse.Namespace, settings: Settings) -> int:
    os.environ.update(settings.to_env())  # the worker and its tasks read the settings from there
    from worker.execution import parent  # noqa: PLC0415 # each command loads what it needs

    _check_alive_file(settings)
    return parent.main(options.name)


def _doctor(options: argparse.Namespace, settings: Settings) -> int:
    from service.cli import doctor  # noqa: PLC0415 # each command loads what it needs

    if options.accept_loss:
        from service.cli.data_folder import connect_stores  # noqa: PLC0415 # each command loads what it needs

        with connect_stores(settings, allows_loss=True) as stores:
            for line in doctor.accept_loss(stores):
                print_result(line)
        return 0
    checks = []
    for check in doctor.examine(settings, os.environ, options.url):
        checks.append(check)
        if not options.json:
            print_result("\n".join(doctor.lines(check)))
    print_result(doctor.as_json(checks) if options.json else doctor.summary(checks))
    return int(any(check.state == "problem" for check in checks))


def _settings(options: argparse.Namespace, settings: Settings) -> int:
    del settings
    print_result(current_values(os.environ) if options.current else list_settings())
    return 0


def _check_alive_file(settings: Settings) -> None:
    """Raise `StartError` if GLLE_ALIVE_FILE, which a live process touches again and again, cannot be written."""
    try:
        if settings.alive_file:
            Path(settings.alive_file).touch()
    except OSError as error:
        text = f"GLLE_ALIVE_FILE={settings.alive_file!r} cannot be written: {error.strerror}."
        raise StartError(f"{text} Name a file in a folder that the user can write.") from error


def _check_access(settings: Settings) -> None:
    """Log a line if requests need an API key, and a warning if every web page would be admitted.

    Raises `SettingsError` if other machines could use the API without a key.
    """
    from service.middleware.access_policy import AccessPolicy  # noqa: PLC0415 # each command loads what it needs

    policy = AccessPolicy(settings)
    if policy.is_required:
        logging.announce("Requests need an API key. `glle keys create` creates one.", settings)
    if policy.page_warning:
        logging.announce(f"{policy.page_warning} Name the origins, or set GLLE_AUTH=required.", settings)
