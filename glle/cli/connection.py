"""Shared parts of the commands: options from the types of the API, a connection, output as text or JSON, exit codes."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from glle.table import table_text
from glle.types import FitOptions, UploadOptions
from glle_engine.base.texts import FEATURE, UPLOAD_OPTIONS, written

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import TypeAlias

    from glle.client import Client
    from glle.types import NoteOut
    from glle_engine.base.texts import Way

    Argument: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]
    Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 # argparse has no public name

# Exit codes. argparse exits with 2, shells report SIGINT and SIGPIPE as 130 and 141.
REFUSED, MISUSED, UNREACHABLE, LATE, INTERRUPTED, UNREAD = 1, 2, 3, 4, 130, 141
_PROBLEM = ("type", "title", "status", "detail", "remedy", "details", "request_id")
_COLUMNS_GROUP = ("columns of the file", "by names or patterns such as 'x*'")
_PARAMETERS = ("parameters", "as in the API; the service has the defaults")
_CALLS = {
    "upload": "`glle datasets upload`",
    "fit": "`glle fit`",
    "embed": "`glle embed`",
    "delete-posterior": "over HTTP",
    "delete-embedding": "over HTTP",
    "cancel-job": "`glle jobs cancel {}`",
    "delete-results": "over HTTP",
}
_SHORT = {"n_neighbors": "-k", "n_components": "-p"}


def add_options(parser: argparse.ArgumentParser, options: type, taken: Collection[str] = ()) -> None:
    """Add a command-line option for each key of the `TypedDict` `options`, with its annotation as the help.

    Flags in `taken` are left out, because the command defines them itself.
    """
    group = parser.add_argument_group(*(_COLUMNS_GROUP if options is UploadOptions else _PARAMETERS))
    annotated = get_type_hints(options, include_extras=True)
    for name, hint in get_type_hints(options).items():
        if (long := "--" + name.replace("_", "-")) in taken:
            continue
        flags = [_SHORT[name]] if options is FitOptions and name in _SHORT else []
        (described,) = get_args(annotated[name])  # T of NotRequired[T], annotated with the description
        text = getattr(described, "__metadata__", ("",))[0].replace("%", "%%")
        group.add_argument(*flags, long, dest=name, default=argparse.SUPPRESS, help=text, **_argument(hint))


def select_options(args: argparse.Namespace, options: type) -> dict[str, Any]:
    """Return the values of those keys of the `TypedDict` `options` that the user set on the command line."""
    return {name: getattr(args, name) for name in get_type_hints(options) if hasattr(args, name)}


def _argument(hint: Any) -> dict[str, Any]:
    """Return the keyword arguments with which argparse's `add_argument` reads an option of the type `hint`."""
    if get_origin(hint) in {Union, UnionType}:
        hints = [member for member in get_args(hint) if member is not type(None)]
        words = [word for member in hints if get_origin(member) is Literal for word in get_args(member)]
        others = [member for member in hints if get_origin(member) is not Literal]
        argument = _argument(others[0]) if others else {"choices": words}
        return {**argument, "type": _or_words(argument["type"], words)} if others and words else argument
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    if get_origin(hint) is list:
        return {**_argument(get_args(hint)[0]), "nargs": "+", "action": "extend"}
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    return {"type": hint if hint in {int, float} else str, "metavar": {int: "N", float: "X"}.get(hint, "TEXT")}


def _or_words(number: Any, words: list[str]) -> Any:
    def value(text: str) -> Any:
        return text if text in words else number(text)

    value.__name__ = f"number or {' or '.join(words)}"  # how argparse's error messages name the type
    return value


def argument(*names: str, **options: Any) -> Argument:
    """Return an argument of a command; `add_command` passes its names and options to argparse's `add_argument`."""
    return names, options


def add_command(
    commands: Commands,
    run: Callable[[argparse.Namespace, Client], int],
    *arguments: Argument,
    options: Sequence[type] = (),
    timeout: bool = False,
) -> None:
    """Add a command that calls the function `run` with the parsed arguments and a connected client.

    The command is named after the function, and its help is the first line of the function's docstring. Each key of the
    `TypedDict` types in `options` becomes an option. `timeout` adds the option `--timeout`, for commands that wait for
    a job.
    """
    text = str(run.__doc__).partition("\n")[0]
    short = text[0].lower() + text[1:].rstrip(".")
    command: argparse.ArgumentParser = commands.add_parser(run.__name__.strip("_"), help=short, description=text)
    command.add_argument("--url", help="address of the service (GLLE_URL, or http://127.0.0.1:8000)")
    command.add_argument("--json", action="store_true", help="print JSON, errors on stderr too")
    if timeout:
        command.add_argument("--timeout", type=float, metavar="S", help="seconds to wait; the job goes on afterwards")
    for names, keywords in arguments:
        command.add_argument(*names, **keywords)
    for typed_options in options:
        add_options(command, typed_options, {name for names, _ in arguments for name in names})
    flags = frozenset(word for action in command._actions for word in action.option_strings)  # noqa: SLF001 # argparse has no public list
    command.set_defaults(run=partial(_run, run), flags=flags)


def _run(run: Callable[[argparse.Namespace, Client], int], args: argparse.Namespace) -> int:
    """Connect a client, run a command with it, and return the exit code; exceptions become messages on stderr."""
    try:
        from glle.client import Client, GlleServiceError, JobTimeoutError  # noqa: PLC0415 # needs the extra `client`
    except ImportError as error:
        return fail(f"{error}.", "Install the client: pip install 'glle[client]'.", MISUSED)
    write = partial(in_command, flags=args.flags)
    try:
        with Client(args.url, progress=False if args.json else None) as client:
            return run(args, client)
    except GlleServiceError as error:
        if args.json:
            texts = {name: written(getattr(error, name), write) for name in ("detail", "remedy")}
            problem = {name: getattr(error, name) for name in _PROBLEM} | texts
            print(json.dumps(problem), file=sys.stderr)  # noqa: T201 # the command's output
        else:
            request = f" Request {error.request_id}." if error.request_id else ""
            fail(written(error.detail, write), written(error.remedy, write) + request, REFUSED)
        if isinstance(error, JobTimeoutError):
            return LATE
        return REFUSED if error.status else UNREACHABLE
    except BrokenPipeError:
        raise  # `main` handles it
    except (ValueError, OSError) as error:
        # The `text` of an engine error names options as `Way` objects, which `write` turns into flags.
        return fail(written(getattr(error, "text", str(error)), write), "", MISUSED)
    except KeyboardInterrupt:
        return fail("Interrupted. A started job goes on.", "See `glle jobs list`.", INTERRUPTED)


def report(args: argparse.Namespace, value: Any, *lines: str, notes: Iterable[NoteOut] = ()) -> int:
    """Print a result as JSON, or as lines followed by the messages of the notes; return the exit code 0."""
    text = _in_lines(args, lines, notes)
    in_words = partial(_in_words, write=partial(in_command, flags=args.flags))
    print(json.dumps(in_words(value)) if args.json else text)  # noqa: T201 # the command's output
    return 0


def _in_words(value: Any, write: Callable[[Way], str]) -> Any:
    """Return a copy of a JSON value in which messages spell options and calls as on the command line.

    `write` returns the spelling, such as "--missing drop", for the placeholder (`Way`) of an option or a call.
    """
    if isinstance(value, dict):
        return {name: _in_words(member, write) for name, member in value.items()}
    if isinstance(value, list):
        return [_in_words(item, write) for item in value]
    return written(value, write) if isinstance(value, str) else value


def _in_lines(args: argparse.Namespace, lines: Iterable[str], notes: Iterable[NoteOut]) -> str:
    write = partial(in_command, flags=args.flags)
    return "\n  ".join(written(each, write) for each in [*lines, *(note["message"] for note in notes)])


def report_made(args: argparse.Namespace, value: Any, id_: str, *lines: str, notes: Iterable[NoteOut] = ()) -> int:
    """Print what the service has made, such as a data set; return the exit code 0.

    With `--json`, `value` is printed as JSON. Otherwise, the id is printed on stdout, so that a script can read it, and
    the lines and the notes are printed on stderr.
    """
    if args.json:
        return report(args, value)
    print(id_)  # noqa: T201 # the command's output
    print(_in_lines(args, lines, notes), file=sys.stderr)  # noqa: T201 # the command's output
    return 0


def report_all(args: argparse.Namespace, items: Sequence[Any], row: Callable[[Any], dict[str, object]]) -> int:
    """Print items as JSON or as a table; `row` maps an item to its cells by column. Returns the exit code 0."""
    rows = [row(item) for item in items]
    return report(
        args, list(items), table_text([list(rows[0]), *[list(cells.values()) for cells in rows]]) if rows else "None."
    )


def in_command(way: Way, flags: Collection[str] | None = None) -> str:
    """Return how the command line writes `way`, the placeholder in a message for an option, a call or a feature.

    An option becomes "--n-neighbors 5", a call to the service "`glle fit`", a feature of the data "feature 3 (counted
    from 0)". A parameter of a method that is not among the `flags` of the command is written NAME=VALUE, because the
    user gives it after `--parameters`. If `flags` is None, every option is written as a flag.
    """
    if way.name in _CALLS:
        return _CALLS[way.name].format(way.value or "ID")
    if way.name == FEATURE:
        return f"feature {way.value} (counted from 0)"
    flag = f"--{way.name.replace('_', '-')}"
    if flags is not None and flag not in flags and way.name not in {*UPLOAD_OPTIONS, "force"}:
        return way.name if way.value is None else f"{way.name}={way.value}"
    if way.value is None or way.value is True:
        return flag
    return f"{flag} {shlex.join(map(str, way.value if isinstance(way.value, list) else [way.value]))}"


def fail(detail: str, remedy: str, code: int) -> int:
    """Print an error and its remedy on stderr; return the exit code."""
    print(f"glle: {detail}" + (f"\n  {remedy}" if remedy else ""), file=sys.stderr)  # noqa: T201 # the command's output
    return code
