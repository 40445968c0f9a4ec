"""Shared parts of the commands: the options of a connection, output as text or JSON, exit codes."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from glle.client import Client

    Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 # argparse has no public name

# Exit codes; 2 is that of argparse, 130 and 141 are those of shells for SIGINT and SIGPIPE.
REFUSED, MISUSED, UNREACHABLE, LATE, INTERRUPTED, UNREAD = 1, 2, 3, 4, 130, 141
_PROBLEM = ("type", "title", "status", "detail", "remedy", "details", "request_id")


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace, Client], int], text: str, *, timeout: bool = False
) -> argparse.ArgumentParser:
    """Add a command that connects a client; return its parser. With `timeout` it waits for a job."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=text)
    command.add_argument("--url", help="address of the service (GLLE_URL, or http://127.0.0.1:8000)")
    command.add_argument("--json", action="store_true", help="print JSON, errors on stderr too")
    if timeout:
        command.add_argument("--timeout", type=float, metavar="S", help="seconds to wait; the job goes on afterwards")
    command.set_defaults(run=partial(_run, run))
    return command


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
    if args.json:
        return report(args, list(items), "")
    from rich.console import Console  # noqa: PLC0415 # only tables need rich
    from rich.table import Table  # noqa: PLC0415 # only tables need rich
    from rich.text import Text  # noqa: PLC0415 # only tables need rich

    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)  # a pipe gets the whole table, no wider than its cells
    table = Table(box=None, pad_edge=False)
    rows = [row(item) for item in items]
    for name in rows[0] if rows else ():
        table.add_column(name, no_wrap=True)
    for cells in rows:
        table.add_row(*[Text(str(cell)) for cell in cells.values()])  # Text, because [brackets] are markup
    console.print(table if rows else "None.")
    return 0


def report_metadata(args: argparse.Namespace, metadata: Any) -> int:
    """Print the whole description of a resource, which is JSON in both cases."""
    return report(args, metadata, json.dumps(metadata, indent=2))


def fail(detail: str, remedy: str, code: int) -> int:
    """Print an error and its remedy on stderr; return the exit code."""
    print(f"glle: {detail}" + (f"\n  {remedy}" if remedy else ""), file=sys.stderr)  # noqa: T201 # the command's output
    return code
