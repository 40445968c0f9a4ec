"""The `glle` command, with the commands of the client: one file for each group of commands.

May import the rest of `glle`. The server adds its commands through the entry point group `glle.commands`.
Read `main` first, then `connection`.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Any

from glle.cli import compare, posteriors, resources
from glle.cli.connection import MISUSED, UNREAD, fail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from glle.cli.connection import Commands

# Environment variables of the client, which are not settings of the server.
VARIABLES = frozenset({"GLLE_URL", "GLLE_KEY"})
SERVER_COMMANDS = frozenset(("up", "serve", "api", "worker", "doctor", "keys", "settings", "scrub"))


def main(arguments: Sequence[str] | None = None, extensions: Iterable[Callable[[Commands], None]] | None = None) -> int:
    """Run the `glle` command; return its exit code.

    `arguments` are the words after `glle`; by default, they are read from the command line. `extensions` are functions
    that add commands; by default, they are the entry points `glle.commands` of all installed distributions.
    """
    parser, commands = command_parser(_installed_extensions() if extensions is None else extensions)
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in SERVER_COMMANDS - commands.choices.keys():
        remedy = "Install the server: pip install ./deploy/server in the checkout of glle, or pip install glle-server."
        return fail(f"`glle {words[0]}` is a command of the server.", remedy, MISUSED)
    chosen = parser.parse_args(words)
    start: Callable[[argparse.Namespace], int] = getattr(chosen, "start", chosen.run)
    try:
        code = start(chosen)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the last flush of the interpreter must succeed
        return UNREAD
    return code


class _Parser(argparse.ArgumentParser):
    """Parser of the command and of each subcommand; it accepts no abbreviations such as `--label` for `--labels`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})


def command_parser(extensions: Iterable[Callable[[Commands], None]]) -> tuple[argparse.ArgumentParser, Commands]:
    """Return the parser of the `glle` command, and argparse's object to which commands are added.

    The `choices` of this object map the name of each command to its parser. Each of `extensions` is a function that
    adds the commands of another installed package.
    """
    parser: argparse.ArgumentParser = _Parser(
        prog="glle", description="Generative locally linear embedding: fit and draw on a service, or run the service."
    )
    parser.add_argument("--version", action="version", version=f"glle {version('glle')}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for extend in (*extensions, add):
        extend(commands)
    return parser, commands


def _installed_extensions() -> Iterator[Callable[[Commands], None]]:
    for point in entry_points(group="glle.commands"):
        try:
            yield point.load()
        except ImportError as error:  # a broken extension must not disable the commands of the client
            remedy = f"Install it again: pip install --force-reinstall glle-{point.name}."
            fail(f"The distribution glle-{point.name} does not load: {error}.", remedy, MISUSED)


def add(commands: Commands) -> None:
    """Add the commands of the client to the parser."""
    for group in (resources, posteriors, compare):
        group.add(commands)
