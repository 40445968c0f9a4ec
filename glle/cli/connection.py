"""Shared parts of the commands: the options of a connection, output as text or JSON, exit codes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glle.client import Client

# Exit codes; 2 is that of argparse, 130 and 141 are those of shells for SIGINT and SIGPIPE.
REFUSED, MISUSED, UNREACHABLE, LATE, INTERRUPTED, UNREAD = 1, 2, 3, 4, 130, 141
_PROBLEM = ("type", "title", "status", "detail", "remedy", "details", "request_id")


def connection_options(*, timeout: bool = False) -> argparse.ArgumentParser:
    """Return a parent parser with the options of every command, and with `--timeout`."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--url", help="address of the service (GLLE_URL, or http://127.0.0.1:8000)")
    parser.add_argument("--json", action="store_true", help="print JSON, errors on stderr too")
    if timeout:
        parser.add_argument("--timeout", type=float, metavar="S", help="seconds to wait; the job goes on afterwards")
    return parser


def with_client(run: Callable[[argparse.Namespace, Client], int]) -> Callable[[argparse.Namespace], int]:
    """Return a command that connects a client, and turns exceptions into messages and exit codes."""

    def command(args: argparse.Namespace) -> int:
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

    return command


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
