"""Shared parts of the commands: the options of a connection, output as text or JSON, exit codes."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from glle.cli.options import add_options
from glle.table import table_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from glle.client import Client

    Argument: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]
    Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 # argparse has no public name

# Exit codes; 2 is that of argparse, 130 and 141 are those of shells for SIGINT and SIGPIPE.
REFUSED, MISUSED, UNREACHABLE, LATE, INTERRUPTED, UNREAD = 1, 2, 3, 4, 130, 141
_PROBLEM = ("type", "title", "status", "detail", "remedy", "details", "request_id")


def argument(*names: str, **options: Any) -> Argument:
    """Return an argument of a command, as for `add_argument` of argparse."""
    return names, options


def add_command(
    commands: Commands,
    run: Callable[[argparse.Namespace, Client], int],
    *arguments: Argument,
    options: Sequence[type] = (),
    timeout: bool = False,
) -> None:
    """Add a command that connects a client: the function's name, with its docstring as help.

    `options` are types of keyword arguments. With `timeout` the command waits for a job.
    """
    text = str(run.__doc__).partition("\n")[0]
    short = text[0].lower() + text[1:].rstrip(".")
    command: argparse.ArgumentParser = commands.add_parser(run.__name__.strip("_"), help=short, description=text)
    command.add_argument("--url", help="address of the service (GLLE_URL, or http://127.0.0.1:8000)")
    command.add_argument("--json", action="store_true", help="print JSON, errors on stderr too")
    if timeout:
        command.add_argument("--timeout", type=float, metavar="S", help="seconds to wait; the job goes on afterwards")
    for names, more in arguments:
        command.add_argument(*names, **more)
    for kind in options:
        add_options(command, kind)
    command.set_defaults(run=partial(_run, run))


def _run(run: Callable[[argparse.Namespace, Client], int], args: argparse.Namespace) -> int:
    """Run a command with a client; turn exceptions into messages and exit codes."""
    try:
        from glle.client import Client, GlleServiceError, JobTimeoutError  # noqa: PLC0415 # needs the extra `client`
        from glle.transport.errors import flag, in_words  # noqa: PLC0415 # the same
    except ImportError as error:
        return fail(f"{error}.", "Install the client: pip install 'glle[client]'.", MISUSED)
    try:
        with Client(args.url, progress=False if args.json else None) as client:
            return run(args, client)
    except GlleServiceError as error:
        if args.json:
            print(json.dumps({name: getattr(error, name) for name in _PROBLEM}), file=sys.stderr)  # noqa: T201
        else:
            request = f" Request {error.request_id}." if error.request_id else ""
            fail(error.detail, in_words(error.remedy, flag) + request, REFUSED)
        if isinstance(error, JobTimeoutError):
            return LATE
        return REFUSED if error.status else UNREACHABLE
    except BrokenPipeError:
        raise  # `main` ends quietly
    except (ValueError, OSError) as error:
        return fail(str(error), "", MISUSED)
    except KeyboardInterrupt:
        return fail("Interrupted. A started job goes on.", "See `glle jobs list`.", INTERRUPTED)


def report(args: argparse.Namespace, value: Any, text: str) -> int:
    """Print a result, as JSON or as text."""
    print(json.dumps(value) if args.json else text)  # noqa: T201 # the command's output
    return 0


def report_all(args: argparse.Namespace, items: Sequence[Any], row: Callable[[Any], dict[str, object]]) -> int:
    """Print a list, as JSON or as a table: `row` returns the cells of an item by column."""
    rows = [row(item) for item in items]
    return report(
        args, list(items), table_text([list(rows[0]), *[list(cells.values()) for cells in rows]]) if rows else "None."
    )


def report_metadata(args: argparse.Namespace, metadata: Any) -> int:
    """Print the whole description of a resource, which is JSON in both cases."""
    return report(args, metadata, json.dumps(metadata, indent=2))


def fail(detail: str, remedy: str, code: int) -> int:
    """Print an error and its remedy on stderr; return the exit code."""
    print(f"glle: {detail}" + (f"\n  {remedy}" if remedy else ""), file=sys.stderr)  # noqa: T201 # the command's output
    return code
