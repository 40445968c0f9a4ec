"""What all these commands share: the service's address, the form of the answer, failures with their remedy."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glle import Client

# Exit codes; 2 is argparse's, 130 the shell's.
REFUSED, MISUSED, UNREACHABLE, LATE, INTERRUPTED = 1, 2, 3, 4, 130


def shared() -> argparse.ArgumentParser:
    """Return the options of every command."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--url", help="address of the service (GLLE_URL, or http://127.0.0.1:8000)")
    parser.add_argument("--json", action="store_true", help="answer in JSON, for scripts; failures on stderr, too")
    return parser


def asking(run: Callable[[argparse.Namespace, Client], int]) -> Callable[[argparse.Namespace], int]:
    """Give a command its client, and turn what goes wrong into words and an exit code."""

    def command(chosen: argparse.Namespace) -> int:
        try:
            from glle import Client, GlleServiceError, JobTimeoutError  # noqa: PLC0415 # loads numpy, which workers pin before
        except ImportError as error:
            return _failed(f"{error}.", "Install what the client needs: pip install 'glle[client]'.", MISUSED)
        try:
            with Client(chosen.url, progress=False if chosen.json else None) as glle:
                return run(chosen, glle)
        except GlleServiceError as error:
            if chosen.json:
                told = {name: getattr(error, name) for name in _PROBLEM}
                print(json.dumps(told), file=sys.stderr)  # noqa: T201 # the command's output
            else:
                shown = f" Request {error.request_id}." if error.request_id else ""
                _failed(error.detail, error.remedy + shown, REFUSED)
            if isinstance(error, JobTimeoutError):
                return LATE
            return REFUSED if error.status else UNREACHABLE
        except (ValueError, OSError) as error:
            return _failed(str(error), "", MISUSED)
        except KeyboardInterrupt:
            return _failed("Interrupted. A job that was begun goes on.", "See `glle jobs list`.", INTERRUPTED)

    return command


def tell(chosen: argparse.Namespace, value: Any, words: str) -> int:
    """Print an answer: as JSON, or in words."""
    print(json.dumps(value) if chosen.json else words)  # noqa: T201 # the command's output
    return 0


def tell_all(chosen: argparse.Namespace, items: Sequence[Any], columns: dict[str, Callable[[Any], object]]) -> int:
    """Print a list: as JSON, or as a table."""
    if chosen.json:
        return tell(chosen, list(items), "")
    from rich.console import Console  # noqa: PLC0415 # with --json, and for all else, it need not be there
    from rich.table import Table  # noqa: PLC0415 # likewise
    from rich.text import Text  # noqa: PLC0415 # likewise

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # nothing of a table is cut off for a pipe
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=True)
    for item in items:
        table.add_row(*[Text(str(cell(item))) for cell in columns.values()])  # [brackets] are no markup
    console.print(table if items else "None.")
    return 0


def tell_one(chosen: argparse.Namespace, told: Any) -> int:
    """Print everything that is known of one thing."""
    return tell(chosen, told, json.dumps(told, indent=2))


def _failed(detail: str, remedy: str, code: int) -> int:
    print(f"glle: {detail}" + (f"\n  {remedy}" if remedy else ""), file=sys.stderr)  # noqa: T201 # the command's output
    return code


_PROBLEM = ("type", "title", "status", "detail", "remedy", "details", "request_id")
